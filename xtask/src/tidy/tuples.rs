//! Rules about tuples: none as the type of a parameter, none to bind several values in one `let`.
//!
//! It refuses to look at tuples elsewhere: as results, in collections, in `match` and `if let`. The
//! one idea: values that belong together are a struct with names, and values that do not are bound
//! one by one.

use super::Finding;
use crate::source::{RustFile, top_level_commas};

const REASON: &str = "// tuple:";

pub(super) fn check(source: &RustFile<'_>) -> Vec<Finding> {
    let code = (0..source.code.len()).filter(|&i| !source.in_test(i));
    code.flat_map(|i| [parameter(source, i), packing(source, i)])
        .flatten()
        .filter(|&(at, _)| !source.gives_reason(at, REASON))
        .map(|(at, message)| Finding::new(source.path, source.code[at].line, message))
        .collect()
}

/// A breach: the token where it is, and what to say.
type Breach = (usize, &'static str);

/// The first parameter with a tuple type, if a function begins at token `i`.
fn parameter(source: &RustFile<'_>, i: usize) -> Option<Breach> {
    let open = source.parameters(i)?;
    let close = source.closing(open)?;
    let starts = std::iter::once(open).chain(top_level_commas(&source.code, open, close));
    let tuple = starts.into_iter().find_map(|start| {
        let colon = (start + 1..close).find(|&k| is_colon(source, k))?;
        is_tuple(source, type_start(source, colon + 1)).then_some(colon)
    })?;
    Some((tuple, "a parameter is a tuple; make it a struct"))
}

/// A `:` that is no half of a `::`.
fn is_colon(source: &RustFile<'_>, k: usize) -> bool {
    let is = |k: usize| source.code.get(k).is_some_and(|t| t.is(":"));
    is(k) && !is(k + 1) && !is(k - 1)
}

/// RustToken `i`, or the one behind the `&`, lifetime and `mut` that stand there.
fn type_start(source: &RustFile<'_>, i: usize) -> usize {
    let rest = source.code.iter().skip(i);
    let n = rest.take_while(|t| t.is("&") || t.is("mut") || t.text.starts_with('\''));
    i + n.count()
}

/// Whether a tuple of two or more begins at token `open`.
fn is_tuple(source: &RustFile<'_>, open: usize) -> bool {
    source.spells(open, &["("])
        && source
            .closing(open)
            .is_some_and(|close| !top_level_commas(&source.code, open, close).is_empty())
}

/// `let (a, b) = (x, y);`, if it begins at token `i`. What may fail to match is a question, not a
/// binding: `if let`, `while let`, `let … else`.
fn packing(source: &RustFile<'_>, i: usize) -> Option<Breach> {
    let before = i.checked_sub(1).map(|k| source.code[k].text);
    if !source.spells(i, &["let", "("]) || matches!(before, Some("if" | "while" | "&")) {
        return None;
    }
    let pattern_end = source.closing(i + 1)?;
    let equals = (pattern_end..source.code.len()).find(|&k| source.code[k].is("="))?;
    let statement_end = (pattern_end..source.code.len()).find(|&k| source.code[k].is(";"));
    let value = equals + 1;
    let end = source
        .spells(value, &["("])
        .then(|| source.closing(value))??;
    let packs = statement_end == Some(end + 1) && is_tuple(source, value);
    packs.then_some((i, "a `let` packs several values; bind each by itself"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::findings;
    use super::*;

    #[test]
    fn a_tuple_parameter_is_found() {
        for text in [
            "fn f(a: (u8, u8)) {}",
            "fn f<T: Into<u8>>(&self, a: T, b: &'a mut (u8, u8)) -> u8 { 1 }",
            "trait T { fn f((a, b): (u8, u8)); }",
        ] {
            assert_eq!(
                findings(check, "a.rs", text),
                ["1: a parameter is a tuple; make it a struct"],
                "{text}"
            );
        }
    }

    #[test]
    fn other_parameters_are_none() {
        for text in [
            "fn f(a: &[(u8, u8)], b: std::fmt::Result, c: impl Fn((u8, u8)), d: ()) {}",
            "fn f(a: (u8)) -> (u8, u8) { g(|(a, b): (u8, u8)| a) }",
            "#[test] fn f(a: (u8, u8)) {}",
            "type F = fn((u8, u8));",
        ] {
            assert_eq!(findings(check, "a.rs", text), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_let_that_packs_values_is_found() {
        for text in [
            "let (a, mut b) = (1, f(2, 3));",
            "let (a, b): (u8, u8) = (1, 2);",
            "let (a, (b, c)) = (1, (2, 3));",
        ] {
            assert_eq!(
                findings(check, "a.rs", text),
                ["1: a `let` packs several values; bind each by itself"],
                "{text}"
            );
        }
    }

    #[test]
    fn other_lets_are_not() {
        for text in [
            "let (a, b) = f(1, 2);",
            "let (a, b) = (x + y).split();",
            "let (Some(a), Some(b)) = (x, y) else { return };",
            "if let (Some(a), Some(b)) = (x, y) {}",
            "if x && let (Some(a), Some(b)) = (x, y) { f(); }",
            "let a = (1, 2);",
        ] {
            assert_eq!(findings(check, "a.rs", text), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_reason_excuses() {
        for text in [
            "// tuple: one call returns it\nfn f(a: (u8, u8)) {}",
            "// tuple: swaps\nlet (a, b) = (b, a);",
        ] {
            assert_eq!(findings(check, "a.rs", text), [""; 0], "{text}");
        }
    }
}
