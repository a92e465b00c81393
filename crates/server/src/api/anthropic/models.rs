//! `GET /v1/models` in Anthropic's form, for clients that send Anthropic's headers to the paths
//! that OpenAI's interface has, too.

use std::{sync::Arc, time::Duration};

use atta_engine::chat::DateTime;
use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
    http::HeaderMap,
};
use serde_json::{Value, json};

use crate::{
    api::{flavor::is_anthropics, openai::models},
    app::App,
    flow::error::ApiError,
};

/// All models, in the form of the client.
pub(crate) async fn list(app: State<Arc<App>>, headers: HeaderMap) -> Json<Value> {
    match is_anthropics(&headers) {
        true => Json(page(&app)),
        false => models::list(app).await,
    }
}

/// One of them, in the form of the client.
pub(crate) async fn one(
    app: State<Arc<App>>,
    headers: HeaderMap,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, ApiError> {
    match is_anthropics(&headers) {
        true => Ok(Json(described(&app, &models::known(&app, name)?))),
        false => models::one(app, name).await,
    }
}

/// Lists all models on one page.
fn page(app: &App) -> Value {
    let models: Vec<Value> = app
        .models
        .names()
        .map(|name| described(app, name))
        .collect();
    let id = |model: Option<&Value>| model.map(|model| model["id"].clone());
    json!({
        "data": models,
        "has_more": false,
        "first_id": id(models.first()),
        "last_id": id(models.last()),
    })
}

/// Describes a model by one of its names.
fn described(app: &App, name: &str) -> Value {
    let created = timestamp(Duration::from_secs(app.started));
    json!({
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": created,
        "lifecycle": "active",
    })
}

/// A time since 1970 in the format of RFC 3339.
fn timestamp(time: Duration) -> String {
    let DateTime {
        year,
        month,
        day,
        hour,
        minute,
        second,
    } = DateTime::from_unix(time.as_secs());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(
            timestamp(Duration::from_secs(1_700_000_000)),
            "2023-11-14T22:13:20Z"
        );
    }
}
