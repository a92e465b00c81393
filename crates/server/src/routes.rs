//! Which request goes where, and what is done for all of them: keys, ids, a line in the log.

use std::{
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use atta_engine::tokenizer::Special;
use axum::{
    Json, Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderValue, Method, Uri, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::json;

use crate::{
    Log, access,
    app::App,
    body, metrics,
    openai::{chat, completions},
    page,
    refusal::Refusal,
};

/// Paths that need no key: the page asks for it, and whoever watches the server may not have one.
const OPEN: [&str; 1] = ["/health"];

/// All that the server answers.
pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = Router::new()
        .route("/v1/chat/completions", post(chat_completions))
        .route("/v1/completions", post(text_completions))
        .route("/v1/models", get(models))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/health", get(health))
        .route("/props", get(props))
        .route("/metrics", get(prometheus));
    for path in page::paths() {
        router = router.route(path, get(file));
    }
    router
        .fallback(nothing)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), around))
        .with_state(app)
}

/// What is done around every request.
async fn around(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let (start, method, path) = (Instant::now(), request.method().clone(), request.uri().path().to_owned());
    let id = app.id("req-");
    let is_open = OPEN.contains(&path.as_str()) || page::paths().any(|open| open == path);
    let mut response = match is_open || access::is_allowed(&app.options.api_keys, request.headers()) {
        true => next.run(request).await,
        false => Refusal::wrong_key().into_response(),
    };
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", value);
    }
    app.metrics.request(response.status().as_u16());
    log(app.options.log, &id, &method, &path, response.status().as_u16(), start.elapsed());
    response
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

async fn read<T: DeserializeOwned>(app: &App, body: Body) -> Result<T, Refusal> {
    body::json(body, app.options.max_body, app.options.read_timeout).await
}

async fn chat_completions(State(app): State<Arc<App>>, body: Body) -> Result<Response, Refusal> {
    let request = read(&app, body).await?;
    chat::answer(app, request).await
}

async fn text_completions(State(app): State<Arc<App>>, body: Body) -> Result<Response, Refusal> {
    let request = read(&app, body).await?;
    completions::answer(app, request).await
}

async fn models(State(app): State<Arc<App>>) -> Response {
    let names = app.options.names.iter();
    let models = names.map(|id| json!({ "id": id, "object": "model", "created": app.started, "owned_by": "atta" }));
    Json(json!({ "object": "list", "data": models.collect::<Vec<_>>() })).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tokenize {
    content: String,
    #[serde(default)]
    add_special: bool,
    #[serde(default = "yes")]
    parse_special: bool,
}

fn yes() -> bool {
    true
}

async fn tokenize(State(app): State<Arc<App>>, body: Body) -> Result<Response, Refusal> {
    let Tokenize { content, add_special, parse_special } = read(&app, body).await?;
    let tokenizer = app.engine.tokenizer();
    let bos = tokenizer.bos().filter(|_| add_special && tokenizer.add_bos());
    let special = if parse_special { Special::Parse } else { Special::Plain };
    let ids: Vec<u32> = bos.into_iter().chain(tokenizer.encode(content.as_bytes(), special)).collect();
    Ok(Json(json!({ "tokens": ids })).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Detokenize {
    tokens: Vec<u32>,
}

async fn detokenize(State(app): State<Arc<App>>, body: Body) -> Result<Response, Refusal> {
    let Detokenize { tokens } = read(&app, body).await?;
    let tokenizer = app.engine.tokenizer();
    if let Some(id) = tokens.iter().find(|&&id| id as usize >= tokenizer.n_vocab()) {
        return Err(Refusal::field("tokens", format!("token {id}, of a model that has {}", tokenizer.n_vocab())));
    }
    let bytes = tokenizer.decode(&tokens);
    Ok(Json(json!({ "content": String::from_utf8_lossy(&bytes) })).into_response())
}

async fn health(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    if app.is_stopping() {
        return Err(Refusal::stopping());
    }
    Ok(Json(json!({ "status": "ok" })).into_response())
}

async fn props(State(app): State<Arc<App>>) -> Response {
    let batcher = &app.options.batcher;
    let props = json!({
        "model": app.name(),
        "n_ctx": batcher.n_ctx,
        "total_slots": batcher.n_jobs,
        "n_vocab": app.engine.spec().n_vocab,
        "chat_template": app.engine.chat_template(),
        "version": env!("CARGO_PKG_VERSION"),
    });
    Json(props).into_response()
}

async fn prometheus(State(app): State<Arc<App>>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], metrics::text(&app)).into_response()
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
