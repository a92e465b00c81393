//! How the value of a parameter is written where a call is not JSON: raw text for strings, JSON for
//! everything else.
//!
//! Knows schemas as `schema` prepares them and no call format. The parser and the grammar ask the
//! same question, so that they agree on which values are raw.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{ToolError, ToolSet, definition::Tool, grammar::regex};

/// Where the schemas are that others refer to.
const DEFINITIONS: &str = "$defs";
/// Keywords at the top of a tool's schema that a list of parameters keeps to.
const KEPT: [&str; 6] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    DEFINITIONS,
    "x-guidance",
];
/// Maximum number of references that lead from a parameter to its type.
const MAX_STEPS: usize = 8;

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueForm {
    /// The text itself.
    Text,
    /// The text itself; `null` is the JSON value.
    NullableText,
    /// JSON.
    Json,
}

/// Forms of the values of all tools, by tool and parameter.
#[derive(Clone, Debug, Default)]
pub(super) struct ValueForms(HashMap<String, HashMap<String, ValueForm>>);

impl ValueForms {
    pub(super) fn of(tools: &ToolSet) -> Self {
        let forms = |tool: &Tool| {
            let named = properties(&tool.arguments);
            let form = |schema| match RawText::of(schema, &tool.arguments) {
                None => ValueForm::Json,
                Some(text) if text.is_nullable => ValueForm::NullableText,
                Some(_) => ValueForm::Text,
            };
            named.map(|(key, one)| (key.clone(), form(one))).collect()
        };
        let tools = tools.tools().iter();
        Self(tools.map(|tool| (tool.name.clone(), forms(tool))).collect())
    }

    /// The form of a parameter, if its tool and schema are known.
    pub(super) fn get(&self, tool: &str, parameter: &str) -> Option<ValueForm> {
        self.0.get(tool)?.get(parameter).copied()
    }
}

/// A parameter of a tool, as a grammar needs it.
pub(super) struct Parameter<'a> {
    pub(super) name: &'a str,
    pub(super) is_required: bool,
    /// The texts that it takes, if its values are raw.
    pub(super) text: Option<RawText<'a>>,
    /// Its schema, with the definitions that it refers to.
    pub(super) schema: Value,
}

impl Parameter<'_> {
    /// Whether it is `true` or `false`, and nothing else is said of it.
    pub(super) fn is_boolean(&self) -> bool {
        let extra = |key: &&str| *key != "type" && *key != DEFINITIONS && *key != "x-guidance";
        self.schema["type"] == "boolean"
            && self
                .schema
                .as_object()
                .is_some_and(|keys| !keys.keys().any(|key| extra(&key.as_str())))
    }
}

/// The parameters of a tool, in the order of its schema.
///
/// # Errors
/// [`ToolError::Keyword`] for a keyword at the top of the schema that relates parameters to each
/// other, [`ToolError::Definition`] for a required parameter that is not listed.
pub(super) fn parameters(tool: &Tool) -> Result<Vec<Parameter<'_>>, ToolError> {
    let root = &tool.arguments;
    let keys = root.as_object().into_iter().flat_map(Map::keys);
    if let Some(keyword) = keys.into_iter().find(|key| !KEPT.contains(&key.as_str())) {
        return Err(ToolError::Keyword {
            tool: tool.name.clone(),
            at: String::new(),
            keyword: keyword.clone(),
        });
    }
    let required = root["required"].as_array().map_or(&[][..], Vec::as_slice);
    let is_listed = |name: &&Value| properties(root).any(|(key, _)| *name == key);
    if let Some(name) = required.iter().find(|name| !is_listed(name)) {
        return Err(ToolError::Definition {
            tool: format!("tool {}", tool.name),
            what: format!("parameters: {name} is required, but not among the properties"),
        });
    }
    let listed = properties(root).map(|(name, schema)| Parameter {
        name,
        is_required: required.iter().any(|other| other == name),
        text: RawText::of(schema, root),
        schema: alone(schema, root),
    });
    Ok(listed.collect())
}

