//! Who may ask: keys, and pages of no other site.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderValue, header};

/// Whether one of the keys came with a request, as `Authorization: Bearer KEY` or as `x-api-key: KEY`. Without keys, whatever
/// comes is right.
pub(crate) fn is_allowed(keys: &[String], headers: &HeaderMap) -> bool {
    let bearer = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let bearer = bearer.and_then(|value| value.split_first_chunk::<7>());
    let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer ")).map(|(_, key)| key);
    let given = bearer.or_else(|| Some(headers.get("x-api-key")?.as_bytes()));
    // All keys are compared, so that time does not tell which one was nearly right.
    keys.is_empty() || given.is_some_and(|given| keys.iter().fold(false, |is, key| same(key.as_bytes(), given) | is))
}

/// Whether a request comes from no page of another site, for servers without keys: a browser says where a page is from that
/// posts, and by which name it has found the server. So a page that somebody happens to open cannot have this machine work
/// for it, nor can one whose name is made to mean this machine after it was loaded (`names`: whether the name counts).
/// Where connections are encrypted (`scheme`), pages that were not are of another site, since anybody may have changed them;
/// the other way round, somebody in front of us may have done it.
pub(crate) fn is_from_here(headers: &HeaderMap, scheme: &str, names: bool) -> bool {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or_default());
    let host = text(header::HOST);
    let is_ours = |origin: &str| {
        origin
            .split_once("://")
            .is_some_and(|(theirs, site)| Some(site) == host && (scheme != "https" || theirs == scheme))
    };
    text(header::ORIGIN).is_none_or(is_ours) && (!names || host.is_none_or(is_plain))
}

/// Whether a host is an address, or this machine by its usual name: what no other machine can be called.
fn is_plain(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

/// Whether two texts are equal, in a time that depends on the length of what was given only.
fn same(key: &[u8], given: &[u8]) -> bool {
    let at = |i: usize| key.get(i).copied().unwrap_or(0);
    let difference = given.iter().enumerate().fold(0, |all, (i, byte)| all | (byte ^ at(i)));
    std::hint::black_box(difference) == 0 && key.len() == given.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites_are_not_from_here() {
        let of = |origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert("host", "localhost:8080".parse().unwrap());
            if let Some(origin) = origin {
                headers.insert("origin", origin.parse().unwrap());
            }
            is_from_here(&headers, "http", true)
        };
        assert!(of(None) && of(Some("http://localhost:8080")));
        for other in ["http://evil.example", "null", "http://localhost:8081", ""] {
            assert!(!of(Some(other)), "{other}");
        }
        let named = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("host", host.parse().unwrap());
            is_from_here(&headers, "http", true)
        };
        assert!(["localhost", "LOCALHOST:1", "127.0.0.1:8080", "[::1]:8080", "[::1]"].into_iter().all(named));
        assert!(!["evil.example:8080", "localhost.evil.example", ""].into_iter().any(named));
    }

    #[test]
    fn pages_that_anybody_may_have_changed_are_not_from_an_encrypted_server() {
        let of = |origin: &str, scheme| {
            let mut headers = HeaderMap::new();
            headers.insert("host", "server.example".parse().unwrap());
            headers.insert("origin", origin.parse().unwrap());
            is_from_here(&headers, scheme, false)
        };
        assert!(of("https://server.example", "https") && !of("http://server.example", "https"));
        assert!(of("https://server.example", "http") && of("http://server.example", "http"));
    }

    #[test]
    fn a_key_is_right_or_wrong_as_a_whole() {
        let keys = ["first".to_owned(), "second".to_owned()];
        let with = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            headers
        };
        for (name, value) in
            [("authorization", "Bearer first"), ("authorization", "bearer second"), ("x-api-key", "first")]
        {
            assert!(is_allowed(&keys, &with(name, value)), "{value}");
        }
        for value in ["Bearer", "Bearer ", "Bearer firs", "Bearer first\u{1}", "Bearer firstt", "Basic first", "first"]
        {
            if let Ok(value) = value.parse() {
                let mut headers = HeaderMap::new();
                headers.insert("authorization", value);
                assert!(!is_allowed(&keys, &headers));
            }
        }
        assert!(!is_allowed(&keys, &HeaderMap::new()));
        assert!(is_allowed(&[], &HeaderMap::new()) && is_allowed(&[], &with("authorization", "Bearer x")));
    }
}
