//! `GET /v1/models`: the names that requests may call models by, and models with their adapters.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use crate::{api::anthropic, app::App, flow::error::ApiError};

/// All of them.
pub(crate) async fn list(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    if anthropic::models::is_asked(&headers) {
        return Json(anthropic::models::list(&app)).into_response();
    }
    let adapted = app.models.adapted_names();
    let names = app.models.names().chain(adapted.iter().map(String::as_str));
    let models: Vec<Value> = names.map(|name| described(&app, name)).collect();
    Json(json!({ "object": "list", "data": models })).into_response()
}

/// One of them.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, ApiError> {
    let Path(name) = name.map_err(|error| ApiError::bad(error.body_text()))?;
    if !app.models.adapted_names().contains(&name) {
        app.models.look_up(Some(&name))?;
    }
    let is_anthropics = anthropic::models::is_asked(&headers);
    let model = if is_anthropics {
        anthropic::models::described(&app, &name)
    } else {
        described(&app, &name)
    };
    Ok(Json(model).into_response())
}

/// A model, by one of its names.
fn described(app: &App, name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": app.started, "owned_by": "atta" })
}
