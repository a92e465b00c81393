//! Tools and `tool_choice` as OpenAI defines them; llama.cpp's and Ollama's interfaces have the
//! same definitions.

use atta_engine::{
    Error,
    chat::ToolUse,
    tools::{ToolChoice, ToolSet},
};
use serde_json::{Value, json};

use super::{error::ApiError, warnings::Warnings};

/// The fields of a request about tools.
#[derive(Debug, Default)]
pub(crate) struct ToolRequest {
    pub(crate) tools: Option<Vec<Value>>,
    pub(crate) choice: Option<Value>,
    pub(crate) parallel: Option<bool>,
}

impl ToolRequest {
    /// Adds the deprecated fields `functions` and `function_call`.
    pub(crate) fn or_functions(self, functions: Option<Vec<Value>>, call: Option<Value>) -> Self {
        let Some(functions) = functions else {
            return self;
        };
        let wrapped = |function| json!({ "type": "function", "function": function });
        let choice = call.map(|call| match call["name"].as_str() {
            Some(name) => json!({ "type": "function", "function": { "name": name } }),
            None => call,
        });
        let tools = Some(functions.into_iter().map(wrapped).collect());
        Self {
            tools: self.tools.or(tools),
            choice: self.choice.or(choice),
            parallel: Some(false),
        }
    }

    /// The tools that the model may call, if there are any. Tools that are no functions are dropped
    /// with a warning.
    pub(crate) fn into_use(self, warnings: &Warnings) -> Result<Option<ToolUse>, ApiError> {
        let tools = self
            .tools
            .unwrap_or_default()
            .into_iter()
            .filter_map(|tool| declared(tool, warnings));
        let (choice, allowed) = self
            .choice
            .map_or(Ok((ToolChoice::Auto, None)), |choice| choice_of(&choice))?;
        let is_allowed = |tool: &Value| {
            allowed
                .as_ref()
                .is_none_or(|names| names.iter().any(|name| name == name_of(tool)))
        };
        let tools: Vec<Value> = tools.filter(is_allowed).collect();
        if tools.is_empty() {
            return match choice {
                ToolChoice::None | ToolChoice::Auto => Ok(None),
                _ => Err(ApiError::field(
                    "tool_choice",
                    "there are no tools to choose from",
                )),
            };
        }
        let tools = ToolSet::from_values(tools).map_err(Error::from)?;
        warnings.extend(tools.remarks());
        match &choice {
            ToolChoice::Named(name) if !tools.contains(name) => Err(ApiError::field(
                "tool_choice",
                format!("there is no tool {name:?} to choose"),
            )),
            _ => Ok(Some(ToolUse {
                tools,
                choice,
                parallel: self.parallel.unwrap_or(true),
            })),
        }
    }
}

fn name_of(tool: &Value) -> &str {
    tool["function"]["name"]
        .as_str()
        .or(tool["name"].as_str())
        .unwrap_or_default()
}

/// The definition of a tool for the chat template, if it is a function.
fn declared(tool: Value, warnings: &Warnings) -> Option<Value> {
    match tool["type"].as_str() {
        None | Some("function") => Some(without_null(tool)),
        Some(kind) => {
            warnings
                .add(format!("tools of type {kind:?} are not declared to the model: this server has only functions"));
            None
        }
    }
}

/// Drops fields that are null, and `strict: false`.
fn without_null(mut tool: Value) -> Value {
    let has_wrapper = tool.get("function").is_some();
    let function = if has_wrapper {
        tool.get_mut("function")
    } else {
        Some(&mut tool)
    };
    if let Some(fields) = function.and_then(Value::as_object_mut) {
        fields.retain(|key, value| !(value.is_null() || key == "strict" && *value == false));
    }
    tool
}

/// Parses `tool_choice`: the choice, and the names of the allowed tools if not all are.
fn choice_of(choice: &Value) -> Result<(ToolChoice, Option<Vec<String>>), ApiError> {
    let word = choice.as_str().or(choice["type"].as_str());
    let name = choice["function"]["name"]
        .as_str()
        .or(choice["name"].as_str());
    match (word, name) {
        (Some("auto"), _) => Ok((ToolChoice::Auto, None)),
        (Some("none"), _) => Ok((ToolChoice::None, None)),
        (Some("required" | "any"), _) => Ok((ToolChoice::Required, None)),
        (None | Some("function" | "tool"), Some(name)) => {
            Ok((ToolChoice::Named(name.to_owned()), None))
        }
        (Some("custom"), name) => match name.or(choice["custom"]["name"].as_str()) {
            Some(name) => Ok((ToolChoice::Named(name.to_owned()), None)),
            None => Err(no_choice(choice)),
        },
        (Some("allowed_tools"), _) => allowed(choice),
        _ => Err(no_choice(choice)),
    }
}

