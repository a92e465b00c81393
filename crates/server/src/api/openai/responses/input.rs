//! Maps the items of a request to messages.
//!
//! An answer is several items but one message: reasoning, text and calls that follow each other are
//! joined. Items of unknown types are dropped with a warning.

use atta_engine::{
    chat::{Message, Role},
    tools::ToolCall,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::tools::joined;
use crate::flow::{
    error::ApiError,
    messages::{PartReader, arguments, name_results},
    warnings::Warnings,
};

/// An item, with the fields of all types.
#[derive(Debug, Deserialize)]
struct InputItem {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    content: Option<InputContent>,
    summary: Option<Vec<InputPart>>,
    call_id: Option<String>,
    id: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    arguments: Option<Value>,
    input: Option<Value>,
    action: Option<Value>,
    output: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "content is neither a text nor a list of parts")]
enum InputContent {
    Text(String),
    Parts(Vec<InputPart>),
}

/// A part of a content.
#[derive(Debug, Deserialize)]
struct InputPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    refusal: Option<String>,
}

/// An error that names the item it is about.
fn in_item(i: usize, error: ApiError) -> ApiError {
    ApiError {
        message: format!("item {i}: {}", error.message),
        ..error
    }
}

/// Maps `input`, which is a text or a list of items.
pub(super) fn messages(input: Value, warnings: &Warnings) -> Result<Vec<Message>, ApiError> {
    let items = match input {
        Value::String(text) => return Ok(vec![Message::user(text)]),
        Value::Array(items) => items,
        _ => return Err(input_error("expected a text or a list of items")),
    };
    let mut messages = Vec::new();
    let n_items = items.len();
    for (i, item) in items.into_iter().enumerate() {
        let reader = PartReader {
            field: "input",
            is_last: i + 1 == n_items,
            warnings,
        };
        let read = read(item).and_then(|item| item.join(&mut messages, reader));
        read.map_err(|error| in_item(i, error))?;
    }
    if messages.is_empty() {
        return Err(input_error("there is nothing in it"));
    }
    name_results(&mut messages);
    Ok(messages)
}

fn input_error(message: impl Into<String>) -> ApiError {
    ApiError::field("input", message)
}

fn read(item: Value) -> Result<InputItem, ApiError> {
    if !item.is_object() {
        return Err(input_error("expected an object"));
    }
    serde_json::from_value(item).map_err(|error| input_error(error.to_string()))
}

impl InputItem {
    /// Adds the item to the messages. An item without a type is a message.
    fn join(mut self, messages: &mut Vec<Message>, reader: PartReader<'_>) -> Result<(), ApiError> {
        let kind = self.kind.take().unwrap_or_else(|| "message".to_owned());
        match kind.as_str() {
            "message" => self.message(messages, reader),
            "reasoning" => self.reasoning(messages, reader),
            "function_call" | "custom_tool_call" | "local_shell_call" => self.call(&kind, messages),
            "function_call_output" | "custom_tool_call_output" | "local_shell_call_output" => {
                self.output(messages, reader)
            }
            "item_reference" => Err(input_error(
                "this server stores nothing that an item_reference could name: send the item",
            )),
            kind => {
                reader
                    .warnings
                    .add(format!("input: items of type {kind:?} are left out"));
                Ok(())
            }
        }
    }

    fn message(self, messages: &mut Vec<Message>, reader: PartReader<'_>) -> Result<(), ApiError> {
        let role = role_named(self.role.as_deref().unwrap_or("user"))?;
        let content = self
            .content
            .ok_or_else(|| input_error("a message without content"))?;
        let text = content.into_text(reader)?;
        match messages.last_mut() {
            Some(last) if role == Role::Assistant && last.role == role => {
                let between = if last.content.is_empty() { "" } else { "\n" };
                last.content += &format!("{between}{text}");
            }
            _ => messages.push(Message {
                role,
                ..Message::user(text)
            }),
        }
        Ok(())
    }

