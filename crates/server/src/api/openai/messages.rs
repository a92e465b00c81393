//! Messages of a request, in our own words.

use std::collections::HashMap;

use atta_engine::{
    chat::{Message, Role, ToolUse},
    tools::ToolCall,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::flow::{error::ApiError, tools::ToolRequest, warnings::Warnings};

/// A message. Fields with an underscore are those that client libraries always send back, empty or
/// not.
#[derive(Debug, Deserialize)]
pub(super) struct Says {
    role: String,
    content: Option<Content>,
    name: Option<String>,
    tool_calls: Option<Vec<Call>>,
    /// The old form of calls.
    function_call: Option<Function>,
    tool_call_id: Option<String>,
    reasoning_content: Option<String>,
    /// What vLLM and OpenRouter call it.
    reasoning: Option<Value>,
    refusal: Option<String>,
    /// What a client library has made of the content.
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
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    refusal: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Call {
    id: Option<String>,
    function: Option<Function>,
    /// A call of a tool whose input is any text.
    custom: Option<Custom>,
    #[serde(rename = "type")]
    _kind: Option<Value>,
    #[serde(rename = "index")]
    _index: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Function {
    name: String,
    /// A text of JSON, as the interface has it; some clients send the object.
    arguments: Option<Value>,
    /// What a client library has made of the arguments.
    #[serde(rename = "parsed_arguments")]
    _parsed: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Custom {
    name: String,
    input: String,
}

/// What the messages of a request say. Parts that are no text are left out with a warning; but an
/// image and the like in the last message is an error.
pub(super) fn messages(list: Vec<Says>, warnings: &Warnings) -> Result<Vec<Message>, ApiError> {
    let last = list
        .len()
        .checked_sub(1)
        .ok_or_else(|| wrong("there are no messages"))?;
    let read = |(i, says): (usize, Says)| {
        says.into_message(Reader {
            field: "messages",
            is_last: i == last,
            warnings,
        })
    };
    let mut messages = list
        .into_iter()
        .enumerate()
        .map(read)
        .collect::<Result<Vec<_>, _>>()?;
    name_results(&mut messages);
    Ok(messages)
}

fn wrong(message: impl Into<String>) -> ApiError {
    ApiError::field("messages", message)
}

impl Says {
    fn into_message(self, reader: Reader<'_>) -> Result<Message, ApiError> {
        let role = match self.role.as_str() {
            "developer" => Role::System,
            "function" => Role::Tool,
            name => {
                Role::named(name).ok_or_else(|| wrong(format!("nobody has the role {name:?}")))?
            }
        };
        let calls = self
            .tool_calls
            .unwrap_or_default()
            .into_iter()
            .map(Call::into_call);
        let mut tool_calls = calls.collect::<Result<Vec<_>, _>>()?;
        tool_calls.extend(self.function_call.map(|function| function.into_call(None)));
        let content = match self.content {
            Some(content) => content.into_text(reader)?,
            None if role == Role::Assistant => self.refusal.unwrap_or_default(),
            None if role == Role::Tool => String::new(),
            None => return Err(wrong(format!("a message of {} without content", self.role))),
        };
        let reasoning = self
            .reasoning_content
            .or_else(|| Some(self.reasoning?.as_str()?.to_owned()));
        let reasoning = reasoning.filter(|text| !text.trim().is_empty());
        Ok(Message {
            role,
            content,
            reasoning,
            tool_calls,
            tool_call_id: self.tool_call_id,
            name: self.name,
        })
    }
}

impl Content {
    fn into_text(self, reader: Reader<'_>) -> Result<String, ApiError> {
        let parts = match self {
            Self::Text(text) => return Ok(text),
            Self::Parts(parts) => parts,
        };
        let mut texts = Vec::with_capacity(parts.len());
        for part in parts {
            match (part.text.or(part.refusal), part.kind.as_deref()) {
                (Some(text), None | Some("text" | "input_text" | "output_text" | "refusal")) => {
                    texts.push(text)
                }
                (_, kind) => reader.leave_out(kind.unwrap_or("unknown"))?,
            }
        }
        Ok(texts.join("\n"))
    }
}

/// Reads the parts of a message.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    /// Where the messages stand in the request.
    pub(super) field: &'static str,
    /// Whether this is the last one.
    pub(super) is_last: bool,
    pub(super) warnings: &'a Warnings,
}

/// What a model without eyes and ears cannot know of: words in the types of parts.
const SEEN: [&str; 5] = ["image", "audio", "file", "video", "document"];

impl Reader<'_> {
    /// Leaves out a part that is no text.
    ///
    /// # Errors
    /// An image and the like in the last message, which the answer would be about.
    pub(super) fn leave_out(self, kind: &str) -> Result<(), ApiError> {
        let Self {
            field,
            is_last,
            warnings,
        } = self;
        if is_last && SEEN.iter().any(|what| kind.contains(what)) {
            let message =
                format!("content of type {kind:?} is not supported: this model reads text only");
            return Err(ApiError::field(field, message));
        }
        warnings.add(format!(
            "{field}: content of type {kind:?} is left out: this model reads text only"
        ));
        Ok(())
    }
}

impl Call {
    fn into_call(self) -> Result<ToolCall, ApiError> {
        match (self.function, self.custom) {
            (Some(function), _) => Ok(function.into_call(self.id)),
            (None, Some(Custom { name, input })) => Ok(ToolCall {
                id: self.id.unwrap_or_default(),
                name,
                arguments: json!({ "input": input }),
            }),
            (None, None) => Err(wrong("tool_calls: the field \"function\" is missing")),
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

/// Arguments as a model's template gets them: an object, or the text that a model wrote in place of
/// one.
pub(super) fn arguments(given: Option<Value>) -> Value {
    match given {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(Value::String(text)) if text.trim().is_empty() => Value::Object(Map::new()),
        Some(Value::String(text)) => match serde_json::from_str(&text) {
            Ok(object @ Value::Object(_)) => object,
            Ok(Value::Null) => Value::Object(Map::new()),
            _ => Value::String(text),
        },
        Some(value) => value,
    }
}

/// Gives results the name of the function that they are of, which templates may want and the
/// interface does not have.
pub(super) fn name_results(messages: &mut [Message]) {
    let mut names: HashMap<String, String> = HashMap::new();
    for message in messages {
        names.extend(
            message
                .tool_calls
                .iter()
                .map(|call| (call.id.clone(), call.name.clone())),
        );
        if message.role == Role::Tool && message.name.is_none() {
            message.name = message
                .tool_call_id
                .as_ref()
                .and_then(|id| names.get(id).cloned());
        }
    }
}

/// Which tools may be called, if any, for interfaces that have the same definitions.
pub(crate) fn tool_use(
    tools: Option<Vec<Value>>,
    choice: Option<Value>,
    parallel: Option<bool>,
) -> Result<Option<ToolUse>, ApiError> {
    ToolRequest {
        tools,
        choice,
        parallel,
    }
    .into_use(&Warnings::default())
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
    fn arguments_that_are_no_object_are_the_text_that_they_are() {
        let read = |text: &str| arguments(Some(text.into()));
        assert_eq!(read("{\"a\": "), json!("{\"a\": "));
        assert_eq!(read("[1]"), json!("[1]"));
        assert_eq!(
            (read(" "), read("null"), arguments(None)),
            (json!({}), json!({}), json!({}))
        );
        assert_eq!(arguments(Some(json!({ "a": 1 }))), json!({ "a": 1 }));
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
