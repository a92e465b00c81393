//! Who may ask: keys, and addresses that only this machine can reach.

use axum::http::{HeaderMap, header};

/// Whether one of the keys came with a request, as `Authorization: Bearer KEY` or as `x-api-key: KEY`. Without keys, whatever
/// comes is right.
pub(crate) fn is_allowed(keys: &[String], headers: &HeaderMap) -> bool {
    let bearer = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let bearer = bearer.and_then(|value| value.strip_prefix(b"Bearer ").or_else(|| value.strip_prefix(b"bearer ")));
    let given = bearer.or_else(|| Some(headers.get("x-api-key")?.as_bytes()));
    // All keys are compared, so that time does not tell which one was nearly right.
    keys.is_empty() || given.is_some_and(|given| keys.iter().fold(false, |is, key| same(key.as_bytes(), given) | is))
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
