//! Bodies of requests: limits on size and time, decompression, JSON.
//!
//! A field has one of three meanings. *Kept*: the struct of the request reads it, and it has its
//! effect. *Accepted*: it has no effect, for the reason in the table of its interface
//! ([`Accepted`]); the client gets a warning. *Refused*: it would change the answer, so the struct
//! reads it and an error names it. An unknown field is ignored with a warning, because clients gain
//! fields every month.

use std::{collections::HashSet, convert::Infallible, io::Read, time::Duration};

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

use super::{error::ApiError, warnings::Warnings};
use crate::{access::ClientKey, runtime::run_blocking};

/// Bytes beyond the limit that are read and dropped, so that the client reads the error.
const MAX_DRAINED: usize = 64 << 20;

/// A request whose body has not been read, and the list of its warnings.
pub(crate) struct Incoming {
    pub(crate) body: Unread,
    pub(crate) warnings: Warnings,
    /// The key that it came with.
    pub(crate) key: Option<ClientKey>,
}

/// A body that has not been read.
pub(crate) struct Unread {
    body: Body,
    /// The header `Content-Encoding`.
    encoding: Option<String>,
    /// Whether the client waits for `100 Continue` before it sends the body.
    expects_continue: bool,
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
            expects_continue: head.headers.contains_key(header::EXPECT),
        };
        Ok(Self {
            body,
            warnings: head.extensions.get().cloned().unwrap_or_default(),
            key: head.extensions.get().copied(),
        })
    }
}

/// Fields that have no effect: their places, such as `messages[].name`, and the reasons.
pub(crate) type Accepted = &'static [(&'static str, &'static str)];

/// Reads a body and decompresses it.
pub(crate) async fn read(unread: Unread, max: usize, timeout: Duration) -> Result<Bytes, ApiError> {
    let Unread {
        body,
        encoding,
        expects_continue,
    } = unread;
    let compression = encoding.as_deref().map_or(Ok(None), Compression::named)?;
    let within = tokio::time::timeout(timeout, collect(body, max, expects_continue));
    let bytes = within.await.map_err(|_| ApiError::too_slow())??;
    match compression {
        None => Ok(bytes),
        Some(compression) => {
            let decompressed = run_blocking(move || compression.decompress(&bytes, max)).await;
            decompressed.map_err(|_| ApiError::broken())?
        }
    }
}

