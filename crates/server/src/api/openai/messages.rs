//! Messages of chat, mapped to the engine's.

use atta_engine::{
    chat::{Message, Role},
    tools::ToolCall,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::flow::{
    error::ApiError,
    messages::{self, PartReader, arguments, name_results},
    warnings::Warnings,
};

/// A message. Client libraries always send back the fields with an underscore, which have no
/// effect and need no warning.
#[derive(Debug, Deserialize)]
pub(crate) struct WireMessage {
    role: String,
    content: Option<Content>,
    name: Option<String>,
    tool_calls: Option<Vec<Call>>,
    /// The deprecated form of `tool_calls`.
    function_call: Option<Function>,
    tool_call_id: Option<String>,
    reasoning_content: Option<String>,
    /// The name that vLLM and OpenRouter have for `reasoning_content`.
    reasoning: Option<Value>,
    refusal: Option<String>,
    #[serde(rename = "parsed")]
    _parsed: Option<Value>,
    #[serde(rename = "audio")]
    _audio: Option<Value>,
    #[serde(rename = "annotations")]
    _annotations: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "content is neither a text nor a list of parts")]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Debug, Deserialize)]
struct ContentPart {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    refusal: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Call {
    id: Option<String>,
    function: Option<Function>,
    custom: Option<CustomCall>,
    #[serde(rename = "type")]
    _kind: Option<Value>,
    #[serde(rename = "index")]
    _index: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Function {
    name: String,
    /// The text of a JSON object; some clients send the object.
    arguments: Option<Value>,
    #[serde(rename = "parsed_arguments")]
    _parsed: Option<Value>,
}

/// A call of a tool whose input is any text.
#[derive(Debug, Deserialize)]
struct CustomCall {
    name: String,
    input: String,
}

/// Maps the messages of a request. Parts that are no text are dropped with a warning; media in the
/// last message are an error.
pub(crate) fn messages(
    list: Vec<WireMessage>,
    warnings: &Warnings,
) -> Result<Vec<Message>, ApiError> {
    let Some(last) = list.len().checked_sub(1) else {
        return Err(message_error("there are no messages"));
    };
    let read = |(i, message): (usize, WireMessage)| {
        message.into_message(PartReader {
            field: "messages",
            is_last: i == last,
            warnings,
        })
    };
    let messages: Result<Vec<Message>, ApiError> = list.into_iter().enumerate().map(read).collect();
    let mut messages = messages?;
    name_results(&mut messages);
    Ok(messages)
}

fn message_error(message: impl Into<String>) -> ApiError {
    ApiError::field("messages", message)
}

impl WireMessage {
    fn into_message(self, reader: PartReader<'_>) -> Result<Message, ApiError> {
        let role = messages::role("messages", &self.role)?;
        let calls = self.tool_calls.unwrap_or_default().into_iter();
        let calls: Result<Vec<ToolCall>, ApiError> = calls.map(Call::into_call).collect();
        let mut tool_calls = calls?;
        tool_calls.extend(self.function_call.map(|function| function.into_call(None)));
        let content = match self.content {
            Some(content) => content.into_text(reader)?,
            None if role == Role::Assistant => self.refusal.unwrap_or_default(),
            None if role == Role::Tool => String::new(),
            None => {
                return Err(message_error(format!(
                    "a message of {} without content",
                    self.role
                )));
            }
        };
        let reasoning = self
            .reasoning_content
            .or_else(|| Some(self.reasoning?.as_str()?.to_owned()));
        Ok(Message {
            role,
            content,
            reasoning: reasoning.filter(|text| !text.trim().is_empty()),
            tool_calls,
            tool_call_id: self.tool_call_id,
            name: self.name,
        })
    }
}

impl Content {
    fn into_text(self, reader: PartReader<'_>) -> Result<String, ApiError> {
        let parts = match self {
            Self::Text(text) => return Ok(text),
            Self::Parts(parts) => parts,
        };
        let mut texts = Vec::with_capacity(parts.len());
        for part in parts {
            match (part.text.or(part.refusal), part.kind.as_deref()) {
                (Some(text), None | Some("text" | "input_text" | "output_text" | "refusal")) => {
                    texts.push(text);
                }
                (_, kind) => reader.drop_part(kind.unwrap_or("unknown"))?,
            }
        }
        Ok(texts.join("\n"))
    }
}

impl Call {
    fn into_call(self) -> Result<ToolCall, ApiError> {
        match (self.function, self.custom) {
            (Some(function), _) => Ok(function.into_call(self.id)),
            (None, Some(CustomCall { name, input })) => Ok(ToolCall {
                id: self.id.unwrap_or_default(),
                name,
                arguments: json!({ "input": input }),
            }),
            (None, None) => Err(message_error(
                "tool_calls: the field \"function\" is missing",
            )),
        }
    }
}

impl Function {
    fn into_call(self, id: Option<String>) -> ToolCall {
        ToolCall {
            id: id.unwrap_or_default(),
            name: self.name,
            arguments: arguments(self.arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(list: Value) -> Result<(Vec<Message>, Vec<String>), ApiError> {
        let warnings = Warnings::default();
        let messages = messages(serde_json::from_value(list).unwrap(), &warnings)?;
        Ok((messages, warnings.take()))
    }

    #[test]
    fn what_clients_send_back_is_taken() {
        let call = json!({ "id": "1", "index": 0, "type": "function", "function": { "name": "f", "arguments": "{\"a\": 1}" } });
        let (messages, warnings) = said(json!([
            { "role": "developer", "content": "d", "id": "x" },
            { "role": "user", "content": [{ "type": "text", "text": "a", "cache_control": {} }], "name": "n" },
            { "role": "assistant", "content": null, "tool_calls": [call], "reasoning": "hm", "refusal": null,
              "audio": null, "annotations": [], "function_call": null, "reasoning_details": [] },
            { "role": "tool", "tool_call_id": "1", "content": "b" },
            { "role": "assistant", "content": "", "function_call": { "name": "g", "arguments": "" } },
            { "role": "function", "name": "g", "content": null },
        ]))
        .unwrap();
        let roles: Vec<_> = messages.iter().map(|message| message.role.name()).collect();
        assert_eq!(
            roles,
            ["system", "user", "assistant", "tool", "assistant", "tool"]
        );
        assert_eq!(messages[2].reasoning.as_deref(), Some("hm"));
        assert_eq!(messages[2].tool_calls[0].arguments, json!({ "a": 1 }));
        assert_eq!(
            (
                messages[3].name.as_deref(),
                messages[4].tool_calls[0].name.as_str()
            ),
            (Some("f"), "g")
        );
        assert_eq!(warnings, Vec::<String>::new());
    }

    #[test]
    fn images_are_left_out_of_old_messages_and_refused_in_the_last() {
        let image = json!({ "role": "user", "content": [
            { "type": "text", "text": "a" }, { "type": "image_url", "image_url": { "url": "x" } },
        ] });
        let (messages, warnings) =
            said(json!([image, { "role": "user", "content": "b" }])).unwrap();
        assert_eq!(messages[0].content, "a");
        assert!(
            warnings.len() == 1 && warnings[0].contains("image_url"),
            "{warnings:?}"
        );
        let error = said(json!([image])).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("messages"));
        assert!(
            error.message.contains("reads text only"),
            "{}",
            error.message
        );
    }

    #[test]
    fn a_message_has_a_role_and_a_content() {
        for wrong in [
            json!([]),
            json!([{ "role": "cook", "content": "a" }]),
            json!([{ "role": "user" }]),
        ] {
            assert_eq!(said(wrong).unwrap_err().param.as_deref(), Some("messages"));
        }
    }
}
