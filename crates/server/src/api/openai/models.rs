//! `GET /v1/models`: the names that requests may call models by, and models with their adapters.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
};
use serde_json::{Value, json};

use crate::{app::App, flow::error::ApiError};

/// All of them.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    let adapted = app.models.adapted_names();
    let names = app.models.names().chain(adapted.iter().map(String::as_str));
    let models: Vec<Value> = names.map(|name| described(&app, name)).collect();
    Json(json!({ "object": "list", "data": models }))
}

/// One of them.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    let name = known(&app, name)?;
    Ok(Json(described(&app, &name)))
}

/// The name of a model, or of one with adapters.
pub(crate) fn known(
    app: &App,
    name: Result<Path<String>, PathRejection>,
) -> Result<String, ApiError> {
    let Path(name) = name.map_err(|error| ApiError::bad(error.body_text()))?;
    if !app.models.adapted_names().contains(&name) {
        app.models.look_up(Some(&name))?;
    }
    Ok(name)
}

/// A model, by one of its names.
fn described(app: &App, name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": app.started, "owned_by": "atta" })
}
