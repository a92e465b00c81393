//! Schemas as llguidance takes them: prepared, and with its options of JSON.
//!
//! Knows the keywords that lead to other schemas; `prepare` knows what the others mean.
//!
//! JSON allows any amount of white space, and a model that writes spaces for ever writes valid JSON
//! for ever: between two tokens of JSON there is one space at most.

use serde_json::{Map, Value, json};

use crate::{
    ConstraintError, OtherProperties, SchemaOptions, Strictness,
    prepare::{self, PreparedSchema, escaped},
};

/// Where llguidance looks for options of its own. A schema that sets them could switch our errors
/// off.
pub(crate) const OPTIONS: &str = "x-guidance";

/// Keywords with one schema, or (in old drafts) a list of them.
const ONE: [&str; 3] = ["items", "additionalItems", "additionalProperties"];
/// Keywords with a list of schemas.
const LIST: [&str; 4] = ["prefixItems", "allOf", "anyOf", "oneOf"];
/// Keywords with schemas by name.
const NAMED: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// Where the one space may stand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spaces {
    /// Between any two tokens, and in front of the first.
    Anywhere,
    /// Behind commas and colons.
    BehindSeparators,
}

/// llguidance's options of JSON: at most one space, and `\u` only where `with_unicode` says that no
/// name can be written with it a second time.
pub(crate) fn options(spaces: Spaces, with_unicode: bool) -> Value {
    let escapes = if with_unicode {
        "nrbtf\\\"u"
    } else {
        "nrbtf\\\""
    };
    match spaces {
        Spaces::Anywhere => {
            json!({"whitespace_flexible": true, "whitespace_pattern": " ", "json_allowed_escapes": escapes})
        }

        Spaces::BehindSeparators => json!({
            "whitespace_flexible": false, "item_separator": ", ?", "key_separator": ": ?",
            "json_allowed_escapes": escapes,
        }),
    }
}

/// A schema for the inside of a larger grammar (`%json`), with at most one space between tokens.
#[derive(Clone, Debug)]
pub struct EmbeddedSchema {
    /// The schema, in keywords that llguidance keeps to.
    pub schema: Value,
    /// The loosened keywords, a line each: the place, then the keyword.
    pub warnings: Vec<String>,
}

/// Prepares a schema for the inside of a larger grammar.
///
/// # Errors
/// Where in the schema something cannot be kept to, and what.
pub fn embedded(schema: &Value, options: SchemaOptions) -> Result<EmbeddedSchema, String> {
    let prepared = prepare::prepare(schema, options).map_err(|flaw| flaw.to_string())?;
    Ok(EmbeddedSchema {
        schema: spaced(prepared.schema, prepared.with_unicode_escapes),
        warnings: prepared.remarks.iter().map(ToString::to_string).collect(),
    })
}

/// The schema of any string, for the inside of a larger grammar.
pub fn embedded_string() -> Value {
    spaced(json!({ "type": "string" }), false)
}

fn spaced(mut schema: Value, with_unicode: bool) -> Value {
    schema[OPTIONS] = options(Spaces::BehindSeparators, with_unicode);
    schema
}

/// A schema from its text, in which every keyword is kept to.
pub(crate) fn parse(text: &str) -> Result<Value, ConstraintError> {
    let options = SchemaOptions {
        strictness: Strictness::Strict,
        others: OtherProperties::Open,
    };
    let mut prepared = read(text, options)?;
    prepared.schema[OPTIONS] = self::options(Spaces::Anywhere, prepared.with_unicode_escapes);
    Ok(prepared.schema)
}

/// A schema from its text, prepared.
pub(crate) fn read(text: &str, options: SchemaOptions) -> Result<PreparedSchema, ConstraintError> {
    let error = ConstraintError::Schema;
    let schema: Value = serde_json::from_str(text).map_err(|e| error(format!("no JSON: {e}")))?;
    let schema = match schema {
        Value::Object(_) => schema,
        Value::Bool(true) => json!({}),
        Value::Bool(false) => return Err(error("`false` allows no value".to_owned())),
        _ => return Err(error("expected an object or a boolean".to_owned())),
    };
    prepare::prepare(&schema, options).map_err(|flaw| error(flaw.to_string()))
}

/// The schema of any object that has none of these keys.
pub(crate) fn object_without(keys: &[&str]) -> Value {
    let none: Map<String, Value> = keys
        .iter()
        .map(|key| ((*key).to_owned(), false.into()))
        .collect();
    json!({ "type": "object", "properties": none })
}

/// The schemas within one, each with its way there as a JSON pointer.
pub(crate) fn subschemas(schema: &Map<String, Value>) -> impl Iterator<Item = (String, &Value)> {
    schema.iter().flat_map(
        |(key, value)| -> Box<dyn Iterator<Item = (String, &Value)>> {
            let within = key.as_str();
            match value {
                Value::Object(_) if ONE.contains(&within) => {
                    Box::new([(format!("/{key}"), value)].into_iter())
                }
                Value::Object(named) if NAMED.contains(&within) => Box::new(
                    named
                        .iter()
                        .map(move |(name, one)| (format!("/{key}/{}", escaped(name)), one)),
                ),
                Value::Array(list) if ONE.contains(&within) || LIST.contains(&within) => Box::new(
                    list.iter()
                        .enumerate()
                        .map(move |(i, one)| (format!("/{key}/{i}"), one)),
                ),
                _ => Box::new(std::iter::empty()),
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_schema_says_why() {
        let error = |text| parse(text).unwrap_err().to_string();
        assert_eq!(error("[]"), "schema: expected an object or a boolean");
        assert_eq!(error("false"), "schema: `false` allows no value");
        assert!(
            error("{\"x-guidance\": {}}")
                .starts_with("schema: the keyword \"x-guidance\" is not supported")
        );
        assert!(error("{").starts_with("schema: no JSON: "));
        assert!(error(&"[".repeat(60_000)).starts_with("schema: no JSON: recursion limit"));
    }

    #[test]
    fn true_is_the_schema_of_everything() {
        assert_eq!(parse("true").unwrap(), parse("{}").unwrap());
    }

    #[test]
    fn schemas_are_found_by_keyword_and_not_by_name() {
        let schema = json!({
            "properties": {"items": {"a": 1}, "x/~": true}, "items": [{"b": 1}], "additionalProperties": {"c": 1},
            "anyOf": [{"d": 1}], "enum": [{"items": {}}], "const": {"items": {}}, "x": {"items": {}},
        });
        let found: Vec<String> = subschemas(schema.as_object().unwrap())
            .map(|(at, _)| at)
            .collect();
        let all = [
            "/properties/items",
            "/properties/x~1~0",
            "/items/0",
            "/additionalProperties",
            "/anyOf/0",
        ];
        assert!(
            found.len() == all.len() && all.iter().all(|at| found.iter().any(|other| other == at)),
            "{found:?}"
        );
    }
}
