//! Access control: API keys, origins of web pages, and `Host`. docs/server.md gives the reasons.

use std::net::IpAddr;

use axum::{
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
};

use crate::flow::error::ApiError;

/// The key of a request, by its place in the list of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientKey(usize);

/// Whether a request has one of the keys. A server without keys accepts all requests.
pub(crate) fn is_allowed(keys: &[String], headers: &HeaderMap) -> bool {
    keys.is_empty() || client_key(keys, headers).is_some()
}

/// The key of a request, as `Authorization: Bearer KEY` or `x-api-key: KEY`.
pub(crate) fn client_key(keys: &[String], headers: &HeaderMap) -> Option<ClientKey> {
    let bearer = headers
        .get(header::AUTHORIZATION)
        .map(|value| value.as_bytes());
    let bearer = bearer.and_then(|value| value.split_first_chunk::<7>());
    let bearer = bearer
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "))
        .map(|(_, key)| key);
    let given = bearer.or_else(|| Some(headers.get("x-api-key")?.as_bytes()))?;
    // All keys are compared, so that the time does not reveal which one nearly matched.
    let keys = keys.iter().enumerate();
    keys.fold(None, |found, (i, key)| match same(key.as_bytes(), given) {
        true => Some(ClientKey(i)),
        false => found,
    })
}

/// The access rules beside the keys.
#[derive(Clone, Copy)]
pub(crate) struct Access<'a> {
    /// Whether clients need a key.
    pub(crate) has_keys: bool,
    /// `https` where connections are encrypted, else `http`.
    pub(crate) scheme: &'a str,
    /// Whether the name in `Host` is checked.
    pub(crate) checks_host: bool,
    /// Origins of pages that may ask.
    pub(crate) origins: &'a [String],
    /// Names of this machine beside its own.
    pub(crate) hosts: &'a [String],
}

/// The web pages that may read a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Those that need no header: pages of the server itself.
    SameSite,
    /// All pages: a key protects the server.
    All,
    /// Those of this origin.
    Origin(HeaderValue),
}

impl Readers {
    fn of_origin(headers: &HeaderMap) -> Self {
        headers
            .get(header::ORIGIN)
            .map_or(Self::SameSite, |value| Self::Origin(value.clone()))
    }
}

/// The text of a header, empty if it is not ASCII.
fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    let value = headers.get(name)?;
    Some(value.to_str().unwrap_or_default())
}

/// Schemes of origins of apps on this machine; no web site can have one of them.
const APP_SCHEMES: [&str; 9] = [
    "app",
    "capacitor",
    "chrome-extension",
    "ionic",
    "moz-extension",
    "safari-web-extension",
    "tauri",
    "vscode-file",
    "vscode-webview",
];

/// Headers of a response that pages may read.
const EXPOSED: HeaderValue =
    HeaderValue::from_static("x-request-id, request-id, retry-after, warning");
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, OPTIONS");
/// Seconds for which a browser caches a preflight.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
/// Chrome sends this before a page of the internet may reach this machine.
const ASKS_PRIVATE: &str = "access-control-request-private-network";
const ALLOWS_PRIVATE: &str = "access-control-allow-private-network";

