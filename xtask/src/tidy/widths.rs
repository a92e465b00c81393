//! The rule that lines fit: 100 columns of Rust, 120 of Markdown.
//!
//! It refuses to break lines itself, and excuses those that cannot be broken: string literals,
//! addresses, tables, code blocks and generated files. The one idea: a diff of two files side by
//! side must be readable.

use super::{Finding, files};
use crate::page::Page;
use crate::source::{RustFile, TokenKind};

const MAX_RUST: usize = 100;
const MAX_MARKDOWN: usize = 120;

pub(super) fn check(source: &RustFile<'_>) -> Vec<Finding> {
    if files::is_table(source.text) {
        return Vec::new();
    }
    let mut start = 0;
    let lines = source.text.split_inclusive('\n').enumerate();
    lines
        .filter_map(|(i, line)| {
            let from = start;
            start += line.len();
            let width = line.trim_end_matches(['\r', '\n']).chars().count();
            let is_wide =
                width > MAX_RUST && !is_one_word(line) && !holds_string(source, from, start);
            is_wide.then(|| finding(source.path, i + 1, width, MAX_RUST))
        })
        .collect()
}

fn finding(path: &str, line: usize, width: usize, max: usize) -> Finding {
    Finding::new(
        path,
        line,
        format!("line of {width} columns, expected {max}"),
    )
}

/// Whether the line is a comment of one word, such as an address.
fn is_one_word(line: &str) -> bool {
    let comment = line.trim_start().strip_prefix("//");
    comment.is_some_and(|text| {
        text.trim_start_matches(['/', '!'])
            .split_whitespace()
            .count()
            == 1
    })
}

/// Whether a part of a string literal lies in the bytes from `start` to `end`.
fn holds_string(source: &RustFile<'_>, start: usize, end: usize) -> bool {
    let after = source
        .code
        .partition_point(|token| token.start + token.text.len() <= start);
    let tokens = source.code[after..].iter();
    tokens
        .take_while(|token| token.start < end)
        .any(|token| token.kind == TokenKind::Text)
}

pub(super) fn check_page(page: &Page<'_>) -> Vec<Finding> {
    let lines = page.prose().filter(|(_, line)| !line.starts_with('|'));
    lines
        .map(|(number, line)| (number, breakable_width(line)))
        .filter(|&(_, width)| width > MAX_MARKDOWN)
        .map(|(number, width)| finding(page.path, number, width, MAX_MARKDOWN))
        .collect()
}

/// Columns of the line, without words that hold a link.
fn breakable_width(line: &str) -> usize {
    let links = line
        .split_whitespace()
        .filter(|word| word.contains("://") || word.contains("]("));
    line.chars().count() - links.map(|word| word.chars().count()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::*;

    #[test]
    fn a_line_of_101_columns_is_too_wide() {
        let code = |n: usize| format!("\nlet a = {};", "é".repeat(n - 9));
        assert_eq!(findings(check, "a.rs", &code(100)), [""; 0]);
        assert_eq!(
            findings(check, "a.rs", &code(101)),
            ["2: line of 101 columns, expected 100"]
        );
        let comment = format!("/// a {}", "b".repeat(95));
        assert_eq!(findings(check, "a.rs", &comment).len(), 1);
    }

    #[test]
    fn lines_that_cannot_be_broken_are_excused() {
        let long = "a".repeat(120);
        for text in [
            format!("//! <https://{long}>"),
            format!("f(\"{long}\");"),
            format!("f(\"\n{long}\n\");"),
            format!("//! table of words\n// b {long}"),
        ] {
            assert_eq!(findings(check, "a.rs", &text), [""; 0], "{text}");
        }
    }

    fn page(text: &str) -> usize {
        check_page(&Page::new("a.md", text)).len()
    }

    #[test]
    fn markdown_of_121_columns_is_too_wide() {
        assert_eq!(page(&"a ".repeat(60)), 0);
        assert_eq!(page(&"a ".repeat(61)), 1);
    }

    #[test]
    fn tables_code_and_addresses_of_pages_may_be_wide() {
        let long = "a".repeat(120);
        for text in [
            format!("| {long} |"),
            format!("```\n{long}\n```"),
            format!("See [it](https://{long})."),
            format!("See <https://{long}>."),
        ] {
            assert_eq!(page(&text), 0, "{text}");
        }
        assert_eq!(page(&format!("```\n```\n{long} b")), 1);
    }
}
