//! A message to a model with tools: the model calls tools and gets their results until it answers.
//!
//! A program of the user's runs a call: it gets the tool's name as argument and the call's
//! arguments as JSON on standard input, and its output is the result.

use std::{
    collections::HashSet,
    ops::ControlFlow::{self, Break, Continue},
    path::PathBuf,
};

use atta::{
    Error, FinishReason,
    chat::{ChatEvent, Message, Role},
    tokenizer::Special,
    tools::{ToolCall, ToolChoice},
};

use super::{
    ChatArgs, Conversation, Next, end_answer, full,
    house::House,
    lines::Consent,
    notice,
    program::{self, CUT_OFF},
};
use crate::{failure::Failure, tools};

/// The most answers with calls in a row, since a model may never stop calling.
const MAX_ROUNDS: usize = 16;

/// One part in this many of the context is left to the answer after results of calls.
const ANSWER_SHARE: usize = 8;

/// Results of calls may take one part in this many of a window.
const WINDOW_SHARE: usize = 4;

/// Results of at most this many bytes are shortened only if the conversation does not fit without.
const SHORT: usize = 256;

/// The answer that is added after calls without one, so that a message of the user can follow.
const NO_ANSWER: &str = "(no answer)";

impl Conversation<'_> {
    pub(super) fn say_with_tools(&mut self, text: &str) -> Result<Next, Failure> {
        let n_before = self.chat.messages().len();
        self.chat.push(Message::user(text));
        self.consents.refused.clear();
        let next = self.rounds();
        match &next {
            Ok(_) => self.settle(n_before),
            Err(_) => self.chat.rewind(n_before),
        }
        next
    }

    fn rounds(&mut self) -> Result<Next, Failure> {
        self.interrupt.reset();
        if let Break(next) = self.round()? {
            return Ok(next);
        }
        // The required call was made. Requiring one in every round would never end.
        let choice = self.chat.set_tool_choice(ToolChoice::Auto);
        let next =
            (1..MAX_ROUNDS).find_map(|_| self.round().map(ControlFlow::break_value).transpose());
        if let Some(choice) = choice {
            self.chat.set_tool_choice(choice);
        }
        let endless =
            format!("the model has called tools {MAX_ROUNDS} times in a row, and given no answer");
        next.unwrap_or(Err(Failure::Failed(endless)))
    }

    /// Generates an answer and runs the calls in it.
    fn round(&mut self) -> Result<ControlFlow<Next>, Failure> {
        let calls = match self.hear_round()? {
            Continue(calls) => calls,
            Break(next) => return Ok(Break(next)),
        };
        if calls.iter().any(|call| self.consents.has_refused(call)) {
            // The model repeats a call that the user has refused: allow text only.
            self.chat.set_tool_choice(ToolChoice::None);
        }
        for call in &calls {
            let Some(result) = self.result_of(call)? else {
                self.interrupt.reset();
                return Ok(Break(Next::Stopped));
            };
            self.chat.push(Message::tool(&call.id, &call.name, result));
        }
        self.make_room()?;
        Ok(Continue(()))
    }

    /// Removes messages without an answer, but keeps calls that were run.
    fn settle(&mut self, n_before: usize) {
        let said = &self.chat.messages()[n_before..];
        let n = n_settled(said);
        let is_open = n
            .checked_sub(1)
            .is_some_and(|last| said[last].role == Role::Tool);
        self.chat.rewind(n_before + n);
        if is_open {
            self.chat.push(Message::assistant(NO_ANSWER));
        }
    }

    /// Generates one answer: returns the calls in it, or how the message has ended.
    fn hear_round(&mut self) -> Result<ControlFlow<Next, Vec<ToolCall>>, Failure> {
        let n_before = self.chat.messages().len();
        let mut printer = self.printer();
        let on_event = |event: ChatEvent<'_>| printer.on_chat_event(event);
        let said = self.chat.answer_calling(&self.options, on_event);
        if let Err(Error::PromptTooLong { n_prompt, n_ctx }) = said {
            return Err(full(n_prompt, n_ctx));
        }
        let written = printer.end(self.stats, |out, has_text| match has_text {
            true => end_answer(out),
            false => Ok(()),
        });
        let answer = said?;
        self.thoughts.clone_from(&answer.outcome.reasoning);
        let reason = answer.reply.summary.finish_reason;
        self.report(answer.reply);
        if self.interrupt.is_asked() {
            self.interrupt.reset();
            self.chat.rewind(n_before);
            return Ok(Break(Next::Stopped));
        }
        written?;
        if reason == FinishReason::Length {
            self.explain_cut();
        }
        let calls = answer.outcome.calls;
        Ok(if calls.is_empty() {
            Break(Next::GoOn)
        } else {
            Continue(calls)
        })
    }

    /// Shortens results of calls until the context has room for an answer after them, or they
    /// cannot be shortened.
    fn make_room(&mut self) -> Result<(), Failure> {
        let n_ctx = self.chat.session().n_ctx();
        let shifts = self.chat.session().shifts();
        let mut is_cut = false;
        loop {
            // A window never fills up, but results must not push their own message out of it.
            let (n_tokens, n_most) = match shifts {
                true => (self.n_result_tokens(), n_ctx / WINDOW_SHARE),
                false => (
                    self.chat.prompt().map_err(Error::from)?.ids.len(),
                    n_ctx - n_ctx / ANSWER_SHARE,
                ),
            };
            if n_tokens <= n_most || !self.shorten_result(if n_tokens > n_ctx { 0 } else { SHORT })
            {
                return Ok(());
            }
            if !std::mem::replace(&mut is_cut, true) {
                notice(
                    "the results of the calls do not fit into the context: the model is told how \
                     they begin",
                );
            }
        }
    }

    /// Tokens of the results since the last message of the user.
    fn n_result_tokens(&self) -> usize {
        let since = self
            .chat
            .messages()
            .iter()
            .rev()
            .take_while(|message| message.role != Role::User);
        let results = since.filter(|message| message.role == Role::Tool);
        let tokenizer = self.chat.session().engine().tokenizer();
        results
            .map(|message| tokenizer.encode(&message.content, Special::Plain).len())
            .sum()
    }

    /// Halves the longest result since the last message of the user, if it has more than `n_bytes`.
    /// Returns whether it was shortened.
    fn shorten_result(&mut self, n_bytes: usize) -> bool {
        let messages = self.chat.messages();
        let longest = longest_result(messages, n_bytes);
        let shorter = longest.and_then(|i| Some((i, half(&messages[i].content)?)));
        let Some((at, content)) = shorter else {
            return false;
        };
        let mut rest = messages[at..].to_vec();
        rest[0].content = content;
        self.chat.rewind(at);
        rest.into_iter().for_each(|message| self.chat.push(message));
        true
    }

    /// Runs a call if the user agrees. `None`: the user stops this message.
    fn result_of(&mut self, call: &ToolCall) -> Result<Option<String>, Failure> {
        notice(&format!("call: {}", tools::line(call)));
        match self.consent(call)? {
            Consent::Yes | Consent::Always => self.run_call(call),
            Consent::No => Ok(Some("The user does not allow this call.".to_owned())),
            Consent::Stop => Ok(None),
        }
    }

    fn run_call(&mut self, call: &ToolCall) -> Result<Option<String>, Failure> {
        match &mut self.runner {
            Some(Runner::Program(path)) => {
                program::run(path, call, &self.interrupt).map_err(|error| Failure::at(path, error))
            }
            Some(Runner::House(house)) => Ok(Some(house.run(call))),
            None => unreachable!("without a runner there are no tools"),
        }
    }

    /// The consent of the user to a call, given now or before.
    fn consent(&mut self, call: &ToolCall) -> Result<Consent, Failure> {
        let is_harmless = matches!(self.runner, Some(Runner::House(_)));
        if is_harmless || self.args.runner.yes || self.consents.allowed.contains(&call.name) {
            return Ok(Consent::Yes);
        }
        if self.consents.has_refused(call) {
            return Ok(Consent::No);
        }
        let consent = self.lines.ask("run it? [y/N/a: always] ")?;
        match consent {
            Consent::Always => _ = self.consents.allowed.insert(call.name.clone()),
            Consent::No => self.consents.refused.push(call.clone()),
            Consent::Yes | Consent::Stop => {}
        }
        Ok(consent)
    }
}

