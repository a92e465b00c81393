//! The routes, and the middleware around them: access checks, request ids, warnings, the log.

use std::{
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, Uri},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use serde_json::json;

#[cfg(not(feature = "interfaces"))]
use crate::api::openai::models;
use crate::{
    Log,
    access::{self, Readers},
    api::{
        flavor::ApiFlavor,
        llama::{self, completion::LlamaCompletionFields, infill::InfillFields},
        native,
        openai::{chat, completions, embeddings},
    },
    app::App,
    flow::{
        error::ApiError,
        warnings::{self, Warnings},
    },
    page,
};
#[cfg(feature = "interfaces")]
use crate::{
    api::{
        anthropic::{count, create, models as models_of_both},
        ollama::{self, chat::OllamaChatFields, generate::GenerateFields},
        openai::responses,
    },
    openapi,
};

/// Paths that need no key, beside the files of the web page, which asks for the key: health checks
/// may have none, and the OpenAPI document is the same for all servers.
const PUBLIC: [&str; 2] = ["/health", "/openapi.json"];

/// A path and its handler.
type Route = (&'static str, MethodRouter<Arc<App>>);

/// Aliases of paths: without `/v1`, for clients whose base URL ends before it, and those of
/// llama.cpp's server. They are replaced before any other code sees the path.
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

/// The router for all paths and aliases.
pub(crate) fn router(app: Arc<App>) -> Router {
    // A layer runs after its router has matched the path, so the aliases need a router around the
    // one with the routes.
    Router::new()
        .fallback_service(named_router(app))
        .layer(middleware::map_request(resolve_alias))
}

/// Replaces an alias by the path of the route.
async fn resolve_alias(mut request: Request) -> Request {
    if let Some(path) = canonical_path(request.uri().path()) {
        let query = request
            .uri()
            .query()
            .map_or_else(String::new, |query| format!("?{query}"));
        // A path that is no valid `Uri` stays, and is not found.
        if let Ok(uri) = format!("{path}{query}").parse() {
            *request.uri_mut() = uri;
        }
    }
    request
}

/// The path of the route, if `path` is an alias; slashes at its end are ignored.
fn canonical_path(path: &str) -> Option<String> {
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
        .fold(Router::new(), |router, (path, handler)| {
            router.route(path, handler)
        })
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(Arc::clone(&app), around))
        .with_state(app)
}

/// The routes of `GET`, beside the files of the web page.
pub(crate) fn gets() -> Vec<Route> {
    Vec::from([
        #[cfg(feature = "interfaces")]
        ("/v1/models", get(models_of_both::list)),
        #[cfg(feature = "interfaces")]
        ("/v1/models/{*name}", get(models_of_both::one)),
        #[cfg(not(feature = "interfaces"))]
        ("/v1/models", get(models::list)),
        #[cfg(not(feature = "interfaces"))]
        ("/v1/models/{*name}", get(models::one)),
        #[cfg(feature = "interfaces")]
        ("/api/tags", get(ollama::models::tags)),
        #[cfg(feature = "interfaces")]
        ("/api/ps", get(ollama::models::running)),
        #[cfg(feature = "interfaces")]
        ("/api/version", get(ollama::models::version)),
        ("/api/cluster", get(native::cluster)),
        ("/health", get(native::health)),
        ("/props", get(llama::info::props)),
        ("/slots", get(llama::info::slots)),
        ("/lora-adapters", get(llama::lora::list)),
        ("/metrics", get(native::prometheus)),
        #[cfg(feature = "interfaces")]
        ("/openapi.json", get(openapi::document)),
    ])
}