impl Access<'_> {
    /// Decides whether a request is answered, and which pages may read the response.
    ///
    /// With keys, every page may send requests, because it must know a key. Without keys, `Origin`
    /// tells which page sends the request and `Host` by which name it found the server, so that no
    /// web site can use this machine, not even one that points its own name to this machine after
    /// it was loaded (DNS rebinding).
    ///
    /// # Errors
    /// An [`ApiError`] that names the option which would admit the request.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<Readers, ApiError> {
        let host = text(headers, header::HOST);
        let origin = text(headers, header::ORIGIN);
        if self.has_keys {
            return Ok(self.readers_with_key(headers));
        }
        if let Some(host) = host.filter(|host| self.checks_host && !self.is_known(host)) {
            return Err(ApiError::foreign_host(host));
        }
        match origin {
            None => Ok(Readers::SameSite),
            Some(origin) if self.is_ours(origin, host) => Ok(Readers::SameSite),
            Some(origin) if is_app(origin) || self.is_listed(origin) => {
                Ok(Readers::of_origin(headers))
            }
            Some(origin) => Err(ApiError::foreign_origin(origin)),
        }
    }

    /// With keys, the allowed origins narrow the pages that may read responses.
    fn readers_with_key(&self, headers: &HeaderMap) -> Readers {
        match headers.get(header::ORIGIN) {
            Some(_) if self.origins.is_empty() => Readers::All,
            Some(origin) if origin.to_str().is_ok_and(|text| self.is_listed(text)) => {
                Readers::Origin(origin.clone())
            }
            _ => Readers::SameSite,
        }
    }

    /// Whether a page was loaded from this server. On a server with TLS, a page loaded without TLS
    /// is foreign, because it may have been modified. A page loaded with TLS from a server without
    /// it may come through a proxy. A name from the local network is not enough, because its owner
    /// could serve a page by that name.
    fn is_ours(&self, origin: &str, host: Option<&str>) -> bool {
        let is_same = origin.split_once("://").is_some_and(|(scheme, site)| {
            Some(site) == host && (self.scheme != "https" || scheme == self.scheme)
        });
        is_same
            && (!self.checks_host
                || host.is_some_and(|host| is_this_machine(host) || self.is_allowed_host(host)))
    }

    /// Whether no web site of the internet can have the name in `Host`.
    fn is_known(&self, host: &str) -> bool {
        is_this_machine(host) || is_local_name(host) || self.is_allowed_host(host)
    }

    fn is_allowed_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|allowed| {
            allowed.eq_ignore_ascii_case(host) || allowed.eq_ignore_ascii_case(name(host))
        })
    }

    fn is_listed(&self, origin: &str) -> bool {
        self.origins
            .iter()
            .any(|pattern| matches_origin(pattern, origin))
    }
}

impl Readers {
    /// Adds the headers of CORS.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        let origin = match self {
            Self::SameSite => return,
            Self::All => HeaderValue::from_static("*"),
            Self::Origin(origin) => {
                headers.append(header::VARY, HeaderValue::from_static("origin"));
                origin.clone()
            }
        };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    }

    /// The response to a preflight. A preflight has no key; the request after it does.
    pub(crate) fn preflight(&self, asked: &HeaderMap) -> Response {
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        if let Some(names) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
        }
        if asked.contains_key(ASKS_PRIVATE) && *self != Self::SameSite {
            headers.insert(ALLOWS_PRIVATE, HeaderValue::from_static("true"));
        }
        response
    }
}

/// Whether a request is a CORS preflight.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// Whether a text is a valid allowed origin: `*`, `null`, `SCHEME://HOST`, `SCHEME://HOST:PORT`
/// or `SCHEME://*`.
pub(crate) fn is_origin(text: &str) -> bool {
    let is_site = |(scheme, host): (&str, &str)| {
        !scheme.is_empty()
            && !host.is_empty()
            && !host.contains(['/', '?', '#', '@', ' '])
            && text.is_ascii()
    };
    text == "*" || text == "null" || text.split_once("://").is_some_and(is_site)
}

/// Whether a text is a valid allowed host: `NAME` or `NAME:PORT`.
pub(crate) fn is_host(text: &str) -> bool {
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.:[]".contains(&c);
    !name(text).is_empty() && text.bytes().all(is_plain)
}

/// Whether an allowed origin admits every web page.
pub(crate) fn is_every_site(pattern: &str) -> bool {
    matches!(
        pattern.to_ascii_lowercase().as_str(),
        "*" | "http://*" | "https://*"
    )
}

fn matches_origin(pattern: &str, origin: &str) -> bool {
    let starts_with = |start: &str| {
        origin
            .get(..start.len())
            .is_some_and(|text| text.eq_ignore_ascii_case(start))
    };
    match pattern.strip_suffix("://*") {
        Some(scheme) => starts_with(&format!("{scheme}://")),
        None => pattern == "*" || pattern.eq_ignore_ascii_case(origin),
    }
}

