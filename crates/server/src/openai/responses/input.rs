//! Items of a request as messages of a conversation.
//!
//! An answer is several items, but one message: thoughts, text and calls that follow each other are joined again.

use atta_engine::{
    chat::{Message, Role},
    tools::ToolCall,
};
use serde::Deserialize;
use serde_json::Value;

use crate::{openai::says::name_results, refusal::Refusal};

/// An item. Fields with an underscore are those that clients send back as they got them, and that say nothing here.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Item {
    Message {
        role: String,
        content: Content,
        #[serde(rename = "id")]
        _id: Option<String>,
        #[serde(rename = "status")]
        _status: Option<String>,
    },
    Reasoning {
        summary: Option<Vec<Part>>,
        content: Option<Vec<Part>>,
        #[serde(rename = "id")]
        _id: Option<String>,
        #[serde(rename = "status")]
        _status: Option<String>,
    },
    FunctionCall {
        call_id: String,
        name: String,
        arguments: String,
        status: Option<String>,
        #[serde(rename = "id")]
        _id: Option<String>,
        #[serde(rename = "parsed_arguments")]
        _parsed: Option<Value>,
    },
    FunctionCallOutput {
        call_id: String,
        output: Content,
        name: Option<String>,
        #[serde(rename = "id")]
        _id: Option<String>,
        #[serde(rename = "status")]
        _status: Option<String>,
    },
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "content is neither a text nor a list of parts")]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

/// A part, which is read as far as it is text.
#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    refusal: Option<String>,
    annotations: Option<Vec<Value>>,
}

/// What was said, by a text or a list of items.
pub(super) fn messages(input: Value) -> Result<Vec<Message>, Refusal> {
    let items = match input {
        Value::String(text) => return Ok(vec![Message::user(text)]),
        Value::Array(items) => items,
        _ => return Err(wrong("expected a text or a list of items")),
    };
    let mut messages = Vec::new();
    for (i, item) in items.into_iter().enumerate() {
        let read = read(item).and_then(|item| item.join(&mut messages));
        read.map_err(|refusal| Refusal { message: format!("item {i}: {}", refusal.message), ..refusal })?;
    }
    if messages.is_empty() {
        return Err(wrong("there is nothing in it"));
    }
    name_results(&mut messages);
    Ok(messages)
}

fn wrong(message: impl Into<String>) -> Refusal {
    Refusal::field("input", message)
}

/// An item without a type is a message; what is null is not there.
fn read(mut item: Value) -> Result<Item, Refusal> {
    let Some(fields) = item.as_object_mut() else { return Err(wrong("expected an object")) };
    fields.retain(|_, value| !value.is_null());
    let kind = fields.entry("type").or_insert_with(|| "message".into());
    if !matches!(kind.as_str(), Some("message" | "reasoning" | "function_call" | "function_call_output")) {
        return Err(wrong(format!("an item of type {kind} is not supported")));
    }
    serde_json::from_value(item).map_err(|error| wrong(error.to_string()))
}

impl Item {
    /// Adds what it says to what was said before.
    fn join(self, messages: &mut Vec<Message>) -> Result<(), Refusal> {
        match self {
            Self::Message { role, content, .. } => {
                let (role, text) = (role_named(&role)?, content.into_text()?);
                match messages.last_mut() {
                    Some(last) if role == Role::Assistant && last.role == role => {
                        let between = if last.content.is_empty() { "" } else { "\n" };
                        last.content += &format!("{between}{text}");
                    }
                    _ => messages.push(Message { role, ..Message::user(text) }),
                }
            }
            Self::Reasoning { summary, content, .. } => {
                // A summary stands for thoughts that are not told.
                let thoughts = content.filter(|parts| !parts.is_empty()).or(summary).unwrap_or_default();
                let text = Content::Parts(thoughts).into_text()?;
                if !text.trim().is_empty() {
                    let reasoning = Some(text.trim().to_owned());
                    messages.push(Message { reasoning, ..Message::assistant("") });
                }
            }
            Self::FunctionCall { call_id, name, arguments, status, .. } => {
                let is_cut = status.as_deref() == Some("incomplete");
                match serde_json::from_str(arguments_or_none(&arguments)) {
                    Ok(arguments) => calling(messages).tool_calls.push(ToolCall { id: call_id, name, arguments }),
                    // It is no call, and its text is a message of its own.
                    Err(_) if is_cut => {}
                    Err(error) => {
                        return Err(wrong(format!("the arguments of a call of {name:?} are no JSON: {error}")));
                    }
                }
            }
            Self::FunctionCallOutput { call_id, output, name, .. } => {
                messages.push(Message { name, ..Message::tool(call_id, "", output.into_text()?) });
            }
        }
        Ok(())
    }
}

