//! Which request goes where, and what is done for all of them: keys, ids, a line in the log.

use std::{
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, Method, Uri},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use serde_json::json;

use crate::{
    Log, access,
    anthropic::{count, messages},
    app::App,
    dialect::Dialect,
    native, ollama,
    openai::{chat, completions, embeddings, models, responses},
    openapi, page,
    refusal::Refusal,
    remarks::{self, Remarks},
};

/// Paths that need no key, beside the page, which asks for it: whoever watches the server may not have one, and what
/// describes it is the same for all servers.
const OPEN: [&str; 2] = ["/health", "/openapi.json"];

/// A path and who answers there.
type Route = (&'static str, MethodRouter<Arc<App>>);

/// All that the server answers.
pub(crate) fn router(app: Arc<App>) -> Router {
    let files = page::paths().map(|path| (path, get(file)));
    gets()
        .into_iter()
        .chain(posts())
        .chain(files)
        .fold(Router::new(), |router, (path, who)| router.route(path, who))
        .fallback(nothing)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), around))
        .with_state(app)
}

/// What is to be had, beside the page.
pub(crate) fn gets() -> [Route; 9] {
    [
        ("/v1/models", get(models::list)),
        ("/v1/models/{*name}", get(models::one)),
        ("/api/tags", get(ollama::models::tags)),
        ("/api/ps", get(ollama::models::running)),
        ("/api/version", get(ollama::models::version)),
        ("/health", get(native::health)),
        ("/props", get(native::props)),
        ("/metrics", get(native::prometheus)),
        ("/openapi.json", get(openapi::document)),
    ]
}

/// What takes a request with a body.
pub(crate) fn posts() -> [Route; 13] {
    [
        ("/v1/chat/completions", post(chat::answer)),
        ("/v1/completions", post(completions::answer)),
        ("/v1/responses", post(responses::answer)),
        ("/v1/embeddings", post(embeddings::answer)),
        ("/v1/messages", post(messages::answer)),
        ("/v1/messages/count_tokens", post(count::answer)),
        ("/api/chat", post(ollama::chat::answer)),
        ("/api/generate", post(ollama::generate::answer)),
        ("/api/show", post(ollama::models::show)),
        ("/tokenize", post(native::tokenize)),
        ("/detokenize", post(native::detokenize)),
        ("/v1/chat/completions/input_tokens", post(chat::count)),
        ("/v1/responses/input_tokens", post(responses::count)),
    ]
}

/// What is done around every request.
async fn around(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let (start, method, path) = (Instant::now(), request.method().clone(), request.uri().path().to_owned());
    let id = app.id("req-");
    let is_open = OPEN.contains(&path.as_str()) || page::paths().any(|open| open == path);
    let remarks = Remarks::default();
    request.extensions_mut().insert(remarks.clone());
    let headers = request.headers();
    let dialect = Dialect::of(&path, headers);
    let (has_keys, names) = (!app.options.api_keys.is_empty(), app.options.is_local());
    let response = if !has_keys && !access::is_from_here(headers, app.options.scheme(), names) {
        Refusal::foreign().into_response()
    } else if !is_open && !access::is_allowed(&app.options.api_keys, headers) {
        Refusal::wrong_key().into_response()
    } else {
        next.run(request).await
    };
    let mut response = dialect.respond(response, &id);
    if let Ok(value) = HeaderValue::from_str(&id) {
        dialect.id_headers().iter().for_each(|name| drop(response.headers_mut().insert(*name, value.clone())));
    }
    let remarks = remarks.take();
    remarks::add_headers(response.headers_mut(), &remarks);
    app.metrics.request(response.status().as_u16());
    log(app.options.log, &id, &method, &path, response.status().as_u16(), start.elapsed());
    remarks
        .iter()
        .filter(|remark| app.logged.is_new(remark))
        .for_each(|remark| log_remark(app.options.log, &path, remark));
    response
}

/// A line about a remark, the first time that it is made.
fn log_remark(how: Log, path: &str, remark: &str) {
    let line = match how {
        Log::Off => return,
        Log::Text => format!("{}: {remark} (said once)", path.escape_default()),
        Log::Json => json!({ "path": path, "remark": remark }).to_string(),
    };
    // A log that nobody reads is none.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// A line about a request; the time is that until its answer began.
fn log(how: Log, id: &str, method: &Method, path: &str, status: u16, time: Duration) {
    let seconds = time.as_secs_f64();
    let line = match how {
        Log::Off => return,
        Log::Text => format!("{method} {} {status} {seconds:.3} s {id}", path.escape_default()),
        Log::Json => json!({ "id": id, "method": method.as_str(), "path": path, "status": status, "seconds": seconds })
            .to_string(),
    };
    // A log that nobody reads is none.
    let _ = writeln!(std::io::stderr(), "{line}");
}

async fn file(uri: Uri) -> Response {
    page::file(uri.path()).unwrap_or_else(|| Refusal::not_found("there is no such file").into_response())
}

async fn nothing(uri: Uri) -> Refusal {
    Refusal::not_found(format!("there is nothing at {}", uri.path().escape_default()))
}

async fn wrong_method(method: Method, uri: Uri) -> Refusal {
    Refusal::wrong_method(format!("{} does not take {method}", uri.path()))
}