fn properties(root: &Value) -> impl Iterator<Item = (&String, &Value)> {
    root["properties"].as_object().into_iter().flatten()
}

/// The schema of a parameter as a document of its own.
pub(super) fn alone(schema: &Value, root: &Value) -> Value {
    let mut alone = match schema {
        Value::Object(keys) => keys.clone(),
        Value::Bool(false) => Map::from_iter([("enum".to_owned(), Value::Array(Vec::new()))]),
        _ => Map::new(),
    };
    for key in [DEFINITIONS, "x-guidance"] {
        if let Some(value) = root.get(key) {
            alone.insert(key.to_owned(), value.clone());
        }
    }
    alone.into()
}

/// The texts of a parameter whose values are raw.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RawText<'a> {
    /// Lengths in characters.
    pub(super) min: u64,
    pub(super) max: Option<u64>,
    /// The only texts, where the schema lists them.
    pub(super) only: Option<Vec<&'a str>>,
    /// Whether it may be `null`.
    pub(super) is_nullable: bool,
}

impl<'a> RawText<'a> {
    /// The texts that match a schema; `None` if other values match, too, or if texts must match a
    /// pattern: those are written as JSON.
    pub(super) fn of(schema: &'a Value, root: &'a Value) -> Option<Self> {
        let keys = resolved(schema, root)?;
        if let Some(either) = keys.get("anyOf").filter(|_| keys.len() == 1) {
            return Self::nullable(either.as_array()?, root);
        }
        if let Some(only) = listed(keys) {
            return Some(Self {
                only: Some(only?),
                ..Self::any()
            });
        }
        let is_known = |key: &String| matches!(key.as_str(), "type" | "minLength" | "maxLength");
        let is_nullable = match keys.get("type")? {
            Value::String(ty) if ty == "string" => false,
            Value::Array(types) if is_string_or_null(types) => true,
            _ => return None,
        };
        keys.keys().all(is_known).then(|| Self {
            min: keys.get("minLength").and_then(Value::as_u64).unwrap_or(0),
            max: keys.get("maxLength").and_then(Value::as_u64),
            is_nullable,
            ..Self::any()
        })
    }

    /// The texts as a regular expression, `null` excepted.
    pub(super) fn regex(&self) -> String {
        match &self.only {
            Some(only) => {
                let only: Vec<String> = only.iter().map(|text| regex(text)).collect();
                only.join("|")
            }
            None => {
                let max = self.max.map(|n| n.to_string()).unwrap_or_default();
                format!("(?s:.{{{},{max}}})", self.min)
            }
        }
    }

    /// Whether it may have no characters.
    pub(super) fn may_be_empty(&self) -> bool {
        match &self.only {
            Some(only) => only.contains(&""),
            None => self.min == 0,
        }
    }

    fn any() -> Self {
        Self {
            min: 0,
            max: None,
            only: None,
            is_nullable: false,
        }
    }

    /// A choice between raw texts and `null`.
    fn nullable(either: &'a [Value], root: &'a Value) -> Option<Self> {
        let is_null = |schema: &Value| schema["type"] == "null";
        match either {
            [text, null] | [null, text] if is_null(null) && !is_null(text) => {
                let text = Self::of(text, root)?;
                Some(Self {
                    is_nullable: true,
                    ..text
                })
            }
            _ => None,
        }
    }
}

