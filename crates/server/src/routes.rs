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
    extract::{Path, Request, State},
    http::{HeaderValue, Method, Uri, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};

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
        .route("/v1/models/{*name}", get(model))
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
    let headers = request.headers();
    let (has_keys, names) = (!app.options.api_keys.is_empty(), app.options.is_local());
    let mut response = if !has_keys && !access::is_from_here(headers, names) {
        Refusal::foreign().into_response()
    } else if !is_open && !access::is_allowed(&app.options.api_keys, headers) {
        Refusal::wrong_key().into_response()
    } else {
        next.run(request).await
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

/// Answers a body where nobody waits for it.
async fn by_itself(
    app: Arc<App>,
    body: Body,
    answer: impl FnOnce(&App, &[u8]) -> Result<Value, Refusal> + Send + 'static,
) -> Result<Response, Refusal> {
    let place = app.place()?;
    let bytes = body::read(body, app.options.max_body, app.options.read_timeout).await?;
    let work = move || {
        let _place = place;
        answer(&app, &bytes)
    };
    let value = tokio::task::spawn_blocking(work).await.map_err(|_| Refusal::broken())??;
    Ok(Json(value).into_response())
}

async fn chat_completions(State(app): State<Arc<App>>, body: Body) -> Result<Response, Refusal> {
    chat::answer(app, body).await
}

async fn text_completions(State(app): State<Arc<App>>, body: Body) -> Result<Response, Refusal> {
    completions::answer(app, body).await
}

async fn models(State(app): State<Arc<App>>) -> Response {
    let models: Vec<Value> = app.options.names.iter().map(|name| described(&app, name)).collect();
    Json(json!({ "object": "list", "data": models })).into_response()
}

async fn model(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Response, Refusal> {
    app.check_name(Some(&name))?;
    Ok(Json(described(&app, &name)).into_response())
}

/// A model, by one of its names.
fn described(app: &App, name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": app.started, "owned_by": "atta" })
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
    by_itself(app, body, tokens).await
}

fn tokens(app: &App, body: &[u8]) -> Result<Value, Refusal> {
    let Tokenize { content, add_special, parse_special } = body::parse(body)?;
    let tokenizer = app.engine.tokenizer();
    let bos = tokenizer.bos().filter(|_| add_special && tokenizer.add_bos());
    let special = if parse_special { Special::Parse } else { Special::Plain };
    let ids: Vec<u32> = bos.into_iter().chain(tokenizer.encode(content.as_bytes(), special)).collect();
    Ok(json!({ "tokens": ids }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Detokenize {
    tokens: Vec<u32>,
}

async fn detokenize(State(app): State<Arc<App>>, body: Body) -> Result<Response, Refusal> {
    by_itself(app, body, text).await
}

fn text(app: &App, body: &[u8]) -> Result<Value, Refusal> {
    let Detokenize { tokens } = body::parse(body)?;
    let tokenizer = app.engine.tokenizer();
    if let Some(id) = tokens.iter().find(|&&id| id as usize >= tokenizer.n_vocab()) {
        return Err(Refusal::field("tokens", format!("token {id}, of a model that has {}", tokenizer.n_vocab())));
    }
    let bytes = tokenizer.decode(&tokens);
    Ok(json!({ "content": String::from_utf8_lossy(&bytes) }))
}

async fn health(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    if app.is_stopping() || app.worker.has_ended() {
        return Err(Refusal::stopping());
    }
    Ok(Json(json!({ "status": "ok" })).into_response())
}

async fn props(State(app): State<Arc<App>>) -> Response {
    let props = json!({
        "model": app.name(),
        "n_ctx": app.n_ctx,
        "total_slots": app.options.batcher.n_jobs,
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