/// How tool calls are run.
pub(super) enum Runner {
    Program(PathBuf),
    House(House),
}

impl Runner {
    /// The runner that the options choose.
    pub(super) fn of(args: &ChatArgs) -> Option<Self> {
        let program = || args.runner.tool_cmd.clone().map(Self::Program);
        if args.runner.house {
            Some(Self::House(House::default()))
        } else {
            program()
        }
    }
}

/// The user's answers to calls.
#[derive(Default)]
pub(super) struct Consents {
    /// Names of tools that may always be called.
    allowed: HashSet<String>,
    /// Calls since the last message that the user has refused.
    refused: Vec<ToolCall>,
}

impl Consents {
    /// Whether the user has refused this call, by whatever id.
    fn has_refused(&self, call: &ToolCall) -> bool {
        self.refused
            .iter()
            .any(|no| no.name == call.name && no.arguments == call.arguments)
    }
}

/// The longest result of more than `n_bytes` since the last message of the user.
fn longest_result(messages: &[Message], n_bytes: usize) -> Option<usize> {
    let first = messages
        .iter()
        .rposition(|message| message.role == Role::User)
        .unwrap_or(0);
    let is_long = |message: &Message| message.role == Role::Tool && message.content.len() > n_bytes;
    (first..messages.len())
        .filter(|&i| is_long(&messages[i]))
        .max_by_key(|&i| messages[i].content.len())
}