/// The values that a schema lists, if it does; inside, `None` if not all of them are plain texts.
#[expect(clippy::option_option, reason = "no list, and a list of other values")]
fn listed(keys: &Map<String, Value>) -> Option<Option<Vec<&str>>> {
    let values = match (keys.get("enum"), keys.get("const")) {
        (Some(Value::Array(values)), None) => values.as_slice(),
        (None, Some(value)) => std::slice::from_ref(value),
        _ => return None,
    };
    let is_alone = keys
        .keys()
        .all(|key| matches!(key.as_str(), "type" | "enum" | "const"));
    // A line break or a bracket could be taken for the end of the value.
    let is_plain = |text: &&str| !text.contains(['\n', '<']) && text.trim() == *text;
    let texts = values.iter().map(|value| value.as_str().filter(is_plain));
    Some(texts.collect::<Option<Vec<&str>>>().filter(|_| is_alone))
}

fn is_string_or_null(types: &[Value]) -> bool {
    types.len() == 2 && types.iter().any(|ty| ty == "string") && types.iter().any(|ty| ty == "null")
}

/// The keywords of a schema, behind references.
fn resolved<'a>(schema: &'a Value, root: &'a Value) -> Option<&'a Map<String, Value>> {
    let mut keys = schema.as_object()?;
    for _ in 0..MAX_STEPS {
        let Some(reference) = keys.get("$ref").filter(|_| keys.len() == 1) else {
            return Some(keys);
        };
        let name = reference.as_str()?.strip_prefix("#/$defs/")?;
        keys = root[DEFINITIONS][name].as_object()?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(schema: &str) -> ValueForm {
        let defs = r##"{"name": {"type": "string"}, "again": {"$ref": "#/$defs/again"}}"##;
        let text = format!(
            r#"[{{"name": "f", "parameters": {{"properties": {{"a": {schema}}}, "$defs": {defs}}}}}]"#
        );
        let forms = ValueForms::of(&ToolSet::parse(&text).unwrap());
        assert_eq!(forms.get("f", "b"), None);
        assert_eq!(forms.get("g", "a"), None);
        forms.get("f", "a").unwrap()
    }

    #[test]
    fn only_strings_are_raw() {
        for raw in [
            r#"{"type": "string", "description": "d"}"#,
            r#"{"type": "string", "minLength": 1, "maxLength": 9}"#,
            r#"{"enum": ["a", "b"]}"#,
            r#"{"type": "string", "const": "a"}"#,
            r##"{"$ref": "#/$defs/name"}"##,
        ] {
            assert_eq!(form(raw), ValueForm::Text, "{raw}");
        }
        for json in [
            "{}",
            "true",
            r#"{"type": "integer"}"#,
            r#"{"type": ["string", "integer"]}"#,
            r#"{"enum": ["a", 1]}"#,
            r#"{"enum": ["a\n</parameter>"]}"#,
            r#"{"type": "string", "pattern": "a+"}"#,
            r#"{"type": "array", "items": {"type": "string"}}"#,
            r#"{"anyOf": [{"type": "string"}, {"type": "integer"}]}"#,
        ] {
            assert_eq!(form(json), ValueForm::Json, "{json}");
        }
    }

    #[test]
    fn a_string_may_be_null() {
        for schema in [
            r#"{"type": ["string", "null"]}"#,
            r#"{"anyOf": [{"type": "string"}, {"type": "null"}], "default": null}"#,
            r#"{"anyOf": [{"type": "null"}, {"enum": ["a"]}]}"#,
        ] {
            assert_eq!(form(schema), ValueForm::NullableText, "{schema}");
        }
    }

    #[test]
    fn parameters_that_depend_on_each_other_are_refused() {
        let error = |schema: &str| {
            let tools = format!(r#"[{{"name": "f", "parameters": {schema}}}]"#);
            let tools = ToolSet::parse(&tools).unwrap();
            let error = parameters(&tools.tools()[0]).err().unwrap();
            error.to_string()
        };
        assert_eq!(
            error(r#"{"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}"#),
            "tool f: parameters: the keyword \"anyOf\" is not supported"
        );
        assert_eq!(
            error(r#"{"properties": {"a": {}}, "required": ["b"]}"#),
            "tool f: parameters: \"b\" is required, but not among the properties"
        );
    }
}
