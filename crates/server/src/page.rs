//! The web pages: a few files in the binary, which load nothing from other servers.

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};

/// The page may run, show and request only what this server sends.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; frame-ancestors 'none'; \
     base-uri 'none'; form-action 'none'",
);

/// Path, content type and content.
const FILES: [(&str, &str, &str); 7] = [
    (
        "/",
        "text/html; charset=utf-8",
        include_str!("../web/index.html"),
    ),
    (
        "/style.css",
        "text/css; charset=utf-8",
        include_str!("../web/style.css"),
    ),
    (
        "/app.js",
        "text/javascript; charset=utf-8",
        include_str!("../web/app.js"),
    ),
    (
        "/markdown.js",
        "text/javascript; charset=utf-8",
        include_str!("../web/markdown.js"),
    ),
    (
        "/cluster",
        "text/html; charset=utf-8",
        include_str!("../web/cluster.html"),
    ),
    (
        "/cluster.css",
        "text/css; charset=utf-8",
        include_str!("../web/cluster.css"),
    ),
    (
        "/cluster.js",
        "text/javascript; charset=utf-8",
        include_str!("../web/cluster.js"),
    ),
];

/// The paths of the files.
pub(crate) fn paths() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(path, ..)| *path)
}

/// The response for the path of a file.
pub(crate) fn file(path: &str) -> Option<Response> {
    let (_, kind, text) = FILES.iter().find(|(name, ..)| *name == path)?;
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Some(response)
}
