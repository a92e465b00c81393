//! `GET /v1/models` in Anthropic's form, for clients that send Anthropic's headers to the paths
//! that OpenAI's interface has, too.

use std::time::Duration;

use atta_engine::chat::DateTime;
use axum::http::HeaderMap;
use serde_json::{Value, json};

use crate::app::App;

/// Whether a request comes from a client of Anthropic's interface, which sends its version with all
/// requests, and its key with most.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version") || headers.contains_key("x-api-key")
}

/// Lists all models on one page.
pub(crate) fn list(app: &App) -> Value {
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
pub(crate) fn described(app: &App, name: &str) -> Value {
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

    #[test]
    fn clients_of_the_interface_are_known_by_their_headers() {
        let of = |name: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, "x".parse().unwrap());
            is_asked(&headers)
        };
        assert!(of("anthropic-version") && of("x-api-key") && !of("authorization"));
    }
}
