//! Answers that may call tools: what the model is told of them, the grammar that it is held to, and
//! calls out of what it writes.
//!
//! Knows neither terminals nor what a tool does. The one idea: to a template that writes calls,
//! messages go as they are; for all others they are put into words that any model reads, in the
//! form that `Format::Generic` asks of it.

use std::ops::ControlFlow;

use serde_json::{Value, json};

use super::{Chat, Message, Reply, Role};
use crate::{
    Error, Event, GenerateOptions,
    tools::{Outcome, Piece, ToolCall, ToolChoice, ToolSet},
};

/// Which tools a model has, and how it may use them.
#[derive(Clone, Debug, Default)]
pub struct ToolUse {
    /// The tools.
    pub tools: ToolSet,
    /// Whether it must call one.
    pub choice: ToolChoice,
    /// Whether one answer may hold several calls.
    pub parallel: bool,
}

/// What a caller hears of an answer that may hold calls.
#[derive(Clone, Copy, Debug)]
pub enum Heard<'a> {
    /// Anything but text.
    Event(Event<'a>),
    /// More of the answer, its thoughts or its calls.
    Piece(&'a Piece),
}

/// An answer with its calls.
#[derive(Clone, Debug)]
pub struct CallingReply {
    /// How it went; its text is as the model wrote it.
    pub reply: Reply,
    /// What that means.
    pub outcome: Outcome,
}

impl Chat {
    /// Hears an answer to what has been said that may call the tools of
    /// [`set_tools`](Self::set_tools), and makes it part of the conversation. Calls always
    /// match the schemas of their tools. A call that the length limit cuts is text, never
    /// a call with what is left of its arguments. Where nothing can be called, the answer is
    /// whatever the model writes, or what the constraint of the options makes of it.
    ///
    /// # Errors
    /// [`Error::Tools`] if a schema cannot be kept to or a tool is asked for that is not there;
    /// those of [`answer`](Self::answer).
    pub fn answer_calling(
        &mut self,
        options: &GenerateOptions,
        mut on_heard: impl FnMut(Heard<'_>) -> ControlFlow<()>,
    ) -> Result<CallingReply, Error> {
        let prompt = self.prompt()?.text;
        let (options, mut parser) = self.form.rules(&self.said(), &prompt, options)?;
        let answered = self.answer(&options, |event| match event {
            Event::Text(text) => hear_all(&parser.push(text), &mut on_heard),
            other => on_heard(Heard::Event(other)),
        });
        let reply = answered.map_err(|error| self.form.blame(error, self.tools.as_ref()))?;
        let (pieces, outcome) = parser.finish();
        // The generation has ended, so that nobody can end it.
        let _ = hear_all(&pieces, &mut on_heard);
        if reply.summary.n_generated > 0 {
            self.messages.push(message(&outcome));
        }
        Ok(CallingReply { reply, outcome })
    }
}

/// What the model said, as a message of the conversation.
fn message(outcome: &Outcome) -> Message {
    let reasoning = Some(outcome.reasoning.trim().to_owned()).filter(|text| !text.is_empty());
    Message {
        reasoning,
        ..Message::assistant_calling(&outcome.text, outcome.calls.clone())
    }
}

fn hear_all(
    pieces: &[Piece],
    on_heard: &mut dyn FnMut(Heard<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    pieces
        .iter()
        .try_for_each(|piece| on_heard(Heard::Piece(piece)))
}

/// Messages in words: for templates that know nothing of tools, and that may insist on user and
/// model taking turns.
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

/// What a tool came to.
pub(super) fn result(message: &Message) -> String {
    format!(
        "Result of {}: {}",
        message.name.as_deref().unwrap_or("the tool"),
        message.content
    )
}

/// An answer in the form of [`Format::Generic`]. That has either a text or calls; where another
/// model has written both, they stand in one object, so that nothing is lost and the model has one
/// turn.
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