    fn reasoning(
        self,
        messages: &mut Vec<Message>,
        reader: PartReader<'_>,
    ) -> Result<(), ApiError> {
        let content = self
            .content
            .map(|content| content.into_text(reader))
            .transpose()?
            .unwrap_or_default();
        // Without its content, the summary stands for the reasoning.
        let text = match content.trim() {
            "" => InputContent::Parts(self.summary.unwrap_or_default()).into_text(reader)?,
            _ => content,
        };
        if !text.trim().is_empty() {
            let reasoning = Some(text.trim().to_owned());
            messages.push(Message {
                reasoning,
                ..Message::assistant("")
            });
        }
        Ok(())
    }

    fn call(self, kind: &str, messages: &mut Vec<Message>) -> Result<(), ApiError> {
        let id = self.call_id.or(self.id).unwrap_or_default();
        let (name, arguments) = match (kind, self.name) {
            ("local_shell_call", _) => (
                "local_shell".to_owned(),
                self.action.unwrap_or_else(|| json!({})),
            ),
            ("custom_tool_call", Some(name)) => (name, json!({ "input": self.input })),
            (_, Some(name)) => (
                joined(self.namespace.as_deref(), &name),
                arguments(self.arguments),
            ),
            (kind, None) => return Err(input_error(format!("a {kind} without a name"))),
        };
        calling(messages).tool_calls.push(ToolCall {
            id,
            name,
            arguments,
        });
        Ok(())
    }

    fn output(self, messages: &mut Vec<Message>, reader: PartReader<'_>) -> Result<(), ApiError> {
        let text = match self.output {
            None | Some(Value::Null) => String::new(),
            Some(value @ (Value::String(_) | Value::Array(_))) => {
                let content: InputContent = serde_json::from_value(value)
                    .map_err(|error| input_error(error.to_string()))?;
                content.into_text(reader)?
            }
            Some(value) => value.to_string(),
        };
        let id = self.call_id.or(self.id).unwrap_or_default();
        messages.push(Message {
            name: self.name,
            ..Message::tool(id, "", text)
        });
        Ok(())
    }
}

fn role_named(name: &str) -> Result<Role, ApiError> {
    match name {
        "developer" => Ok(Role::System),
        "tool" => Err(input_error(
            "results of tools are items of type \"function_call_output\"",
        )),
        name => Role::named(name).ok_or_else(|| input_error(format!("there is no role {name:?}"))),
    }
}

/// The message that a call belongs to: the last one if it is the assistant's, else a new one.
fn calling(messages: &mut Vec<Message>) -> &mut Message {
    if messages
        .last()
        .is_none_or(|last| last.role != Role::Assistant)
    {
        messages.push(Message::assistant(""));
    }
    messages.last_mut().expect("there is one now")
}

impl InputContent {
    fn into_text(self, reader: PartReader<'_>) -> Result<String, ApiError> {
        let parts = match self {
            Self::Text(text) => return Ok(text),
            Self::Parts(parts) => parts,
        };
        let mut texts = Vec::with_capacity(parts.len());
        for part in parts {
            match (part.kind.as_str(), part.text.or(part.refusal)) {
                (
                    "input_text" | "output_text" | "text" | "summary_text" | "reasoning_text"
                    | "refusal",
                    Some(text),
                ) => {
                    texts.push(text);
                }
                (kind, _) => reader.drop_part(kind)?,
            }
        }
        Ok(texts.join("\n"))
    }
}