/// Collects the bytes of a body. If it is too long, more bytes are read and dropped, because a
/// client that is still sending when the connection closes never reads the error. A client that
/// expects `100 Continue` has not sent anything.
async fn collect(mut body: Body, max: usize, expects_continue: bool) -> Result<Bytes, ApiError> {
    let is_long = body.size_hint().lower() > max as u64;
    if is_long && expects_continue {
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

/// A compression of bodies.
#[derive(Clone, Copy)]
enum Compression {
    Gzip,
    Deflate,
}

impl Compression {
    /// The compression that `Content-Encoding` names; `None` for an uncompressed body.
    fn named(encoding: &str) -> Result<Option<Self>, ApiError> {
        match encoding {
            "" | "identity" => Ok(None),
            "gzip" | "x-gzip" => Ok(Some(Self::Gzip)),
            "deflate" => Ok(Some(Self::Deflate)),
            other => Err(ApiError::unknown_encoding(other)),
        }
    }

    /// Decompresses at most `max` bytes.
    fn decompress(self, bytes: &[u8], max: usize) -> Result<Bytes, ApiError> {
        let reader: Box<dyn Read + '_> = match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(bytes)),
            // `deflate` names the zlib format; some clients send the bare deflate stream.
            Self::Deflate if has_zlib_header(bytes) => Box::new(ZlibDecoder::new(bytes)),
            Self::Deflate => Box::new(DeflateDecoder::new(bytes)),
        };
        let mut decompressed = Vec::new();
        let read = reader
            .take((max as u64).saturating_add(1))
            .read_to_end(&mut decompressed);
        read.map_err(|error| ApiError::bad(format!("the body cannot be unpacked: {error}")))?;
        if decompressed.len() > max {
            Err(ApiError::too_large(max))
        } else {
            Ok(decompressed.into())
        }
    }
}

/// Whether the bytes begin with a zlib header (RFC 1950).
fn has_zlib_header(bytes: &[u8]) -> bool {
    let [first, second, ..] = *bytes else {
        return false;
    };
    first & 0x0f == 8 && u16::from_be_bytes([first, second]).is_multiple_of(31)
}

/// The fields of a JSON object. The parts of a request, such as its sampling fields, take theirs
/// one after another.
pub(crate) struct BodyFields {
    object: Value,
    /// Places within the fields of earlier parts that no part has read.
    unread: Vec<String>,
}

impl BodyFields {
    /// Parses a body.
    ///
    /// # Errors
    /// Bytes that are no JSON object.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(object)) => Ok(Self::new(object)),
            // Serde would read a list as the values of all fields.
            Ok(_) => Err(ApiError::bad("this is no JSON object")),
            Err(error) => Err(ApiError::bad(format!("this is no JSON: {error}"))),
        }
    }

    /// Fields that are null count as absent.
    pub(crate) fn new(mut object: Map<String, Value>) -> Self {
        object.retain(|_, value| !value.is_null());
        Self {
            object: Value::Object(object),
            unread: Vec::new(),
        }
    }

    /// Reads the fields of `T`, and leaves the others to later parts.
    ///
    /// # Errors
    /// A field with a value of the wrong type, by its name.
    pub(crate) fn take<T: DeserializeOwned>(&mut self) -> Result<T, ApiError> {
        let mut others = HashSet::new();
        let unread = &mut self.unread;
        let mut on_unread = |path: Path<'_>| match &path {
            Path::Map {
                parent: Path::Root,
                key,
            } => {
                others.insert(key.clone());
            }
            path => unread.push(place(path)),
        };
        let fields = serde_ignored::Deserializer::new(&self.object, &mut on_unread);
        let part = serde_path_to_error::deserialize(fields).map_err(field_error)?;
        if let Some(object) = self.object.as_object_mut() {
            object.retain(|name, _| others.contains(name));
        }
        Ok(part)
    }

    /// Reads the fields of the last part. Fields that no part has read become warnings, which give
    /// the reason for those that are `accepted`.
    ///
    /// # Errors
    /// A field with a value of the wrong type, by its name.
    pub(crate) fn rest<T: DeserializeOwned>(
        self,
        accepted: Accepted,
        warnings: &Warnings,
    ) -> Result<T, ApiError> {
        let warn = |place: &str| warnings.add(unread_warning(place, accepted));
        self.unread.iter().for_each(|place| warn(place));
        let mut on_unread = |path: Path<'_>| warn(&place(&path));
        let fields = serde_ignored::Deserializer::new(self.object, &mut on_unread);
        serde_path_to_error::deserialize(fields).map_err(field_error)
    }
}

/// The error of a field that serde cannot read.
fn field_error(error: serde_path_to_error::Error<serde_json::Error>) -> ApiError {
    let path = error.path().to_string();
    let message = error.inner().to_string();
    match (named_field(&message), path.split(['.', '[']).next()) {
        (Some((name, what)), Some(outer)) if is_within(&path, name) => {
            let path = path.trim_end_matches(&format!(".{name}"));
            ApiError::field(outer, format!("{path}: the field {name:?} is {what}"))
        }
        (Some((name, what)), _) => ApiError::field(name, format!("the field {name:?} is {what}")),
        (None, Some(name)) if !name.is_empty() => {
            ApiError::field(name, format!("{path}: {message}"))
        }
        (None, _) => ApiError::bad(message),
    }
}

/// The warning about a field that no part has read.
fn unread_warning(place: &str, accepted: Accepted) -> String {
    match accepted.iter().find(|(name, _)| *name == place) {
        Some((_, reason)) => format!("{place} changes nothing here: {reason}"),
        None => format!("the unknown field {place} is ignored"),
    }
}

/// The place of a field, without the indices of list items: `tools[].strict`.
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

/// Reads an inner object; serde alone would accept a list of its values, too.
pub(crate) fn object<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    from: D,
) -> Result<Option<T>, D::Error> {
    let fields = Option::<Map<String, Value>>::deserialize(from)?;
    fields
        .map(|fields| T::deserialize(Value::Object(fields)))
        .transpose()
        .map_err(Error::custom)
}

