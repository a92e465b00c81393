//! The files of `/save` and `/load`: messages as a list of objects with `role` and `content`, as chat programs and
//! interfaces of servers have them.

use std::path::Path;

use atta::chat::Chat;
use serde_json::{Value, json};

use crate::{failure::Failure, json, output::NewFile};

const EXPECTED: &str = "expected a list of messages, each with role and content: system first or not at all, then user \
                        and assistant in turns";

/// Writes what has been said.
pub(super) fn save(chat: &Chat, path: &Path) -> Result<(), Failure> {
    let message = |role, content| json!({ "role": role, "content": content });
    let system = chat.system().map(|text| message("system", text));
    let turns = chat.turns().iter().flat_map(|t| [message("user", t.user()), message("assistant", t.answer())]);
    let messages: Vec<Value> = system.into_iter().chain(turns).collect();
    let mut file = NewFile::create(path)?;
    file.write((json::pretty(&Value::Array(messages)) + "\n").as_bytes())?;
    file.finish()
}

/// Replaces what has been said by what is in a file. If that makes no sense, nothing is changed.
pub(super) fn load(chat: &mut Chat, path: &Path) -> Result<(), Failure> {
    let text = std::fs::read(path).map_err(|error| Failure::at(path, error))?;
    let value: Value = serde_json::from_slice(&text).map_err(|error| Failure::at(path, error))?;
    let (system, turns) = conversation(&value).ok_or_else(|| Failure::at(path, EXPECTED))?;
    chat.set_system(system);
    chat.restore(turns);
    Ok(())
}

/// The system message, and pairs of a message and its answer.
type Conversation = (Option<String>, Vec<(String, String)>);

fn conversation(value: &Value) -> Option<Conversation> {
    let mut messages = value.as_array()?.as_slice();
    let system = messages.first().and_then(|first| content(first, "system"));
    if system.is_some() {
        messages = &messages[1..];
    }
    let pairs = messages.chunks(2).map(|pair| match pair {
        [user, assistant] => Some((content(user, "user")?, content(assistant, "assistant")?)),
        _ => None,
    });
    Some((system, pairs.collect::<Option<_>>()?))
}

fn content(message: &Value, role: &str) -> Option<String> {
    (message["role"] == role).then(|| message["content"].as_str().map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: &str, content: &str) -> Value {
        json!({ "role": role, "content": content })
    }

    #[test]
    fn a_conversation_has_a_system_message_first_and_then_pairs() {
        let (s, u, a) = (message("system", "s"), message("user", "u"), message("assistant", "a"));
        let pair = ("u".to_owned(), "a".to_owned());
        assert_eq!(conversation(&json!([s, u, a])), Some((Some("s".into()), vec![pair.clone()])));
        assert_eq!(conversation(&json!([u, a, u, a])), Some((None, vec![pair.clone(), pair])));
        assert_eq!(conversation(&json!([])), Some((None, vec![])));
        for bad in [json!({}), json!([u]), json!([a, u]), json!([u, a, s]), json!(["u", "a"]), json!([s, s])] {
            assert_eq!(conversation(&bad), None, "{bad}");
        }
    }
}
