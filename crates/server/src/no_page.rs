//! The web page in a build that serves no browser: none of its files.

use axum::{http::HeaderMap, response::Response};

/// No paths.
pub(crate) fn paths() -> impl Iterator<Item = &'static str> {
    std::iter::empty()
}

/// No file.
pub(crate) fn file(_: &str, _: &HeaderMap) -> Option<Response> {
    None
}
