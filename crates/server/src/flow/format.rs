//! What an answer must look like: `response_format`, and what other servers call it.
//!
//! Knows no request as a whole: it takes the fields that ask for a form, of which a request may
//! have one.

use atta_engine::{Constraint, Error, OtherProperties, SchemaOptions, Strictness};
use serde::Deserialize;
use serde_json::Value;

use crate::flow::{error::ApiError, warnings::Warnings};

/// OpenAI's field.
#[derive(Debug, Deserialize)]
pub(crate) struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    json_schema: Option<NamedSchema>,
    /// Where llama.cpp's server and Together have it.
    schema: Option<Value>,
}

/// A schema; its name and description say nothing here.
#[derive(Debug, Deserialize)]
struct NamedSchema {
    schema: Option<Value>,
    strict: Option<bool>,
}

/// Further fields that ask for a form: llama.cpp's and vLLM's.
#[derive(Debug, Default)]
pub(crate) struct OtherFormats {
    /// GBNF.
    pub(crate) grammar: Option<String>,
    pub(crate) json_schema: Option<Value>,
    pub(crate) structured_outputs: Option<Structured>,
    pub(crate) guided_json: Option<Value>,
    pub(crate) guided_regex: Option<String>,
    pub(crate) guided_choice: Option<Vec<String>>,
}

/// vLLM's field.
#[derive(Debug, Deserialize)]
pub(crate) struct Structured {
    json: Option<Value>,
    json_object: Option<bool>,
    regex: Option<String>,
    choice: Option<Vec<String>>,
    grammar: Option<Value>,
    structural_tag: Option<Value>,
}

impl ResponseFormat {
    fn into_constraint(self, warnings: &Warnings) -> Result<Option<Constraint>, ApiError> {
        let (schema, strict) = match self.json_schema {
            Some(named) => (named.schema.or(self.schema), named.strict == Some(true)),
            None => (self.schema, false),
        };
        match (self.kind.as_str(), schema) {
            ("text", _) => Ok(None),
            ("json_object", None) => Ok(Some(Constraint::JsonObject)),
            ("json_object" | "json_schema", Some(schema)) => {
                constraint(&schema, strict, warnings).map(Some)
            }
            ("json_schema", None) => Err(wrong("the schema is missing")),
            (kind, _) => Err(wrong(format!("type {kind:?} is not supported"))),
        }
    }
}

impl OtherFormats {
    /// The one form that is asked for, if any; each with the name of its field.
    fn all(self, warnings: &Warnings) -> Result<Vec<(&'static str, Constraint)>, ApiError> {
        let mut all = Vec::new();
        let mut add = |name, constraint: Option<Constraint>| {
            all.extend(constraint.map(|constraint| (name, constraint)))
        };
        add(
            "grammar",
            self.grammar
                .filter(|text| !text.is_empty())
                .map(Constraint::Gbnf),
        );
        add(
            "json_schema",
            schema_of("json_schema", self.json_schema, warnings)?,
        );
        add(
            "guided_json",
            schema_of("guided_json", self.guided_json, warnings)?,
        );
        add("guided_regex", self.guided_regex.map(Constraint::Regex));
        add(
            "guided_choice",
            self.guided_choice.map(|texts| one_of(&texts)),
        );
        if let Some(structured) = self.structured_outputs {
            add("structured_outputs", structured.into_constraint(warnings)?);
        }
        Ok(all)
    }
}

impl Structured {
    fn into_constraint(self, warnings: &Warnings) -> Result<Option<Constraint>, ApiError> {
        if self.grammar.is_some() || self.structural_tag.is_some() {
            let message = "only json, json_object, regex and choice are supported; the field \"grammar\" takes GBNF";
            return Err(ApiError::field("structured_outputs", message));
        }
        let schema = schema_of("structured_outputs", self.json, warnings)?;
        let object = (self.json_object == Some(true)).then_some(Constraint::JsonObject);
        let regex = self.regex.map(Constraint::Regex);
        Ok(schema
            .or(object)
            .or(regex)
            .or(self.choice.map(|texts| one_of(&texts))))
    }
}

