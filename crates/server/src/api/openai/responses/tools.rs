//! Maps the tools of responses to functions of chat, and calls back to the client's tools.
//!
//! A model knows functions only. A tool of a namespace becomes a function whose name begins with
//! the namespace; a custom tool, which takes any text, a function with one string, `input`.

use std::collections::HashMap;

use serde_json::{Value, json};

/// The client's tools that are no plain functions, by the names that the model has for them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ToolNames(HashMap<String, ClientTool>);

/// A tool of the client that is no plain function.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ClientTool {
    /// A function of a namespace.
    InNamespace { namespace: String, name: String },
    /// A tool that takes any text.
    Custom,
}

impl ToolNames {
    pub(super) fn client_tool(&self, name: &str) -> Option<&ClientTool> {
        self.0.get(name)
    }

    /// Maps tools to functions of chat. Tools of other types stay as they are; chat drops them.
    pub(super) fn declare(&mut self, tools: &[Value]) -> Vec<Value> {
        let mut all = Vec::new();
        for tool in tools {
            match tool["type"].as_str() {
                Some("namespace") => all.extend(self.namespace(tool)),
                _ => all.push(self.one(tool)),
            }
        }
        all
    }

    fn one(&mut self, tool: &Value) -> Value {
        match (tool["type"].as_str(), tool["name"].as_str()) {
            (Some("function"), _) => nested(tool),
            (Some("custom"), Some(name)) => {
                self.0.insert(name.to_owned(), ClientTool::Custom);
                custom(name, tool)
            }
            _ => tool.clone(),
        }
    }

    /// Maps the functions of a namespace.
    fn namespace(&mut self, space: &Value) -> Vec<Value> {
        let namespace = space["name"].as_str().unwrap_or_default();
        let mut list = Vec::new();
        for tool in space["tools"].as_array().into_iter().flatten() {
            let name = tool["name"].as_str().unwrap_or_default().to_owned();
            let joined = joined(Some(namespace), &name);
            let mut tool = self.one(tool);
            if tool["function"].is_object() {
                tool["function"]["name"] = joined.as_str().into();
                self.0.insert(
                    joined,
                    ClientTool::InNamespace {
                        namespace: namespace.to_owned(),
                        name,
                    },
                );
            }
            list.push(tool);
        }
        list
    }
}

/// The name that the model has for a tool, which may be one of a namespace.
pub(super) fn joined(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some("") => name.to_owned(),
        Some(namespace) if namespace.ends_with('_') => format!("{namespace}{name}"),
        Some(namespace) => format!("{namespace}.{name}"),
    }
}

/// A function in the form of chat, which nests it.
fn nested(tool: &Value) -> Value {
    let mut function = json!({ "name": tool["name"] });
    for field in ["description", "parameters", "strict"] {
        if let Some(value) = tool.get(field).filter(|value| !value.is_null()) {
            function[field] = value.clone();
        }
    }
    json!({ "type": "function", "function": function })
}

/// The function that stands for a custom tool.
fn custom(name: &str, tool: &Value) -> Value {
    let mut description = tool["description"].as_str().unwrap_or_default().to_owned();
    description += "\n\nThe text goes into \"input\" as a JSON string.";
    if let Some(grammar) = tool["format"]["definition"].as_str() {
        description += &format!(" Its grammar:\n{grammar}");
    }
    let input = json!({ "type": "object", "properties": { "input": { "type": "string" } }, "required": ["input"] });
    let function =
        json!({ "name": name, "description": description.trim_start(), "parameters": input });
    json!({ "type": "function", "function": function })
}

/// The input of a custom tool, from the arguments that the model wrote, which may be cut.
pub(super) fn input_of(arguments: &str) -> String {
    let whole = |text: &str| serde_json::from_str::<Value>(text).ok();
    let value = ["", "\"}", "}"]
        .iter()
        .find_map(|end| whole(&format!("{arguments}{end}")));
    value
        .and_then(|value| value["input"].as_str().map(str::to_owned))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_function_is_one_of_chat() {
        let tool = json!({ "type": "function", "name": "find", "parameters": {}, "strict": true, "description": null });
        let function = json!({ "name": "find", "parameters": {}, "strict": true });
        assert_eq!(
            ToolNames::default().declare(&[tool]),
            [json!({ "type": "function", "function": function })]
        );
        let search = json!({ "type": "web_search" });
        assert_eq!(
            ToolNames::default().declare(std::slice::from_ref(&search)),
            [search]
        );
    }

    #[test]
    fn functions_of_a_namespace_have_its_name_in_front() {
        let mut names = ToolNames::default();
        let find = json!({ "type": "function", "name": "find" });
        let tools = names.declare(&[
            json!({ "type": "namespace", "name": "agents", "tools": [find] }),
            json!({ "type": "namespace", "name": "mcp__", "tools": [find] }),
            find.clone(),
        ]);
        let all: Vec<_> = tools
            .iter()
            .map(|tool| tool["function"]["name"].as_str().unwrap())
            .collect();
        assert_eq!(all, ["agents.find", "mcp__find", "find"]);
        let within = ClientTool::InNamespace {
            namespace: "agents".into(),
            name: "find".into(),
        };
        assert_eq!(
            (names.client_tool("agents.find"), names.client_tool("find")),
            (Some(&within), None)
        );
        assert_eq!(joined(Some("agents"), "find"), "agents.find");
    }

    #[test]
    fn a_tool_of_any_text_is_a_function_with_one_string() {
        let mut names = ToolNames::default();
        let format = json!({ "type": "grammar", "syntax": "lark", "definition": "start: \"a\"" });
        let tools =
            names.declare(&[json!({ "type": "custom", "name": "apply_patch", "format": format })]);
        assert_eq!(
            tools[0]["function"]["parameters"]["required"],
            json!(["input"])
        );
        assert!(
            tools[0]["function"]["description"]
                .as_str()
                .unwrap()
                .ends_with("start: \"a\"")
        );
        assert_eq!(names.client_tool("apply_patch"), Some(&ClientTool::Custom));
        let texts = [r#"{"input": "a\nb"}"#, r#"{"input": "a\nb"#, r#"{"inp"#].map(input_of);
        assert_eq!(texts, ["a\nb", "a\nb", ""]);
    }
}
