//! The response of chat: one object, or chunks.

use std::sync::Arc;

use atta_engine::tools::{Outcome, Piece, ToolCall};
use axum::{
    Json,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    super::response::{
        LogprobEntries, WithChoices, done, finish_reason, logprob_entry, usage_json,
    },
    request::ChatReply,
};
use crate::{
    api::flavor::ApiFlavor,
    flow::{
        answer::{AnswerEnd, AnswerEvent, Answers, StopReason},
        error::ApiError,
        logprobs::{LogprobPairing, PairedEvent, TokenLogprobs},
        stream::{EventWriter, StreamEvent},
        usage::{self, Usage},
    },
    models::Model,
};

/// What all chunks of a response have in common.
pub(super) struct ChatEnvelope {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: Arc<Model>,
}

impl ChatEnvelope {
    /// All fields but the choices.
    fn object(&self, kind: &str) -> Value {
        json!({
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model.name,
            "system_fingerprint": null,
        })
    }
}

#[derive(Serialize)]
struct ChatChoice<'a> {
    index: usize,
    message: Value,
    logprobs: Option<ChatLogprobs<'a>>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct ChatLogprobs<'a> {
    content: LogprobEntries<'a>,
    refusal: Option<&'a str>,
}

/// An answer that is being collected.
#[derive(Default)]
struct Collected {
    logprobs: Vec<TokenLogprobs>,
    cut_call: CutCall,
}

/// Collects all answers.
pub(super) async fn whole(
    envelope: &ChatEnvelope,
    mut answers: Answers,
    reply: ChatReply,
) -> Result<Response, ApiError> {
    let mut choices = Vec::with_capacity(reply.n);
    let mut collected: Vec<Collected> = (0..reply.n).map(|_| Collected::default()).collect();
    let mut usage = Usage::default();
    let mut object = envelope.object("chat.completion");
    while let Some(event) = answers.next().await {
        match event? {
            (i, AnswerEvent::Piece(piece)) => collected[i].cut_call.push(piece),
            (i, AnswerEvent::Logprobs(logprobs)) => collected[i].logprobs.push(logprobs),
            (index, AnswerEvent::End(end)) => {
                usage.add(&end.done);
                if reply.n == 1 {
                    object["timings"] = usage::timings(&end.done);
                }
                let collected = std::mem::take(&mut collected[index]);
                choices.push(choice(&envelope.model, index, end, collected, reply));
            }
        }
    }
    choices.sort_by_key(|choice| choice.index);
    object["usage"] = usage_json(usage);
    object["service_tier"] = reply.tier.unwrap_or_default().name().into();
    Ok(Json(WithChoices { object, choices }).into_response())
}

fn choice(
    model: &Model,
    index: usize,
    end: AnswerEnd,
    collected: Collected,
    reply: ChatReply,
) -> ChatChoice<'_> {
    let calls = end.outcome.calls.iter().map(call_json);
    let calls = calls.chain(collected.cut_call.call).collect();
    let list = collected.logprobs;
    let logprobs = (!list.is_empty()).then_some(ChatLogprobs {
        content: LogprobEntries { model, list },
        refusal: None,
    });
    ChatChoice {
        index,
        message: message_json(&end.outcome, calls, reply),
        logprobs,
        finish_reason: chat_finish_reason(&end, reply),
    }
}

/// The tool call that the end of an answer has cut, with the arguments so far. A streamed response
/// has already sent it, so that one in one piece has it, too.
#[derive(Default)]
struct CutCall {
    call: Option<Value>,
}

impl CutCall {
    fn push(&mut self, piece: Piece) {
        match (piece, &mut self.call) {
            (Piece::CallBegin { id, name, .. }, _) => {
                self.call = Some(function_call(&id, &name, ""));
            }
            (Piece::CallArguments { fragment, .. }, Some(call)) => {
                let arguments = &mut call["function"]["arguments"];
                let so_far = arguments.as_str().unwrap_or_default();
                *arguments = (so_far.to_owned() + &fragment).into();
            }
            (Piece::Call(_), _) => self.call = None,
            _ => {}
        }
    }
}

fn message_json(outcome: &Outcome, mut calls: Vec<Value>, reply: ChatReply) -> Value {
    let has_content = !outcome.text.is_empty() || calls.is_empty();
    let content = has_content.then_some(&outcome.text);
    let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
    if !outcome.reasoning.is_empty() {
        message["reasoning_content"] = outcome.reasoning.trim().into();
    }
    match calls.first_mut() {
        Some(first) if reply.has_functions => message["function_call"] = first["function"].take(),
        Some(_) => message["tool_calls"] = calls.into(),
        None => {}
    }
    message
}

fn chat_finish_reason(end: &AnswerEnd, reply: ChatReply) -> &'static str {
    match end.stop_reason() {
        StopReason::ToolCalls if reply.has_functions => "function_call",
        reason => finish_reason(reason),
    }
}

