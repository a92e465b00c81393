//! Warnings about a request: fields without effect, keywords of schemas that were dropped.
//!
//! Knows neither fields nor schemas. Each request collects its own; the client gets them as
//! `Warning` headers (RFC 7234, code 299), and the log shows each text once per run of the server.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use axum::http::{HeaderMap, HeaderValue, header};

/// Warnings per request. Clients choose the names of fields, so the list needs a limit.
const MAX_WARNINGS: usize = 32;
/// Characters per warning.
const MAX_CHARS: usize = 300;
/// Distinct warnings that the log shows.
const MAX_LOGGED: usize = 1000;

/// The warnings about one request; clones share one list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Adds a warning as one line, unless the request already has it or the limit is reached.
    pub(crate) fn add(&self, warning: impl Into<String>) {
        let warning = in_one_line(&warning.into());
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < MAX_WARNINGS && !list.contains(&warning) {
            list.push(warning);
        }
    }

    /// Adds several warnings.
    pub(crate) fn extend<T: Into<String>>(&self, warnings: impl IntoIterator<Item = T>) {
        warnings.into_iter().for_each(|warning| self.add(warning));
    }

    /// Takes all warnings out of the list, oldest first.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Adds a `Warning` header for each warning.
pub(crate) fn add_headers(headers: &mut HeaderMap, warnings: &[String]) {
    for warning in warnings {
        if let Ok(value) = HeaderValue::from_str(&format!("299 atta \"{}\"", quoted(warning))) {
            headers.append(header::WARNING, value);
        }
    }
}

/// Cuts a text to its limit and escapes control characters, so that it is one line of a log.
fn in_one_line(text: &str) -> String {
    let mut line = String::new();
    for c in text.chars().take(MAX_CHARS) {
        if c.is_control() {
            line.extend(c.escape_default())
        } else {
            line.push(c)
        }
    }
    if text.chars().nth(MAX_CHARS).is_some() {
        line + "..."
    } else {
        line
    }
}

/// Escapes a text for a quoted string of a header; other than ASCII becomes `?`.
fn quoted(text: &str) -> String {
    let plain = text.chars().map(|c| {
        if c.is_ascii_graphic() || c == ' ' {
            c
        } else {
            '?'
        }
    });
    plain
        .flat_map(|c| {
            matches!(c, '"' | '\\')
                .then_some('\\')
                .into_iter()
                .chain([c])
        })
        .collect()
}

/// The warnings that the log has shown.
#[derive(Debug, Default)]
pub(crate) struct LoggedWarnings(Mutex<HashSet<String>>);

impl LoggedWarnings {
    /// Marks a warning as shown. Returns false if it was shown before, or the limit is reached.
    pub(crate) fn is_new(&self, warning: &str) -> bool {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shown.len() < MAX_LOGGED && shown.insert(warning.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_told_once_and_logged_once() {
        let warnings = Warnings::default();
        warnings.clone().extend(["a", "b", "a"]);
        let list = warnings.take();
        assert_eq!(list, ["a", "b"]);
        let logged = LoggedWarnings::default();
        assert!(logged.is_new("a") && !logged.is_new("a") && logged.is_new("b"));
    }

    #[test]
    fn headers_are_plain_ascii_whatever_the_warning_says() {
        let mut headers = HeaderMap::new();
        add_headers(
            &mut headers,
            &["the field \"é\n\\\" changes nothing".to_owned()],
        );
        let values: Vec<&str> = headers
            .get_all(header::WARNING)
            .iter()
            .map(|value| value.to_str().unwrap())
            .collect();
        assert_eq!(values, [r#"299 atta "the field \"??\\\" changes nothing""#]);
    }

    #[test]
    fn a_client_cannot_fill_the_log() {
        let warnings = Warnings::default();
        warnings.add("a\nb\u{1b}[2J");
        warnings.add("x".repeat(1 << 20));
        warnings.extend((0..1000).map(|i| i.to_string()));
        let list = warnings.take();
        assert_eq!(list.len(), MAX_WARNINGS);
        assert_eq!(list[0], "a\\nb\\u{1b}[2J");
        assert_eq!(list[1].len(), MAX_CHARS + 3);
    }
}
