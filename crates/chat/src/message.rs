//! Messages of a conversation.
//!
//! Plain data in the terms of OpenAI's API; knows no template and no model.

use serde_json::{Map, Value, json};

use super::DateTime;
use crate::tools::ToolCall;

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The operator of the model.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool that the model called.
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

    /// Parses a role name. `developer` is OpenAI's newer name for `system`.
    pub fn named(name: &str) -> Option<Self> {
        if name == "developer" {
            return Some(Self::System);
        }
        [Self::System, Self::User, Self::Assistant, Self::Tool]
            .into_iter()
            .find(|role| role.name() == name)
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Its author.
    pub role: Role,
    /// The text.
    pub content: String,
    /// Thinking before the text; templates get it as `reasoning_content`.
    pub reasoning: Option<String>,
    /// Tool calls of the model.
    pub tool_calls: Vec<ToolCall>,
    /// Tool messages: id of the call that this answers.
    pub tool_call_id: Option<String>,
    /// Name of the tool, or of the author.
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

    /// A system message.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new(Role::System, content)
    }

    /// A user message.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new(Role::User, content)
    }

    /// An answer of the model.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new(Role::Assistant, content)
    }

    /// An answer of the model with tool calls.
    pub fn assistant_calling(content: impl Into<String>, tool_calls: Vec<ToolCall>) -> Self {
        Self {
            tool_calls,
            ..Self::new(Role::Assistant, content)
        }
    }

    /// The result of the call `id` of the tool `name`.
    pub fn tool(
        id: impl Into<String>,
        name: impl Into<String>,
        content: impl Into<String>,
    ) -> Self {
        let id = Some(id.into());
        let name = Some(name.into());
        Self {
            tool_call_id: id,
            name,
            ..Self::new(Role::Tool, content)
        }
    }

    /// As JSON of OpenAI's API, except that arguments are values instead of text, which templates
    /// need. The content is never null: templates that do not expect null would write `None`.
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

    /// Reads the JSON that [`to_json`](Self::to_json) writes. Also accepts arguments as JSON text
    /// (text that is not JSON is kept as text), `reasoning` and `thinking` for `reasoning_content`,
    /// and null or empty calls, content and arguments. `None` for anything else.
    pub fn from_json(value: &Value) -> Option<Self> {
        let role = Role::named(value["role"].as_str()?)?;
        let calls = match &value["tool_calls"] {
            Value::Null => &[][..],
            calls => calls.as_array()?,
        };
        let tool_calls = calls.iter().map(call_of_json).collect::<Option<Vec<_>>>()?;
        let content = content_of_json(&value["content"])?;
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let reasoning = ["reasoning_content", "reasoning", "thinking"]
            .into_iter()
            .find_map(text);
        let tool_call_id = text("tool_call_id");
        let name = text("name");
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

fn content_of_json(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Null => Some(String::new()),
        _ => None,
    }
}

fn call_of_json(value: &Value) -> Option<ToolCall> {
    let function = &value["function"];
    let arguments = match function.get("arguments")? {
        Value::String(text) if text.is_empty() => json!({}),
        Value::String(text) => serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into()),
        arguments => arguments.clone(),
    };
    let id = value["id"].as_str().unwrap_or_default();
    let name = function["name"].as_str()?;
    Some(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments,
    })
}

/// Input of a template.
#[derive(Clone, Debug, Default)]
pub struct Conversation<'a> {
    /// Messages, oldest first.
    pub messages: &'a [Message],
    /// Tool definitions as in OpenAI's API, passed to the template unchanged.
    pub tools: &'a [Value],
    /// Whether the text ends with the start of an answer (generation prompt).
    pub add_generation_prompt: bool,
    /// Current time; without it `strftime_now` is not defined.
    pub now: Option<DateTime>,
    /// Further variables, such as `enable_thinking` or `documents`.
    pub extra: Map<String, Value>,
}

impl<'a> Conversation<'a> {
    /// A conversation for probing a template. It has a time, because a template may require one.
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
