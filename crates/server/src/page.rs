//! The web pages: files in the binary, packed by `build.rs`, which load nothing from other servers.
//!
//! It knows nothing about the files but their types. The one idea: a browser gets the bytes as they
//! lie in the program, and only if it does not have them.

use std::io::Read;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use flate2::read::GzDecoder;

/// The pages may run, show and request only what this server sends, and markup becomes part of a
/// page only through DOMPurify.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; object-src 'none'; \
     frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; \
     trusted-types dompurify",
);

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const FONT: &str = "font/woff2";

/// A file of the pages.
struct PageFile {
    /// Path of its URL.
    path: &'static str,
    content_type: &'static str,
    /// As a gzip file.
    packed: &'static [u8],
}

/// A file of `web/`; its path is its name, or the one in front.
macro_rules! page_file {
    ($name:literal, $content_type:expr) => {
        page_file!(concat!("/", $name), $name, $content_type)
    };
    ($path:expr, $name:literal, $content_type:expr) => {
        PageFile {
            path: $path,
            content_type: $content_type,
            packed: include_bytes!(concat!(env!("OUT_DIR"), "/web/", $name, ".gz")),
        }
    };
}

const FILES: [PageFile; 28] = [
    page_file!("/", "index.html", HTML),
    page_file!("style.css", CSS),
    page_file!("api.js", SCRIPT),
    page_file!("app.js", SCRIPT),
    page_file!("chats.js", SCRIPT),
    page_file!("code.js", SCRIPT),
    page_file!("dom.js", SCRIPT),
    page_file!("markdown.js", SCRIPT),
    page_file!("math.js", SCRIPT),
    page_file!("request.js", SCRIPT),
    page_file!("/cluster", "cluster.html", HTML),
    page_file!("cluster.css", CSS),
    page_file!("cluster.js", SCRIPT),
    page_file!("vendor/LICENSES.txt", TEXT),
    page_file!("vendor/marked.js", SCRIPT),
    page_file!("vendor/purify.js", SCRIPT),
    page_file!("vendor/katex.js", SCRIPT),
    page_file!("vendor/katex.css", CSS),
    page_file!("vendor/KaTeX_AMS-Regular.woff2", FONT),
    page_file!("vendor/KaTeX_Caligraphic-Regular.woff2", FONT),
    page_file!("vendor/KaTeX_Fraktur-Regular.woff2", FONT),
    page_file!("vendor/KaTeX_Main-Bold.woff2", FONT),
    page_file!("vendor/KaTeX_Main-Regular.woff2", FONT),
    page_file!("vendor/KaTeX_Math-Italic.woff2", FONT),
    page_file!("vendor/KaTeX_Size1-Regular.woff2", FONT),
    page_file!("vendor/KaTeX_Size2-Regular.woff2", FONT),
    page_file!("vendor/KaTeX_Size3-Regular.woff2", FONT),
    page_file!("vendor/KaTeX_Size4-Regular.woff2", FONT),
];

/// The paths of the files.
pub(crate) fn paths() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|file| file.path)
}

/// The response for the path of a file to a request with these headers.
pub(crate) fn file(path: &str, request: &HeaderMap) -> Option<Response> {
    let file = FILES.iter().find(|file| file.path == path)?;
    let tag = file.tag();
    let mut response = if has_copy(request, &tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        file.content(request)
    };
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, value("nosniff")),
        (header::REFERRER_POLICY, value("no-referrer")),
        (header::CACHE_CONTROL, value("no-cache")),
        (header::VARY, value("accept-encoding")),
    ];
    response.headers_mut().extend(fixed);
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Some(response)
}

impl PageFile {
    /// An entity tag: checksum and length, with which a gzip file ends.
    fn tag(&self) -> String {
        let end = &self.packed[self.packed.len().saturating_sub(8)..];
        let digits: String = end.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("W/\"{digits}\"")
    }

