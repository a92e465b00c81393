//! Bodies of requests: as long as they may be, within the time they may take, and JSON.
//!
//! A field has one of three meanings. *Kept*: the struct of the request reads it, and it does what it says. *Accepted*: it
//! changes nothing here, for a reason that stands in the table of its interface ([`Accepted`]); the client gets a remark.
//! *Refused*: it would change the result, so the struct reads it and an error names it. A field that nobody here has heard
//! of is left out with a remark, because clients gain fields every month.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, Request},
};
use http_body_util::{BodyExt, Limited};
use hyper::body::Body as _;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error},
};
use serde_ignored::Path;
use serde_json::{Map, Value};

use crate::{refusal::Refusal, remarks::Remarks};

/// A body that has not been read, and the remarks on its request.
pub(crate) struct Incoming {
    pub(crate) body: Body,
    pub(crate) remarks: Remarks,
}

impl<S: Sync> FromRequest<S> for Incoming {
    type Rejection = Infallible;

    async fn from_request(request: Request, _: &S) -> Result<Self, Infallible> {
        let (head, body) = request.into_parts();
        Ok(Self { body, remarks: head.extensions.get().cloned().unwrap_or_default() })
    }
}

/// Fields that change nothing here: where they stand, as `messages[].name`, and the reason.
pub(crate) type Accepted = &'static [(&'static str, &'static str)];

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
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8], accepted: Accepted, remarks: &Remarks) -> Result<T, Refusal> {
    match serde_json::from_slice(bytes) {
        Ok(object @ Value::Object(_)) => understand(object, accepted, remarks),
        // Serde would take a list of the values of all fields.
        Ok(_) => Err(Refusal::bad("this is no JSON object")),
        Err(error) => Err(Refusal::bad(format!("this is no JSON: {error}"))),
    }
}

/// Understands an object. A field that has a value of another type is named by the error; one that is left out, unless it
/// is null, by a remark.
pub(crate) fn understand<T: DeserializeOwned>(
    mut value: Value,
    accepted: Accepted,
    remarks: &Remarks,
) -> Result<T, Refusal> {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    let mut note = |path: Path<'_>| remarks.add(left_out(&place(&path), accepted));
    serde_path_to_error::deserialize(serde_ignored::Deserializer::new(value, &mut note)).map_err(|error| {
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

/// The remark on a field that is left out.
fn left_out(place: &str, accepted: Accepted) -> String {
    match accepted.iter().find(|(name, _)| *name == place) {
        Some((_, reason)) => format!("{place} changes nothing here: {reason}"),
        None => format!("the unknown field {place} is ignored"),
    }
}

/// Where a field stands, without the numbers of list items: `tools[].strict`.
fn place(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, .. } => place(parent) + "[]",
        Path::Map { parent, key } => match place(parent) {
            outer if outer.is_empty() => key.clone(),
            outer => outer + "." + key,
        },
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => place(parent),
    }
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
    fn a_field_that_is_not_there_is_named() {
        let parse = |text: &[u8]| parse::<Ask>(text, &[], &Remarks::default());
        let param = |text: &str| parse(text.as_bytes()).unwrap_err().param;
        assert_eq!(param("{}").as_deref(), Some("n"));
        assert_eq!(param(r#"{"n": "x"}"#).as_deref(), Some("n"));
        assert_eq!(param("[]"), None);
        let nested = super::parse::<Outer>(br#"{"inner": [{}]}"#, &[], &Remarks::default()).unwrap_err();
        assert_eq!(nested.param.as_deref(), Some("inner"));
        assert_eq!(nested.message, r#"inner[0]: the field "n" is missing"#);
        assert!(parse(b"[1]").is_err(), "a list of values has no names");
        assert!(parse(b"\xff").is_err());
    }

    #[test]
    fn a_field_that_is_left_out_is_a_remark_with_its_place() {
        let remarks = Remarks::default();
        let body = br#"{"inner": [{"n": 1, "m": 2}, {"n": 1, "user": {}}], "seeed": 2, "functions": null}"#;
        parse::<Outer>(body, &[("inner[].user", "there are no accounts")], &remarks).unwrap();
        let want = [
            "the unknown field inner[].m is ignored",
            "inner[].user changes nothing here: there are no accounts",
            "the unknown field seeed is ignored",
        ];
        assert_eq!(remarks.take(), want);
    }
}