/// Whether an origin belongs to a program on this machine: an app, a browser extension, or a page
/// that this machine serves. A program that could misuse this runs here already and needs no
/// browser to send requests.
fn is_app(origin: &str) -> bool {
    origin
        .split_once("://")
        .is_some_and(|(scheme, site)| match scheme {
            "http" | "https" => is_loopback(site),
            scheme => APP_SCHEMES.contains(&scheme),
        })
}

/// A host without its port and the brackets of an address.
fn name(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    name.trim_start_matches('[').trim_end_matches(']')
}

/// Browsers resolve `localhost` and names below it to this machine, without a name server (RFC
/// 6761).
fn is_localhost(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || ends_with(name, ".localhost")
}

fn is_loopback(host: &str) -> bool {
    is_localhost(name(host))
        || name(host)
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Whether a host is an address or `localhost`, which no name server resolves.
fn is_this_machine(host: &str) -> bool {
    is_localhost(name(host)) || name(host).parse::<IpAddr>().is_ok()
}

/// Whether a host has a name that no web site can have: one without a dot, `.local` (RFC 6762), or
/// `.internal`, which is reserved for private use (`host.docker.internal`).
fn is_local_name(host: &str) -> bool {
    let name = name(host);
    let is_plain = !name.is_empty()
        && name
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c));
    is_plain && (!name.contains('.') || ends_with(name, ".local") || ends_with(name, ".internal"))
}

fn ends_with(name: &str, end: &str) -> bool {
    let at = name.len().checked_sub(end.len());
    at.and_then(|at| name.get(at..))
        .is_some_and(|tail| tail.eq_ignore_ascii_case(end))
}

