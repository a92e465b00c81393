//! The format of an answer: `response_format`, and the fields of other servers for it.
//!
//! Knows no request as a whole, only the fields that ask for a format. A request may have one of
//! them.

use atta_engine::{Constraint, OtherProperties, SchemaOptions, Strictness};
use serde::Deserialize;
use serde_json::Value;

use super::{error::ApiError, warnings::Warnings};

/// The fields by which OpenAI, llama.cpp's server and vLLM ask for a format.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct FormatFields {
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    response_format: Option<ResponseFormat>,
    /// llama.cpp's: GBNF.
    grammar: Option<String>,
    /// llama.cpp's.
    json_schema: Option<Value>,
    /// vLLM's.
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    structured_outputs: Option<StructuredOutputs>,
    guided_json: Option<Value>,
    guided_regex: Option<String>,
    guided_choice: Option<Vec<String>>,
    guided_grammar: Option<Value>,
}

/// OpenAI's field.
#[derive(Debug, Deserialize)]
struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    json_schema: Option<NamedSchema>,
    /// Where llama.cpp's server and Together have the schema.
    schema: Option<Value>,
}

/// A schema; its name and description have no effect.
#[derive(Debug, Deserialize)]
struct NamedSchema {
    schema: Option<Value>,
    strict: Option<bool>,
}

/// vLLM's field.
#[derive(Debug, Deserialize)]
struct StructuredOutputs {
    json: Option<Value>,
    json_object: Option<bool>,
    regex: Option<String>,
    choice: Option<Vec<String>>,
    grammar: Option<Value>,
    structural_tag: Option<Value>,
}

impl FormatFields {
    /// The constraint on the text of an answer, if a field asks for one.
    ///
    /// # Errors
    /// Several of these fields, and formats that cannot be kept.
    pub(crate) fn into_constraint(
        self,
        warnings: &Warnings,
    ) -> Result<Option<Constraint>, ApiError> {
        if self.guided_grammar.is_some() {
            return Err(ApiError::field(
                "guided_grammar",
                "it is not supported; the field \"grammar\" takes GBNF",
            ));
        }
        let mut all = Vec::new();
        let mut add = |field: &'static str, constraint: Option<Constraint>| {
            all.extend(constraint.map(|constraint| (field, constraint)));
        };
        if let Some(format) = self.response_format {
            add("response_format", format.into_constraint(warnings)?);
        }
        add("grammar", grammar(self.grammar));
        for (field, schema) in [
            ("json_schema", self.json_schema),
            ("guided_json", self.guided_json),
        ] {
            add(field, schema_or_text(field, schema, warnings)?);
        }
        add("guided_regex", self.guided_regex.map(Constraint::Regex));
        let choice = self.guided_choice.map(|texts| one_of(&texts));
        add("guided_choice", choice);
        if let Some(structured) = self.structured_outputs {
            add("structured_outputs", structured.into_constraint(warnings)?);
        }
        match &all[..] {
            [(first, _), (second, _), ..] => Err(ApiError::field(
                *second,
                format!("{second} cannot be combined with {first}"),
            )),
            _ => Ok(all.pop().map(|(_, constraint)| constraint)),
        }
    }
}

impl ResponseFormat {
    fn into_constraint(self, warnings: &Warnings) -> Result<Option<Constraint>, ApiError> {
        let (schema, is_strict) = match self.json_schema {
            Some(named) => (named.schema.or(self.schema), named.strict == Some(true)),
            None => (self.schema, false),
        };
        typed_format(
            "response_format",
            &self.kind,
            schema.as_ref(),
            is_strict,
            warnings,
        )
    }
}

/// The constraint of an object with a `type` and, if that is `json_schema`, a schema.
pub(crate) fn typed_format(
    field: &str,
    kind: &str,
    schema: Option<&Value>,
    is_strict: bool,
    warnings: &Warnings,
) -> Result<Option<Constraint>, ApiError> {
    let error = |message: String| Err(ApiError::field(field, message));
    match (kind, schema) {
        ("text", _) => Ok(None),
        ("json_object", None) => Ok(Some(Constraint::JsonObject)),
        ("json_object" | "json_schema", Some(schema)) => {
            let options = SchemaOptions {
                strictness: if is_strict {
                    Strictness::Strict
                } else {
                    Strictness::Loose
                },
                others: OtherProperties::Closed,
            };
            from_schema(field, schema, options, warnings).map(Some)
        }
        ("json_schema", None) => error("the schema is missing".to_owned()),
        _ => error(format!("type {kind:?} is not supported")),
    }
}

