//! Tools of this interface as those of chat, and calls back in the form that the client knows.
//!
//! A model has functions, known by one name each. Tools of a namespace are functions whose names
//! begin with it; a tool that takes any text is a function with one string, `input`.

use std::collections::HashMap;

use serde_json::{Value, json};

/// Functions that the client knows in another form, by the name that the model knows.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names(HashMap<String, Form>);

/// How a client knows a function.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// By a name within a namespace.
    Within { namespace: String, name: String },
    /// As a tool that takes any text.
    Custom,
}

impl Names {
    pub(super) fn form(&self, name: &str) -> Option<&Form> {
        self.0.get(name)
    }

    /// Tools as chat has them. Of other types they stay as they are, for it to leave out.
    pub(super) fn declare(&mut self, tools: &[Value]) -> Vec<Value> {
        let mut all = Vec::new();
        for tool in tools {
            match tool["type"].as_str() {
                Some("namespace") => all.extend(self.within(tool)),
                _ => all.push(self.one(tool)),
            }
        }
        all
    }

    fn one(&mut self, tool: &Value) -> Value {
        match (tool["type"].as_str(), tool["name"].as_str()) {
            (Some("function"), _) => nested(tool),
            (Some("custom"), Some(name)) => {
                self.0.insert(name.to_owned(), Form::Custom);
                custom(name, tool)
            }
            _ => tool.clone(),
        }
    }

    /// The functions of a namespace.
    fn within(&mut self, space: &Value) -> Vec<Value> {
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
                    Form::Within {
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

/// The name that a model knows of a tool that may be one of a namespace.
pub(super) fn joined(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some("") => name.to_owned(),
        Some(namespace) if namespace.ends_with('_') => format!("{namespace}{name}"),
        Some(namespace) => format!("{namespace}.{name}"),
    }
}

/// A function as chat has it.
fn nested(tool: &Value) -> Value {
    let mut function = json!({ "name": tool["name"] });
    for field in ["description", "parameters", "strict"] {
        if let Some(value) = tool.get(field).filter(|value| !value.is_null()) {
            function[field] = value.clone();
        }
    }
    json!({ "type": "function", "function": function })
}

/// A function in place of a tool that takes any text.
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

/// The text of a custom tool, of the arguments that a model has written, which may be cut.
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
            Names::default().declare(&[tool]),
            [json!({ "type": "function", "function": function })]
        );
        let search = json!({ "type": "web_search" });
        assert_eq!(
            Names::default().declare(std::slice::from_ref(&search)),
            [search]
        );
    }

    #[test]
    fn functions_of_a_namespace_have_its_name_in_front() {
        let mut names = Names::default();
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
        let within = Form::Within {
            namespace: "agents".into(),
            name: "find".into(),
        };
        assert_eq!(
            (names.form("agents.find"), names.form("find")),
            (Some(&within), None)
        );
        assert_eq!(joined(Some("agents"), "find"), "agents.find");
    }

    #[test]
    fn a_tool_of_any_text_is_a_function_with_one_string() {
        let mut names = Names::default();
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
        assert_eq!(names.form("apply_patch"), Some(&Form::Custom));
        let texts = [r#"{"input": "a\nb"}"#, r#"{"input": "a\nb"#, r#"{"inp"#].map(input_of);
        assert_eq!(texts, ["a\nb", "a\nb", ""]);
    }
}