/// A complete call; its arguments are the text of a JSON object.
fn call_json(call: &ToolCall) -> Value {
    function_call(&call.id, &call.name, &call.arguments.to_string())
}

fn function_call(id: &str, name: &str, arguments: &str) -> Value {
    let function = json!({ "name": name, "arguments": arguments });
    json!({ "id": id, "type": "function", "function": function })
}

/// Writes the chunks of a streamed response.
pub(super) struct ChatWriter {
    envelope: ChatEnvelope,
    reply: ChatReply,
    usage: Usage,
    /// Of the only answer.
    timings: Option<Value>,
    /// One for each answer.
    pairings: Vec<LogprobPairing>,
}

impl ChatWriter {
    pub(super) fn new(envelope: ChatEnvelope, reply: ChatReply) -> Self {
        Self {
            envelope,
            reply,
            usage: Usage::default(),
            timings: None,
            pairings: vec![LogprobPairing::new(reply.logprobs); reply.n],
        }
    }

    fn chunk(&self, choice: Value) -> Value {
        let mut chunk = self.envelope.object("chat.completion.chunk");
        chunk["choices"] = json!([choice]);
        if self.reply.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn delta_chunk(&self, i: usize, delta: Value, logprobs: Option<Value>) -> Value {
        self.chunk(json!({
            "index": i,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": null,
        }))
    }

    fn text_chunk(&self, i: usize, text: &str, logprobs: Option<TokenLogprobs>) -> Value {
        let logprobs = logprobs.map(|logprobs| {
            let entry = logprob_entry(&self.envelope.model, &logprobs);
            json!({ "content": [entry], "refusal": null })
        });
        self.delta_chunk(i, json!({ "content": text }), logprobs)
    }

    fn last_chunk(&mut self, i: usize, end: &AnswerEnd) -> Value {
        self.usage.add(&end.done);
        self.timings = (self.reply.n == 1).then(|| usage::timings(&end.done));
        let mut chunk = self.chunk(json!({
            "index": i,
            "delta": {},
            "logprobs": null,
            "finish_reason": chat_finish_reason(end, self.reply),
        }));
        // With the usage, a chunk of its own has the timings.
        if let Some(timings) = self.timings.take_if(|_| !self.reply.include_usage) {
            chunk["timings"] = timings;
        }
        chunk
    }
}

/// What a piece adds to a message.
fn delta(piece: Piece, reply: ChatReply) -> Option<Value> {
    Some(match piece {
        Piece::Text(text) => json!({ "content": text }),
        Piece::Reasoning(text) => json!({ "reasoning_content": text }),
        Piece::CallBegin { name, .. } if reply.has_functions => {
            json!({ "function_call": { "name": name, "arguments": "" } })
        }
        Piece::CallArguments { fragment, .. } if reply.has_functions => {
            json!({ "function_call": { "arguments": fragment } })
        }
        Piece::CallBegin { index, id, name } => {
            let mut call = function_call(&id, &name, "");
            call["index"] = index.into();
            json!({ "tool_calls": [call] })
        }
        Piece::CallArguments { index, fragment } => {
            json!({ "tool_calls": [{ "index": index, "function": { "arguments": fragment } }] })
        }
        // The client already has the fragments; a call that was cut cannot be withdrawn.
        Piece::Call(_) | Piece::CallBroken { .. } => return None,
    })
}

impl EventWriter for ChatWriter {
    fn begin(&mut self) -> Vec<StreamEvent> {
        let delta = json!({ "role": "assistant", "content": null });
        let first = |i| self.delta_chunk(i, delta.clone(), None).into();
        (0..self.reply.n).map(first).collect()
    }

    fn write(&mut self, i: usize, event: AnswerEvent) -> Vec<StreamEvent> {
        let mut chunks = Vec::new();
        for event in self.pairings[i].push(event) {
            chunks.extend(match event {
                PairedEvent::Text(text, logprobs) => Some(self.text_chunk(i, &text, logprobs)),
                PairedEvent::Piece(piece) => {
                    delta(piece, self.reply).map(|delta| self.delta_chunk(i, delta, None))
                }
                PairedEvent::End(end) => Some(self.last_chunk(i, &end)),
            });
        }
        chunks.into_iter().map(StreamEvent::from).collect()
    }

    fn end(&mut self) -> Vec<StreamEvent> {
        if !self.reply.include_usage {
            return vec![done()];
        }
        let mut last = self.envelope.object("chat.completion.chunk");
        last["choices"] = json!([]);
        last["usage"] = usage_json(self.usage);
        if let Some(timings) = self.timings.take() {
            last["timings"] = timings;
        }
        vec![last.into(), done()]
    }

    fn fail(&mut self, error: &ApiError) -> Vec<StreamEvent> {
        vec![ApiFlavor::OpenAi.error(error, None).into()]
    }
}
