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
    super::{
        choices::{ChoiceOptions, Chunks, Envelope, UsagePerPrompt},
        response::{LogprobEntries, WithChoices, finish_reason, logprob_entry},
    },
    request::ChatReply,
};
use crate::{
    api::flavor::ApiFlavor,
    flow::{
        answer::{AnswerEnd, AnswerEvent, Answers, StopReason},
        error::ApiError,
        logprobs::{PairedEvent, TokenLogprobs},
        stream::{EventWriter, StreamEvent},
        usage,
    },
    models::Model,
};

/// A response or a chunk, without its choices.
fn object(envelope: &Envelope, kind: &str) -> Value {
    let mut object = envelope.object(kind);
    object["system_fingerprint"] = Value::Null;
    object
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
    envelope: &Envelope,
    mut answers: Answers,
    reply: ChatReply,
) -> Result<Response, ApiError> {
    let ChoiceOptions { n, tier, .. } = reply.choices;
    let mut choices = Vec::with_capacity(n);
    let mut collected: Vec<Collected> = (0..n).map(|_| Collected::default()).collect();
    let mut usage = UsagePerPrompt::new(n);
    let mut object = object(envelope, "chat.completion");
    while let Some(event) = answers.next().await {
        match event? {
            (i, AnswerEvent::Piece(piece)) => collected[i].cut_call.push(piece),
            (i, AnswerEvent::Logprobs(logprobs)) => collected[i].logprobs.push(logprobs),
            (index, AnswerEvent::End(end)) => {
                usage.add(index, &end);
                if n == 1 {
                    object["timings"] = usage::timings(&end.done);
                }
                let collected = std::mem::take(&mut collected[index]);
                choices.push(choice(&envelope.model, index, end, collected, reply));
            }
        }
    }
    choices.sort_by_key(|choice| choice.index);
    object["usage"] = usage.to_json();
    object["service_tier"] = tier.name().into();
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
    model: Arc<Model>,
    reply: ChatReply,
    chunks: Chunks,
    /// Of the only answer.
    timings: Option<Value>,
}

impl ChatWriter {
    pub(super) fn new(envelope: Envelope, reply: ChatReply) -> Self {
        let object = object(&envelope, "chat.completion.chunk");
        Self {
            model: envelope.model,
            reply,
            chunks: Chunks::new(object, reply.choices, reply.choices.n),
            timings: None,
        }
    }

    fn delta_chunk(&self, i: usize, delta: Value, logprobs: Option<Value>) -> Value {
        self.chunks.chunk(json!({
            "index": i,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": null,
        }))
    }

    fn text_chunk(&self, i: usize, text: &str, logprobs: Option<TokenLogprobs>) -> Value {
        let logprobs = logprobs.map(|logprobs| {
            let entry = logprob_entry(&self.model, &logprobs);
            json!({ "content": [entry], "refusal": null })
        });
        self.delta_chunk(i, json!({ "content": text }), logprobs)
    }

    fn last_chunk(&mut self, i: usize, end: &AnswerEnd) -> Value {
        let ChoiceOptions {
            n, include_usage, ..
        } = self.reply.choices;
        self.chunks.usage.add(i, end);
        self.timings = (n == 1).then(|| usage::timings(&end.done));
        let mut chunk = self.chunks.chunk(json!({
            "index": i,
            "delta": {},
            "logprobs": null,
            "finish_reason": chat_finish_reason(end, self.reply),
        }));
        // With the usage, a chunk of its own has the timings.
        if let Some(timings) = self.timings.take_if(|_| !include_usage) {
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
        (0..self.reply.choices.n).map(first).collect()
    }

    fn write(&mut self, i: usize, event: AnswerEvent) -> Vec<StreamEvent> {
        let mut chunks = Vec::new();
        for event in self.chunks.paired(i, event) {
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
        self.chunks.end(self.timings.take())
    }

    fn fail(&mut self, error: &ApiError) -> Vec<StreamEvent> {
        vec![ApiFlavor::OpenAi.error(error, None).into()]
    }
}
