//! What the schema of a tool's parameters may say, and how a grammar gets it.
//!
//! Knows no format. The one idea: a keyword that would be left out of account is an error with a place, because a call
//! that does not match its schema is worse than none.

use serde_json::{Map, Value};

use super::error::ToolError;
use crate::constraint::schema::{self, Spaces, subschemas, subschemas_mut};

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
/// What says of an object which fields it has, but `properties`.
const OTHER_FIELDS: [&str; 8] =
    ["$ref", "additionalProperties", "allOf", "anyOf", "maxProperties", "minProperties", "oneOf", "patternProperties"];

/// What a keyword or a value says to readers and not to a grammar.
const REMARKS: [&str; 5] = ["$comment", "default", "description", "examples", "title"];

/// Refuses a schema in which anything would be left out of account, or that is too much.
///
/// # Errors
/// [`ToolError::Keyword`] with the first keyword that is not supported, [`ToolError::Definition`] with what else is
/// wrong.
pub(super) fn check(tool: &str, schema: &Object) -> Result<(), ToolError> {
    check_at(tool, &mut String::new(), schema)?;
    let schema = Value::Object(schema.clone());
    schema::check(&schema).map_err(|what| ToolError::Definition { tool: format!("tool {tool}"), what })
}

/// Recurses as deep as the definition is nested, which is limited.
fn check_at(tool: &str, at: &mut String, schema: &Object) -> Result<(), ToolError> {
    let refused = |keyword: &&String| keyword.as_str() == schema::OPTIONS || UNSUPPORTED.contains(&keyword.as_str());
    if let Some(keyword) = schema.keys().find(refused) {
        return Err(ToolError::Keyword { tool: tool.into(), at: at.clone(), keyword: keyword.clone() });
    }
    for (below, schema) in subschemas(schema) {
        let Value::Object(schema) = schema else { continue };
        let length = at.len();
        at.push_str(&below);
        check_at(tool, at, schema)?;
        at.truncate(length);
    }
    Ok(())
}

/// The schema as a grammar gets it: an object, with at most one space between tokens, and without fields that are not
/// defined where the definition only lists some. Every value that matches it matches `schema`.
pub(super) fn arguments_schema(schema: &Object) -> Value {
    let mut schema = schema.clone();
    drop_remarks(&mut schema);
    schema.insert("type".into(), "object".into());
    if lists_its_fields(&schema) {
        schema.insert("additionalProperties".into(), false.into());
    }
    schema.insert(schema::OPTIONS.into(), schema::options(Spaces::BehindSeparators));
    Value::Object(schema)
}

/// Leaves out what no grammar needs: most of a definition is descriptions.
fn drop_remarks(schema: &mut Object) {
    schema.retain(|key, _| !REMARKS.contains(&key.as_str()));
    subschemas_mut(schema).filter_map(Value::as_object_mut).for_each(drop_remarks);
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
    use serde_json::json;

    fn refused(schema: Value) -> Option<String> {
        check("f", schema.as_object().unwrap()).err().map(|error| error.to_string())
    }

    #[test]
    fn an_unsupported_keyword_is_an_error_with_tool_and_place() {
        let message =
            |at: &str, key: &str| Some(format!("tool f: parameters{at}: the keyword {key:?} is not supported"));
        assert_eq!(refused(json!({"not": {}})), message("", "not"));
        assert_eq!(
            refused(json!({"properties": {"a/b": {"uniqueItems": true}}})),
            message("/properties/a~1b", "uniqueItems")
        );
        let nested = json!({"anyOf": [{}, {"items": [{"additionalProperties": {"if": {}}}]}]});
        assert_eq!(refused(nested), message("/anyOf/1/items/0/additionalProperties", "if"));
        assert_eq!(refused(json!({"$defs": {"t": {"contains": {}}}})), message("/$defs/t", "contains"));
    }

    #[test]
    fn names_of_fields_and_values_are_not_keywords() {
        let schema = json!({
            "properties": {"not": {"type": "string", "enum": [{"if": 1}]}, "contains": {"default": {"not": 1}}},
            "required": ["not"], "x-order": 1, "$defs": {"if": true}, "examples": [{"then": 1}],
        });
        assert_eq!(refused(schema), None);
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

    #[test]
    fn remarks_are_left_out_and_fields_of_their_names_are_not() {
        let schema = json!({"title": "T", "description": "d", "properties": {
            "title": {"type": "string", "description": "d", "default": "x", "examples": ["y"], "$comment": "z"},
            "default": {"const": {"title": "kept"}},
        }, "$defs": {"title": {"items": {"title": "T", "minLength": 1}}}});
        let expected = json!({
            "properties": {"title": {"type": "string"}, "default": {"const": {"title": "kept"}}},
            "$defs": {"title": {"items": {"minLength": 1}}},
            "type": "object", "additionalProperties": false,
            "x-guidance": schema::options(Spaces::BehindSeparators),
        });
        assert_eq!(arguments_schema(schema.as_object().unwrap()), expected);
    }

    #[test]
    fn what_no_schema_may_say_is_refused_of_a_tool_too() {
        let counted = refused(json!({"properties": {"a": {"minProperties": 2}}})).unwrap();
        assert!(counted.starts_with("tool f: \"minProperties\" of 2 where 0 are required"), "{counted}");
        let many: Vec<Value> = (0..501).map(|i| json!({"$ref": format!("#/$defs/{i}")})).collect();
        assert_eq!(refused(json!({"anyOf": many})).unwrap(), "tool f: \"$ref\" to more than 500 different places");
        let options = refused(json!({"properties": {"a": {"x-guidance": {"lenient": true}}}})).unwrap();
        assert_eq!(options, "tool f: parameters/properties/a: the keyword \"x-guidance\" is not supported");
    }
}
