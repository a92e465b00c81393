//! The files of `/save` and `/load`: a list of messages with `role` and `content`, the format of
//! chat programs and server APIs.

use std::path::Path;

use atta::chat::{Chat, Message, Role};
use serde_json::Value;

use crate::{failure::Failure, input, inputs::InputFiles, json, output::NewFile};

/// Saves the conversation.
pub(super) fn save(chat: &Chat, path: &Path, inputs: &InputFiles) -> Result<(), Failure> {
    let system = chat.system().map(Message::system);
    let messages: Vec<Value> = system
        .iter()
        .chain(chat.messages())
        .map(Message::to_json)
        .collect();
    let mut file = NewFile::create(path, inputs)?;
    file.write((json::pretty(&Value::Array(messages)) + "\n").as_bytes())?;
    file.finish()
}

/// Replaces the conversation by that of a file. On an error nothing is changed.
pub(super) fn load(chat: &mut Chat, path: &Path) -> Result<(), Failure> {
    let text = input::read_text(path)?;
    let value: Value = serde_json::from_str(&text).map_err(|error| Failure::at(path, error))?;
    let (system, messages) = conversation(&value).map_err(|why| Failure::at(path, why))?;
    chat.set_system(system);
    chat.restore(messages);
    Ok(())
}

/// The system message and the other messages; an error names the invalid message.
fn conversation(value: &Value) -> Result<(Option<String>, Vec<Message>), String> {
    let list = value
        .as_array()
        .ok_or("expected a list of messages, such as [{\"role\": \"user\", \"content\": …}]")?;
    let in_message = |i: usize, why: &str| format!("message {} of {}: {why}", i + 1, list.len());
    let messages = list
        .iter()
        .enumerate()
        .map(|(i, value)| read_message(value).map_err(|why| in_message(i, &why)));
    let mut messages = messages.collect::<Result<Vec<_>, _>>()?;
    for (i, message) in messages.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| &messages[i]);
        follows(before, message).map_err(|why| in_message(i, why))?;
    }
    if messages
        .last()
        .is_some_and(|last| last.role != Role::System && !ends(last))
    {
        return Err(in_message(
            list.len() - 1,
            "the last one must be an answer of the assistant, without calls",
        ));
    }
    let has_system = messages
        .first()
        .is_some_and(|first| first.role == Role::System);
    let system = has_system.then(|| messages.remove(0).content);
    Ok((system, messages))
}

/// Reads a message, whose content is a text or a list of text parts.
fn read_message(value: &Value) -> Result<Message, String> {
    let role = value["role"].as_str().ok_or("it has no role")?;
    let role = if role == "developer" { "system" } else { role };
    if Role::named(role).is_none() {
        return Err(format!(
            "its role is {role:?}, expected system, user, assistant or tool"
        ));
    }
    let mut value = value.clone();
    value["role"] = role.into();
    if let Some(parts) = value["content"].as_array() {
        let text: String = parts.iter().map(part).collect::<Result<_, _>>()?;
        value["content"] = text.into();
    }
    Message::from_json(&value).ok_or_else(|| {
        "its content is no text, or a call in it has no name or arguments".to_owned()
    })
}

/// The text of a part of the content.
fn part(part: &Value) -> Result<&str, String> {
    match part["type"].as_str() {
        Some("text" | "input_text" | "output_text") | None => part["text"]
            .as_str()
            .or(part.as_str())
            .ok_or_else(|| "a part of its content has no text".to_owned()),
        Some(other) => Err(format!(
            "a part of its content is of type {other:?}, expected text"
        )),
    }
}

/// Whether a message of the user may follow this one.
fn ends(message: &Message) -> bool {
    message.role == Role::Assistant && message.tool_calls.is_empty()
}

/// Checks that a message may follow `before`, or be the first.
fn follows(before: Option<&Message>, message: &Message) -> Result<(), &'static str> {
    let is_open =
        before.is_some_and(|before| before.role == Role::Tool || !before.tool_calls.is_empty());
    let is_first = before.is_none_or(|before| before.role == Role::System);
    let (fits, why) = match message.role {
        Role::System => (before.is_none(), "a system message can only be the first"),
        Role::User => (
            is_first || before.is_some_and(ends),
            "before a message of the user there must be an answer",
        ),
        Role::Assistant => {
            let hears = before.is_some_and(|before| matches!(before.role, Role::User | Role::Tool));
            (
                hears,
                "an answer must follow a message of the user or of a tool",
            )
        }
        Role::Tool => (is_open, "a message of a tool must follow a call"),
    };
    if fits { Ok(()) } else { Err(why) }
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
        let s = message("system", "s");
        let u = message("user", "u");
        let a = message("assistant", "a");
        let turn = [Message::user("u"), Message::assistant("a")];
        assert_eq!(
            conversation(&json!([s, u, a])),
            Ok((Some("s".into()), turn.to_vec()))
        );
        assert_eq!(
            conversation(&json!([u, a, u, a])),
            Ok((None, [turn.clone(), turn].concat()))
        );
        assert_eq!(conversation(&json!([])), Ok((None, vec![])));
        for bad in [
            json!({}),
            json!([u]),
            json!([a, u]),
            json!([u, a, s]),
            json!(["u", "a"]),
            json!([s, s]),
        ] {
            assert!(conversation(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_error_says_which_message_is_wrong_and_why() {
        let u = message("user", "u");
        let a = message("assistant", "a");
        let image =
            json!({ "role": "user", "content": [{ "type": "image_url", "image_url": {} }] });
        for (bad, part) in [
            (
                json!([u, a, message("robot", "x")]),
                "message 3 of 3: its role is \"robot\"",
            ),
            (
                json!([u, a, image]),
                "message 3 of 3: a part of its content is of type \"image_url\"",
            ),
            (
                json!([u, u, a]),
                "message 2 of 3: before a message of the user",
            ),
            (
                json!([u, a, u]),
                "message 3 of 3: the last one must be an answer",
            ),
            (
                json!([{ "content": "u" }]),
                "message 1 of 1: it has no role",
            ),
            (json!({ "messages": [] }), "expected a list of messages"),
        ] {
            let why = conversation(&bad).unwrap_err();
            assert!(why.starts_with(part), "{why}");
        }
    }

    #[test]
    fn content_may_come_in_parts_and_a_developer_is_the_system() {
        let part = |text: &str| json!({ "type": "text", "text": text });
        let parts = json!({ "role": "user", "content": [part("a"), part("b")] });
        let said = json!([message("developer", "s"), parts, message("assistant", "c")]);
        let expected = vec![Message::user("ab"), Message::assistant("c")];
        assert_eq!(conversation(&said), Ok((Some("s".into()), expected)));
    }

    #[test]
    fn tools_speak_between_a_call_and_an_answer() {
        let u = message("user", "u");
        let a = message("assistant", "a");
        let t = message("tool", "t");
        let function = json!({ "name": "f", "arguments": "{}" });
        let call =
            json!({ "role": "assistant", "tool_calls": [{ "id": "1", "function": function }] });
        assert_eq!(
            conversation(&json!([u, call, t, t, call, t, a]))
                .unwrap()
                .1
                .len(),
            7
        );
        for bad in [
            json!([u, t, a]),
            json!([u, call, u, a]),
            json!([u, call]),
            json!([u, a, t, a]),
        ] {
            assert!(conversation(&bad).is_err(), "{bad}");
        }
    }
}
