//! The files of `/save` and `/load`: messages as a list of objects with `role` and `content`, as chat programs and
//! interfaces of servers have them.

use std::path::Path;

use atta::chat::{Chat, Message, Role};
use serde_json::Value;

use crate::{failure::Failure, json, output::NewFile};

const EXPECTED: &str = "expected a list of messages, each with role and content: system first or not at all, then user \
                        and assistant in turns, with the tools that it calls in between";

/// Writes what has been said.
pub(super) fn save(chat: &Chat, path: &Path) -> Result<(), Failure> {
    let system = chat.system().map(Message::system);
    let messages: Vec<Value> = system.iter().chain(chat.messages()).map(Message::to_json).collect();
    let mut file = NewFile::create(path)?;
    file.write((json::pretty(&Value::Array(messages)) + "\n").as_bytes())?;
    file.finish()
}

/// Replaces what has been said by what is in a file. If that makes no sense, nothing is changed.
pub(super) fn load(chat: &mut Chat, path: &Path) -> Result<(), Failure> {
    let text = std::fs::read(path).map_err(|error| Failure::at(path, error))?;
    let value: Value = serde_json::from_slice(&text).map_err(|error| Failure::at(path, error))?;
    let (system, messages) = conversation(&value).ok_or_else(|| Failure::at(path, EXPECTED))?;
    chat.set_system(system);
    chat.restore(messages);
    Ok(())
}

/// The system message, and what has been said.
fn conversation(value: &Value) -> Option<(Option<String>, Vec<Message>)> {
    let mut messages = value.as_array()?.iter().map(Message::from_json).collect::<Option<Vec<_>>>()?;
    let has_system = messages.first().is_some_and(|first| first.role == Role::System);
    let system = has_system.then(|| messages.remove(0).content);
    let mut before = None;
    let fits = messages.iter().all(|message| {
        let fits = follows(before, message);
        before = Some(message);
        fits
    });
    let ends = before.is_none_or(|last| last.role == Role::Assistant && last.tool_calls.is_empty());
    (fits && ends).then_some((system, messages))
}

/// Whether a message can come after another, or first.
fn follows(before: Option<&Message>, message: &Message) -> bool {
    let is_open = before.is_some_and(|before| before.role == Role::Tool || !before.tool_calls.is_empty());
    match message.role {
        Role::System => false,
        Role::User => before.is_none_or(|before| before.role == Role::Assistant && !is_open),
        Role::Assistant => before.is_some_and(|before| matches!(before.role, Role::User | Role::Tool)),
        Role::Tool => is_open,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(role: &str, content: &str) -> Value {
        json!({ "role": role, "content": content })
    }

    #[test]
    fn a_conversation_has_a_system_message_first_and_then_turns() {
        let (s, u, a) = (message("system", "s"), message("user", "u"), message("assistant", "a"));
        let turn = [Message::user("u"), Message::assistant("a")];
        assert_eq!(conversation(&json!([s, u, a])), Some((Some("s".into()), turn.to_vec())));
        assert_eq!(conversation(&json!([u, a, u, a])), Some((None, [turn.clone(), turn].concat())));
        assert_eq!(conversation(&json!([])), Some((None, vec![])));
        for bad in [json!({}), json!([u]), json!([a, u]), json!([u, a, s]), json!(["u", "a"]), json!([s, s])] {
            assert_eq!(conversation(&bad), None, "{bad}");
        }
    }

    #[test]
    fn tools_speak_between_a_call_and_an_answer() {
        let (u, a, t) = (message("user", "u"), message("assistant", "a"), message("tool", "t"));
        let function = json!({ "name": "f", "arguments": "{}" });
        let call = json!({ "role": "assistant", "tool_calls": [{ "id": "1", "function": function }] });
        assert_eq!(conversation(&json!([u, call, t, t, call, t, a])).unwrap().1.len(), 7);
        for bad in [json!([u, t, a]), json!([u, call, u, a]), json!([u, call]), json!([u, a, t, a])] {
            assert_eq!(conversation(&bad), None, "{bad}");
        }
    }
}