/// The first half of a result with a mark that it was cut; `None` if that is no shorter.
fn half(result: &str) -> Option<String> {
    let text = result.strip_suffix(CUT_OFF).unwrap_or(result);
    let shorter = format!(
        "{}{CUT_OFF}",
        &text[..text.floor_char_boundary(text.len() / 2)]
    );
    (shorter.len() < result.len()).then_some(shorter)
}

/// How many of these messages (the first is the user's) are complete: up to an answer, or
/// to a round of calls with all their results. 0 if none is but the first.
fn n_settled(said: &[Message]) -> usize {
    let mut n = 0;
    let mut rest = said.get(1..).unwrap_or_default();
    while let [answer, results @ ..] = rest {
        let n_calls = answer.tool_calls.len();
        if results.len() < n_calls {
            break;
        }
        rest = &results[n_calls..];
        n = said.len() - rest.len();
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_halved_until_nothing_is_left_of_it() {
        assert_eq!(
            half("0123456789012345678901234567890é").unwrap(),
            format!("0123456789012345{CUT_OFF}")
        );
        assert_eq!(
            half(&format!("0123é{CUT_OFF}")).unwrap(),
            format!("012{CUT_OFF}")
        );
        assert_eq!(half(&format!("é{CUT_OFF}")).unwrap(), CUT_OFF);
        assert_eq!((half(CUT_OFF), half("short")), (None, None));
    }

    #[test]
    fn rounds_with_all_their_results_are_settled() {
        let call = |id: &str| ToolCall {
            id: id.into(),
            name: "f".into(),
            arguments: serde_json::json!({}),
        };
        let said = [
            Message::user("a"),
            Message::assistant_calling("", vec![call("1"), call("2")]),
            Message::tool("1", "f", "one"),
            Message::tool("2", "f", "two"),
            Message::assistant_calling("", vec![call("3")]),
            Message::tool("3", "f", "three"),
            Message::assistant("b"),
        ];
        let n: Vec<usize> = (0..=said.len()).map(|n| n_settled(&said[..n])).collect();
        assert_eq!(n, [0, 0, 0, 0, 4, 4, 6, 7]);
    }
}