/// Joins the instructions and the system messages at the start, because templates take one system
/// message.
pub(super) fn system(instructions: Option<String>, messages: &mut Vec<Message>) -> Option<String> {
    let mut texts = vec![instructions?];
    let n = messages
        .iter()
        .take_while(|message| message.role == Role::System)
        .count();
    texts.extend(messages.drain(..n).map(|message| message.content));
    Some(texts.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_all(input: Value) -> (Vec<Message>, Vec<String>) {
        let warnings = Warnings::default();
        (messages(input, &warnings).unwrap(), warnings.take())
    }

    fn said(input: Value) -> Vec<Message> {
        read_all(input).0
    }

    #[test]
    fn items_of_an_answer_are_one_message() {
        let arguments = "{\"a\": 1}";
        let call = |id: &str| json!({ "type": "function_call", "call_id": id, "name": "find", "arguments": arguments });
        let thoughts = json!([{ "type": "reasoning_text", "text": "hm\n" }]);
        let text =
            json!([{ "type": "output_text", "text": "b", "annotations": [{}], "logprobs": null }]);
        let said = said(json!([
            { "role": "user", "content": "a" },
            { "id": "rs_1", "type": "reasoning", "summary": [], "content": thoughts, "status": "completed",
              "encrypted_content": null },
            { "id": "msg_1", "role": "assistant", "status": "completed", "content": text, "phase": null },
            call("1"), call("2"),
            { "type": "function_call_output", "call_id": "2", "output": [{ "type": "input_text", "text": "c" }] },
        ]));
        let roles: Vec<_> = said.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool]);
        assert_eq!(
            (said[1].content.as_str(), said[1].reasoning.as_deref()),
            ("b", Some("hm"))
        );
        assert_eq!(said[1].tool_calls.len(), 2);
        assert_eq!(
            (said[2].content.as_str(), said[2].name.as_deref()),
            ("c", Some("find"))
        );
    }

    #[test]
    fn a_call_that_was_cut_has_the_text_that_there_is_of_its_arguments() {
        let call = json!({ "type": "function_call", "call_id": "1", "name": "find", "arguments": "{\"a", "status": "incomplete" });
        let output =
            json!({ "type": "function_call_output", "call_id": "1", "output": { "error": 1 } });
        let said = said(json!([call, output]));
        assert_eq!(said[0].tool_calls[0].arguments, json!("{\"a"));
        assert_eq!(said[1].content, "{\"error\":1}");
    }

    #[test]
    fn calls_of_all_kinds_that_clients_replay_are_calls() {
        let said = said(json!([
            { "type": "function_call", "call_id": "1", "namespace": "agents", "name": "find", "arguments": "" },
            { "type": "custom_tool_call", "call_id": "2", "name": "apply_patch", "input": "*** Begin", "status": "completed" },
            { "type": "local_shell_call", "id": "3", "status": "completed", "action": { "command": ["ls"] } },
            { "type": "custom_tool_call_output", "call_id": "2", "output": "ok" },
        ]));
        let calls: Vec<_> = said[0]
            .tool_calls
            .iter()
            .map(|call| (call.name.as_str(), &call.arguments))
            .collect();
        let patch = json!({ "input": "*** Begin" });
        let shell = json!({ "command": ["ls"] });
        assert_eq!(
            calls,
            [
                ("agents.find", &json!({})),
                ("apply_patch", &patch),
                ("local_shell", &shell)
            ]
        );
        assert_eq!(said[1].name.as_deref(), Some("apply_patch"));
    }

    #[test]
    fn what_a_model_cannot_know_of_is_left_out_with_a_warning() {
        let image =
            json!({ "role": "user", "content": [{ "type": "input_image", "image_url": "x" }] });
        let (messages, warnings) = read_all(json!([
            { "type": "web_search_call", "id": "1" }, image,
            { "type": "reasoning", "summary": [], "encrypted_content": "x" }, { "role": "user", "content": "a" },
        ]));
        assert_eq!(messages, [Message::user(""), Message::user("a")]);
        assert!(
            warnings.len() == 2 && warnings[0].contains("web_search_call"),
            "{warnings:?}"
        );
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        let wrong = [
            (
                json!({ "type": "item_reference", "id": "1" }),
                "item_reference",
            ),
            (
                json!({ "role": "user", "content": [{ "type": "input_image", "image_url": "x" }] }),
                "input_image",
            ),
            (json!({ "role": "cook", "content": "a" }), "cook"),
            (json!({ "type": "function_call", "call_id": "1" }), "name"),
            (json!(1), "object"),
        ];
        for (item, what) in wrong {
            let error = messages(json!([item]), &Warnings::default()).unwrap_err();
            assert!(error.message.contains(what), "{}", error.message);
            assert_eq!(error.param.as_deref(), Some("input"));
        }
        assert!(
            messages(json!([]), &Warnings::default()).is_err()
                && messages(json!(1), &Warnings::default()).is_err()
        );
    }

    #[test]
    fn instructions_stand_in_front_of_system_messages() {
        let items =
            json!([{ "role": "developer", "content": "b" }, { "role": "user", "content": "c" }]);
        let mut messages = said(items);
        assert_eq!(
            system(Some("a".to_owned()), &mut messages).as_deref(),
            Some("a\n\nb")
        );
        assert_eq!(messages, [Message::user("c")]);
    }
}