/// What the text of an answer must look like, if it must look like anything.
pub(crate) fn wanted(
    format: Option<ResponseFormat>,
    others: OtherFormats,
    warnings: &Warnings,
) -> Result<Option<Constraint>, ApiError> {
    let format = format.map_or(Ok(None), |format| format.into_constraint(warnings))?;
    let mut all: Vec<_> = format
        .map(|format| ("response_format", format))
        .into_iter()
        .collect();
    all.extend(others.all(warnings)?);
    match &all[..] {
        [(first, _), (second, _), ..] => Err(ApiError::field(
            *second,
            format!("{second} cannot be combined with {first}"),
        )),
        _ => Ok(all.pop().map(|(_, constraint)| constraint)),
    }
}

/// The constraint of a schema. One that is not strict is loosened where no grammar can keep to it,
/// with warnings.
pub(crate) fn constraint(
    schema: &Value,
    strict: bool,
    warnings: &Warnings,
) -> Result<Constraint, ApiError> {
    let strictness = if strict {
        Strictness::Strict
    } else {
        Strictness::Loose
    };
    let options = SchemaOptions {
        strictness,
        others: OtherProperties::Closed,
    };
    let (constraint, loosened) =
        Constraint::from_schema(&schema.to_string(), options).map_err(Error::from)?;
    warnings.extend(loosened);
    Ok(constraint)
}

/// The constraint of a schema that is an object, or its text.
fn schema_of(
    name: &str,
    schema: Option<Value>,
    warnings: &Warnings,
) -> Result<Option<Constraint>, ApiError> {
    let schema =
        match schema {
            Some(Value::String(text)) => Some(serde_json::from_str(&text).map_err(|error| {
                ApiError::field(name, format!("the schema is no JSON: {error}"))
            })?),
            schema => schema,
        };
    let constraint = schema
        .map(|schema| constraint(&schema, false, warnings))
        .transpose();
    constraint.map_err(|error| error.renamed("response_format", name))
}

/// A text that is one of these.
fn one_of(texts: &[String]) -> Constraint {
    let texts: Vec<String> = texts
        .iter()
        .map(|text| Value::from(text.as_str()).to_string())
        .collect();
    Constraint::Lark(format!("start: {}\n", texts.join(" | ")))
}

fn wrong(message: impl Into<String>) -> ApiError {
    ApiError::field("response_format", message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asked(format: Value) -> Result<Option<Constraint>, ApiError> {
        let format = serde_json::from_value(format).unwrap();
        wanted(Some(format), OtherFormats::default(), &Warnings::default())
    }

    #[test]
    fn a_schema_stands_where_openai_or_llama_cpp_have_it() {
        let schema = json!({ "type": "object" });
        let named = asked(
            json!({ "type": "json_schema", "json_schema": { "name": "n", "schema": schema } }),
        );
        assert!(matches!(&named, Ok(Some(_))), "{named:?}");
        assert_eq!(
            asked(json!({ "type": "json_object", "schema": schema })),
            named
        );
        assert_eq!(
            asked(json!({ "type": "json_schema", "schema": schema })),
            named
        );
        assert_eq!(
            asked(json!({ "type": "json_object" })),
            Ok(Some(Constraint::JsonObject))
        );
        assert_eq!(asked(json!({ "type": "text" })), Ok(None));
        for wrong in [json!({ "type": "json_schema" }), json!({ "type": "xml" })] {
            assert_eq!(
                asked(wrong).unwrap_err().param.as_deref(),
                Some("response_format")
            );
        }
    }

    #[test]
    fn other_servers_fields_ask_for_a_form_too_but_one_at_a_time() {
        let others = || OtherFormats {
            guided_choice: Some(vec!["a".into(), "\"b".into()]),
            ..OtherFormats::default()
        };
        let choice = wanted(None, others(), &Warnings::default()).unwrap();
        assert_eq!(
            choice,
            Some(Constraint::Lark("start: \"a\" | \"\\\"b\"\n".to_owned()))
        );
        let both = OtherFormats {
            grammar: Some("root ::= \"a\"".to_owned()),
            ..others()
        };
        let error = wanted(None, both, &Warnings::default()).unwrap_err();
        assert_eq!(
            error.message,
            "guided_choice cannot be combined with grammar"
        );
        let tags = serde_json::from_value(json!({ "structural_tag": {} })).unwrap();
        let tags = OtherFormats {
            structured_outputs: Some(tags),
            ..OtherFormats::default()
        };
        assert_eq!(
            wanted(None, tags, &Warnings::default())
                .unwrap_err()
                .param
                .as_deref(),
            Some("structured_outputs")
        );
    }
}
