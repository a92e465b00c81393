//! Tools and choices of this interface, which are flat where those of chat have a `function`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::refusal::Refusal;

/// A tool, as it came and as it is told.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Tool {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    description: Option<String>,
    parameters: Option<Value>,
    strict: Option<bool>,
}

impl Tool {
    /// Reads one, if it is a function.
    pub(super) fn read(mut tool: Value) -> Result<Self, Refusal> {
        match tool["type"].as_str() {
            Some("function") => {}
            Some(kind) => return Err(Refusal::field("tools", format!("a tool of type {kind:?} is not supported"))),
            None => return Err(Refusal::field("tools", "a tool without a type")),
        }
        if let Some(fields) = tool.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        serde_json::from_value(tool).map_err(|error| Refusal::field("tools", error.to_string()))
    }

    /// As chat has it.
    pub(super) fn nested(&self) -> Value {
        let function = json!({ "name": self.name, "description": self.description, "parameters": self.parameters });
        json!({ "type": "function", "function": function })
    }
}

/// A choice, as chat has it.
pub(super) fn nested_choice(choice: &Value) -> Result<Value, Refusal> {
    match (choice["type"].as_str(), choice["name"].as_str(), choice.as_object().map_or(0, serde_json::Map::len)) {
        (None, ..) if choice.is_string() => Ok(choice.clone()),
        (Some("function"), Some(name), 2) => Ok(json!({ "type": "function", "function": { "name": name } })),
        (Some(kind), ..) if kind != "function" => {
            Err(Refusal::field("tool_choice", format!("a choice of type {kind:?} is not supported")))
        }
        _ => Err(Refusal::field("tool_choice", format!("{choice} is no choice"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_tool_is_one_of_chat() {
        let tool = Tool::read(json!({ "type": "function", "name": "find", "parameters": {}, "strict": null })).unwrap();
        let function = json!({ "name": "find", "description": null, "parameters": {} });
        assert_eq!(tool.nested(), json!({ "type": "function", "function": function }));
        for wrong in [json!({ "type": "web_search" }), json!({ "name": "find" }), json!(1)] {
            assert_eq!(Tool::read(wrong).unwrap_err().param.as_deref(), Some("tools"));
        }
        let unknown = json!({ "type": "function", "name": "find", "defer_loading": true });
        assert!(Tool::read(unknown).unwrap_err().message.contains("defer_loading"));
    }

    #[test]
    fn a_choice_is_a_word_or_a_function() {
        let named = nested_choice(&json!({ "type": "function", "name": "find" })).unwrap();
        assert_eq!(named["function"]["name"], "find");
        assert_eq!(nested_choice(&json!("auto")).unwrap(), "auto");
        let allowed = nested_choice(&json!({ "type": "allowed_tools", "mode": "auto", "tools": [] }));
        assert!(allowed.unwrap_err().message.contains("allowed_tools"));
        assert!(nested_choice(&json!(["auto"])).is_err());
    }
}