impl StructuredOutputs {
    fn into_constraint(self, warnings: &Warnings) -> Result<Option<Constraint>, ApiError> {
        if self.grammar.is_some() || self.structural_tag.is_some() {
            return Err(ApiError::field(
                "structured_outputs",
                "only json, json_object, regex and choice are supported; the field \"grammar\" \
                 takes GBNF",
            ));
        }
        let schema = schema_or_text("structured_outputs", self.json, warnings)?;
        let object = (self.json_object == Some(true)).then_some(Constraint::JsonObject);
        let regex = self.regex.map(Constraint::Regex);
        let choice = self.choice.map(|texts| one_of(&texts));
        Ok(schema.or(object).or(regex).or(choice))
    }
}

/// The constraint of a schema. Unless `options` are strict, keywords that no grammar can keep are
/// dropped, with warnings.
pub(crate) fn from_schema(
    field: &str,
    schema: &Value,
    options: SchemaOptions,
    warnings: &Warnings,
) -> Result<Constraint, ApiError> {
    let (constraint, dropped) = Constraint::from_schema(&schema.to_string(), options)
        .map_err(|error| ApiError::field(field, format!("{field}: {error}")))?;
    let dropped = dropped.into_iter().map(|what| format!("{field}: {what}"));
    warnings.extend(dropped);
    Ok(constraint)
}

/// The constraint of a schema in a field that cannot ask for strictness.
pub(crate) fn from_loose_schema(
    field: &str,
    schema: &Value,
    warnings: &Warnings,
) -> Result<Constraint, ApiError> {
    let options = SchemaOptions {
        strictness: Strictness::Loose,
        others: OtherProperties::Closed,
    };
    from_schema(field, schema, options, warnings)
}

/// The constraint of a schema that is an object, or the text of one.
fn schema_or_text(
    field: &str,
    schema: Option<Value>,
    warnings: &Warnings,
) -> Result<Option<Constraint>, ApiError> {
    let schema = match schema {
        Some(Value::String(text)) => {
            let parsed = serde_json::from_str(&text);
            Some(parsed.map_err(|error| {
                ApiError::field(field, format!("the schema is no JSON: {error}"))
            })?)
        }
        schema => schema,
    };
    schema
        .map(|schema| from_loose_schema(field, &schema, warnings))
        .transpose()
}

/// The constraint of a grammar in GBNF; `None` for an empty grammar.
pub(crate) fn grammar(text: Option<String>) -> Option<Constraint> {
    let text = text.filter(|text| !text.trim().is_empty());
    text.map(Constraint::Gbnf)
}

/// The constraint of a text that is one of these.
fn one_of(texts: &[String]) -> Constraint {
    let texts: Vec<String> = texts
        .iter()
        .map(|text| Value::from(text.as_str()).to_string())
        .collect();
    Constraint::Lark(format!("start: {}\n", texts.join(" | ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn constraint(fields: Value) -> Result<Option<Constraint>, ApiError> {
        let fields: FormatFields = serde_json::from_value(fields).unwrap();
        fields.into_constraint(&Warnings::default())
    }

    fn of_format(format: Value) -> Result<Option<Constraint>, ApiError> {
        constraint(json!({ "response_format": format }))
    }

    #[test]
    fn a_schema_stands_where_openai_or_llama_cpp_have_it() {
        let schema = json!({ "type": "object" });
        let named = json!({ "name": "n", "schema": schema });
        let expected = of_format(json!({ "type": "json_schema", "json_schema": named }));
        assert!(matches!(&expected, Ok(Some(_))), "{expected:?}");
        for kind in ["json_object", "json_schema"] {
            let found = of_format(json!({ "type": kind, "schema": schema }));
            assert_eq!(found, expected);
        }
        let object = of_format(json!({ "type": "json_object" }));
        assert_eq!(object, Ok(Some(Constraint::JsonObject)));
        assert_eq!(of_format(json!({ "type": "text" })), Ok(None));
        for wrong in [json!({ "type": "json_schema" }), json!({ "type": "xml" })] {
            let error = of_format(wrong).unwrap_err();
            assert_eq!(error.param.as_deref(), Some("response_format"));
        }
    }

    #[test]
    fn other_servers_fields_ask_for_a_format_too_but_one_at_a_time() {
        let choice = json!(["a", "\"b"]);
        assert_eq!(
            constraint(json!({ "guided_choice": choice })),
            Ok(Some(Constraint::Lark(
                "start: \"a\" | \"\\\"b\"\n".to_owned()
            )))
        );
        let both = json!({ "guided_choice": choice, "grammar": "root ::= \"a\"" });
        let error = constraint(both).unwrap_err();
        assert_eq!(
            error.message,
            "guided_choice cannot be combined with grammar"
        );
        for (field, value) in [
            ("structured_outputs", json!({ "structural_tag": {} })),
            ("guided_grammar", json!("x")),
            ("guided_json", json!("no JSON")),
        ] {
            let error = constraint(json!({ field: value })).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(field));
        }
    }

    #[test]
    fn an_empty_grammar_is_none() {
        assert_eq!(constraint(json!({ "grammar": " " })), Ok(None));
    }
}
