//! Schemas within a Lark grammar: `%json {…}` reaches llguidance only as this crate's schemas do.

use serde_json::Value;

use crate::{
    ConstraintError, OtherProperties, SchemaOptions, Strictness,
    prepare::{Flaw, prepare},
    schema::OPTIONS,
};

const KEYWORD: &str = "%json";

/// The grammar with each of its schemas prepared. Schemas inside strings and comments are left
/// alone; rewritten JSON keeps its meaning.
///
/// # Errors
/// [`ConstraintError::Grammar`] that names the fault of a schema.
pub(super) fn prepared(text: &str) -> Result<String, ConstraintError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(KEYWORD) {
        out.push_str(before);
        out.push_str(KEYWORD);
        let mut values = serde_json::Deserializer::from_str(behind).into_iter::<Value>();
        rest = behind;
        if let Some(Ok(schema)) = values.next() {
            rest = &behind[values.byte_offset()..];
            out.push(' ');
            out.push_str(
                &of_schema(schema)
                    .map_err(|flaw| ConstraintError::Grammar(format!("{KEYWORD}: {flaw}")))?,
            );
        }
    }
    out.push_str(rest);
    Ok(out)
}

/// A schema, with the options for llguidance that it came with.
fn of_schema(mut schema: Value) -> Result<String, Flaw> {
    let Value::Object(keys) = &mut schema else {
        return Ok(schema.to_string());
    };
    let guidance = keys.shift_remove(OPTIONS);
    let options = SchemaOptions {
        strictness: Strictness::Strict,
        others: OtherProperties::Open,
    };
    let mut prepared = prepare(&schema, options)?.schema;
    if let (Value::Object(keys), Some(guidance)) = (&mut prepared, guidance) {
        keys.insert(OPTIONS.to_owned(), guidance);
    }
    Ok(prepared.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_in_a_grammar_are_prepared_and_keep_their_options() {
        let text = r#"start: "a" %json {"title": "T", "type": "string", "x-guidance": {"lenient": true}} /b/ // %json {"#;
        let expected =
            r#"start: "a" %json {"type":"string","x-guidance":{"lenient":true}} /b/ // %json {"#;
        assert_eq!(prepared(text).unwrap(), expected);
        let error = prepared(r#"start: %json {"const": -9223372036854775808}"#)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("grammar: %json: the keyword \"const\" is not supported"),
            "{error}"
        );
        assert_eq!(
            prepared("start: \"%json\" | %json [1").unwrap(),
            "start: \"%json\" | %json [1"
        );
    }
}
