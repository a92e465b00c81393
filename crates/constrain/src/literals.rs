//! Texts that a grammar is likely to ask for: what its patterns and values spell, and an example
//! for each format.
//!
//! Knows grammars as text only, and proves nothing: the search for an end tries these as single
//! steps, and the grammar decides.

use std::collections::HashSet;

use llguidance::api::TopLevelGrammar;
use serde_json::Value;

/// Texts, with all their ends, at most.
const MAX_TEXTS: usize = 600;
const MAX_CHARS: usize = 64;

/// What may stand where a schema has a format.
const EXAMPLES: [&str; 12] = [
    "a@a.aa",
    "2000-01-01T00:00:00Z",
    "P1D",
    "0.0.0.0",
    "::1",
    "http://a.aa/a",
    "00000000-0000-4000-8000-000000000000",
    "aaa.aaa.aaa",
    "+1000000000",
    "127.0.0.0/8",
    "AA==",
    "/a",
];

/// The texts of a grammar, and their ends, because a text may be cut in the middle of one.
pub(super) fn of_grammar(grammar: &TopLevelGrammar) -> Vec<String> {
    let mut found = Vec::new();
    for part in &grammar.grammars {
        part.lark_grammar
            .iter()
            .for_each(|text| runs(text, &mut found));
        part.json_schema
            .iter()
            .for_each(|schema| of_value(schema, &mut found));
    }
    let mut seen = HashSet::new();
    let ends = found
        .iter()
        .flat_map(|text| text.char_indices().map(|(i, _)| text[i..].to_owned()));
    ends.filter(|text| text.len() > 1 && seen.insert(text.clone()))
        .take(MAX_TEXTS)
        .collect()
}

/// Recurses as deep as the schema is nested.
fn of_value(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => runs(text, found),
        Value::Array(list) => list.iter().for_each(|one| of_value(one, found)),
        Value::Object(fields) => {
            if fields.contains_key("format") {
                found.extend(EXAMPLES.map(str::to_owned));
            }
            let is_text = |key: &String| key != crate::schema::OPTIONS && key != "type";
            fields
                .iter()
                .filter(|(key, _)| is_text(key))
                .for_each(|(_, value)| of_value(value, found));
        }
        _ => {}
    }
}

/// The parts of a regular expression or a grammar that mean themselves.
fn runs(text: &str, found: &mut Vec<String>) {
    let mut run = String::new();
    let mut is_escaped = false;
    for c in text.chars().chain(['\n']) {
        let is_literal = match c {
            '\\' if !is_escaped => {
                is_escaped = true;
                continue;
            }
            _ if is_escaped => !c.is_alphanumeric(),
            _ => !r#"()[]{}|*+?^$"/"#.contains(c) && c != '\n',
        };
        is_escaped = false;
        if is_literal && run.len() < MAX_CHARS {
            run.push(c);
            continue;
        }
        if !run.is_empty() && found.len() < MAX_TEXTS {
            found.push(std::mem::take(&mut run));
        }
        run.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_patterns_and_rules_are_found_with_their_ends() {
        let texts = |grammar: TopLevelGrammar| of_grammar(&grammar);
        let lark = TopLevelGrammar::from_lark("/[a-b]*xy\\.z/".to_owned());
        assert_eq!(texts(lark), ["a-b", "-b", "xy.z", "y.z", ".z"]);
        let schema = serde_json::json!({"type": "string", "pattern": "\\.(jpg|png)$"});
        assert_eq!(
            texts(TopLevelGrammar::from_json_schema(schema)),
            ["jpg", "pg", "png", "ng"]
        );
    }
}
