//! Tools put into words, for templates that do not write tool calls.
//!
//! A template that writes calls gets messages as they are. Where the model has a call format that
//! its template does not write, calls become text in that format. For all others, calls and results
//! become texts in the form that [`CallFormat::Generic`](crate::tools::CallFormat::Generic) asks of
//! the model.

use serde_json::{Value, json};

use crate::{
    Message, Role, repair,
    tools::{
        CallFormat, HARMONY_CHANNEL, PYTHON_CALLS, PYTHON_CALLS_END, Parser, TextEnd, ToolCall,
        ToolChoice, ToolSet,
    },
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

/// Stand for the markers around calls in the text of a message while the template renders it.
/// Private-use characters, which real text does not contain.
const CALLS: &str = "\u{F8FE}\u{F8FC}\u{F8FE}";
const CALLS_END: &str = "\u{F8FE}\u{F8FB}\u{F8FE}";

/// Writes calls into their messages, in front of the text, for templates of
/// [`CallFormat::Python`](crate::tools::CallFormat::Python), which know no calls.
pub(super) fn in_text(messages: &[Message]) -> Vec<Message> {
    let written = |message: &Message| {
        // No other text may contain the marks.
        let content = message.content.replace(CALLS, "").replace(CALLS_END, "");
        let calls: Vec<String> = message.tool_calls.iter().map(python_call).collect();
        let content = match calls.is_empty() {
            true => content,
            false => format!("{CALLS}[{}]{CALLS_END}{content}", calls.join(", ")),
        };
        Message {
            content,
            tool_calls: Vec::new(),
            ..message.clone()
        }
    };
    messages.iter().map(written).collect()
}

/// Puts the markers around calls into a rendered text.
pub(super) fn with_markers(text: &str) -> String {
    text.replace(CALLS, PYTHON_CALLS)
        .replace(CALLS_END, PYTHON_CALLS_END)
}

/// Prepares messages for templates of [`CallFormat::Harmony`], which write one call of a message,
/// and beside it either thinking or a text: each call gets a message of its own, and a text beside
/// thinking becomes the end of that. An answer that is still written in channels is read.
pub(super) fn in_channels(messages: &[Message]) -> Vec<Message> {
    let mut messages = repair::with_single_calls(messages.iter().map(read_channels).collect());
    for message in &mut messages {
        if let (Some(reasoning), false) = (&mut message.reasoning, message.tool_calls.is_empty()) {
            *reasoning = repair::join_texts(&[reasoning, &std::mem::take(&mut message.content)]);
        }
    }
    messages
}

/// An answer as the model wrote it, with thinking and text apart.
fn read_channels(message: &Message) -> Message {
    let is_raw = message.role == Role::Assistant && message.content.contains(HARMONY_CHANNEL);
    if !is_raw {
        return message.clone();
    }
    let mut parser = Parser::without_calls(CallFormat::Harmony);
    parser.push(&message.content);
    let outcome = parser.finish(TextEnd::Whole).1;
    let reasoning = Some(outcome.reasoning).filter(|text| !text.is_empty());
    Message {
        content: outcome.text,
        reasoning: message.reasoning.clone().or(reasoning),
        ..message.clone()
    }
}

fn python_call(call: &ToolCall) -> String {
    let mut text = format!("{}(", call.name);
    let arguments: Vec<String> = match &call.arguments {
        Value::Null => Vec::new(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| format!("{key}={}", python(value)))
            .collect(),
        // Arguments that were broken when the model wrote them.
        other => vec![format!("arguments={}", python(other))],
    };
    text.push_str(&arguments.join(", "));
    text + ")"
}

/// A value as Python writes it. Recurses as deep as the value is nested.
fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(python).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(fields) => {
            let field = |(key, value)| format!("{}: {}", Value::from(key), python(value));
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| field((key.as_str(), value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        other => other.to_string(),
    }
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
    use crate::tools::Thinking;

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
    fn calls_in_the_text_of_a_message_are_read_as_those_calls() {
        let arguments =
            json!({"a": "b \"'\\n", "l": [true, null, {"x y": false}], "n": -1.5, "e": {}});
        let call = |id: &str, name: &str, arguments| ToolCall {
            id: id.into(),
            name: name.into(),
            arguments,
        };
        let calls = vec![
            call("call_1", "f", arguments),
            call("call_2", "g", json!({})),
        ];
        let said = [
            Message::user(format!("a{CALLS}b")),
            Message::assistant_calling("I look.", calls.clone()),
        ];
        let written = in_text(&said);
        assert_eq!(written[0], Message::user("ab"));
        let text = with_markers(&written[1].content);
        assert_eq!(
            text,
            concat!(
                r#"<|tool_call_start|>[f(a="b \"'\\n", l=[True, None, {"x y": False}], n=-1.5, "#,
                r#"e={}), g()]<|tool_call_end|>I look."#
            )
        );
        let mut parser = Parser::new(CallFormat::Python, Thinking::Never);
        parser.push(&text);
        let outcome = parser.finish(TextEnd::Whole).1;
        assert_eq!((outcome.calls, outcome.text.as_str()), (calls, "I look."));
        let broken = call("call_1", "f", json!("{\"a"));
        assert_eq!(python_call(&broken), r#"f(arguments="{\"a")"#);
    }

    #[test]
    fn messages_in_channels_have_one_call_and_one_text_beside_it() {
        let call = |id: &str| ToolCall {
            id: id.into(),
            name: "f".into(),
            arguments: json!({}),
        };
        let thought = |text: &str, message| Message {
            reasoning: Some(text.into()),
            ..message
        };
        let calls = vec![call("1"), call("2")];
        let said = [
            Message::user("<|channel|>analysis<|message|>a"),
            thought("hm", Message::assistant_calling("I look.", calls)),
            Message::tool("2", "f", "two"),
            Message::tool("1", "f", "one"),
            Message::assistant(
                "<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>final<|message|>Hi",
            ),
        ];
        let expected = [
            said[0].clone(),
            thought(
                "hm\n\nI look.",
                Message::assistant_calling("", vec![call("1")]),
            ),
            Message::tool("1", "f", "one"),
            Message::assistant_calling("", vec![call("2")]),
            Message::tool("2", "f", "two"),
            thought("so", Message::assistant("Hi")),
        ];
        assert_eq!(in_channels(&said), expected);
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
