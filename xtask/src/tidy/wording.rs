//! Rules about words: no marks of unfinished work, no macros that stand for missing code, no
//! banners.
//!
//! It refuses to judge prose, and leaves strings alone, which are data. The one idea: unfinished
//! work is an issue, not a comment.

use super::Finding;
use crate::source::{RustFile, RustToken, TokenKind};

const MARKS: [&str; 3] = ["TODO", "FIXME", "XXX"];
const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];
const BANNERS: [&str; 5] = ["====", "----", "####", "****", "────"];

pub(super) fn check(source: &RustFile<'_>) -> Vec<Finding> {
    let words = source.code.iter().filter_map(|token| mark(source, token));
    let comments = source
        .comments
        .iter()
        .flat_map(|comment| [mark(source, comment), banner(source, comment)])
        .flatten();
    words
        .chain(comments)
        .chain((0..source.code.len()).filter_map(|i| missing_code(source, i)))
        .collect()
}

fn mark(source: &RustFile<'_>, token: &RustToken<'_>) -> Option<Finding> {
    if token.kind == TokenKind::Text {
        return None;
    }
    let mark = token
        .text
        .split(|c: char| !c.is_alphanumeric())
        .find(|word| MARKS.contains(word))?;
    Some(Finding::new(
        source.path,
        token.line,
        format!("`{mark}`: do it, or open an issue"),
    ))
}

fn missing_code(source: &RustFile<'_>, i: usize) -> Option<Finding> {
    let name = MACROS
        .into_iter()
        .find(|name| source.spells(i, &[name, "!"]))?;
    Some(Finding::new(
        source.path,
        source.code[i].line,
        format!("`{name}!` has no place in finished code"),
    ))
}

fn banner(source: &RustFile<'_>, comment: &RustToken<'_>) -> Option<Finding> {
    let text = comment.text.strip_prefix("//")?.trim_start();
    let is_banner = BANNERS.iter().any(|line| text.starts_with(line));
    is_banner.then(|| {
        Finding::new(
            source.path,
            comment.line,
            "banner; a file that needs one wants to be two",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::*;

    #[test]
    fn marks_of_unfinished_work_are_found() {
        for text in [
            "// TODO: later",
            "/// FIXME",
            "/* XXX */",
            "//! TODO",
            "const TODO: u8 = 0;",
            "// TODO \"x\"",
        ] {
            assert!(
                findings(check, "a.rs", text)[0].contains("open an issue"),
                "{text}"
            );
        }
    }

    #[test]
    fn macros_that_stand_for_missing_code_are_found() {
        for text in ["fn f() { todo!() }", "unimplemented!(\"x\")", "dbg!(x)"] {
            assert!(
                findings(check, "a.rs", text)[0].contains("no place"),
                "{text}"
            );
        }
    }

    #[test]
    fn banners_are_found_and_tables_are_not() {
        assert_eq!(
            findings(check, "a.rs", "// ======\n// ---- part ----").len(),
            2
        );
        assert_eq!(
            findings(check, "a.rs", "//! |----|\n// a - b -- c").len(),
            0
        );
    }

    #[test]
    fn strings_and_other_words_are_left_alone() {
        for text in [
            "\"TODO\"",
            "r#\"TODO\"#",
            "// todo list, TODOS",
            "fn dbg() {}",
            "let todo = !x;",
        ] {
            assert_eq!(findings(check, "a.rs", text), [""; 0], "{text}");
        }
    }
}
