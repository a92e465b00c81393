//! `GET` and `POST /lora-adapters`: the adapters of a model, and their scales for requests that say
//! nothing of adapters.
//!
//! As llama.cpp's, with the name of each adapter; clients learn no paths of files.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use serde_json::{Value, json};

use super::info::ModelQuery;
use crate::{
    app::App,
    flow::{
        adapters::{AdapterChoice, chosen},
        body::{self, Incoming},
        error::ApiError,
    },
    models::Model,
};

/// The adapters of a model that is in memory; none of another one.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    query: Result<Query<ModelQuery>, QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    let Query(query) = query.map_err(|error| ApiError::bad(error.body_text()))?;
    let described = |_: &str, model: Option<&Model>| model.map_or_else(Vec::new, described);
    let adapters = app.models.inspect(query.name(), described)?;
    Ok(Json(adapters.into()))
}

fn described(model: &Model) -> Vec<Value> {
    let used = model.adapters();
    let scale = |i: usize| used.iter().find(|at| at.adapter == i).map(|at| at.scale);
    let infos = model.engine.adapters().iter().enumerate();
    infos
        .map(|(i, info)| {
            json!({
                "id": i,
                "name": info.name,
                "path": info.name,
                "scale": scale(i).unwrap_or(0.0),
            })
        })
        .collect()
}

/// Sets the scales of all adapters of the first model: 0 where the list does not name one.
pub(crate) async fn set(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Json<Value>, ApiError> {
    let options = &app.options;
    let bytes = body::read(incoming.body, options.max_body, options.read_timeout).await?;
    let list: Vec<AdapterChoice> = serde_json::from_slice(&bytes)
        .map_err(|error| ApiError::bad(format!("expected a list of adapters: {error}")))?;
    let model = app.models.get(None, None).await?;
    model.set_adapters(chosen(&model.engine, &list)?);
    Ok(Json(json!({ "success": true })))
}
