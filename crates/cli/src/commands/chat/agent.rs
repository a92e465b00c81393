//! A message to a model that has tools: it calls them, they are run, it hears what came of it, until it answers.
//!
//! Knows no tool. A program of the user's runs them: name as its argument, arguments as JSON on its standard input, and
//! what it prints is the result.

use std::{
    io::{Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use atta::{
    Error, Event, FinishReason,
    chat::{Heard, Message},
    tools::{Outcome, Piece, ToolCall},
};

use super::{Conversation, Next, full, notice};
use crate::{failure::Failure, listener::Listener, tools};

/// Bytes of a result that the model is told.
const MAX_RESULT: usize = 64 << 10;

/// Answers with calls in a row: a model may call for ever.
const MAX_ROUNDS: usize = 16;

impl Conversation<'_> {
    pub(super) fn say_with_tools(&mut self, text: &str, program: &Path) -> Result<Next, Failure> {
        let n_before = self.chat.messages().len();
        self.chat.push(Message::user(text));
        let next = self.rounds(program);
        // What was not answered is no part of the conversation.
        if !matches!(next, Ok(Next::GoOn)) {
            self.chat.rewind(n_before);
        }
        next
    }

    fn rounds(&mut self, program: &Path) -> Result<Next, Failure> {
        for _ in 0..MAX_ROUNDS {
            self.interrupt.reset();
            let Some(outcome) = self.hear_round()? else { return Ok(Next::Stopped) };
            if outcome.calls.is_empty() {
                return Ok(Next::GoOn);
            }
            for call in &outcome.calls {
                let result = self.result_of(call, program)?;
                if self.interrupt.is_asked() {
                    self.interrupt.reset();
                    return Ok(Next::Stopped);
                }
                self.chat.push(Message::tool(&call.id, &call.name, result));
            }
        }
        Err(Failure::Failed(format!("the model has called tools {MAX_ROUNDS} times in a row, and given no answer")))
    }

    /// One answer; none if Ctrl-C has stopped it.
    fn hear_round(&mut self) -> Result<Option<Outcome>, Failure> {
        let mut listener = Listener::of_rounds(self.interrupt.clone());
        let said = self.chat.answer_calling(&self.options, |heard| match heard {
            Heard::Event(event) => listener.hear(event),
            Heard::Piece(Piece::Text(text)) => listener.hear(Event::Text(text)),
            Heard::Piece(_) => std::ops::ControlFlow::Continue(()),
        });
        if let Err(Error::PromptTooLong { n_prompt, n_ctx }) = said {
            return Err(full(n_prompt, n_ctx));
        }
        let written = listener.end(self.stats);
        let answer = said?;
        let reason = answer.reply.summary.finish_reason;
        self.report(answer.reply);
        if self.interrupt.is_asked() {
            self.interrupt.reset();
            return Ok(None);
        }
        written?;
        if reason == FinishReason::Length {
            self.explain_cut();
        }
        Ok(Some(answer.outcome))
    }

    /// Runs a tool, if the user agrees.
    fn result_of(&mut self, call: &ToolCall, program: &Path) -> Result<String, Failure> {
        notice(&format!("call: {}", tools::line(call)));
        if !self.args.runner.yes && !self.lines.agrees("run it? [y/N] ")? {
            return Ok("The user does not allow this call.".to_owned());
        }
        run(program, call).map_err(|error| Failure::at(program, error))
    }
}

/// What a program prints for a call, and how it ended if not well.
fn run(program: &Path, call: &ToolCall) -> std::io::Result<String> {
    let mut command = Command::new(program);
    let mut child = command.arg(&call.name).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let output = talk(&mut child, call.arguments.to_string().as_bytes())?;
    let status = child.wait()?;
    let mut text = String::from_utf8_lossy(&output[..output.len().min(MAX_RESULT)]).into_owned();
    if output.len() > MAX_RESULT {
        text.push_str("… (cut off)");
    } else if !status.success() {
        text.push_str(&format!("\n(failed: {status})"));
    }
    Ok(text)
}

/// Writes to a program and reads from it, at the same time; a byte more than a result may have.
fn talk(child: &mut Child, input: &[u8]) -> std::io::Result<Vec<u8>> {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let mut output = Vec::new();
    thread::scope(|scope| {
        // A program may not want to read, and end.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        stdout.map_or(Ok(0), |stdout| stdout.take(MAX_RESULT as u64 + 1).read_to_end(&mut output))
    })?;
    Ok(output)
}
