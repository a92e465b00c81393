//! Messages and tools of a request, in our own words.

use std::collections::HashMap;

use atta_engine::{
    Constraint,
    chat::{Message, Role, ToolUse},
    tools::{ToolCall, ToolChoice, ToolSet},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// A message. Fields that clients send back as they got them, and that say nothing here, may be there if they are null.
#[derive(Debug, Deserialize)]
pub(super) struct Says {
    role: String,
    content: Option<Content>,
    name: Option<String>,
    tool_calls: Option<Vec<Call>>,
    tool_call_id: Option<String>,
    reasoning_content: Option<String>,
    refusal: Option<String>,
    /// What a client library has made of the content.
    #[serde(rename = "parsed")]
    _parsed: Option<Value>,
    #[serde(rename = "audio")]
    _audio: Option<()>,
    #[serde(rename = "function_call")]
    _function_call: Option<()>,
    annotations: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Call {
    id: Option<String>,
    function: Function,
}

#[derive(Debug, Deserialize)]
struct Function {
    name: String,
    /// A text of JSON, as the interface has it; some clients send the object.
    arguments: Value,
}

impl Says {
    pub(super) fn into_message(self) -> Result<Message, Refusal> {
        if self.annotations.is_some_and(|list| !list.is_empty()) {
            return Err(Refusal::field("messages", "annotations of messages are not supported"));
        }
        let role = match self.role.as_str() {
            "developer" => Role::System,
            name => {
                Role::named(name).ok_or_else(|| Refusal::field("messages", format!("nobody has the role {name:?}")))?
            }
        };
        let tool_calls = self.tool_calls.unwrap_or_default();
        let tool_calls = tool_calls.into_iter().map(Call::into_call).collect::<Result<Vec<_>, _>>()?;
        let content = match self.content {
            Some(content) => content.into_text()?,
            None if role == Role::Assistant => self.refusal.unwrap_or_default(),
            None => return Err(Refusal::field("messages", format!("a message of {} without content", self.role))),
        };
        let (reasoning, tool_call_id, name) = (self.reasoning_content, self.tool_call_id, self.name);
        Ok(Message { role, content, reasoning, tool_calls, tool_call_id, name })
    }
}

impl Content {
    fn into_text(self) -> Result<String, Refusal> {
        let parts = match self {
            Self::Text(text) => return Ok(text),
            Self::Parts(parts) => parts,
        };
        let text = |part: Part| match (part.kind.as_str(), part.text) {
            ("text", Some(text)) => Ok(text),
            (kind, _) => Err(Refusal::field("messages", format!("content of type {kind:?} is not supported"))),
        };
        Ok(parts.into_iter().map(text).collect::<Result<Vec<_>, _>>()?.join("\n"))
    }
}

impl Call {
    fn into_call(self) -> Result<ToolCall, Refusal> {
        let Function { name, arguments } = self.function;
        let arguments = match arguments {
            Value::String(text) if text.trim().is_empty() => Value::Object(Map::new()),
            Value::String(text) => serde_json::from_str(&text).map_err(|error| {
                Refusal::field("messages", format!("the arguments of a call of {name:?} are no JSON: {error}"))
            })?,
            value => value,
        };
        Ok(ToolCall { id: self.id.unwrap_or_default(), name, arguments })
    }
}

/// Gives results the name of the function that they are of, which templates may want and the interface does not have.
pub(super) fn name_results(messages: &mut [Message]) {
    let mut names: HashMap<String, String> = HashMap::new();
    for message in messages {
        names.extend(message.tool_calls.iter().map(|call| (call.id.clone(), call.name.clone())));
        if message.role == Role::Tool && message.name.is_none() {
            message.name = message.tool_call_id.as_ref().and_then(|id| names.get(id).cloned());
        }
    }
}

/// Which tools may be called, if any.
pub(crate) fn tool_use(
    tools: Option<Vec<Value>>,
    choice: Option<Value>,
    parallel: Option<bool>,
) -> Result<Option<ToolUse>, Refusal> {
    let Some(tools) = tools.filter(|tools| !tools.is_empty()) else {
        return match choice {
            Some(choice) if !matches!(choice.as_str(), Some("none" | "auto")) => {
                Err(Refusal::field("tool_choice", "there are no tools to choose from"))
            }
            _ => Ok(None),
        };
    };
    if let Some(kind) = tools.iter().find_map(|tool| tool["type"].as_str().filter(|&kind| kind != "function")) {
        return Err(Refusal::field("tools", format!("a tool of type {kind:?} is not supported")));
    }
    let tools = ToolSet::from_values(tools.into_iter().map(without_null).collect());
    let tools = tools.map_err(|error| Refusal::field("tools", error.to_string()))?;
    let choice = tool_choice(choice)?;
    match &choice {
        ToolChoice::Named(name) if !tools.contains(name) => {
            Err(Refusal::field("tool_choice", format!("there is no tool {name:?} to choose")))
        }
        _ => Ok(Some(ToolUse { tools, choice, parallel: parallel.unwrap_or(true) })),
    }
}

/// `strict`, which is always so here, and fields that are null, are nothing that a tool needs.
fn without_null(mut tool: Value) -> Value {
    let has_wrapper = tool.get("function").is_some();
    let function = if has_wrapper { tool.get_mut("function") } else { Some(&mut tool) };
    if let Some(fields) = function.and_then(Value::as_object_mut) {
        fields.retain(|key, value| key != "strict" && !value.is_null());
    }
    tool
}

fn tool_choice(choice: Option<Value>) -> Result<ToolChoice, Refusal> {
    let Some(choice) = choice else { return Ok(ToolChoice::Auto) };
    match (choice.as_str(), choice["function"]["name"].as_str()) {
        (Some("auto"), _) => Ok(ToolChoice::Auto),
        (Some("none"), _) => Ok(ToolChoice::None),
        (Some("required"), _) => Ok(ToolChoice::Required),
        (_, Some(name)) if matches!(choice["type"].as_str(), None | Some("function")) => {
            Ok(ToolChoice::Named(name.to_owned()))
        }
        _ => Err(Refusal::field("tool_choice", format!("{choice} is no choice"))),
    }
}

/// What an answer must look like.
#[derive(Debug, Deserialize)]
pub(super) struct ResponseFormat {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, deserialize_with = "crate::body::object")]
    json_schema: Option<NamedSchema>,
}

#[derive(Debug, Deserialize)]
struct NamedSchema {
    #[serde(rename = "name")]
    _name: Option<String>,
    #[serde(rename = "description")]
    _description: Option<String>,
    schema: Option<Value>,
    #[serde(rename = "strict")]
    _strict: Option<bool>,
}

impl ResponseFormat {
    pub(super) fn into_constraint(self) -> Result<Option<Constraint>, Refusal> {
        match (self.kind.as_str(), self.json_schema) {
            ("text", None) => Ok(None),
            ("json_object", None) => Ok(Some(Constraint::JsonObject)),
            ("json_schema", Some(NamedSchema { schema: Some(schema), .. })) => {
                Ok(Some(Constraint::Schema(schema.to_string())))
            }
            ("json_schema", _) => Err(Refusal::field("response_format", "the schema is missing")),
            ("text" | "json_object", Some(_)) => {
                Err(Refusal::field("response_format", "json_schema is of use with type \"json_schema\" only"))
            }
            (kind, _) => Err(Refusal::field("response_format", format!("type {kind:?} is not supported"))),
        }
    }
}
