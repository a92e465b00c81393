//! `GET /props` and `/slots`: properties of a model and the use of its slots.

use std::sync::Arc;

use atta_engine::tokenizer::Tokenizer;
use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::options;
use crate::{app::App, flow::error::ApiError, models::Model};

/// The query of a path.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelQuery {
    model: Option<String>,
}

impl ModelQuery {
    /// The name of the model, if the query has one.
    pub(super) fn name(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

type QueriedModel = Result<Query<ModelQuery>, QueryRejection>;

fn model_name(query: QueriedModel) -> Result<Option<String>, ApiError> {
    query
        .map(|Query(query)| query.model)
        .map_err(|error| ApiError::bad(error.body_text()))
}

/// Properties of a model, as far as they are known without loading it. `model_path` is the name of
/// the model, because clients learn no paths of files.
pub(crate) async fn props(
    State(app): State<Arc<App>>,
    query: QueriedModel,
) -> Result<Json<Value>, ApiError> {
    let name = model_name(query)?;
    let models: Vec<Value> = app
        .models
        .all()
        .map(|(name, is_loaded)| json!({ "name": name, "loaded": is_loaded }))
        .collect();
    let json = app.models.inspect(name.as_deref(), |name, model| {
        properties(&app, name, model, &models)
    })?;
    Ok(Json(json))
}

fn properties(app: &App, name: &str, model: Option<&Model>, models: &[Value]) -> Value {
    let text = |id: fn(&Tokenizer) -> Option<u32>| {
        let tokenizer = model?.engine.tokenizer();
        Some(String::from_utf8_lossy(tokenizer.token_text(id(tokenizer)?)).into_owned())
    };
    json!({
        "model": name,
        "models": models,
        "n_ctx": model.map(|model| model.n_ctx),
        "n_vocab": model.map(|model| model.engine.spec().n_vocab),
        "chat_template": model.map(|model| model.format.template()),
        "bos_token": text(Tokenizer::bos),
        "eos_token": text(Tokenizer::eos),
        "total_slots": app.options.batcher.n_jobs,
        "version": env!("CARGO_PKG_VERSION"),
        "build_info": concat!("atta ", env!("CARGO_PKG_VERSION")),
        "model_alias": name,
        "model_path": name,
        "modalities": { "vision": false, "audio": false },
        "default_generation_settings": {
            "n_ctx": model.map(|model| model.n_ctx),
            "params": options::defaults(&app.options.defaults),
        },
    })
}

/// The slots of a model, and whether they are in use. Clients do not learn which text is in a slot.
pub(crate) async fn slots(
    State(app): State<Arc<App>>,
    query: QueriedModel,
) -> Result<Json<Value>, ApiError> {
    let counts = |model: &Model| (model.worker.status().n_running, model.n_ctx);
    let name = model_name(query)?;
    let (n_running, n_ctx) = app
        .models
        .inspect(name.as_deref(), |_, model| model.map_or((0, 0), counts))?;
    let slot = |id: usize| {
        json!({
            "id": id,
            "id_task": -1,
            "n_ctx": n_ctx,
            "speculative": false,
            "is_processing": id < n_running,
        })
    };
    Ok(Json((0..app.options.batcher.n_jobs).map(slot).collect()))
}
