//! Bodies of requests: as long as they may be, within the time they may take, and JSON.
//!
//! A field has one of three meanings. *Kept*: the struct of the request reads it, and it does what
//! it says. *Accepted*: it changes nothing here, for a reason that stands in the table of its
//! interface ([`Accepted`]); the client gets a warning. *Refused*: it would change the result, so
//! the struct reads it and an error names it. A field that nobody here has heard of is left out
//! with a warning, because clients gain fields every month.

use std::{convert::Infallible, io::Read, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, Request},
    http::header,
};
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error},
};
use serde_ignored::Path;
use serde_json::{Map, Number, Value};

use crate::flow::{error::ApiError, warnings::Warnings};

/// Bytes beyond the limit that are read so that the client gets to read the error.
const MAX_DRAINED: usize = 64 << 20;

/// A body that has not been read, and the warnings on its request.
pub(crate) struct Incoming {
    pub(crate) body: Unread,
    pub(crate) warnings: Warnings,
}

/// A body that has not been read.
pub(crate) struct Unread {
    body: Body,
    /// How it is packed.
    encoding: Option<String>,
    /// Whether the client waits for a word of ours before it sends any of it.
    waits: bool,
}

impl<S: Sync> FromRequest<S> for Incoming {
    type Rejection = Infallible;

    async fn from_request(request: Request, _: &S) -> Result<Self, Infallible> {
        let (head, body) = request.into_parts();
        let encoding = head.headers.get(header::CONTENT_ENCODING);
        let encoding =
            encoding.map(|value| value.to_str().unwrap_or("?").trim().to_ascii_lowercase());
        let body = Unread {
            body,
            encoding,
            waits: head.headers.contains_key(header::EXPECT),
        };
        Ok(Self {
            body,
            warnings: head.extensions.get().cloned().unwrap_or_default(),
        })
    }
}

/// Fields that change nothing here: where they stand, as `messages[].name`, and the reason.
pub(crate) type Accepted = &'static [(&'static str, &'static str)];

/// Reads a body, and unpacks it.
pub(crate) async fn read(unread: Unread, max: usize, timeout: Duration) -> Result<Bytes, ApiError> {
    let Unread {
        body,
        encoding,
        waits,
    } = unread;
    let packing = encoding.as_deref().map_or(Ok(None), Packing::named)?;
    let within = tokio::time::timeout(timeout, collect(body, max, waits));
    let bytes = within.await.map_err(|_| ApiError::too_slow())??;
    match packing {
        None => Ok(bytes),
        Some(packing) => {
            let unpacked = tokio::task::spawn_blocking(move || packing.unpack(&bytes, max)).await;
            unpacked.map_err(|_| ApiError::broken())?
        }
    }
}

/// All bytes of a body. Of one that is too long some more are read and thrown away, because a
/// client that still sends when its connection is closed never reads why; one that waits to be
/// asked has not sent any.
async fn collect(mut body: Body, max: usize, waits: bool) -> Result<Bytes, ApiError> {
    let is_long = body.size_hint().lower() > max as u64;
    if is_long && waits {
        return Err(ApiError::too_large(max));
    }
    let mut bytes = Vec::new();
    let mut n_bytes = 0usize;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ApiError::bad(format!("the body broke off: {error}")))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        n_bytes = n_bytes.saturating_add(data.len());
        if !is_long && n_bytes <= max {
            bytes.extend_from_slice(&data);
        } else if n_bytes > max.saturating_add(MAX_DRAINED) {
            break;
        } else {
            bytes = Vec::new();
        }
    }
    if is_long || n_bytes > max {
        Err(ApiError::too_large(max))
    } else {
        Ok(bytes.into())
    }
}

/// How a body can be packed.
#[derive(Clone, Copy)]
enum Packing {
    Gzip,
    Deflate,
}

impl Packing {
    /// That of a `Content-Encoding`; `None` for a body that is not packed.
    fn named(encoding: &str) -> Result<Option<Self>, ApiError> {
        match encoding {
            "" | "identity" => Ok(None),
            "gzip" | "x-gzip" => Ok(Some(Self::Gzip)),
            "deflate" => Ok(Some(Self::Deflate)),
            other => Err(ApiError::unknown_encoding(other)),
        }
    }

