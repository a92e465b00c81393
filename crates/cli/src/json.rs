//! JSON that is safe on a terminal.
//!
//! JSON escapes control characters below U+0020 only. A string from a hostile file may hold others,
//! which control a terminal or change the direction of text; they become `\uXXXX`, which means the
//! same in JSON.

use serde_json::Value;

use crate::failure::is_invisible;

/// A value in one line.
pub(crate) fn line(value: &Value) -> String {
    escape(&value.to_string())
}

/// A value in indented lines.
pub(crate) fn pretty(value: &Value) -> String {
    escape(&format!("{value:#}"))
}

/// Escapes characters that do not print, except line feeds, which in JSON stand between values.
fn escape(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if is_invisible(c) && c != '\n' {
            out.extend(
                c.encode_utf16(&mut [0; 2])
                    .iter()
                    .map(|unit| format!("\\u{unit:04x}")),
            );
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_steers_a_terminal_is_escaped_and_means_the_same() {
        let hostile = [
            "\u{1b}[31m\n\u{7f}",
            "\u{202e}\u{2067}\u{200f}\u{61c}\u{feff}ü",
        ];
        let value = json!({ "a\u{9b}": hostile, "b": {} });
        for text in [line(&value), pretty(&value)] {
            assert!(
                text.chars().all(|c| c == '\n' || !is_invisible(c)),
                "{text:?}"
            );
            assert!(
                text.contains("\\u009b") && text.contains("\\u202e") && text.contains('ü'),
                "{text:?}"
            );
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
        }
        assert_eq!(
            (line(&value).lines().count(), pretty(&json!([1])).as_str()),
            (1, "[\n  1\n]")
        );
    }
}
