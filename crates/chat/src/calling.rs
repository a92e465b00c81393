//! Tools put into words, for templates that do not write tool calls.
//!
//! A template that writes calls gets messages as they are. For all others, calls and results become
//! texts in the form that [`CallFormat::Generic`](crate::tools::CallFormat::Generic) asks of the
//! model.

use serde_json::{Value, json};

use crate::{
    Message, Role,
    tools::{ToolCall, ToolChoice, ToolSet},
};

/// The tools of a request.
#[derive(Clone, Debug, Default)]
pub struct ToolUse {
    /// Tool definitions.
    pub tools: ToolSet,
    /// Whether the model must call one.
    pub choice: ToolChoice,
    /// Whether one answer may hold several calls.
    pub parallel: bool,
}

/// Puts calls and results into words, for templates that know no tools and may require alternating
/// roles.
pub(super) fn in_words(messages: &[Message]) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::new();
    let mut after_tool = false;
    for message in messages {
        let is_tool = message.role == Role::Tool;
        match (message.role, out.last_mut()) {
            (Role::Tool, Some(last)) if after_tool => {
                last.content = format!("{}\n{}", last.content, result(message))
            }
            (Role::Tool, _) => out.push(Message::user(result(message))),
            (Role::Assistant, _) => out.push(Message::assistant(answer(message))),
            _ => out.push(message.clone()),
        }
        after_tool = is_tool;
    }
    out
}

/// A tool result as text.
pub(super) fn result(message: &Message) -> String {
    format!(
        "Result of {}: {}",
        message.name.as_deref().unwrap_or("the tool"),
        message.content
    )
}

/// An answer in the form of [`CallFormat::Generic`](crate::tools::CallFormat::Generic): either a
/// text or calls. An answer of another model that has both becomes one object with both.
pub(super) fn answer(message: &Message) -> String {
    let call = |call: &ToolCall| json!({ "name": call.name, "arguments": call.arguments });
    let calls: Vec<Value> = message.tool_calls.iter().map(call).collect();
    match (message.content.as_str(), calls.is_empty()) {
        (text, true) => json!({ "response": text }),
        ("", false) => json!({ "tool_calls": calls }),
        (text, false) => json!({ "response": text, "tool_calls": calls }),
    }
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_take_turns() {
        let call = |id: &str| ToolCall {
            id: id.into(),
            name: "f".into(),
            arguments: json!({ "x": id }),
        };
        let said = [
            Message::user("a"),
            Message::assistant_calling("", vec![call("1"), call("2")]),
            Message::tool("1", "f", "one"),
            Message::tool("2", "f", "two"),
            Message::assistant("b"),
            Message::user("c"),
        ];
        let words: Vec<(Role, String)> = in_words(&said)
            .into_iter()
            .map(|m| (m.role, m.content))
            .collect();
        let calls = r#"{"tool_calls":[{"name":"f","arguments":{"x":"1"}},{"name":"f","arguments":{"x":"2"}}]}"#;
        let want = [
            (Role::User, "a"),
            (Role::Assistant, calls),
            (Role::User, "Result of f: one\nResult of f: two"),
            (Role::Assistant, r#"{"response":"b"}"#),
            (Role::User, "c"),
        ];
        assert_eq!(words, want.map(|(role, text)| (role, text.to_owned())));
    }

    #[test]
    fn words_keep_a_text_beside_calls() {
        let call = ToolCall {
            id: "1".into(),
            name: "f".into(),
            arguments: json!({}),
        };
        let words = in_words(&[
            Message::user("a"),
            Message::assistant_calling("I look.", vec![call]),
        ]);
        let both = r#"{"response":"I look.","tool_calls":[{"name":"f","arguments":{}}]}"#;
        assert_eq!(words[1], Message::assistant(both));
    }
}