    /// What was packed, which never takes more than `max` bytes of memory.
    fn unpack(self, bytes: &[u8], max: usize) -> Result<Bytes, ApiError> {
        let reader: Box<dyn Read + '_> = match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(bytes)),
            // The name means the format of zlib; some clients send the bare stream of deflate.
            Self::Deflate if has_zlib_header(bytes) => Box::new(ZlibDecoder::new(bytes)),
            Self::Deflate => Box::new(DeflateDecoder::new(bytes)),
        };
        let mut unpacked = Vec::new();
        let read = reader
            .take((max as u64).saturating_add(1))
            .read_to_end(&mut unpacked);
        read.map_err(|error| ApiError::bad(format!("the body cannot be unpacked: {error}")))?;
        if unpacked.len() > max {
            Err(ApiError::too_large(max))
        } else {
            Ok(unpacked.into())
        }
    }
}

/// Whether the first two bytes are those of RFC 1950.
fn has_zlib_header(bytes: &[u8]) -> bool {
    matches!(bytes, [first, second, ..] if first & 0x0f == 8 && (u32::from(*first) * 256 + u32::from(*second)) % 31 == 0)
}

/// Understands a body, which takes a while if it is long.
pub(crate) fn parse<T: DeserializeOwned>(
    bytes: &[u8],
    accepted: Accepted,
    warnings: &Warnings,
) -> Result<T, ApiError> {
    match serde_json::from_slice(bytes) {
        Ok(object @ Value::Object(_)) => understand(object, accepted, warnings),
        // Serde would take a list of the values of all fields.
        Ok(_) => Err(ApiError::bad("this is no JSON object")),
        Err(error) => Err(ApiError::bad(format!("this is no JSON: {error}"))),
    }
}

/// Understands an object. A field that has a value of another type is named by the error; one that
/// is left out, unless it is null, by a warning.
pub(crate) fn understand<T: DeserializeOwned>(
    mut value: Value,
    accepted: Accepted,
    warnings: &Warnings,
) -> Result<T, ApiError> {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    let mut note = |path: Path<'_>| warnings.add(left_out(&place(&path), accepted));
    serde_path_to_error::deserialize(serde_ignored::Deserializer::new(value, &mut note)).map_err(
        |error| {
            let (path, message) = (error.path().to_string(), error.inner().to_string());
            match (field(&message), path.split(['.', '[']).next()) {
                (Some((name, what)), Some(outer)) if is_within(&path, name) => ApiError::field(
                    outer,
                    format!(
                        "{}: the field {name:?} is {what}",
                        path.trim_end_matches(&format!(".{name}"))
                    ),
                ),
                (Some((name, what)), _) => {
                    ApiError::field(name, format!("the field {name:?} is {what}"))
                }
                (None, Some(name)) if !name.is_empty() => {
                    ApiError::field(name, format!("{path}: {message}"))
                }
                (None, _) => ApiError::bad(message),
            }
        },
    )
}

/// The warning on a field that is left out.
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
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => place(parent),
    }
}

/// An object within a body: serde would take a list of its values as well.
pub(crate) fn object<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    from: D,
) -> Result<Option<T>, D::Error> {
    let fields = Option::<Map<String, Value>>::deserialize(from)?;
    fields
        .map(|fields| T::deserialize(Value::Object(fields)))
        .transpose()
        .map_err(Error::custom)
}

/// A whole number, which may be written as `1024.0`: that is what some languages make of it.
pub(crate) fn whole<'de, D: Deserializer<'de>>(from: D) -> Result<Option<i64>, D::Error> {
    let Some(number) = Option::<Number>::deserialize(from)? else {
        return Ok(None);
    };
    let float =
        |number: f64| (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64);
    let whole = number.as_i64().or_else(|| float(number.as_f64()?));
    whole
        .map(Some)
        .ok_or_else(|| Error::custom(format!("{number} is no whole number")))
}