fn role_named(name: &str) -> Result<Role, Refusal> {
    match name {
        "developer" => Ok(Role::System),
        "tool" => Err(wrong("results of tools are items of type \"function_call_output\"")),
        name => Role::named(name).ok_or_else(|| wrong(format!("nobody has the role {name:?}"))),
    }
}

/// The message that a call belongs to: what the model has said last, if nobody has said anything since.
fn calling(messages: &mut Vec<Message>) -> &mut Message {
    if messages.last().is_none_or(|last| last.role != Role::Assistant) {
        messages.push(Message::assistant(""));
    }
    messages.last_mut().expect("there is one now")
}

/// Arguments as a text of JSON, where none are an empty text.
fn arguments_or_none(arguments: &str) -> &str {
    if arguments.trim().is_empty() { "{}" } else { arguments }
}

impl Content {
    fn into_text(self) -> Result<String, Refusal> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Parts(parts) => Ok(parts.into_iter().map(Part::into_text).collect::<Result<Vec<_>, _>>()?.join("\n")),
        }
    }
}

impl Part {
    fn into_text(self) -> Result<String, Refusal> {
        if self.annotations.is_some_and(|list| !list.is_empty()) {
            return Err(wrong("annotations are not supported"));
        }
        match (self.kind.as_str(), self.text, self.refusal) {
            ("input_text" | "output_text" | "summary_text" | "reasoning_text", Some(text), None) => Ok(text),
            ("refusal", None, Some(refusal)) => Ok(refusal),
            (kind, ..) => Err(wrong(format!("content of type {kind:?} is not supported"))),
        }
    }
}

/// What stands in front of everything: the instructions, and system messages that follow, because templates take one.
pub(super) fn system(instructions: Option<String>, messages: &mut Vec<Message>) -> Option<String> {
    let mut texts = vec![instructions?];
    let n = messages.iter().take_while(|message| message.role == Role::System).count();
    texts.extend(messages.drain(..n).map(|message| message.content));
    Some(texts.join("\n\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(input: Value) -> Vec<Message> {
        messages(input).unwrap()
    }

    #[test]
    fn items_of_an_answer_are_one_message() {
        let arguments = "{\"a\": 1}";
        let call = |id: &str| json!({ "type": "function_call", "call_id": id, "name": "find", "arguments": arguments });
        let thoughts = json!([{ "type": "reasoning_text", "text": "hm\n" }]);
        let text = json!([{ "type": "output_text", "text": "b", "annotations": [], "logprobs": null }]);
        let said = said(json!([
            { "role": "user", "content": "a" },
            { "id": "rs_1", "type": "reasoning", "summary": [], "content": thoughts, "status": "completed" },
            { "id": "msg_1", "role": "assistant", "status": "completed", "content": text, "phase": null },
            call("1"), call("2"),
            { "type": "function_call_output", "call_id": "2", "output": [{ "type": "input_text", "text": "c" }] },
        ]));
        let roles: Vec<_> = said.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool]);
        assert_eq!((said[1].content.as_str(), said[1].reasoning.as_deref()), ("b", Some("hm")));
        assert_eq!(said[1].tool_calls.len(), 2);
        assert_eq!((said[2].content.as_str(), said[2].name.as_deref()), ("c", Some("find")));
    }

    #[test]
    fn a_call_that_was_cut_is_none_and_its_text_is() {
        let said = said(json!([
            { "type": "function_call", "call_id": "1", "name": "find", "arguments": "{\"a", "status": "incomplete" },
            { "role": "assistant", "content": "{\"a" },
        ]));
        assert_eq!(said, [Message::assistant("{\"a")]);
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        let wrong = [
            (json!({ "type": "web_search_call", "id": "1" }), "web_search_call"),
            (json!({ "role": "user", "content": [{ "type": "input_image", "image_url": "x" }] }), "input_image"),
            (json!({ "role": "cook", "content": "a" }), "cook"),
            (json!({ "role": "user", "content": "a", "seeed": 1 }), "seeed"),
            (json!({ "type": "reasoning", "summary": [], "encrypted_content": "x" }), "encrypted_content"),
            (json!({ "type": "function_call", "call_id": "1", "name": "find", "arguments": "{" }), "find"),
            (json!(1), "object"),
        ];
        for (item, what) in wrong {
            let refusal = messages(json!([item])).unwrap_err();
            assert!(refusal.message.contains(what), "{}", refusal.message);
            assert_eq!(refusal.param.as_deref(), Some("input"));
        }
        assert!(messages(json!([])).is_err() && messages(json!(1)).is_err());
    }

    #[test]
    fn instructions_stand_in_front_of_system_messages() {
        let items = json!([{ "role": "developer", "content": "b" }, { "role": "user", "content": "c" }]);
        let mut messages = said(items);
        assert_eq!(system(Some("a".to_owned()), &mut messages).as_deref(), Some("a\n\nb"));
        assert_eq!(messages, [Message::user("c")]);
    }
}
