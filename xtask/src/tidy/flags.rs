//! The rule that a library names no command-line flag.
//!
//! It refuses to look at comments, bytes and tests. The one idea: a message of a library also
//! reaches users of the HTTP API and of bindings, where no flags exist; the CLI adds its own.

use super::Finding;
use crate::source::{RustFile, TokenKind};

const REASON: &str = "// flag:";
/// Crates that have a command line.
const FREE: [&str; 1] = ["cli"];

pub(super) fn check(source: &RustFile<'_>) -> Vec<Finding> {
    if source.crate_dir().is_none_or(|dir| FREE.contains(&dir)) {
        return Vec::new();
    }
    let code = source.code.iter().enumerate();
    code.filter(|(i, token)| {
        let is_message = token.kind == TokenKind::Text && !token.text.starts_with('b');
        let is_named = is_message && names_flag(token.text);
        is_named && !source.in_test(*i) && !source.gives_reason(*i, REASON)
    })
    .map(|(_, token)| {
        let message = "names a command-line flag in a library; name the setting";
        Finding::new(source.path, token.line, message)
    })
    .collect()
}

/// Whether the text has a word such as `--top-p`, or `-n` by itself.
fn names_flag(text: &str) -> bool {
    let is_edge = |c: char| !c.is_alphanumeric() && !matches!(c, '-' | '\\' | '^' | '_' | '[');
    text.split(is_edge).any(|word| {
        let long = word.strip_prefix("--").and_then(|name| name.chars().next());
        let short = word.strip_prefix('-').filter(|name| name.len() == 1);
        let first = long.or_else(|| short?.chars().next());
        first.is_some_and(|c| c.is_ascii_alphabetic())
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::*;

    const LIBRARY: &str = "crates/engine/src/a.rs";

    #[test]
    fn flags_in_strings_of_libraries_are_found() {
        for text in [
            "f(\"--top-p is 2\")",
            "\"raise -n, or wait\"",
            "#[error(\"give `--force`\")] struct A;",
            "r#\"--pre=x\"#",
        ] {
            assert_eq!(
                findings(check, LIBRARY, text),
                ["1: names a command-line flag in a library; name the setting"],
                "{text}"
            );
        }
    }

    #[test]
    fn other_dashes_are_no_flags() {
        for text in [
            "\"a -- b\"",
            "\"a--b\"",
            "\"[a-z]\"",
            "\"-1\"",
            "\"top-p\"",
            "\"----\"",
            "b\". -A\"",
            "// --top-p",
            "#[test] fn f() { \"--top-p\" }",
        ] {
            assert_eq!(findings(check, LIBRARY, text), [""; 0], "{text}");
        }
    }

    #[test]
    fn the_command_line_and_a_given_reason_are_free() {
        let text = "\"--top-p\"";
        assert_eq!(findings(check, "crates/cli/src/a.rs", text), [""; 0]);
        assert_eq!(findings(check, "xtask/src/a.rs", text), [""; 0]);
        let reason = "// flag: of another program\nlet a = \"--in-file\";";
        assert_eq!(findings(check, LIBRARY, reason), [""; 0]);
    }
}
