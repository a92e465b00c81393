//! Schemas as llguidance takes them. Knows JSON and no keyword but the one that sets white space.
//!
//! White space of JSON is free, and a model that writes spaces for ever writes valid JSON for ever: between two tokens
//! of it there is one space at most.

use serde_json::{Value, json};

use super::ConstraintError;

/// Where llguidance looks for options of its own. A schema that sets them could switch our errors off.
const OPTIONS: &str = "x-guidance";

/// A schema from its text.
pub(super) fn parse(text: &str) -> Result<Value, ConstraintError> {
    let schema: Value = serde_json::from_str(text).map_err(|e| ConstraintError::Schema(format!("no JSON: {e}")))?;
    match schema {
        Value::Object(ref keys) if keys.contains_key(OPTIONS) => {
            Err(ConstraintError::Schema(format!("the keyword \"{OPTIONS}\" is not supported")))
        }
        Value::Object(_) => Ok(with_options(schema)),
        Value::Bool(true) => Ok(with_options(json!({}))),
        Value::Bool(false) => Err(ConstraintError::Schema("`false` allows no value".to_owned())),
        _ => Err(ConstraintError::Schema("expected an object or a boolean".to_owned())),
    }
}

/// The schema, an object, with white space that does not go on for ever.
fn with_options(mut schema: Value) -> Value {
    schema[OPTIONS] = json!({ "whitespace_flexible": true, "whitespace_pattern": " " });
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_schema_says_why() {
        let error = |text| parse(text).unwrap_err().to_string();
        assert_eq!(error("[]"), "schema: expected an object or a boolean");
        assert_eq!(error("false"), "schema: `false` allows no value");
        assert_eq!(error("{\"x-guidance\": {}}"), "schema: the keyword \"x-guidance\" is not supported");
        assert!(error("{").starts_with("schema: no JSON: "));
        assert!(error(&"[".repeat(60_000)).starts_with("schema: no JSON: recursion limit"));
    }

    #[test]
    fn true_is_the_schema_of_everything() {
        assert_eq!(parse("true").unwrap(), parse("{}").unwrap());
    }
}