/// Reads an integer, which some clients write as `1024.0`.
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

/// Whether the error is about a field of an inner object.
fn is_within(path: &str, name: &str) -> bool {
    !["", ".", "?", name].contains(&path)
}

/// The field that a message of serde names, and its fault.
fn named_field(message: &str) -> Option<(&str, &'static str)> {
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
    struct Inner {
        n: u32,
    }

    #[derive(Debug, serde::Deserialize)]
    struct Outer {
        inner: Vec<Inner>,
    }

    fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
        BodyFields::parse(body)?.rest(&[], &Warnings::default())
    }

    #[test]
    fn a_field_that_is_not_there_is_named() {
        let param = |text: &[u8]| read::<Inner>(text).unwrap_err().param;
        assert_eq!(param(b"{}").as_deref(), Some("n"));
        assert_eq!(param(br#"{"n": "x"}"#).as_deref(), Some("n"));
        assert_eq!(param(b"[]"), None);
        assert_eq!(param(b"[1]"), None, "a list of values has no names");
        assert_eq!(param(b"\xff"), None);
        let nested = read::<Outer>(br#"{"inner": [{}]}"#).unwrap_err();
        assert_eq!(nested.param.as_deref(), Some("inner"));
        assert_eq!(nested.message, r#"inner[0]: the field "n" is missing"#);
    }

    #[test]
    fn parts_take_their_fields_and_leave_the_others() {
        let body = br#"{"n": 1, "m": 2, "inner": [{"n": 3, "o": 4}], "x": null}"#;
        let mut fields = BodyFields::parse(body).unwrap();
        let outer: Outer = fields.take().unwrap();
        assert_eq!(outer.inner[0].n, 3);
        let warnings = Warnings::default();
        let inner: Inner = fields.rest(&[("m", "of a reason")], &warnings).unwrap();
        assert_eq!(inner.n, 1);
        let expected = [
            "the unknown field inner[].o is ignored",
            "m changes nothing here: of a reason",
        ];
        assert_eq!(warnings.take(), expected);
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_compressed_body_is_decompressed_up_to_the_limit() {
        let packed = gzip(&[b'a'; 100_000]);
        assert_eq!(
            Compression::Gzip
                .decompress(&packed, 100_000)
                .unwrap()
                .len(),
            100_000
        );
        assert_eq!(
            Compression::Gzip
                .decompress(&packed, 99_999)
                .unwrap_err()
                .status,
            413
        );
        assert_eq!(
            Compression::Gzip
                .decompress(&packed[..50], 100_000)
                .unwrap_err()
                .status,
            400
        );
        assert_eq!(
            Compression::Gzip
                .decompress(b"{}", 100_000)
                .unwrap_err()
                .status,
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
                &Compression::Deflate.decompress(packed, 100).unwrap()[..],
                b"{\"a\": 1}"
            );
        }
    }

    #[test]
    fn a_compression_that_is_not_known_is_named() {
        let error = Compression::named("br").err().unwrap();
        assert!(
            error.status == 415
                && error.message.contains("\"br\"")
                && error.message.contains("gzip")
        );
        assert!(Compression::named("identity").unwrap().is_none());
    }

    #[test]
    fn whole_numbers_may_be_written_as_floats() {
        #[derive(Debug, serde::Deserialize)]
        struct Wanted {
            #[serde(default, deserialize_with = "whole")]
            n: Option<i64>,
        }
        let of = |text: &str| read::<Wanted>(text.as_bytes()).map(|wanted| wanted.n);
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
    fn an_unread_field_is_a_warning_with_its_place() {
        let warnings = Warnings::default();
        let body = br#"{"inner": [{"n": 1, "m": 2}, {"n": 1, "user": {}}], "seeed": 2, "functions": null}"#;
        let accepted: Accepted = &[("inner[].user", "there are no accounts")];
        let fields = BodyFields::parse(body).unwrap();
        fields.rest::<Outer>(accepted, &warnings).unwrap();
        let want = [
            "the unknown field inner[].m is ignored",
            "inner[].user changes nothing here: there are no accounts",
            "the unknown field seeed is ignored",
        ];
        assert_eq!(warnings.take(), want);
    }
}
