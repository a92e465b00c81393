//! Messages of Ollama, mapped to the engine's.

use atta_engine::{
    chat::{Message, Role},
    tools::ToolCall,
};
use serde::Deserialize;
use serde_json::Value;

use crate::flow::{error::ApiError, messages, warnings::Warnings};

/// A message.
#[derive(Debug, Deserialize)]
pub(super) struct WireMessage {
    role: String,
    /// A text, or OpenAI's list of parts, which some clients send here, too.
    content: Option<Value>,
    thinking: Option<String>,
    images: Option<Vec<Value>>,
    tool_calls: Option<Vec<Call>>,
    tool_name: Option<String>,
    name: Option<String>,
    tool_call_id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Call {
    id: Option<String>,
    #[serde(rename = "type")]
    _type: Option<String>,
    #[serde(rename = "index")]
    _index: Option<u64>,
    function: Function,
}

#[derive(Debug, Deserialize)]
struct Function {
    name: String,
    /// An object, or the text of one.
    arguments: Option<Value>,
    #[serde(rename = "index")]
    _index: Option<u64>,
}

impl WireMessage {
    /// The message without its images, and the number of its images.
    fn into_message(self) -> Result<(Message, usize), ApiError> {
        let role = messages::role("messages", &self.role)?;
        let (content, n_in_content) = content(self.content)?;
        let message = Message {
            role,
            content,
            reasoning: self.thinking.filter(|text| !text.is_empty()),
            tool_calls: self
                .tool_calls
                .unwrap_or_default()
                .into_iter()
                .map(Call::into_call)
                .collect(),
            tool_call_id: self.tool_call_id.filter(|id| !id.is_empty()),
            name: self.tool_name.or(self.name).filter(|name| !name.is_empty()),
        };
        Ok((
            message,
            n_in_content + self.images.map_or(0, |images| images.len()),
        ))
    }
}

/// The text of the parts of a content, and the number of their images.
fn join_parts(parts: Vec<Value>) -> Result<(String, usize), ApiError> {
    let mut texts = Vec::new();
    let mut n_images = 0;
    for part in parts {
        match (part["type"].as_str(), part["text"].as_str()) {
            (Some("text"), Some(text)) => texts.push(text.to_owned()),
            (Some("image_url" | "image"), _) => n_images += 1,
            _ => {
                return Err(ApiError::field(
                    "messages",
                    format!("a part of type {} is not supported", part["type"]),
                ));
            }
        }
    }
    Ok((texts.join("\n"), n_images))
}

/// The text of a content, and the number of its images.
fn content(content: Option<Value>) -> Result<(String, usize), ApiError> {
    match content {
        None | Some(Value::Null) => Ok((String::new(), 0)),
        Some(Value::String(text)) => Ok((text, 0)),
        Some(Value::Array(parts)) => join_parts(parts),
        Some(_) => Err(ApiError::field(
            "messages",
            "the content of a message is neither a text nor a list of parts",
        )),
    }
}

impl Call {
    fn into_call(self) -> ToolCall {
        let Function {
            name, arguments, ..
        } = self.function;
        ToolCall {
            id: self.id.unwrap_or_default(),
            name,
            arguments: messages::arguments(arguments),
        }
    }
}

/// Maps the messages of a request. Each call and each result gets an id, which chat templates want
/// and Ollama's clients may omit.
pub(super) fn messages(
    list: Vec<WireMessage>,
    warnings: &Warnings,
) -> Result<Vec<Message>, ApiError> {
    let read = list
        .into_iter()
        .map(WireMessage::into_message)
        .collect::<Result<Vec<_>, _>>()?;
    let mut messages = without_images(read, warnings)?;
    let mut n_calls = 0;
    // Calls without a result: ids and names.
    let mut open = Vec::new();
    for message in &mut messages {
        for call in &mut message.tool_calls {
            n_calls += 1;
            if call.id.is_empty() {
                // Mistral's templates require ids of nine characters.
                call.id = format!("{n_calls:09}");
            }
            open.push((call.id.clone(), call.name.clone()));
        }
        if message.role == Role::Tool {
            name_result(message, &mut open);
        }
    }
    Ok(messages)
}

/// Refuses images in the last message, because the answer would be about them. Images of earlier
/// messages are dropped with a warning.
fn without_images(
    said: Vec<(Message, usize)>,
    warnings: &Warnings,
) -> Result<Vec<Message>, ApiError> {
    if said.last().is_some_and(|(_, n_images)| *n_images > 0) {
        return Err(ApiError::field(
            "images",
            "images are not supported: this model sees text only",
        ));
    }
    if said.iter().any(|(_, n_images)| *n_images > 0) {
        warnings.add("images of earlier messages are left out: this model sees text only");
    }
    Ok(said.into_iter().map(|(message, _)| message).collect())
}

/// Gives a result the id and the name of its call: the call that it names, or else the first one
/// without a result.
fn name_result(result: &mut Message, open: &mut Vec<(String, String)>) {
    let is_its = |(id, name): &(String, String)| match (&result.tool_call_id, &result.name) {
        (Some(of), _) => of == id,
        (None, Some(of)) => of == name,
        (None, None) => true,
    };
    if let Some(at) = open.iter().position(is_its) {
        let (id, name) = open.remove(at);
        (result.tool_call_id, result.name) = (Some(id), Some(name));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(said: Value) -> Result<Vec<Message>, ApiError> {
        messages(
            serde_json::from_value(said).map_err(|error| ApiError::bad(error.to_string()))?,
            &Warnings::default(),
        )
    }

    #[test]
    fn results_are_found_by_id_by_name_or_by_order() {
        let call = |name: &str| json!({ "function": { "name": name, "arguments": { "x": 1 } } });
        let said = of(json!([
            { "role": "user", "content": "go" },
            { "role": "assistant", "tool_calls": [call("f"), call("g"), call("h")], "thinking": "so" },
            { "role": "tool", "content": "2", "tool_name": "g" },
            { "role": "tool", "content": "1" },
            { "role": "tool", "content": "3", "tool_call_id": "000000003" },
            { "role": "tool", "content": "4", "tool_name": "nobody" },
        ]));
        let said = said.unwrap();
        assert_eq!(said[1].reasoning.as_deref(), Some("so"));
        assert_eq!(said[1].tool_calls[2].arguments, json!({ "x": 1 }));
        let results: Vec<_> = said[2..]
            .iter()
            .map(|result| (result.tool_call_id.as_deref(), result.name.as_deref()))
            .collect();
        let f = Some("000000001");
        let g = Some("000000002");
        let h = Some("000000003");
        assert_eq!(
            results,
            [
                (g, Some("g")),
                (f, Some("f")),
                (h, Some("h")),
                (None, Some("nobody"))
            ]
        );
    }

    #[test]
    fn arguments_are_an_object_or_a_text_and_broken_ones_stay_a_text() {
        let call =
            |arguments: Value| json!({ "function": { "name": "f", "arguments": arguments } });
        let calls = [
            json!({ "x": 1 }),
            json!("{\"x\": 1}"),
            json!("{\"x\": "),
            json!(""),
            Value::Null,
        ]
        .map(call);
        let said = of(json!([{ "role": "assistant", "tool_calls": calls }])).unwrap();
        let arguments: Vec<_> = said[0]
            .tool_calls
            .iter()
            .map(|call| call.arguments.clone())
            .collect();
        assert_eq!(
            arguments,
            [
                json!({ "x": 1 }),
                json!({ "x": 1 }),
                json!("{\"x\": "),
                json!({}),
                json!({})
            ]
        );
    }

    #[test]
    fn images_are_left_out_of_the_history_and_refused_in_the_last_message() {
        let image = json!({ "role": "user", "content": "what is this?", "images": ["aGk="] });
        let parts = json!({ "role": "user", "content": [{ "type": "text", "text": "and this?" }, { "type": "image_url" }] });
        let warnings = Warnings::default();
        let said = json!([image, parts, { "role": "user", "content": "go on" }]);
        let said = messages(serde_json::from_value(said).unwrap(), &warnings).unwrap();
        let contents: Vec<_> = said
            .iter()
            .map(|message| message.content.as_str())
            .collect();
        assert_eq!(contents, ["what is this?", "and this?", "go on"]);
        assert!(matches!(&warnings.take()[..], [warning] if warning.contains("images")));
        for last in [image, parts] {
            assert_eq!(
                of(json!([last])).unwrap_err().param.as_deref(),
                Some("images")
            );
        }
    }

    #[test]
    fn what_cannot_be_said_is_refused() {
        for wrong in [
            json!([{ "role": "cook", "content": "a" }]),
            json!([{ "role": "user", "content": 1 }]),
            json!([{ "role": "user", "content": [{ "type": "input_audio" }] }]),
            json!([{ "content": "a" }]),
        ] {
            assert!(of(wrong.clone()).is_err(), "{wrong}");
        }
        assert!(
            of(
                json!([{ "role": "user" }, { "role": "developer", "content": "a", "mood": "good" }])
            )
            .is_ok()
        );
    }
}
