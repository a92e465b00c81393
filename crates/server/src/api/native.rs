//! Paths outside of the interfaces: `/tokenize` and `/detokenize` in llama.cpp's form, `/health`,
//! `/metrics`, `/api/cluster`.

use std::sync::Arc;

use atta_engine::tokenizer::Special;
use axum::{
    Json,
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    app::App,
    flow::{
        body::{BodyFields, Incoming},
        error::ApiError,
        request::{ApiRequest, LoadedRequest},
        warnings::Warnings,
    },
    metrics,
    models::Model,
};

#[derive(Deserialize)]
pub(crate) struct TokenizeRequest {
    content: String,
    model: Option<String>,
    #[serde(default)]
    add_special: bool,
    #[serde(default = "yes")]
    parse_special: bool,
    /// Whether the response has the text of each token, too.
    #[serde(default)]
    with_pieces: bool,
}

fn yes() -> bool {
    true
}

impl ApiRequest for TokenizeRequest {
    fn read(fields: BodyFields, warnings: &Warnings) -> Result<Self, ApiError> {
        fields.rest(Self::ACCEPTED, warnings)
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// Tokenizes a text.
pub(crate) async fn tokenize(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Json<Value>, ApiError> {
    let request = LoadedRequest::read(&app, incoming).await?;
    request.map(tokens).await.map(Json)
}

fn tokens(
    model: &Model,
    request: TokenizeRequest,
    _warnings: &Warnings,
) -> Result<Value, ApiError> {
    let TokenizeRequest {
        content,
        add_special,
        parse_special,
        with_pieces,
        ..
    } = request;
    let tokenizer = model.engine.tokenizer();
    let bos = tokenizer
        .bos()
        .filter(|_| add_special && tokenizer.add_bos());
    let special = if parse_special {
        Special::Parse
    } else {
        Special::Plain
    };
    let ids: Vec<u32> = bos
        .into_iter()
        .chain(tokenizer.encode(content.as_bytes(), special))
        .collect();
    let piece = |id: &u32| match std::str::from_utf8(&tokenizer.token_bytes(*id)) {
        Ok(text) => json!({ "id": id, "piece": text }),
        // A part of a character: its bytes.
        Err(_) => json!({ "id": id, "piece": tokenizer.token_bytes(*id) }),
    };
    match with_pieces {
        true => Ok(json!({ "tokens": ids.iter().map(piece).collect::<Vec<_>>() })),
        false => Ok(json!({ "tokens": ids })),
    }
}

#[derive(Deserialize)]
pub(crate) struct DetokenizeRequest {
    tokens: Vec<u32>,
    model: Option<String>,
}

impl ApiRequest for DetokenizeRequest {
    fn read(fields: BodyFields, warnings: &Warnings) -> Result<Self, ApiError> {
        fields.rest(Self::ACCEPTED, warnings)
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// Decodes tokens.
pub(crate) async fn detokenize(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Json<Value>, ApiError> {
    let request = LoadedRequest::read(&app, incoming).await?;
    request.map(text).await.map(Json)
}

fn text(
    model: &Model,
    request: DetokenizeRequest,
    _warnings: &Warnings,
) -> Result<Value, ApiError> {
    let tokens = request.tokens;
    let tokenizer = model.engine.tokenizer();
    if let Some(id) = tokens
        .iter()
        .find(|&&id| id as usize >= tokenizer.n_vocab())
    {
        return Err(ApiError::field(
            "tokens",
            format!("token {id}, of a model that has {}", tokenizer.n_vocab()),
        ));
    }
    let bytes = tokenizer.decode(&tokens);
    Ok(json!({ "content": String::from_utf8_lossy(&bytes) }))
}

/// Reports whether the server can answer.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    if app.is_stopping() || app.models.is_broken() {
        return Err(ApiError::stopping());
    }
    Ok(Json(json!({ "status": "ok" })))
}

/// The ring of machines that runs the model; null where this machine is alone.
pub(crate) async fn cluster(State(app): State<Arc<App>>) -> Json<Value> {
    let ring = app.options.cluster.as_ref().map(|monitor| monitor.status());
    Json(json!({ "ring": ring }))
}

/// Metrics in the format of Prometheus.
pub(crate) async fn prometheus(State(app): State<Arc<App>>) -> Response {
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], metrics::text(&app)).into_response()
}
