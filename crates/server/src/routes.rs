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
    Log,
    access::{self, Readers},
    api::{
        anthropic::{count, create},
        flavor::ApiFlavor,
        llama, native, ollama,
        openai::{chat, completions, embeddings, models, responses},
    },
    app::App,
    flow::{
        error::ApiError,
        warnings::{self, Warnings},
    },
    openapi, page,
};

/// Paths that need no key, beside the page, which asks for it: whoever watches the server may not
/// have one, and what describes it is the same for all servers.
const OPEN: [&str; 2] = ["/health", "/openapi.json"];

/// A path and who answers there.
type Route = (&'static str, MethodRouter<Arc<App>>);

/// Other names of paths: without `/v1`, for clients whose base address ends before it, and those of
/// llama.cpp's server. They are replaced before anything else looks at a path.
const ALIASES: [(&str, &str); 16] = [
    ("/chat/completions", "/v1/chat/completions"),
    (
        "/chat/completions/input_tokens",
        "/v1/chat/completions/input_tokens",
    ),
    ("/completions", "/v1/completions"),
    ("/embeddings", "/v1/embeddings"),
    ("/models", "/v1/models"),
    ("/responses", "/v1/responses"),
    ("/responses/input_tokens", "/v1/responses/input_tokens"),
    ("/messages", "/v1/messages"),
    ("/messages/count_tokens", "/v1/messages/count_tokens"),
    ("/v1/health", "/health"),
    ("/rerank", "/reranking"),
    ("/v1/rerank", "/reranking"),
    ("/v1/reranking", "/reranking"),
    ("/v1/tokenize", "/tokenize"),
    ("/v1/detokenize", "/detokenize"),
    ("/v1/metrics", "/metrics"),
];

/// All that the server answers, by any of its names.
pub(crate) fn router(app: Arc<App>) -> Router {
    // A layer runs after the router that it is put on has looked at the path, so that this one has
    // routes of its own.
    Router::new()
        .fallback_service(named_router(app))
        .layer(middleware::map_request(rename))
}

/// Replaces a path by the name that the router knows.
async fn rename(mut request: Request) -> Request {
    if let Some(path) = renamed(request.uri().path()) {
        let query = request
            .uri()
            .query()
            .map_or_else(String::new, |query| format!("?{query}"));
        // Of a path that no `Uri` can have, the old one is not found.
        if let Ok(uri) = format!("{path}{query}").parse() {
            *request.uri_mut() = uri;
        }
    }
    request
}

/// The name of a path that the router knows, if it has another one; slashes at its end do not
/// count.
fn renamed(path: &str) -> Option<String> {
    let trimmed = match path.trim_end_matches('/') {
        "" => "/",
        trimmed => trimmed,
    };
    let alias = ALIASES
        .iter()
        .find(|(alias, _)| *alias == trimmed)
        .map(|(_, path)| (*path).to_owned());
    let model = || Some(format!("/v1/models/{}", trimmed.strip_prefix("/models/")?));
    let found = alias.or_else(model);
    found.or_else(|| (trimmed != path).then(|| trimmed.to_owned()))
}

fn named_router(app: Arc<App>) -> Router {
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
pub(crate) fn gets() -> Vec<Route> {
    vec![
        ("/v1/models", get(models::list)),
        ("/v1/models/{*name}", get(models::one)),
        ("/api/tags", get(ollama::models::tags)),
        ("/api/ps", get(ollama::models::running)),
        ("/api/version", get(ollama::models::version)),
        ("/health", get(native::health)),
        ("/props", get(llama::info::props)),
        ("/slots", get(llama::info::slots)),
        ("/metrics", get(native::prometheus)),
        ("/openapi.json", get(openapi::document)),
    ]
}

/// What takes a request with a body.
pub(crate) fn posts() -> Vec<Route> {
    vec![
        ("/v1/chat/completions", post(chat::answer)),
        ("/v1/completions", post(completions::answer)),
        ("/v1/responses", post(responses::answer)),
        ("/v1/embeddings", post(embeddings::answer)),
        ("/v1/messages", post(create::answer)),
        ("/v1/messages/count_tokens", post(count::answer)),
        ("/api/chat", post(ollama::chat::answer)),
        ("/api/generate", post(ollama::generate::answer)),
        ("/api/show", post(ollama::models::show)),
        ("/tokenize", post(native::tokenize)),
        ("/detokenize", post(native::detokenize)),
        ("/api/embed", post(ollama::embed::many)),
        ("/api/embeddings", post(ollama::embed::one)),
        ("/api/pull", post(ollama::models::pull)),
        ("/completion", post(llama::completion::answer)),
        ("/infill", post(llama::infill::answer)),
        ("/apply-template", post(llama::template::answer)),
        ("/reranking", post(llama::info::rerank)),
        ("/v1/chat/completions/input_tokens", post(chat::count)),
        ("/v1/responses/input_tokens", post(responses::count)),
    ]
}

/// What is done around every request.
async fn around(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let (start, method, path) = (
        Instant::now(),
        request.method().clone(),
        request.uri().path().to_owned(),
    );
    let id = app.id("req-");
    let is_open = OPEN.contains(&path.as_str()) || page::paths().any(|open| open == path);
    let warnings = Warnings::default();
    request.extensions_mut().insert(warnings.clone());
    let headers = request.headers();
    let flavor = ApiFlavor::of(&path, headers);
    let admitted = app.options.access().admit(headers);
    let readers = admitted.as_ref().map_or(Readers::SameSite, Clone::clone);
    let response = match admitted {
        Err(error) => error.into_response(),
        Ok(readers) if access::is_preflight(&method, headers) => readers.preflight(headers),
        Ok(_) if !is_open && !access::is_allowed(&app.options.api_keys, headers) => {
            ApiError::wrong_key().into_response()
        }
        Ok(_) => next.run(request).await,
    };
    let mut response = flavor.respond(response, &id);
    if let Ok(value) = HeaderValue::from_str(&id) {
        flavor
            .id_headers()
            .iter()
            .for_each(|name| drop(response.headers_mut().insert(*name, value.clone())));
    }
    readers.add_headers(response.headers_mut());
    let warnings = warnings.take();
    warnings::add_headers(response.headers_mut(), &warnings);
    app.metrics.request(response.status().as_u16());
    log(
        app.options.log,
        &id,
        &method,
        &path,
        response.status().as_u16(),
        start.elapsed(),
    );
    warnings
        .iter()
        .filter(|warning| app.logged.is_new(warning))
        .for_each(|warning| log_warning(app.options.log, &path, warning));
    response
}

/// A line about a warning, the first time that it is made.
fn log_warning(how: Log, path: &str, warning: &str) {
    let line = match how {
        Log::Off => return,
        Log::Text => format!("{}: {warning} (said once)", path.escape_default()),
        Log::Json => json!({ "path": path, "remark": warning }).to_string(),
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
    page::file(uri.path())
        .unwrap_or_else(|| ApiError::not_found("there is no such file").into_response())
}

async fn nothing(uri: Uri) -> ApiError {
    ApiError::not_found(format!(
        "there is nothing at {}",
        uri.path().escape_default()
    ))
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::wrong_method(format!("{} does not take {method}", uri.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_other_names_and_slashes_at_their_end_do_not_count() {
        let names = [
            ("/chat/completions", Some("/v1/chat/completions")),
            ("/models/", Some("/v1/models")),
            ("/models/a/b", Some("/v1/models/a/b")),
            ("/v1/models/", Some("/v1/models")),
            ("/v1/rerank", Some("/reranking")),
            ("/", None),
            ("//", Some("/")),
            ("/v1/chat/completions", None),
            ("/v2/models", None),
        ];
        for (path, name) in names {
            assert_eq!(renamed(path).as_deref(), name, "{path}");
        }
    }
}
