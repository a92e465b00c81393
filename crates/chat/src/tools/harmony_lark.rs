//! The messages of gpt-oss as rules of a grammar.
//!
//! Thinking and text in front of a call end with a marker; the final text and a call end the
//! answer.

use super::{
    ToolChoice, ToolError,
    grammar::{Lark, SPACE, Thinking, regex},
    harmony::{CHANNEL, CONSTRAIN, END, MESSAGE, NEXT_MESSAGE, START, TO_FUNCTION},
};

impl Lark<'_> {
    /// Writes the rules of an answer, all but those of its calls.
    pub(super) fn messages(&mut self, has_calls: bool) -> Result<(), ToolError> {
        let [channel, message] = [CHANNEL, MESSAGE].map(|text| self.tag(text));
        let next = format!("{} \"assistant\" message", self.tag(START));
        let thinking = self.rules.thinking;
        self.line(&match thinking {
            Thinking::Open => format!("start: body_end {next}"),
            Thinking::Never | Thinking::Maybe => "start: message".to_owned(),
        });
        let may_be_text = !has_calls || *self.rules.choice == ToolChoice::Auto;
        let reply = self.rules.constrained_reply();
        let mut messages = Vec::new();
        if thinking != Thinking::Never {
            messages.push(format!("{channel} \"analysis\" {message} body_end {next}"));
        }
        if may_be_text && reply.is_none() {
            messages.push(format!(
                "{channel} \"commentary\" {message} body_end {next}"
            ));
            messages.push(format!("{channel} \"final\" {message} BODY?"));
        }
        if reply.is_some() {
            messages.push(format!("{channel} \"final\" content_type reply"));
        }
        if has_calls {
            messages.push(format!(
                "({channel} \"commentary\")? \" {TO_FUNCTION}\" calls"
            ));
        }
        // The prompt has opened the message of a text.
        if may_be_text && thinking == Thinking::Never {
            messages.push(if reply.is_some() { "reply" } else { "TEXT?" }.to_owned());
        }
        self.line(&format!("message: {}", messages.join(" | ")));
        self.bodies();
        if let Some(constraint) = reply {
            self.line(&constraint.reply(&[])?);
        }
        Ok(())
    }

    /// The rules that messages consist of.
    fn bodies(&mut self) {
        let [channel, constrain, message] =
            [CHANNEL, CONSTRAIN, MESSAGE].map(|text| self.tag(text));
        self.line(&format!("header: ({channel} \"commentary\")? content_type"));
        self.line(&format!(
            "content_type: (\" \" {constrain}? \"json\" | {constrain} \"json\")? {message}"
        ));
        let end = regex(END);
        let no_end = format!("~/(?s:.*){end}(?s:.*)/");
        self.line(&format!("BODY: /(?s:.+)/ & {no_end}"));
        let headers = [CHANNEL, NEXT_MESSAGE, TO_FUNCTION].map(regex).join("|");
        self.line(&format!(
            "TEXT: /(?s:.+)/ & {no_end} & ~/{SPACE}({headers})(?s:.*)/"
        ));
        self.line(&match self.token(END) {
            Some(token) => format!("body_end: BODY? {token}"),
            None => format!("body_end[lazy]: /(?s:.*){end}/"),
        });
    }
}
