//! `const` and `enum`: whether their values can be written, and whether two schemas have some in
//! common.

use serde_json::{Map, Value, json};

use super::{Flaw, Node, SchemaObject, Walk, numbers::is_exact};
use crate::schema::subschemas;

impl Walk<'_> {
    pub(super) fn constant(&mut self, node: &mut Node<'_>, value: &Value) -> Result<(), Flaw> {
        if let Some(number) = inexact(value) {
            self.give_up(node, "const", &no_double(&number))?;
            return self.only_type(node, value);
        }
        node.out.insert("const".to_owned(), value.clone());
        Ok(())
    }

    pub(super) fn enumeration(&mut self, node: &mut Node<'_>, value: &Value) -> Result<(), Flaw> {
        let Some(list) = value.as_array() else {
            return Err(node.flaw("\"enum\": expected a list of values"));
        };
        let Some(first) = list.first() else {
            return Err(node.flaw("\"enum\" of an empty list allows no value"));
        };
        let kept: Vec<Value> = list
            .iter()
            .filter(|one| inexact(one).is_none())
            .cloned()
            .collect();
        if let Some(number) = list.iter().find_map(inexact) {
            self.give_up(node, "enum", &no_double(&number))?;
        }
        if kept.is_empty() {
            return self.only_type(node, first);
        }
        node.out.insert("enum".to_owned(), kept.into());
        Ok(())
    }

    /// The type is kept where the value is not.
    fn only_type(&mut self, node: &mut Node<'_>, value: &Value) -> Result<(), Flaw> {
        if !node.keys.contains_key("type") {
            node.out.insert("type".to_owned(), json!(type_of(value)));
        }
        Ok(())
    }
}

fn no_double(number: &str) -> String {
    format!("numbers are held as doubles, and {number} is none")
}

/// The first number in a value that would be written as another one.
fn inexact(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => (!is_exact(number)).then(|| number.to_string()),
        Value::Array(list) => list.iter().find_map(inexact),
        Value::Object(fields) => fields.values().find_map(inexact),
        _ => None,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Whether no value matches both, as far as types, values and required fields tell.
pub(super) fn are_disjoint(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Bool(false), _) | (_, Value::Bool(false)) => true,
        (Value::Object(a), Value::Object(b)) => {
            let types_a = types(a);
            let types_b = types(b);
            let share_type = types_a.iter().any(|ty| types_b.contains(ty));
            !share_type
                || share_no_value(a, b)
                || (only_object(&types_a) && only_object(&types_b) && differ_in_a_field(a, b))
        }
        _ => false,
    }
}

fn only_object(types: &[&str]) -> bool {
    types == ["object"]
}

fn share_no_value(a: &SchemaObject, b: &SchemaObject) -> bool {
    let (Some(a), Some(b)) = (values(a), values(b)) else {
        return false;
    };
    a.iter()
        .all(|one| b.iter().all(|other| !are_equal(one, other)))
}

/// JSON Schema takes 1 and 1.0 for the same.
fn are_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(_) | Value::Object(_), Value::Array(_) | Value::Object(_)) => true,
        _ => a == b,
    }
}

fn differ_in_a_field(a: &SchemaObject, b: &SchemaObject) -> bool {
    let required = |schema: &SchemaObject| -> Vec<String> {
        let names = schema.get("required").and_then(Value::as_array);
        names
            .into_iter()
            .flatten()
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect()
    };
    let of_b = required(b);
    let field = |schema: &'_ SchemaObject, name: &str| {
        schema.get("properties")?.get(name)?.as_object().cloned()
    };
    required(a)
        .iter()
        .filter(|name| of_b.contains(name))
        .any(|name| match (field(a, name), field(b, name)) {
            (Some(a), Some(b)) => share_no_value(&a, &b),
            _ => false,
        })
}

/// The values that a schema lists.
fn values(schema: &SchemaObject) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(value), _) => Some(vec![value]),
        (None, Some(Value::Array(list))) => Some(list.iter().collect()),
        _ => None,
    }
}

/// The types that a value may have; an integer is a number.
fn types(schema: &SchemaObject) -> Vec<&str> {
    let general = |ty| if ty == "integer" { "number" } else { ty };
    match (schema.get("type"), values(schema)) {
        (Some(Value::String(one)), _) => vec![general(one)],
        (Some(Value::Array(list)), _) => {
            list.iter().filter_map(Value::as_str).map(general).collect()
        }
        (_, Some(values)) => values
            .into_iter()
            .map(|value| general(type_of(value)))
            .collect(),
        _ => vec!["null", "boolean", "number", "string", "array", "object"],
    }
}

/// Whether a value that must be written needs `\u` escapes.
///
/// # Errors
/// If it does, and names could be written twice with them.
pub(super) fn needs_escapes(schema: &Value) -> Result<bool, Flaw> {
    let mut left = vec![(String::new(), schema)];
    let mut has_pattern = false;
    while let Some((at, next)) = left.pop() {
        let Value::Object(keys) = next else { continue };
        if values(keys).is_some_and(|values| !values.into_iter().any(is_writable)) {
            if has_free_names(schema) {
                let what = "a value with control characters, which would need escapes with \"\\u\"";
                return Err(Flaw {
                    at,
                    what: what.to_owned(),
                });
            }
            return Ok(true);
        }
        has_pattern |= keys
            .get("pattern")
            .and_then(Value::as_str)
            .is_some_and(may_mean_control);
        left.extend(subschemas(keys).map(|(below, one)| (format!("{at}{below}"), one)));
    }
    Ok(has_pattern && !has_free_names(schema))
}

fn may_mean_control(pattern: &str) -> bool {
    pattern.chars().any(|c| c.is_ascii_control())
        || ["\\x", "\\u", "\\c"]
            .iter()
            .any(|escape| pattern.contains(escape))
}

/// Whether it can be written without `\u`.
fn is_writable(value: &Value) -> bool {
    match value {
        Value::String(text) => text
            .chars()
            .all(|c| !c.is_ascii_control() || "\n\r\t\u{8}\u{c}".contains(c)),
        Value::Array(items) => items.iter().all(is_writable),
        Value::Object(fields) => fields.values().all(is_writable),
        _ => true,
    }
}

/// Whether some object may have names that the schema does not list.
fn has_free_names(schema: &Value) -> bool {
    let Value::Object(keys) = schema else {
        return *schema == Value::Bool(true);
    };
    let below = || {
        subschemas(keys)
            .filter(|(_, one)| **one != Value::Bool(false))
            .any(|(_, one)| has_free_names(one))
    };
    if values(keys).is_some() {
        return false;
    }
    let is_combined = ["$ref", "allOf", "anyOf", "oneOf"]
        .iter()
        .any(|key| keys.contains_key(*key));
    if is_combined && !keys.contains_key("type") {
        return below();
    }
    is_open(keys) || below()
}

/// Whether a schema admits properties or items that it does not list.
fn is_open(keys: &Map<String, Value>) -> bool {
    let types = types(keys);
    let has_any_name = keys.get("additionalProperties") != Some(&Value::Bool(false))
        || keys.contains_key("patternProperties");
    let has_any_item = !keys.contains_key("items") && keys.get("maxItems") != Some(&json!(0));
    (types.contains(&"object") && has_any_name) || (types.contains(&"array") && has_any_item)
}