/// Parses the choice `allowed_tools`, whose fields chat nests and responses does not.
fn allowed(choice: &Value) -> Result<(ToolChoice, Option<Vec<String>>), ApiError> {
    let inner = if choice["allowed_tools"].is_object() {
        &choice["allowed_tools"]
    } else {
        choice
    };
    let names = inner["tools"]
        .as_array()
        .map(|tools| tools.iter().map(|tool| name_of(tool).to_owned()).collect());
    match (inner["mode"].as_str(), names) {
        (None | Some("auto"), Some(names)) => Ok((ToolChoice::Auto, Some(names))),
        (Some("required"), Some(names)) => Ok((ToolChoice::Required, Some(names))),
        _ => Err(no_choice(choice)),
    }
}

fn no_choice(choice: &Value) -> ApiError {
    ApiError::field("tool_choice", format!("{choice} is no choice"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(fields: Value) -> Result<(Option<ToolUse>, Vec<String>), ApiError> {
        let warnings = Warnings::default();
        let list = |name: &str| fields[name].as_array().cloned();
        let request = ToolRequest {
            tools: list("tools"),
            choice: fields.get("tool_choice").cloned(),
            parallel: None,
        };
        let request = request.or_functions(list("functions"), fields.get("function_call").cloned());
        Ok((request.into_use(&warnings)?, warnings.take()))
    }

    fn tool(name: &str) -> Value {
        json!({ "type": "function", "function": { "name": name, "strict": null } })
    }

    #[test]
    fn tools_that_are_no_functions_are_left_out_with_a_warning() {
        let tools = json!([tool("f"), { "type": "web_search" }, { "type": "custom", "custom": { "name": "c" } }]);
        let (found, warnings) = used(json!({ "tools": tools })).unwrap();
        assert_eq!(found.unwrap().tools.names().collect::<Vec<_>>(), ["f"]);
        assert_eq!(warnings.len(), 2);
        assert!(
            used(json!({ "tools": [{ "type": "web_search" }] }))
                .unwrap()
                .0
                .is_none()
        );
    }

    #[test]
    fn a_choice_is_a_word_a_function_or_some_of_them() {
        let tools = json!([tool("f"), tool("g")]);
        let choose = |choice: Value| {
            used(json!({ "tools": tools, "tool_choice": choice }))
                .unwrap()
                .0
                .unwrap()
        };
        assert_eq!(choose(json!("required")).choice, ToolChoice::Required);
        let named = ToolChoice::Named("g".into());
        assert_eq!(
            choose(json!({ "type": "function", "function": { "name": "g" } })).choice,
            named
        );
        assert_eq!(
            choose(json!({ "type": "function", "name": "g" })).choice,
            named
        );
        let some = json!({ "mode": "required", "tools": [tool("g")] });
        for choice in [
            json!({ "type": "allowed_tools", "allowed_tools": some }),
            json!({ "type": "allowed_tools", "mode": "required", "tools": [{ "type": "function", "name": "g" }] }),
        ] {
            let found = choose(choice);
            assert_eq!(
                (found.choice, found.tools.names().collect::<Vec<_>>()),
                (ToolChoice::Required, vec!["g"])
            );
        }
        for wrong in [
            json!("f"),
            json!({ "type": "web_search" }),
            json!({ "type": "allowed_tools" }),
            json!(["auto"]),
        ] {
            let error = used(json!({ "tools": tools, "tool_choice": wrong })).unwrap_err();
            assert_eq!(error.param.as_deref(), Some("tool_choice"));
        }
        assert!(
            used(json!({ "tool_choice": "required" })).is_err()
                && used(json!({ "tool_choice": "none" })).is_ok()
        );
        let absent = json!({ "type": "function", "function": { "name": "h" } });
        assert!(used(json!({ "tools": tools, "tool_choice": absent })).is_err());
    }

    #[test]
    fn functions_are_the_old_form_of_tools() {
        let (found, _) =
            used(json!({ "functions": [{ "name": "f" }], "function_call": { "name": "f" } }))
                .unwrap();
        assert_eq!(found.unwrap().choice, ToolChoice::Named("f".into()));
    }
}