/// Whether two texts are equal, in a time that depends on the length of `given` only.
fn same(key: &[u8], given: &[u8]) -> bool {
    let at = |i: usize| key.get(i).copied().unwrap_or(0);
    let difference = given
        .iter()
        .enumerate()
        .fold(0, |all, (i, byte)| all | (byte ^ at(i)));
    std::hint::black_box(difference) == 0 && key.len() == given.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Access<'_> = Access {
        has_keys: false,
        scheme: "http",
        checks_host: true,
        origins: &[],
        hosts: &[],
    };

    fn headers(host: &str, origin: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("host", host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert("origin", origin.parse().unwrap());
        }
        headers
    }

    fn from(origin: &str) -> Result<Readers, ApiError> {
        LOCAL.admit(&headers("localhost:8080", Some(origin)))
    }

    #[test]
    fn apps_and_pages_of_this_machine_may_ask_without_a_key_and_read_the_answer() {
        for origin in [
            "app://obsidian.md",
            "vscode-webview://x",
            "tauri://localhost",
            "http://tauri.localhost",
            "capacitor://localhost",
            "chrome-extension://abc",
            "moz-extension://abc",
            "http://localhost:3000",
            "https://127.0.0.1",
            "http://[::1]:5173",
        ] {
            assert_eq!(
                from(origin),
                Ok(Readers::Origin(origin.parse().unwrap())),
                "{origin}"
            );
        }
        assert_eq!(from("http://localhost:8080"), Ok(Readers::SameSite));
    }

    #[test]
    fn web_sites_may_not_ask_without_a_key_and_learn_which_option_helps() {
        for origin in [
            "https://evil.example",
            "null",
            "",
            "http://localhost.evil.example",
            "http://192.168.1.5",
            "file://",
            "ftp://localhost",
        ] {
            let error = from(origin).unwrap_err();
            assert!(
                error.message.contains("allowed origins"),
                "{origin}: {error:?}"
            );
        }
    }

    #[test]
    fn listed_origins_may_ask_and_no_others() {
        let origins = ["https://chat.example".to_owned(), "zed://*".to_owned()];
        let access = Access {
            origins: &origins,
            ..LOCAL
        };
        let may = |origin| access.admit(&headers("localhost", Some(origin))).is_ok();
        assert!(may("https://chat.example") && may("zed://anything"));
        assert!(
            !may("http://chat.example")
                && !may("https://chat.example.evil.example")
                && !may("https://a.example")
        );
    }

    #[test]
    fn with_a_key_every_page_may_read_unless_some_are_listed() {
        let keyed = Access {
            has_keys: true,
            ..LOCAL
        };
        let page = headers("any.example", Some("https://site.example"));
        assert_eq!(keyed.admit(&page), Ok(Readers::All));
        let origins = ["https://other.example".to_owned()];
        assert_eq!(
            Access {
                origins: &origins,
                ..keyed
            }
            .admit(&page),
            Ok(Readers::SameSite)
        );
    }

    #[test]
    fn names_that_no_web_site_can_have_find_the_server() {
        let named = |host: &str| LOCAL.admit(&headers(host, None));
        for host in [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:8080",
            "[::1]:8080",
            "[::1]",
            "host.docker.internal:8080",
            "raspberrypi.local",
            "my-pc:8080",
        ] {
            assert_eq!(named(host), Ok(Readers::SameSite), "{host}");
        }
        for host in [
            "evil.example:8080",
            "localhost.evil.example",
            "",
            "evil.local.example",
            "a.internal.example",
        ] {
            assert!(
                named(host)
                    .unwrap_err()
                    .message
                    .contains("allowed host names"),
                "{host}"
            );
        }
        let hosts = ["llm.example".to_owned()];
        let allowed = Access {
            hosts: &hosts,
            ..LOCAL
        };
        assert!(
            allowed
                .admit(&headers(
                    "llm.example:8080",
                    Some("http://llm.example:8080")
                ))
                .is_ok()
        );
    }

    #[test]
    fn a_page_of_a_name_that_the_network_hands_out_is_not_ours() {
        for host in ["evil.local:8080", "my-pc:8080", "a.internal:8080"] {
            let page = headers(host, Some(&format!("http://{host}")));
            assert!(LOCAL.admit(&page).is_err(), "{host}");
        }
    }

    #[test]
    fn pages_that_anybody_may_have_changed_are_not_from_an_encrypted_server() {
        let of = |origin: &str, scheme| {
            let access = Access {
                scheme,
                checks_host: false,
                ..LOCAL
            };
            access
                .admit(&headers("server.example", Some(origin)))
                .is_ok()
        };
        assert!(of("https://server.example", "https") && !of("http://server.example", "https"));
        assert!(of("https://server.example", "http") && of("http://server.example", "http"));
    }

    #[test]
    fn an_origin_has_a_scheme_and_a_host_and_nothing_behind_them() {
        assert!(
            [
                "*",
                "null",
                "https://a.example",
                "http://a.example:8080",
                "app://*"
            ]
            .into_iter()
            .all(is_origin)
        );
        assert!(
            ![
                "",
                "a.example",
                "https://",
                "https://a.example/",
                "https://a.example/x",
                "://a"
            ]
            .into_iter()
            .any(is_origin)
        );
        assert!(is_every_site("*") && is_every_site("HTTPS://*") && !is_every_site("app://*"));
    }

    #[test]
    fn a_host_is_a_name_without_scheme_path_and_wildcard() {
        assert!(
            ["a.example", "a.example:8080", "my_pc", "[::1]:80"]
                .into_iter()
                .all(is_host)
        );
        assert!(
            ![
                "",
                ":80",
                "http://a.example",
                "a.example/",
                "*",
                "*.example",
                "a b"
            ]
            .into_iter()
            .any(is_host)
        );
    }

    #[test]
    fn a_key_is_right_or_wrong_as_a_whole() {
        let keys = ["first".to_owned(), "second".to_owned()];
        let with = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            headers
        };
        for (name, value) in [
            ("authorization", "Bearer first"),
            ("authorization", "bearer second"),
            ("x-api-key", "first"),
        ] {
            assert!(is_allowed(&keys, &with(name, value)), "{value}");
        }
        for value in [
            "Bearer",
            "Bearer ",
            "Bearer firs",
            "Bearer first\u{1}",
            "Bearer firstt",
            "Basic first",
            "first",
        ] {
            if let Ok(value) = value.parse() {
                let mut headers = HeaderMap::new();
                headers.insert("authorization", value);
                assert!(!is_allowed(&keys, &headers));
            }
        }
        assert!(!is_allowed(&keys, &HeaderMap::new()));
        assert!(
            is_allowed(&[], &HeaderMap::new())
                && is_allowed(&[], &with("authorization", "Bearer x"))
        );
    }
}
