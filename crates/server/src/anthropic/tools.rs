//! Tools of a request, and which of them may be called, in our own words.

use atta_engine::{
    chat::ToolUse,
    tools::{ToolChoice, ToolSet},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::refusal::Refusal;

/// A tool of the client's. Those that a server would use by itself have other types, and are refused by them.
#[derive(Debug, Deserialize)]
pub(super) struct Tool {
    #[serde(rename = "type")]
    _kind: Option<Custom>,
    name: String,
    description: Option<String>,
    input_schema: Value,
    /// It is always so here.
    #[serde(rename = "strict")]
    _strict: Option<bool>,
    #[serde(rename = "cache_control")]
    _cache_control: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Custom {
    Custom,
}

#[derive(Debug, Deserialize)]
pub(super) struct Choice {
    #[serde(rename = "type")]
    kind: Kind,
    name: Option<String>,
    disable_parallel_tool_use: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Auto,
    Any,
    Tool,
    None,
}

impl Tool {
    fn into_definition(self) -> Value {
        let mut definition = json!({ "name": self.name, "parameters": self.input_schema });
        if let Some(description) = self.description {
            definition["description"] = description.into();
        }
        definition
    }
}

impl Choice {
    fn into_choice(self) -> Result<ToolChoice, Refusal> {
        match (self.kind, self.name) {
            (Kind::Auto, None) => Ok(ToolChoice::Auto),
            (Kind::Any, None) => Ok(ToolChoice::Required),
            (Kind::None, None) => Ok(ToolChoice::None),
            (Kind::Tool, Some(name)) => Ok(ToolChoice::Named(name)),
            (Kind::Tool, None) => Err(Refusal::field("tool_choice", "the name of the tool is missing")),
            (_, Some(_)) => Err(Refusal::field("tool_choice", "a name is of use with type \"tool\" only")),
        }
    }
}

/// Which tools may be called, if any.
pub(super) fn tool_use(tools: Vec<Tool>, choice: Option<Choice>) -> Result<Option<ToolUse>, Refusal> {
    let is_parallel = choice.as_ref().is_none_or(|choice| choice.disable_parallel_tool_use != Some(true));
    let choice = choice.map_or(Ok(ToolChoice::Auto), Choice::into_choice)?;
    let tools = ToolSet::from_values(tools.into_iter().map(Tool::into_definition).collect());
    let tools = tools.map_err(|error| Refusal::field("tools", error.to_string()))?;
    match &choice {
        ToolChoice::Named(name) if !tools.contains(name) => {
            Err(Refusal::field("tool_choice", format!("there is no tool {name:?} to choose")))
        }
        ToolChoice::Required if tools.is_empty() => {
            Err(Refusal::field("tool_choice", "there are no tools to choose from"))
        }
        _ if tools.is_empty() => Ok(None),
        _ => Ok(Some(ToolUse { tools, choice, parallel: is_parallel })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(choice: Value) -> Result<Option<ToolUse>, Refusal> {
        let schema = json!({ "type": "object" });
        let tools = json!([{ "name": "f", "input_schema": schema, "cache_control": { "type": "ephemeral" } }]);
        tool_use(serde_json::from_value(tools).unwrap(), serde_json::from_value(choice).unwrap())
    }

    #[test]
    fn each_choice_has_its_meaning() {
        for (choice, expected) in [
            (json!(null), ToolChoice::Auto),
            (json!({ "type": "auto" }), ToolChoice::Auto),
            (json!({ "type": "any" }), ToolChoice::Required),
            (json!({ "type": "none" }), ToolChoice::None),
            (json!({ "type": "tool", "name": "f" }), ToolChoice::Named("f".to_owned())),
        ] {
            let used = used(choice).unwrap().unwrap();
            assert!(used.choice == expected && used.parallel, "{used:?}");
        }
        let alone = used(json!({ "type": "any", "disable_parallel_tool_use": true })).unwrap().unwrap();
        assert!(!alone.parallel);
    }

    #[test]
    fn a_choice_that_cannot_be_is_refused() {
        for choice in
            [json!({ "type": "tool", "name": "g" }), json!({ "type": "tool" }), json!({ "type": "any", "name": "f" })]
        {
            assert_eq!(used(choice).unwrap_err().param.as_deref(), Some("tool_choice"));
        }
        let any = serde_json::from_value(json!({ "type": "any" })).unwrap();
        assert!(tool_use(Vec::new(), Some(any)).is_err());
        assert!(tool_use(Vec::new(), None).unwrap().is_none());
    }

    #[test]
    fn tools_of_servers_are_refused_by_their_type() {
        let search = json!({ "type": "web_search_20250305", "name": "web_search" });
        let error = serde_json::from_value::<Tool>(search).unwrap_err();
        assert!(error.to_string().contains("web_search_20250305"), "{error}");
    }
}