/// The routes of `POST`. Seeds of the fuzz target name them by their index.
pub(crate) fn posts() -> Vec<Route> {
    Vec::from([
        ("/v1/chat/completions", post(chat::answer)),
        ("/v1/completions", post(completions::answer)),
        #[cfg(feature = "interfaces")]
        ("/v1/responses", post(responses::answer)),
        ("/v1/embeddings", post(embeddings::answer)),
        #[cfg(feature = "interfaces")]
        ("/v1/messages", post(create::answer)),
        #[cfg(feature = "interfaces")]
        ("/v1/messages/count_tokens", post(count::answer)),
        #[cfg(feature = "interfaces")]
        ("/api/chat", post(ollama::answer::<OllamaChatFields>)),
        #[cfg(feature = "interfaces")]
        ("/api/generate", post(ollama::answer::<GenerateFields>)),
        #[cfg(feature = "interfaces")]
        ("/api/show", post(ollama::models::show)),
        ("/tokenize", post(native::tokenize)),
        ("/detokenize", post(native::detokenize)),
        #[cfg(feature = "interfaces")]
        ("/api/embed", post(ollama::embed::many)),
        #[cfg(feature = "interfaces")]
        ("/api/embeddings", post(ollama::embed::one)),
        #[cfg(feature = "interfaces")]
        ("/api/pull", post(ollama::models::pull)),
        ("/completion", post(llama::answer::<LlamaCompletionFields>)),
        ("/infill", post(llama::answer::<InfillFields>)),
        ("/apply-template", post(llama::template::answer)),
        ("/reranking", post(llama::rerank::answer)),
        ("/v1/chat/completions/input_tokens", post(chat::count)),
        #[cfg(feature = "interfaces")]
        ("/v1/responses/input_tokens", post(responses::count)),
        ("/lora-adapters", post(llama::lora::set)),
    ])
}

/// The middleware around every request.
async fn around(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let start = Instant::now();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let id = app.id("req-");
    let is_public = PUBLIC.contains(&path.as_str()) || page::paths().any(|file| file == path);
    let warnings = Warnings::default();
    request.extensions_mut().insert(warnings.clone());
    if let Some(key) = access::client_key(&app.options.api_keys, request.headers()) {
        request.extensions_mut().insert(key);
    }
    let headers = request.headers();
    let flavor = ApiFlavor::of(&path, headers);
    let admitted = app.options.access().admit(headers);
    let readers = admitted.as_ref().map_or(Readers::SameSite, Clone::clone);
    let response = match admitted {
        Err(error) => error.into_response(),
        Ok(readers) if access::is_preflight(&method, headers) => readers.preflight(headers),
        Ok(_) if !is_public && !access::is_allowed(&app.options.api_keys, headers) => {
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
    let status = response.status().as_u16();
    app.metrics.request(status);
    let entry = LogEntry {
        id: &id,
        method: &method,
        path: &path,
        status,
        time: start.elapsed(),
    };
    entry.write(app.options.log);
    warnings
        .iter()
        .filter(|warning| app.logged.is_new(warning))
        .for_each(|warning| log_warning(app.options.log, &path, warning));
    response
}

/// What the log says about a request.
struct LogEntry<'a> {
    id: &'a str,
    method: &'a Method,
    path: &'a str,
    status: u16,
    /// Until the response began.
    time: Duration,
}

impl LogEntry<'_> {
    fn write(&self, how: Log) {
        let Self {
            id,
            method,
            path,
            status,
            ..
        } = self;
        let seconds = self.time.as_secs_f64();
        let line = match how {
            Log::Off => return,
            Log::Text => {
                let path = path.escape_default();
                format!("{method} {path} {status} {seconds:.3} s {id}")
            }
            Log::Json => json!({
                "id": id,
                "method": method.as_str(),
                "path": path,
                "status": status,
                "seconds": seconds,
            })
            .to_string(),
        };
        write_log(&line);
    }
}

/// Writes a line to standard error. If that is closed, the line is lost.
pub(crate) fn write_log(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Logs a warning, which happens once per run of the server.
fn log_warning(how: Log, path: &str, warning: &str) {
    let line = match how {
        Log::Off => return,
        Log::Text => format!("{}: {warning} (said once)", path.escape_default()),
        Log::Json => json!({ "path": path, "remark": warning }).to_string(),
    };
    write_log(&line);
}

async fn file(uri: Uri, headers: HeaderMap) -> Response {
    page::file(uri.path(), &headers)
        .unwrap_or_else(|| ApiError::not_found("there is no such file").into_response())
}

async fn not_found(uri: Uri) -> ApiError {
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
    fn paths_have_aliases_and_slashes_at_their_end_are_ignored() {
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
            assert_eq!(canonical_path(path).as_deref(), name, "{path}");
        }
    }
}