/// Whether the field of an error is not one of the body itself.
fn is_within(path: &str, name: &str) -> bool {
    !["", ".", "?", name].contains(&path)
}

/// The field that serde's message is about, and what is wrong with it.
fn field(message: &str) -> Option<(&str, &'static str)> {
    let (kind, rest) = [
        ("not supported", "unknown field `"),
        ("missing", "missing field `"),
    ]
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
        let parse = |text: &[u8]| parse::<Ask>(text, &[], &Warnings::default());
        let param = |text: &str| parse(text.as_bytes()).unwrap_err().param;
        assert_eq!(param("{}").as_deref(), Some("n"));
        assert_eq!(param(r#"{"n": "x"}"#).as_deref(), Some("n"));
        assert_eq!(param("[]"), None);
        let nested =
            super::parse::<Outer>(br#"{"inner": [{}]}"#, &[], &Warnings::default()).unwrap_err();
        assert_eq!(nested.param.as_deref(), Some("inner"));
        assert_eq!(nested.message, r#"inner[0]: the field "n" is missing"#);
        assert!(parse(b"[1]").is_err(), "a list of values has no names");
        assert!(parse(b"\xff").is_err());
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_packed_body_is_unpacked_up_to_the_limit() {
        let packed = gzip(&[b'a'; 100_000]);
        assert_eq!(
            Packing::Gzip.unpack(&packed, 100_000).unwrap().len(),
            100_000
        );
        assert_eq!(
            Packing::Gzip.unpack(&packed, 99_999).unwrap_err().status,
            413
        );
        assert_eq!(
            Packing::Gzip
                .unpack(&packed[..50], 100_000)
                .unwrap_err()
                .status,
            400
        );
        assert_eq!(
            Packing::Gzip.unpack(b"{}", 100_000).unwrap_err().status,
            400
        );
    }

    #[test]
    fn deflate_comes_with_the_header_of_zlib_or_without() {
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut zlib, b"{\"a\": 1}").unwrap();
        let zlib = zlib.finish().unwrap();
        let bare = &zlib[2..zlib.len() - 4];
        for packed in [&zlib[..], bare] {
            assert_eq!(
                &Packing::Deflate.unpack(packed, 100).unwrap()[..],
                b"{\"a\": 1}"
            );
        }
    }

    #[test]
    fn a_packing_that_is_not_known_is_named() {
        let error = Packing::named("br").err().unwrap();
        assert!(
            error.status == 415
                && error.message.contains("\"br\"")
                && error.message.contains("gzip")
        );
        assert!(Packing::named("identity").unwrap().is_none());
    }

    #[test]
    fn whole_numbers_may_be_written_as_floats() {
        #[derive(Debug, serde::Deserialize)]
        struct Wanted {
            #[serde(default, deserialize_with = "whole")]
            n: Option<i64>,
        }
        let of = |text: &str| {
            super::parse::<Wanted>(text.as_bytes(), &[], &Warnings::default())
                .map(|wanted| wanted.n)
        };
        assert_eq!(of(r#"{"n": 1024.0}"#).unwrap(), Some(1024));
        assert_eq!(of(r#"{"n": -1}"#).unwrap(), Some(-1));
        assert_eq!(of("{}").unwrap(), None);
        for wrong in [r#"{"n": 1.5}"#, r#"{"n": 1e300}"#, r#"{"n": "1"}"#] {
            assert_eq!(
                of(wrong).unwrap_err().param.as_deref(),
                Some("n"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_field_that_is_left_out_is_a_warning_with_its_place() {
        let warnings = Warnings::default();
        let body = br#"{"inner": [{"n": 1, "m": 2}, {"n": 1, "user": {}}], "seeed": 2, "functions": null}"#;
        parse::<Outer>(
            body,
            &[("inner[].user", "there are no accounts")],
            &warnings,
        )
        .unwrap();
        let want = [
            "the unknown field inner[].m is ignored",
            "inner[].user changes nothing here: there are no accounts",
            "the unknown field seeed is ignored",
        ];
        assert_eq!(warnings.take(), want);
    }
}
