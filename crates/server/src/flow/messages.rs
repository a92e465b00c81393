//! Parts of messages that several interfaces read alike: roles, arguments of calls, names of
//! results, and content that is no text.

use std::collections::HashMap;

use atta_engine::chat::{Message, Role};
use serde_json::{Map, Value};

use super::{error::ApiError, warnings::Warnings};

/// The role of a message in OpenAI's and Ollama's interfaces.
pub(crate) fn role(field: &str, name: &str) -> Result<Role, ApiError> {
    match name {
        "developer" => Ok(Role::System),
        "function" => Ok(Role::Tool),
        name => Role::named(name)
            .ok_or_else(|| ApiError::field(field, format!("there is no role {name:?}"))),
    }
}

/// Arguments of a call as a chat template gets them: an object, or the text that the model wrote
/// instead of one.
pub(crate) fn arguments(given: Option<Value>) -> Value {
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

/// Gives each tool result the name of its function, which chat templates may want and OpenAI's
/// interface does not have.
pub(crate) fn name_results(messages: &mut [Message]) {
    let mut names: HashMap<String, String> = HashMap::new();
    for message in messages {
        let calls = message.tool_calls.iter();
        names.extend(calls.map(|call| (call.id.clone(), call.name.clone())));
        if message.role == Role::Tool && message.name.is_none() {
            let id = message.tool_call_id.as_ref();
            message.name = id.and_then(|id| names.get(id).cloned());
        }
    }
}

/// Decides about the parts of a message that are no text.
#[derive(Clone, Copy)]
pub(crate) struct PartReader<'a> {
    /// The field that holds the messages.
    pub(crate) field: &'static str,
    /// Whether the message is the last one.
    pub(crate) is_last: bool,
    pub(crate) warnings: &'a Warnings,
}

/// Words in the types of parts that only a multimodal model could read.
const MEDIA: [&str; 5] = ["image", "audio", "file", "video", "document"];

impl PartReader<'_> {
    /// Drops a part that is no text, with a warning.
    ///
    /// # Errors
    /// Media in the last message, because the answer would be about them.
    pub(crate) fn drop_part(self, kind: &str) -> Result<(), ApiError> {
        let field = self.field;
        if self.is_last && MEDIA.iter().any(|word| kind.contains(word)) {
            let message =
                format!("content of type {kind:?} is not supported: this model reads text only");
            return Err(ApiError::field(field, message));
        }
        self.warnings.add(format!(
            "{field}: content of type {kind:?} is left out: this model reads text only"
        ));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_that_are_no_object_stay_a_text() {
        let read = |text: &str| arguments(Some(text.into()));
        assert_eq!(read("{\"a\": "), json!("{\"a\": "));
        assert_eq!(read("[1]"), json!("[1]"));
        assert_eq!(read("{\"a\": 1}"), json!({ "a": 1 }));
        for empty in [read(" "), read("null"), arguments(None)] {
            assert_eq!(empty, json!({}));
        }
        assert_eq!(arguments(Some(json!({ "a": 1 }))), json!({ "a": 1 }));
    }
}
