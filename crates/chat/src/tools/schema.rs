//! The schema of a tool's parameters, prepared for a grammar.

use serde_json::{Map, Value};

use super::error::ToolError;
use atta_constrain::{OtherProperties, SchemaOptions, Strictness, schema};

type JsonObject = Map<String, Value>;

/// Prepares the schema of arguments: an object with at most one space between tokens, without
/// unlisted properties where the schema lists some. Keywords that are ignored become warnings.
///
/// # Errors
/// [`ToolError::Definition`] for an invalid schema, and, if `strictness` is strict, for keywords
/// that cannot be enforced.
pub(super) fn arguments_schema(
    tool: &str,
    schema: &JsonObject,
    strictness: Strictness,
    remarks: &mut Vec<String>,
) -> Result<Value, ToolError> {
    let mut schema = schema.clone();
    schema.insert("type".into(), "object".into());
    let options = SchemaOptions {
        strictness,
        others: OtherProperties::Closed,
    };
    let embedded = schema::embedded(&Value::Object(schema), options).map_err(|flaw| {
        ToolError::Definition {
            tool: format!("tool {tool}"),
            what: format!("parameters{}", shown(&flaw)),
        }
    })?;
    let warnings = embedded.warnings.iter();
    remarks.extend(warnings.map(|warning| format!("tool {tool}: parameters{}", shown(warning))));
    Ok(embedded.schema)
}

/// An error with its place, relative to `parameters`.
fn shown(flaw: &str) -> String {
    if flaw.starts_with('/') {
        flaw.to_owned()
    } else {
        format!(": {flaw}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn prepared(schema: Value, strictness: Strictness) -> (Result<Value, String>, Vec<String>) {
        let mut remarks = Vec::new();
        let made = arguments_schema("f", schema.as_object().unwrap(), strictness, &mut remarks);
        (made.map_err(|error| error.to_string()), remarks)
    }

    #[test]
    fn a_keyword_that_cannot_be_kept_is_a_remark_or_an_error_with_tool_and_place() {
        let schema = json!({"properties": {"a/b": {"type": "array", "uniqueItems": true}}});
        let why = "a grammar cannot look back at what was written";
        let error = format!(
            "tool f: parameters/properties/a~1b: the keyword \"uniqueItems\" is not supported: {why}"
        );
        assert_eq!(prepared(schema.clone(), Strictness::Strict).0, Err(error));
        let (made, remarks) = prepared(schema, Strictness::Loose);
        assert_eq!(
            remarks,
            [format!(
                "tool f: parameters/properties/a~1b: \"uniqueItems\" is not kept to: {why}"
            )]
        );
        assert_eq!(made.unwrap()["properties"]["a/b"], json!({"type": "array"}));
    }

    #[test]
    fn names_of_fields_and_values_are_not_keywords() {
        let schema = json!({
            "properties": {"not": {"type": "string", "enum": ["if"]}, "contains": {"default": {"not": 1}}},
            "required": ["not"], "x-order": 1, "$defs": {"if": {"not": {}}}, "examples": [{"then": 1}],
        });
        assert_eq!(prepared(schema, Strictness::Strict).1, [""; 0]);
    }

    #[test]
    fn objects_are_closed_where_they_list_their_fields() {
        let closed = |schema: Value| {
            prepared(schema, Strictness::Loose)
                .0
                .unwrap()
                .get("additionalProperties")
                .cloned()
        };
        assert_eq!(closed(json!({"properties": {}})), Some(false.into()));
        assert_eq!(
            closed(json!({"properties": {"a": {}}, "required": ["a"]})),
            Some(false.into())
        );
        assert_eq!(
            closed(json!({"properties": {"a": {}}, "required": ["b"]})),
            None
        );
        assert_eq!(
            closed(json!({"properties": {}, "additionalProperties": true})),
            Some(true.into())
        );
        assert_eq!(
            closed(json!({"properties": {}, "anyOf": [{"properties": {"a": {}}}]})),
            None
        );
        assert_eq!(closed(json!({"type": "object"})), None);
    }

    #[test]
    fn descriptions_are_left_out_and_fields_of_their_names_are_not() {
        let schema = json!({"title": "T", "description": "d", "properties": {
            "title": {"type": "string", "description": "d", "default": "x", "examples": ["y"], "$comment": "z"},
            "default": {"const": {"title": "kept"}},
        }});
        let expected = json!({
            "properties": {"title": {"type": "string"}, "default": {"const": {"title": "kept"}}},
            "type": "object", "additionalProperties": false,
            "x-guidance": schema::embedded_string()["x-guidance"],
        });
        assert_eq!(prepared(schema, Strictness::Strict).0.unwrap(), expected);
    }

    #[test]
    fn what_no_schema_may_say_is_refused_of_a_tool_too() {
        let refused = |schema: Value| prepared(schema, Strictness::Loose).0.unwrap_err();
        let many: Vec<Value> = (0..501)
            .map(|i| json!({"$ref": format!("#/$defs/{i}")}))
            .collect();
        let definitions: JsonObject = (0..501).map(|i| (i.to_string(), json!({}))).collect();
        let error = refused(json!({"anyOf": many, "$defs": definitions}));
        assert_eq!(
            error,
            "tool f: parameters/anyOf/500: \"$ref\" to more than 500 different places"
        );
        let options = prepared(
            json!({"properties": {"a": {"x-guidance": {"lenient": true}}}}),
            Strictness::Loose,
        );
        assert!(
            options.1[0]
                .starts_with("tool f: parameters/properties/a: \"x-guidance\" is not kept to")
        );
    }
}
