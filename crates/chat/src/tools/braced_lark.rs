//! The arguments of a call of Gemma 4 as rules of a grammar.
//!
//! Objects that list their fields have bare keys, and strings without a pattern stand between
//! marks. Everything else is JSON, which the parser reads in the same place.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::{
    braced::is_bare,
    grammar::{quoted, regex},
    parameters::{RawText, alone},
    place::QUOTE,
};

/// The rules of one tool's arguments under construction.
pub(super) struct BracedLark<'a> {
    /// The schema of the arguments, with the definitions that all others refer to.
    root: &'a Value,
    /// Prefix of the rules' names.
    prefix: String,
    /// The mark around strings, if it is a token.
    mark: Option<String>,
    n_rules: usize,
    text: String,
}

impl<'a> BracedLark<'a> {
    /// The rules of a tool's arguments; the first is `args_{i}`.
    pub(super) fn of_arguments(i: usize, root: &'a Value, mark: Option<String>) -> String {
        let mut lark = Self {
            root,
            prefix: format!("args_{i}"),
            mark,
            n_rules: 0,
            text: String::new(),
        };
        let value = lark.value(root);
        format!("args_{i}: {value}\n{}", lark.text)
    }

    /// Adds a rule. Returns its name.
    fn rule(&mut self, flags: &str, body: &str) -> String {
        let name = format!("{}_{}", self.prefix, self.n_rules);
        self.n_rules += 1;
        let _ = writeln!(self.text, "{name}{flags}: {body}");
        name
    }

    /// A value of a schema. Recurses as deep as the schema is nested.
    fn value(&mut self, schema: &'a Value) -> String {
        if let Some(text) = RawText::of(schema, self.root) {
            return self.string(&text);
        }
        let Some(keys) = schema.as_object() else {
            return self.json(schema);
        };
        if let Some(fields) = listed_fields(keys) {
            return self.object(fields, keys);
        }
        match (keys.get("anyOf"), items(keys)) {
            (Some(Value::Array(either)), _) if keys.len() == 1 => {
                let either: Vec<String> = either.iter().map(|one| self.value(one)).collect();
                self.rule("", &either.join(" | "))
            }
            (_, Some(item)) => {
                let item = self.value(item);
                self.rule("", &format!(r#""[" ({item} ("," {item})*)? "]""#))
            }
            _ => self.json(schema),
        }
    }

    fn json(&mut self, schema: &Value) -> String {
        self.rule("", &format!("%json {}", alone(schema, self.root)))
    }

    /// A string between two marks; it ends with the next mark, as it does for the parser.
    fn string(&mut self, text: &RawText<'_>) -> String {
        let mark = regex(QUOTE);
        let inside = text.regex();
        let any_mark = format!("~/(?s:.*){mark}(?s:.*)/");
        let string = match self.mark.clone() {
            Some(token) => {
                let lexeme = self.lexeme(&format!("/{inside}/ & /(?s:.+)/ & {any_mark}"));
                let optional = if text.may_be_empty() { "?" } else { "" };
                format!("{token} {lexeme}{optional} {token}")
            }
            None => {
                let two_marks = format!("~/(?s:.*){mark}(?s:.*){mark}(?s:.*)/");
                let lexeme = self.lexeme(&format!("/({inside}){mark}/ & {two_marks}"));
                let rest = self.rule("[lazy]", &lexeme);
                format!("{} {rest}", quoted(QUOTE))
            }
        };
        let null = if text.is_nullable { " | \"null\"" } else { "" };
        self.rule("", &format!("{string}{null}"))
    }

    /// Adds a lexeme. Returns its name.
    fn lexeme(&mut self, body: &str) -> String {
        let name = format!("{}_{}", self.prefix.to_uppercase(), self.n_rules);
        self.n_rules += 1;
        let _ = writeln!(self.text, "{name}: {body}");
        name
    }

    /// An object with its fields in order.
    fn object(&mut self, fields: &'a Map<String, Value>, keys: &Map<String, Value>) -> String {
        let required = keys.get("required").and_then(Value::as_array);
        let is_required = |key: &str| required.is_some_and(|all| all.iter().any(|one| one == key));
        let fields: Vec<Field> = fields
            .iter()
            .map(|(key, schema)| Field {
                text: format!("{} {}", quoted(&format!("{key}:")), self.value(schema)),
                is_required: is_required(key),
            })
            .collect();
        let sequence = separated(&fields, "\",\"", |body| self.rule("", body));
        self.rule("", &format!(r#""{{" {sequence} "}}""#))
    }
}

/// A field in a sequence, as an expression of the grammar.
pub(super) struct Field {
    pub(super) text: String,
    pub(super) is_required: bool,
}

/// Fields in their order with separators between them. Built from the last field on: `rest` holds
/// the fields behind another one, `firsts` the ways to begin. `rule` adds a rule and returns its
/// name.
pub(super) fn separated(
    fields: &[Field],
    separator: &str,
    mut rule: impl FnMut(&str) -> String,
) -> String {
    let mut firsts = Vec::new();
    let mut may_be_empty = true;
    let mut rest = String::new();
    for Field { text, is_required } in fields.iter().rev() {
        if *is_required {
            firsts.clear();
            may_be_empty = false;
        }
        firsts.push(format!("{text} {rest}"));
        let mark = if *is_required { "" } else { "?" };
        rest = rule(&format!("({separator} {text}){mark} {rest}"));
    }
    match (firsts.is_empty(), may_be_empty) {
        (true, _) => "\"\"".to_owned(),
        (false, true) => format!("({})?", firsts.join(" | ")),
        (false, false) => format!("({})", firsts.join(" | ")),
    }
}

/// The fields of an object that is nothing but a list of fields with bare names.
fn listed_fields(keys: &Map<String, Value>) -> Option<&Map<String, Value>> {
    let fields = keys.get("properties")?.as_object()?;
    let is_listed = |name: &Value| name.as_str().is_some_and(|name| fields.contains_key(name));
    let required = keys.get("required").and_then(Value::as_array);
    let is_plain = keys.get("type").is_some_and(|ty| ty == "object")
        && !fields.is_empty()
        && fields
            .keys()
            .all(|key| !key.is_empty() && key.chars().all(is_bare))
        && required.is_none_or(|names| names.iter().all(is_listed))
        && keys.keys().all(|key| OBJECT.contains(&key.as_str()));
    is_plain.then_some(fields)
}

/// Keywords of an object that is a list of fields.
const OBJECT: [&str; 6] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "$defs",
    "x-guidance",
];

/// The schema of the items of an array that has no other keyword.
fn items(keys: &Map<String, Value>) -> Option<&Value> {
    let is_array = keys.get("type").is_some_and(|ty| ty == "array");
    keys.get("items").filter(|_| is_array && keys.len() == 2)
}
