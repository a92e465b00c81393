//! Models as Anthropic's interface lists them: at the paths of OpenAI's, for clients that send
//! Anthropic's headers.

use std::time::Duration;

use atta_engine::chat::DateTime;
use axum::http::HeaderMap;
use serde_json::{Value, json};

use crate::app::App;

/// Whether a request comes from a client of this interface: its version is part of all its
/// requests, its key of most.
pub(crate) fn is_asked(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version") || headers.contains_key("x-api-key")
}

/// All models, on one page.
pub(crate) fn list(app: &App) -> Value {
    let models: Vec<Value> = app
        .models
        .names()
        .map(|name| described(app, name))
        .collect();
    let id = |model: Option<&Value>| model.map(|model| model["id"].clone());
    let (first, last) = (id(models.first()), id(models.last()));
    json!({ "data": models, "has_more": false, "first_id": first, "last_id": last })
}

/// A model, by one of its names.
pub(crate) fn described(app: &App, name: &str) -> Value {
    let created = stamp(Duration::from_secs(app.started));
    json!({ "type": "model", "id": name, "display_name": name, "created_at": created, "lifecycle": "active" })
}

/// A time since the beginning of 1970, as RFC 3339 has it.
fn stamp(time: Duration) -> String {
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
            stamp(Duration::from_secs(1_700_000_000)),
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
