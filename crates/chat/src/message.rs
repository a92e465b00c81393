//! What is said in a conversation, and by whom.
//!
//! Plain data, in the words of OpenAI's interface; knows no template and no model.

use serde_json::{Map, Value, json};

use super::DateTime;
use crate::tools::ToolCall;

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Whoever runs the model.
    System,
    /// Whoever talks to it.
    User,
    /// The model.
    Assistant,
    /// A program that the model has called.
    Tool,
}

impl Role {
    /// Its name in templates and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }

    /// The role of a name. A `developer` is who OpenAI's newer models call so: the system.
    pub fn named(name: &str) -> Option<Self> {
        if name == "developer" {
            return Some(Self::System);
        }
        [Self::System, Self::User, Self::Assistant, Self::Tool]
            .into_iter()
            .find(|role| role.name() == name)
    }
}

/// Something said.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// By whom.
    pub role: Role,
    /// The text.
    pub content: String,
    /// What the model thought before it; templates get it as `reasoning_content`.
    pub reasoning: Option<String>,
    /// The calls of the model.
    pub tool_calls: Vec<ToolCall>,
    /// Of a tool: which call this answers.
    pub tool_call_id: Option<String>,
    /// Of a tool: the function; of anybody else, their name.
    pub name: Option<String>,
}

impl Message {
    fn new(role: Role, content: impl Into<String>) -> Self {
        let content = content.into();
        Self {
            role,
            content,
            reasoning: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
        }
    }

    /// Of whoever runs the model.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new(Role::System, content)
    }

    /// Of the user.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new(Role::User, content)
    }

    /// Of the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new(Role::Assistant, content)
    }

    /// Of the model, which calls functions.
    pub fn assistant_calling(content: impl Into<String>, tool_calls: Vec<ToolCall>) -> Self {
        Self {
            tool_calls,
            ..Self::new(Role::Assistant, content)
        }
    }

    /// What the call `id` of `name` came to.
    pub fn tool(
        id: impl Into<String>,
        name: impl Into<String>,
        content: impl Into<String>,
    ) -> Self {
        let (id, name) = (Some(id.into()), Some(name.into()));
        Self {
            tool_call_id: id,
            name,
            ..Self::new(Role::Tool, content)
        }
    }

    /// As OpenAI's interface has it, but that arguments are values and no text, which is what
    /// templates want. A content is never null: templates that do not expect that would write
    /// `None`.
    pub fn to_json(&self) -> Value {
        let mut object = json!({ "role": self.role.name(), "content": self.content });
        let mut optional = |key: &str, value: Option<Value>| {
            value.into_iter().for_each(|value| object[key] = value)
        };
        optional(
            "reasoning_content",
            self.reasoning.as_deref().map(Value::from),
        );
        optional(
            "tool_calls",
            (!self.tool_calls.is_empty()).then(|| self.tool_calls.iter().map(call_json).collect()),
        );
        optional(
            "tool_call_id",
            self.tool_call_id.as_deref().map(Value::from),
        );
        optional("name", self.name.as_deref().map(Value::from));
        object
    }

    /// Reads what [`to_json`](Self::to_json) writes; also arguments as a text of JSON (a text that
    /// is no JSON stays one), `reasoning` and `thinking` for `reasoning_content`, and what
    /// other programs write where there is nothing: calls or a content of null, arguments
    /// without any text. `None` for anything else.
    pub fn from_json(value: &Value) -> Option<Self> {
        let role = Role::named(value["role"].as_str()?)?;
        let calls = match &value["tool_calls"] {
            Value::Null => &[][..],
            calls => calls.as_array()?,
        };
        let tool_calls = calls.iter().map(call_of_json).collect::<Option<Vec<_>>>()?;
        let content = match &value["content"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            _ => return None,
        };
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let reasoning = || {
            ["reasoning_content", "reasoning", "thinking"]
                .into_iter()
                .find_map(text)
        };
        let (reasoning, tool_call_id, name) = (reasoning(), text("tool_call_id"), text("name"));
        Some(Self {
            role,
            content,
            reasoning,
            tool_calls,
            tool_call_id,
            name,
        })
    }
}

