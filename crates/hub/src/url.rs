//! URLs, as far as following a redirect requires.

/// An absolute http or https URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url(String);

impl Url {
    /// Parses a URL; `None` unless it is http or https with a host and without credentials.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let rest = text
            .strip_prefix("https://")
            .or_else(|| text.strip_prefix("http://"))?;
        let host = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        // Credentials in a URL would be sent to its host.
        let is_sound = !host.is_empty()
            && !host.contains('@')
            && text.bytes().all(|b| (0x21..0x7f).contains(&b));
        is_sound.then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The URL without its query, which may contain a signature that grants access.
    pub(crate) fn shown(&self) -> &str {
        &self.0[..self.0.find('?').unwrap_or(self.0.len())]
    }

    pub(crate) fn is_https(&self) -> bool {
        self.0.starts_with("https://")
    }

    /// Scheme, host and port. The token is sent within one origin only.
    pub(crate) fn origin(&self) -> &str {
        &self.0[..self.origin_end()]
    }

    fn origin_end(&self) -> usize {
        let host = self.0.find("://").map_or(0, |at| at + 3);
        self.0[host..]
            .find(['/', '?', '#'])
            .map_or(self.0.len(), |at| host + at)
    }

    /// Resolves the target of a `Location` or `Link` header of a response from this URL.
    pub(crate) fn join(&self, target: &str) -> Option<Self> {
        let scheme = &self.0[..self.0.find("://")?];
        if target.starts_with("//") {
            return Self::parse(&format!("{scheme}:{target}"));
        }
        if target.starts_with('/') {
            return Self::parse(&format!("{}{target}", self.origin()));
        }
        if target.contains("://") {
            return Self::parse(target);
        }
        let path = &self.0[..self.0.find(['?', '#']).unwrap_or(self.0.len())];
        let directory = path
            .rfind('/')
            .filter(|&at| at >= self.origin_end())
            .map_or(path, |at| &path[..at]);
        Self::parse(&format!("{directory}/{target}"))
    }

    /// Appends path segments, each percent-encoded.
    pub(crate) fn with_path(&self, parts: &[&str]) -> Self {
        let base = self.0.trim_end_matches('/');
        Self(
            parts
                .iter()
                .fold(base.to_owned(), |url, part| url + "/" + &escaped(part)),
        )
    }

    /// Appends a query.
    pub(crate) fn with_query(&self, query: &str) -> Self {
        Self(format!("{}?{query}", self.0))
    }
}

/// Percent-encodes a path segment.
fn escaped(text: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let escape = |b: u8| {
        if is_plain(b) {
            char::from(b).to_string()
        } else {
            format!("%{b:02X}")
        }
    };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for bad in [
            "",
            "ftp://a",
            "https://",
            "http:///a",
            "https://a@b/",
            "https://a b",
            "https://a/\r\nX: y",
            "/a",
        ] {
            assert_eq!(Url::parse(bad), None, "{bad}");
        }
        assert_eq!(url("http://h:80/a?b").origin(), "http://h:80");
        assert_eq!(url("https://h?b").origin(), "https://h");
    }

    #[test]
    fn redirects_are_absolute_or_relative() {
        let base = url("https://h/a/b?c=/d");
        let join = |target: &str| base.join(target).map(|url| url.0);
        assert_eq!(join("https://x/y").as_deref(), Some("https://x/y"));
        assert_eq!(join("//x/y").as_deref(), Some("https://x/y"));
        assert_eq!(join("/y").as_deref(), Some("https://h/y"));
        assert_eq!(join("y").as_deref(), Some("https://h/a/y"));
        assert_eq!(url("https://h").join("y").unwrap().0, "https://h/y");
        assert_eq!(join("file:///etc/passwd"), None);
    }

    #[test]
    fn parts_of_a_path_are_escaped() {
        let url = url("https://h/").with_path(&["a", "refs/pr/1", "x y%.gguf"]);
        assert_eq!(url.as_str(), "https://h/a/refs%2Fpr%2F1/x%20y%25.gguf");
    }
}
