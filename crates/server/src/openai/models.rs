//! `GET /v1/models`: the names that requests may call models by.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use crate::{app::App, refusal::Refusal};

/// All of them.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Response {
    let models: Vec<Value> = app.models.names().map(|name| described(&app, name)).collect();
    Json(json!({ "object": "list", "data": models })).into_response()
}

/// One of them.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, Refusal> {
    let Path(name) = name.map_err(|error| Refusal::bad(error.body_text()))?;
    app.models.look_up(Some(&name))?;
    Ok(Json(described(&app, &name)).into_response())
}

/// A model, by one of its names.
fn described(app: &App, name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": app.started, "owned_by": "atta" })
}
