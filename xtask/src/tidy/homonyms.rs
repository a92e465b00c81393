//! The rule that a type name has at most three meanings in the workspace.
//!
//! It refuses to look at tests, at `Error` (one per crate by house style), and at associated types
//! (a trait names them). The one idea: a reader who meets a name with a fourth meaning cannot know
//! which type it is.

use super::Finding;
use crate::source::{RustFile, TokenKind};
use std::collections::BTreeMap;

const MAX_MEANINGS: usize = 3;
const KEYWORDS: [&str; 5] = ["struct", "enum", "union", "trait", "type"];
const FREE: [&str; 1] = ["Error"];

pub(super) fn check(sources: &[RustFile<'_>]) -> Vec<Finding> {
    let mut by_name: BTreeMap<&str, Vec<Definition<'_>>> = BTreeMap::new();
    for definition in sources.iter().flat_map(defined) {
        by_name.entry(definition.name).or_default().push(definition);
    }
    let too_many = by_name.values().filter(|same| same.len() > MAX_MEANINGS);
    too_many
        .flat_map(|same| same.iter().map(|d| finding(d, same.len())))
        .collect()
}

fn finding(definition: &Definition<'_>, n_meanings: usize) -> Finding {
    let Definition { name, path, line } = *definition;
    let message = format!(
        "`{name}` names {n_meanings} types of the workspace, expected at most {MAX_MEANINGS}"
    );
    Finding::new(path, line, message)
}

struct Definition<'a> {
    name: &'a str,
    path: &'a str,
    line: usize,
}

/// The types that the file defines outside tests.
fn defined<'a>(source: &RustFile<'a>) -> Vec<Definition<'a>> {
    let mut found = Vec::new();
    // For each open brace, whether an `impl` or a `trait` opened it.
    let mut open = Vec::new();
    let mut opens_trait = false;
    for (i, token) in source.code.iter().enumerate() {
        opens_trait |= token.is("impl") || token.is("trait");
        if token.is("{") {
            open.push(opens_trait);
        } else if token.is("}") {
            open.pop();
        }
        let is_associated = token.is("type") && open.last() == Some(&true);
        if token.is("{") || token.is("}") || token.is(";") {
            opens_trait = false;
        }
        if !is_associated && !source.in_test(i) {
            found.extend(name_after(source, i).map(|name| Definition {
                name,
                path: source.path,
                line: token.line,
            }));
        }
    }
    found
}

/// The name that a definition at token `i` gives.
fn name_after<'a>(source: &RustFile<'a>, i: usize) -> Option<&'a str> {
    let next = source.code.get(i + 1)?;
    let defines = KEYWORDS.iter().any(|word| source.code[i].is(word))
        && next.kind == TokenKind::Word
        && !FREE.contains(&next.text);
    defines.then_some(next.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(texts: &[&str]) -> Vec<String> {
        let sources: Vec<_> = texts
            .iter()
            .map(|text| RustFile::new("a.rs", text))
            .collect();
        let found = check(&sources).into_iter();
        found
            .map(|finding| finding.to_string())
            .filter(|finding| finding.contains("`Place`"))
            .collect()
    }

    #[test]
    fn the_fourth_meaning_is_found() {
        let three = ["struct Place;", "enum Place {}", "trait Place {}"];
        assert_eq!(places(&three), [""; 0]);
        let four = [three[0], three[1], three[2], "\ntype Place = u8;"];
        let found = places(&four);
        assert_eq!(found.len(), 4);
        assert_eq!(
            found[3],
            "a.rs:2: `Place` names 4 types of the workspace, expected at most 3"
        );
    }

    #[test]
    fn errors_tests_and_associated_types_do_not_count() {
        for text in [
            "enum Error {}",
            "#[cfg(test)] mod tests { struct Place; }",
            "impl Iterator for A { type Place = u8; }",
            "trait A { fn f(); type Place: Copy; }",
            "let x = \"struct Place\"; // struct Place",
            "macro_rules! m { () => { struct $name; } }",
        ] {
            assert_eq!(places(&[text; 5]), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_type_in_a_module_is_no_associated_type() {
        assert_eq!(
            places(&["impl A {} mod m { type Place = u8; }"; 4]).len(),
            4
        );
    }
}
