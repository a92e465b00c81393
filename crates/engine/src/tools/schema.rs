//! What the schema of a tool's parameters may say, and how a grammar gets it.
//!
//! Knows no format. The one idea: a keyword that would be left out of account is an error with a place, because a call
//! that does not match its schema is worse than none.

use serde_json::{Map, Value, json};

use super::error::ToolError;

type Object = Map<String, Value>;

/// Keywords of some draft that llguidance 1.9 cannot turn into a grammar. What no draft knows is a remark.
const UNSUPPORTED: [&str; 18] = [
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];
/// Keywords with one schema, or (in old drafts) a list of them.
const ONE: [&str; 3] = ["items", "additionalItems", "additionalProperties"];
/// Keywords with a list of schemas.
const LIST: [&str; 4] = ["prefixItems", "allOf", "anyOf", "oneOf"];
/// Keywords with schemas by name.
const NAMED: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];
/// What says of an object which fields it has, but `properties`.
const OTHER_FIELDS: [&str; 8] =
    ["$ref", "additionalProperties", "allOf", "anyOf", "maxProperties", "minProperties", "oneOf", "patternProperties"];

/// Refuses a schema in which anything would be left out of account.
///
/// # Errors
/// [`ToolError::Keyword`] with the first such keyword.
pub(super) fn check_keywords(tool: &str, schema: &Object) -> Result<(), ToolError> {
    check_at(tool, &mut String::new(), schema)
}

/// Recurses as deep as the definition is nested, which is limited.
fn check_at(tool: &str, at: &mut String, schema: &Object) -> Result<(), ToolError> {
    for (key, value) in schema {
        let key = key.as_str();
        if UNSUPPORTED.contains(&key) {
            return Err(ToolError::Keyword { tool: tool.into(), at: at.clone(), keyword: key.into() });
        }
        match value {
            Value::Object(one) if ONE.contains(&key) => below(tool, at, key, one)?,
            Value::Object(named) if NAMED.contains(&key) => below_all(tool, at, key, named.iter())?,
            Value::Array(list) if ONE.contains(&key) || LIST.contains(&key) => {
                let names: Vec<String> = (0..list.len()).map(|i| i.to_string()).collect();
                below_all(tool, at, key, names.iter().zip(list))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn below(tool: &str, at: &mut String, key: &str, schema: &Object) -> Result<(), ToolError> {
    let length = at.len();
    at.push('/');
    at.push_str(&key.replace('~', "~0").replace('/', "~1"));
    check_at(tool, at, schema)?;
    at.truncate(length);
    Ok(())
}

fn below_all<'a>(
    tool: &str,
    at: &mut String,
    key: &str,
    schemas: impl Iterator<Item = (&'a String, &'a Value)>,
) -> Result<(), ToolError> {
    let length = at.len();
    at.push('/');
    at.push_str(key);
    for (name, schema) in schemas {
        if let Value::Object(schema) = schema {
            below(tool, at, name, schema)?;
        }
    }
    at.truncate(length);
    Ok(())
}

/// The schema as a grammar gets it: an object, with at most one space between tokens, and without fields that are not
/// defined where the definition only lists some. Every value that matches it matches `schema`.
pub(super) fn arguments_schema(schema: &Object) -> Value {
    let mut schema = schema.clone();
    schema.insert("type".into(), "object".into());
    if lists_its_fields(&schema) {
        schema.insert("additionalProperties".into(), false.into());
    }
    schema.insert("x-guidance".into(), spacing());
    Value::Object(schema)
}

/// llguidance's options of JSON: a comma or colon and at most one space, nothing else.
pub(super) fn spacing() -> Value {
    json!({"whitespace_flexible": false, "item_separator": ", ?", "key_separator": ": ?"})
}

/// Whether `properties` are all that is known of its fields, and all that are required.
fn lists_its_fields(schema: &Object) -> bool {
    let Some(Value::Object(properties)) = schema.get("properties") else { return false };
    let known = |name: &Value| name.as_str().is_some_and(|name| properties.contains_key(name));
    let all_known = match schema.get("required") {
        Some(Value::Array(required)) => required.iter().all(known),
        _ => true,
    };
    all_known && !OTHER_FIELDS.iter().any(|&key| schema.contains_key(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schema: Value) -> Option<String> {
        check_keywords("f", schema.as_object().unwrap()).err().map(|error| error.to_string())
    }

    #[test]
    fn an_unsupported_keyword_is_an_error_with_tool_and_place() {
        let message =
            |at: &str, key: &str| Some(format!("tool f: parameters{at}: the keyword {key:?} is not supported"));
        assert_eq!(check(json!({"not": {}})), message("", "not"));
        assert_eq!(
            check(json!({"properties": {"a/b": {"uniqueItems": true}}})),
            message("/properties/a~1b", "uniqueItems")
        );
        let nested = json!({"anyOf": [{}, {"items": [{"additionalProperties": {"if": {}}}]}]});
        assert_eq!(check(nested), message("/anyOf/1/items/0/additionalProperties", "if"));
        assert_eq!(check(json!({"$defs": {"t": {"contains": {}}}})), message("/$defs/t", "contains"));
    }

    #[test]
    fn names_of_fields_and_values_are_not_keywords() {
        let schema = json!({
            "properties": {"not": {"type": "string", "enum": [{"if": 1}]}, "contains": {"default": {"not": 1}}},
            "required": ["not"], "x-order": 1, "$defs": {"if": true}, "examples": [{"then": 1}],
        });
        assert_eq!(check(schema), None);
    }

    #[test]
    fn a_list_of_fields_is_closed_and_anything_else_is_left_as_it_is() {
        let closed = |schema: Value| arguments_schema(schema.as_object().unwrap()).get("additionalProperties").cloned();
        assert_eq!(closed(json!({"properties": {}})), Some(false.into()));
        assert_eq!(closed(json!({"properties": {"a": {}}, "required": ["a"]})), Some(false.into()));
        assert_eq!(closed(json!({"properties": {"a": {}}, "required": ["b"]})), None);
        assert_eq!(closed(json!({"properties": {}, "additionalProperties": true})), Some(true.into()));
        assert_eq!(closed(json!({"properties": {}, "anyOf": [{}]})), None);
        assert_eq!(closed(json!({"type": "object"})), None);
    }
}
