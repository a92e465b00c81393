//! Tools and `tool_choice` of Anthropic, mapped to the engine's.

use atta_engine::{
    chat::ToolUse,
    tools::{ToolChoice, ToolSet},
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::flow::{error::ApiError, warnings::Warnings};

/// The type of tools that the client defines. Anthropic's server defines those of all other types.
const CUSTOM: &str = "custom";

/// A tool.
#[derive(Debug, Deserialize)]
pub(super) struct Tool {
    #[serde(rename = "type")]
    kind: Option<String>,
    name: Option<String>,
    description: Option<String>,
    input_schema: Option<Value>,
    strict: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Choice {
    #[serde(rename = "type")]
    kind: ChoiceKind,
    name: Option<String>,
    disable_parallel_tool_use: Option<bool>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ChoiceKind {
    Auto,
    Any,
    Tool,
    None,
}

impl Tool {
    /// The type of the tool, if Anthropic's server defines it.
    fn foreign_kind(&self) -> Option<&str> {
        self.kind.as_deref().filter(|kind| *kind != CUSTOM)
    }

    /// The definition for the model; `i` is the index of the tool.
    fn into_definition(self, i: usize) -> Result<Value, ApiError> {
        let missing = |field: &str| {
            ApiError::field(
                "tools",
                format!("tools[{i}]: the field {field:?} is missing"),
            )
        };
        let name = self.name.ok_or_else(|| missing("name"))?;
        let schema = self.input_schema.ok_or_else(|| missing("input_schema"))?;
        let mut definition = json!({ "name": name, "parameters": schema });
        if let Some(description) = self.description {
            definition["description"] = description.into();
        }
        if self.strict == Some(true) {
            definition["strict"] = true.into();
        }
        Ok(definition)
    }
}

impl Choice {
    fn into_choice(self) -> Result<ToolChoice, ApiError> {
        match (self.kind, self.name) {
            (ChoiceKind::Auto, None) => Ok(ToolChoice::Auto),
            (ChoiceKind::Any, None) => Ok(ToolChoice::Required),
            (ChoiceKind::None, None) => Ok(ToolChoice::None),
            (ChoiceKind::Tool, Some(name)) => Ok(ToolChoice::Named(name)),
            (ChoiceKind::Tool, None) => Err(ApiError::field(
                "tool_choice",
                "the name of the tool is missing",
            )),
            (_, Some(_)) => Err(ApiError::field(
                "tool_choice",
                "a name is of use with type \"tool\" only",
            )),
        }
    }
}

/// The tools that the model may call, if there are any. Tools that Anthropic's server defines are
/// dropped with a warning.
pub(super) fn tool_use(
    tools: Vec<Tool>,
    choice: Option<Choice>,
    warnings: &Warnings,
) -> Result<Option<ToolUse>, ApiError> {
    let is_parallel = choice
        .as_ref()
        .is_none_or(|choice| choice.disable_parallel_tool_use != Some(true));
    let choice = choice.map_or(Ok(ToolChoice::Auto), Choice::into_choice)?;
    let mut definitions = Vec::new();
    let mut left_out = Vec::new();
    for (i, tool) in tools.into_iter().enumerate() {
        match tool.foreign_kind() {
            None => definitions.push(tool.into_definition(i)?),
            Some(kind) => {
                warnings.add(format!(
                    "the tool of type {kind:?} is left out: this server does not know that type"
                ));
                left_out.extend(tool.name);
            }
        }
    }
    let tools = ToolSet::from_values(definitions)
        .map_err(|error| ApiError::field("tools", error.to_string()))?;
    warnings.extend(tools.remarks().iter().cloned());
    check(&choice, &tools, &left_out)?;
    Ok((!tools.is_empty()).then_some(ToolUse {
        tools,
        choice,
        parallel: is_parallel,
    }))
}

/// Refuses the choice of a tool that is not declared.
fn check(choice: &ToolChoice, tools: &ToolSet, left_out: &[String]) -> Result<(), ApiError> {
    let refuse = |message: String| Err(ApiError::field("tool_choice", message));
    match choice {
        ToolChoice::Named(name) if tools.contains(name) => Ok(()),
        ToolChoice::Named(name) if left_out.contains(name) => refuse(format!(
            "the tool {name:?} has a type that this server does not know, and cannot be chosen"
        )),
        ToolChoice::Named(name) => refuse(format!("there is no tool {name:?} to choose")),
        ToolChoice::Required if tools.is_empty() => {
            refuse("there are no tools to choose from".to_owned())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tools: Value, choice: Value) -> (Result<Option<ToolUse>, ApiError>, Vec<String>) {
        let warnings = Warnings::default();
        let tools = serde_json::from_value(tools).unwrap();
        let choice = serde_json::from_value(choice).unwrap();
        (tool_use(tools, choice, &warnings), warnings.take())
    }

    fn used(choice: Value) -> Result<Option<ToolUse>, ApiError> {
        let schema = json!({ "type": "object" });
        of(json!([{ "name": "f", "input_schema": schema, "cache_control": { "type": "ephemeral" } }]), choice).0
    }

    #[test]
    fn each_choice_has_its_meaning() {
        for (choice, expected) in [
            (json!(null), ToolChoice::Auto),
            (json!({ "type": "auto" }), ToolChoice::Auto),
            (json!({ "type": "any" }), ToolChoice::Required),
            (json!({ "type": "none" }), ToolChoice::None),
            (
                json!({ "type": "tool", "name": "f" }),
                ToolChoice::Named("f".to_owned()),
            ),
        ] {
            let used = used(choice).unwrap().unwrap();
            assert!(used.choice == expected && used.parallel, "{used:?}");
        }
        let alone = used(json!({ "type": "any", "disable_parallel_tool_use": true }))
            .unwrap()
            .unwrap();
        assert!(!alone.parallel);
    }

    #[test]
    fn a_choice_that_cannot_be_is_refused() {
        for choice in [
            json!({ "type": "tool", "name": "g" }),
            json!({ "type": "tool" }),
            json!({ "type": "any", "name": "f" }),
        ] {
            assert_eq!(
                used(choice).unwrap_err().param.as_deref(),
                Some("tool_choice")
            );
        }
        assert!(of(json!([]), json!({ "type": "any" })).0.is_err());
        assert!(of(json!([]), json!(null)).0.unwrap().is_none());
    }

    #[test]
    fn a_tool_of_another_type_is_left_out_with_a_warning_and_cannot_be_chosen() {
        let search = json!({ "type": "web_search_20250305", "name": "web_search", "max_uses": 5 });
        let toolset = json!({ "type": "mcp_toolset", "mcp_server_name": "x" });
        let custom = json!({ "type": "custom", "name": "f", "input_schema": { "type": "object" } });
        let (used, warnings) = of(json!([search, toolset, custom]), json!(null));
        assert_eq!(
            used.unwrap().unwrap().tools.names().collect::<Vec<_>>(),
            ["f"]
        );
        assert!(
            warnings.len() == 2 && warnings[0].contains("web_search_20250305"),
            "{warnings:?}"
        );
        let chosen = of(
            json!([search]),
            json!({ "type": "tool", "name": "web_search" }),
        )
        .0
        .unwrap_err();
        assert!(
            chosen.message.contains("does not know")
                && chosen.param.as_deref() == Some("tool_choice")
        );
        assert!(of(json!([search]), json!({ "type": "any" })).0.is_err());
        assert!(
            of(json!([search]), json!({ "type": "auto" }))
                .0
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_tool_without_a_schema_is_refused_with_its_place() {
        let error = of(json!([{ "name": "f" }]), json!(null)).0.unwrap_err();
        assert_eq!(
            error.message,
            "tools[0]: the field \"input_schema\" is missing"
        );
    }

    #[test]
    fn a_name_may_have_128_characters() {
        let tool =
            |n: usize| json!([{ "name": "x".repeat(n), "input_schema": { "type": "object" } }]);
        assert!(of(tool(128), json!(null)).0.is_ok());
        assert!(of(tool(129), json!(null)).0.is_err());
    }
}
