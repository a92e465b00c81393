//! Bodies of requests: as long as they may be, within the time they may take, and JSON of which every field is known.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt, Limited};
use hyper::body::Body as _;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error},
};
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// Reads a body.
pub(crate) async fn read(body: Body, max: usize, timeout: Duration) -> Result<Bytes, Refusal> {
    if body.size_hint().lower() > max as u64 {
        return Err(Refusal::too_large(max));
    }
    let collected = tokio::time::timeout(timeout, Limited::new(body, max).collect()).await;
    match collected.map_err(|_| Refusal::too_slow())? {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Refusal::too_large(max)),
        Err(error) => Err(Refusal::bad(format!("the body broke off: {error}"))),
    }
}

/// Understands a body, which takes a while if it is long.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    match serde_json::from_slice(bytes) {
        Ok(object @ Value::Object(_)) => understand(object),
        // Serde would take a list of the values of all fields.
        Ok(_) => Err(Refusal::bad("this is no JSON object")),
        Err(error) => Err(Refusal::bad(format!("this is no JSON: {error}"))),
    }
}

/// Understands an object. A field that is unknown, unless it is null, or that has a value of another type is named.
pub(crate) fn understand<T: DeserializeOwned>(mut value: Value) -> Result<T, Refusal> {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (path, message) = (error.path().to_string(), error.inner().to_string());
        match (field(&message), path.split(['.', '[']).next()) {
            (Some((name, what)), Some(outer)) if is_within(&path, name) => Refusal::field(
                outer,
                format!("{}: the field {name:?} is {what}", path.trim_end_matches(&format!(".{name}"))),
            ),
            (Some((name, what)), _) => Refusal::field(name, format!("the field {name:?} is {what}")),
            (None, Some(name)) if !name.is_empty() => Refusal::field(name, format!("{path}: {message}")),
            (None, _) => Refusal::bad(message),
        }
    })
}

/// An object within a body: serde would take a list of its values as well.
pub(crate) fn object<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    let fields = Option::<Map<String, Value>>::deserialize(from)?;
    fields.map(|fields| T::deserialize(Value::Object(fields))).transpose().map_err(Error::custom)
}

/// Whether the field of an error is not one of the body itself.
fn is_within(path: &str, name: &str) -> bool {
    !["", ".", "?", name].contains(&path)
}

/// The field that serde's message is about, and what is wrong with it.
fn field(message: &str) -> Option<(&str, &'static str)> {
    let (kind, rest) = [("not supported", "unknown field `"), ("missing", "missing field `")]
        .into_iter()
        .find_map(|(kind, start)| Some((kind, message.strip_prefix(start)?)))?;
    Some((rest.split_once('`')?.0, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Ask {
        #[serde(rename = "n")]
        _n: u32,
    }

    #[derive(Debug, serde::Deserialize)]
    struct Outer {
        #[serde(rename = "inner")]
        _inner: Vec<Ask>,
    }

    #[test]
    fn a_field_that_is_not_known_or_not_there_is_named() {
        let param = |text: &str| parse::<Ask>(text.as_bytes()).unwrap_err().param;
        assert_eq!(param(r#"{"n": 1, "seeed": 2}"#).as_deref(), Some("seeed"));
        assert_eq!(param("{}").as_deref(), Some("n"));
        assert_eq!(param(r#"{"n": "x"}"#).as_deref(), Some("n"));
        assert_eq!(param("[]"), None);
        let nested = parse::<Outer>(br#"{"inner": [{"n": 1, "m": 2}]}"#).unwrap_err();
        assert_eq!(nested.param.as_deref(), Some("inner"));
        assert_eq!(nested.message, r#"inner[0]: the field "m" is not supported"#);
        let nested = parse::<Outer>(br#"{"inner": [{}]}"#).unwrap_err();
        assert_eq!(nested.message, r#"inner[0]: the field "n" is missing"#);
        assert!(parse::<Ask>(b"[1]").is_err(), "a list of values has no names");
        assert!(parse::<Ask>(br#"{"n": 1, "functions": null}"#).is_ok());
        assert!(parse::<Ask>(b"\xff").is_err());
    }
}