    /// The content, packed if the client takes that.
    fn content(&self, request: &HeaderMap) -> Response {
        let is_packed = takes_gzip(request);
        let mut response = if is_packed {
            Body::from(self.packed).into_response()
        } else {
            self.unpacked().into_response()
        };
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, value(self.content_type));
        if is_packed {
            headers.insert(header::CONTENT_ENCODING, value("gzip"));
        }
        response
    }

    fn unpacked(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        GzDecoder::new(self.packed)
            .read_to_end(&mut bytes)
            .expect("build.rs packed it");
        bytes
    }
}

const fn value(text: &'static str) -> HeaderValue {
    HeaderValue::from_static(text)
}

/// Whether the client has the file with this tag.
fn has_copy(request: &HeaderMap, tag: &str) -> bool {
    let tags = request.get_all(header::IF_NONE_MATCH);
    tags.iter()
        .filter_map(|tags| tags.to_str().ok())
        .any(|tags| tags.split(',').any(|other| other.trim() == tag))
}

fn takes_gzip(request: &HeaderMap) -> bool {
    let encodings = request.get_all(header::ACCEPT_ENCODING);
    encodings
        .iter()
        .filter_map(|encodings| encodings.to_str().ok())
        .flat_map(|encodings| encodings.split(','))
        .any(is_gzip)
}

/// Whether an encoding of `Accept-Encoding` is gzip, and not refused by a weight of 0.
fn is_gzip(encoding: &str) -> bool {
    let (name, weight) = encoding.split_once(';').unwrap_or((encoding, ""));
    let is_refused = weight
        .trim()
        .strip_prefix("q=")
        .is_some_and(|weight| weight.parse() == Ok(0.0));
    name.trim().eq_ignore_ascii_case("gzip") && !is_refused
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, fs, path::Path};

    fn request(name: header::HeaderName, text: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, text.parse().unwrap())])
    }

    /// Names of all files in `folder`, with `prefix` in front.
    fn names(folder: &Path, prefix: &str) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
        entries
            .flat_map(|entry| {
                let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
                if entry.path().is_dir() {
                    names(&entry.path(), &format!("{name}/"))
                } else {
                    vec![name]
                }
            })
            .collect()
    }

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("web");
        let there: BTreeSet<String> = names(&folder, "/")
            .into_iter()
            .filter(|name| name != "/vendor/SHA256SUMS")
            .map(|name| match name.as_str() {
                "/index.html" => "/".to_owned(),
                _ => name.trim_end_matches(".html").to_owned(),
            })
            .collect();
        let served: BTreeSet<String> = paths().map(str::to_owned).collect();
        assert_eq!(there, served);
    }

    #[test]
    fn a_file_comes_as_it_was_packed_or_as_it_is() {
        let source = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("web/app.js")).unwrap();
        let app = FILES.iter().find(|file| file.path == "/app.js").unwrap();
        assert_eq!(app.unpacked(), source);
        let packed = file(
            "/app.js",
            &request(header::ACCEPT_ENCODING, "br, GZIP;q=0.5"),
        )
        .unwrap();
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
        for encodings in ["", "br", "gzip;q=0", "xgzip"] {
            let plain = file("/app.js", &request(header::ACCEPT_ENCODING, encodings)).unwrap();
            assert!(
                !plain.headers().contains_key(header::CONTENT_ENCODING),
                "{encodings:?}"
            );
        }
    }

    #[test]
    fn a_browser_that_has_a_file_gets_no_second_one() {
        let first = file("/style.css", &HeaderMap::new()).unwrap();
        let tag = first.headers()[header::ETAG].to_str().unwrap();
        let again = |tags: &str| file("/style.css", &request(header::IF_NONE_MATCH, tags)).unwrap();
        assert_eq!(
            again(&format!("\"a\", {tag}")).status(),
            StatusCode::NOT_MODIFIED
        );
        assert_eq!(again("\"a\"").status(), StatusCode::OK);
        let other = file("/app.js", &HeaderMap::new()).unwrap();
        assert_ne!(other.headers()[header::ETAG], first.headers()[header::ETAG]);
    }
}