fn call_json(call: &ToolCall) -> Value {
    json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": call.arguments } })
}

fn call_of_json(value: &Value) -> Option<ToolCall> {
    let function = &value["function"];
    let arguments = match function.get("arguments")? {
        Value::String(text) if text.is_empty() => json!({}),
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into()),
        arguments => arguments.clone(),
    };
    let (id, name) = (
        value["id"].as_str().unwrap_or_default(),
        function["name"].as_str()?,
    );
    Some(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments,
    })
}

/// What a template is given.
#[derive(Clone, Debug, Default)]
pub struct Conversation<'a> {
    /// What was said, oldest first.
    pub messages: &'a [Message],
    /// Definitions of functions that the model may call, as OpenAI's interface has them; they are
    /// passed as they are.
    pub tools: &'a [Value],
    /// Whether the text ends where an answer of the model begins.
    pub add_generation_prompt: bool,
    /// The time for templates that tell the model; without it they cannot ask for it.
    pub now: Option<DateTime>,
    /// Further variables, such as `enable_thinking` or `documents`.
    pub extra: Map<String, Value>,
}

impl<'a> Conversation<'a> {
    /// One by which to find out what a template does. It has a time, since a template may insist on
    /// that.
    pub(super) fn probe(messages: &'a [Message]) -> Self {
        let now = Some(DateTime {
            year: 2024,
            month: 1,
            day: 1,
            hour: 0,
            minute: 0,
            second: 0,
        });
        Self {
            messages,
            now,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_are_written() {
        let call = ToolCall {
            id: "1".into(),
            name: "f".into(),
            arguments: json!({ "x": [1, "a"] }),
        };
        let thought = Message {
            reasoning: Some("so".into()),
            ..Message::assistant("b")
        };
        for message in [
            Message::system("a"),
            Message::user("é"),
            thought,
            Message::assistant_calling("", vec![call]),
            Message::tool("1", "f", "2"),
        ] {
            assert_eq!(Message::from_json(&message.to_json()), Some(message));
        }
    }

    #[test]
    fn arguments_may_be_text_and_a_call_needs_no_content() {
        let value = json!({ "role": "assistant", "content": null, "tool_calls": [
            { "id": "1", "function": { "name": "f", "arguments": "{\"x\": 1}" } },
        ] });
        assert_eq!(
            Message::from_json(&value).unwrap().tool_calls[0].arguments,
            json!({ "x": 1 })
        );
        let value = json!({ "role": "assistant", "content": null, "tool_calls": [
            { "id": "1", "function": { "name": "f", "arguments": "" } },
        ] });
        assert_eq!(
            Message::from_json(&value).unwrap().tool_calls[0].arguments,
            json!({})
        );
        for bad in [
            json!({ "role": "nobody", "content": "a" }),
            json!({ "role": "assistant", "content": "", "tool_calls": "none" }),
        ] {
            assert_eq!(Message::from_json(&bad), None, "{bad}");
        }
    }

    #[test]
    fn broken_arguments_are_a_text() {
        let broken = json!({ "function": { "name": "f", "arguments": "{\"a\": " } });
        let value = json!({ "role": "assistant", "content": "", "tool_calls": [broken] });
        assert_eq!(
            Message::from_json(&value).unwrap().tool_calls[0].arguments,
            json!("{\"a\": ")
        );
    }

    #[test]
    fn a_developer_is_the_system_and_no_content_is_an_empty_one() {
        let value = json!({ "role": "developer", "content": null });
        assert_eq!(Message::from_json(&value), Some(Message::system("")));
    }

    #[test]
    fn reasoning_has_three_names() {
        for name in ["reasoning_content", "reasoning", "thinking"] {
            let value = json!({ "role": "assistant", "content": "a", name: "so" });
            assert_eq!(
                Message::from_json(&value).unwrap().reasoning.as_deref(),
                Some("so")
            );
        }
    }

    #[test]
    fn calls_of_null_are_none() {
        let value = json!({ "role": "assistant", "content": "a", "tool_calls": null });
        assert_eq!(Message::from_json(&value), Some(Message::assistant("a")));
    }
}
