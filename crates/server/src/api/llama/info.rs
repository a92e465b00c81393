//! `GET /props` and `/slots`: what a model is and how its slots are used; and what is not there,
//! `/reranking`.

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

/// Which model.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    model: Option<String>,
}

type NamedModel = Result<Query<Which>, QueryRejection>;

fn named(which: NamedModel) -> Result<Option<String>, ApiError> {
    which
        .map(|Query(which)| which.model)
        .map_err(|error| ApiError::bad(error.body_text()))
}

/// What a model is, as far as that is known without loading it. No path of a file is told:
/// `model_path` is its name.
pub(crate) async fn props(
    State(app): State<Arc<App>>,
    which: NamedModel,
) -> Result<Json<Value>, ApiError> {
    let (name, model) = app.models.look_up(named(which)?.as_deref())?;
    let models: Vec<Value> = app
        .models
        .all()
        .map(|(name, is_loaded)| json!({ "name": name, "loaded": is_loaded }))
        .collect();
    let model = model.as_deref();
    let text = |id: fn(&Tokenizer) -> Option<u32>| {
        let tokenizer = model?.engine.tokenizer();
        Some(String::from_utf8_lossy(tokenizer.token_text(id(tokenizer)?)).into_owned())
    };
    Ok(Json(json!({
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
    })))
}

/// The slots of a model: places for texts at the same time. Which text is in which is not told, nor
/// what it says.
pub(crate) async fn slots(
    State(app): State<Arc<App>>,
    which: NamedModel,
) -> Result<Json<Value>, ApiError> {
    let (_, model) = app.models.look_up(named(which)?.as_deref())?;
    let model = model.as_deref();
    let n_running = model.map_or(0, |model| model.worker.status().n_running);
    let slot = |id: usize| {
        json!({
            "id": id, "id_task": -1, "n_ctx": model.map_or(0, |model: &Model| model.n_ctx), "speculative": false,
            "is_processing": id < n_running,
        })
    };
    Ok(Json((0..app.options.batcher.n_jobs).map(slot).collect()))
}

/// Ranks nothing: no model that is served here gives scores.
pub(crate) async fn rerank() -> ApiError {
    ApiError::not_implemented(
        "this server does not rank documents: that takes a reranker model, which it cannot load yet",
    )
}
