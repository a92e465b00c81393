//! Messages of a request, in our own words.

use atta_engine::{
    chat::{Message, Role},
    tools::ToolCall,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// A message.
#[derive(Debug, Deserialize)]
pub(super) struct Says {
    role: String,
    content: Option<String>,
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
    function: Function,
}

#[derive(Debug, Deserialize)]
struct Function {
    name: String,
    arguments: Option<Map<String, Value>>,
    /// Calls are in their order.
    #[serde(rename = "index")]
    _index: Option<u64>,
}

impl Says {
    fn into_message(self) -> Result<Message, Refusal> {
        if self.images.is_some_and(|images| !images.is_empty()) {
            return Err(Refusal::field("images", "images are not supported"));
        }
        let role = Role::named(&self.role)
            .ok_or_else(|| Refusal::field("messages", format!("nobody has the role {:?}", self.role)))?;
        let content = match self.content {
            Some(content) => content,
            None if role == Role::Assistant => String::new(),
            None => return Err(Refusal::field("messages", format!("a message of {} without content", self.role))),
        };
        Ok(Message {
            role,
            content,
            reasoning: self.thinking.filter(|text| !text.is_empty()),
            tool_calls: self.tool_calls.unwrap_or_default().into_iter().map(Call::into_call).collect(),
            tool_call_id: self.tool_call_id,
            name: self.tool_name.or(self.name),
        })
    }
}

impl Call {
    fn into_call(self) -> ToolCall {
        let Function { name, arguments, .. } = self.function;
        let arguments = Value::Object(arguments.unwrap_or_default());
        ToolCall { id: self.id.unwrap_or_default(), name, arguments }
    }
}

/// What was said, with an id for each call and each result: templates want them, and the interface may do without.
pub(super) fn messages(said: Vec<Says>) -> Result<Vec<Message>, Refusal> {
    let mut messages = said.into_iter().map(Says::into_message).collect::<Result<Vec<_>, _>>()?;
    let (mut n_calls, mut open) = (0, Vec::new());
    for message in &mut messages {
        for call in &mut message.tool_calls {
            n_calls += 1;
            if call.id.is_empty() {
                // All templates take nine digits.
                call.id = format!("{n_calls:09}");
            }
            open.push((call.id.clone(), call.name.clone()));
        }
        if message.role == Role::Tool {
            answer(message, &mut open);
        }
    }
    Ok(messages)
}

/// Gives a result the id and the name of its call: the one that it names, or else the first one without a result.
fn answer(result: &mut Message, open: &mut Vec<(String, String)>) {
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
    use crate::remarks::Remarks;

    fn of(said: Value) -> Result<Vec<Message>, Refusal> {
        messages(crate::body::understand(said, &[], &Remarks::default())?)
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
        let results: Vec<_> =
            said[2..].iter().map(|result| (result.tool_call_id.as_deref(), result.name.as_deref())).collect();
        let (f, g, h) = (Some("000000001"), Some("000000002"), Some("000000003"));
        assert_eq!(results, [(g, Some("g")), (f, Some("f")), (h, Some("h")), (None, Some("nobody"))]);
    }

    #[test]
    fn what_cannot_be_said_is_refused() {
        for wrong in [
            json!([{ "role": "cook", "content": "a" }]),
            json!([{ "role": "user" }]),
            json!([{ "role": "user", "content": "a", "images": ["aGk="] }]),
            json!([{ "role": "user", "content": "a", "mood": "good" }]),
            json!([{ "role": "assistant", "tool_calls": [{ "function": { "name": "f", "arguments": "{}" } }] }]),
        ] {
            assert!(of(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
