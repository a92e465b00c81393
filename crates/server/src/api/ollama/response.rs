//! Responses of Ollama: lines of JSON with all counts in the last one, or one object.
//!
//! Chat and generate differ only in the fields that hold the text ([`ReplyShape`]).

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use atta_engine::{
    FinishReason,
    chat::DateTime,
    tokenizer::Special,
    tools::{Outcome, Piece, ToolCall},
};
use axum::{
    Json,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    options::{OllamaShared, ParsedFields},
    think::{THINK_BEGIN, THINK_END},
};
use crate::{
    api::{
        flavor::ApiFlavor,
        openai::response::{LogprobEntries, logprob_entry},
    },
    flow::{
        answer::{AnswerEnd, AnswerEvent, Answers, StopReason},
        error::ApiError,
        logprobs::{LogprobPairing, PairedEvent},
        stream::{self, EventWriter, StreamEvent},
    },
    models::Model,
};

/// Which fields hold the text of an answer.
pub(crate) enum ReplyShape {
    /// `message`.
    Chat,
    /// `response`, and `context` if the prompt was a message in the chat template.
    Generate(Option<PromptContext>),
}

/// The tokens in front of an answer, which `context` repeats.
pub(crate) struct PromptContext {
    pub(super) ids: Vec<u32>,
    /// Whether the prompt ends within the reasoning.
    pub(super) is_thinking: bool,
}

/// How an answer is sent.
pub(super) struct OllamaReply {
    shape: ReplyShape,
    stream: bool,
    logprobs: bool,
    /// The `done_reason` of a request without a prompt.
    load_reason: &'static str,
}

impl OllamaReply {
    pub(super) fn new(shape: ReplyShape, fields: &ParsedFields) -> Self {
        Self {
            shape,
            stream: fields.stream,
            logprobs: fields.options.n_logprobs.is_some(),
            load_reason: fields.load_reason,
        }
    }

    /// For a request without a prompt, if it only unloads its model.
    pub(super) fn unload(shape: ReplyShape, fields: &OllamaShared) -> Option<Self> {
        (fields.is_unload() && fields.is_bare()).then(|| Self {
            shape,
            stream: fields.streams(),
            logprobs: false,
            load_reason: fields.load_reason(),
        })
    }

    /// The response to a request without a prompt, about a model that is not in memory.
    pub(super) fn without_answer(&self, model: &str) -> Response {
        let line = self.load_line(model);
        if self.stream {
            stream::line(line)
        } else {
            Json(line).into_response()
        }
    }

    fn line(&self, model: &str, part: AnswerPart) -> Value {
        let mut line = json!({ "model": model, "created_at": now(), "done": false });
        match self.shape {
            ReplyShape::Chat => line["message"] = part.into_message(),
            ReplyShape::Generate(_) => {
                line["response"] = part.text.into();
                if !part.thinking.is_empty() {
                    line["thinking"] = part.thinking.into();
                }
            }
        }
        line
    }

    /// The only line for a request without a prompt.
    fn load_line(&self, model: &str) -> Value {
        let mut line = self.line(model, AnswerPart::default());
        line["done"] = true.into();
        line["done_reason"] = self.load_reason.into();
        line
    }
}

/// The text, reasoning and calls of a line.
#[derive(Default)]
struct AnswerPart {
    text: String,
    thinking: String,
    /// Each with its index in the answer.
    calls: Vec<(usize, ToolCall)>,
}

impl AnswerPart {
    fn text(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }

    fn into_message(self) -> Value {
        let mut message = json!({ "role": "assistant", "content": self.text });
        if !self.thinking.is_empty() {
            message["thinking"] = self.thinking.into();
        }
        if !self.calls.is_empty() {
            let calls = self.calls.into_iter();
            message["tool_calls"] = calls.map(|(index, call)| call_json(index, call)).collect();
        }
        message
    }
}

/// Sends an answer; `start` is when the request came.
pub(super) async fn respond(
    answers: Answers,
    reply: OllamaReply,
    start: Instant,
) -> Result<Response, ApiError> {
    let writer = LineWriter {
        model: Arc::clone(answers.model()),
        start,
        load_time: answers.load_time(),
        pairing: LogprobPairing::new(reply.logprobs),
        reply,
        n_calls: 0,
        has_ended: false,
    };
    match writer.reply.stream {
        true => Ok(stream::lines(answers, writer)),
        false => writer.whole(answers).await,
    }
}

/// A response in one piece.
#[derive(Serialize)]
struct WholeAnswer<'a> {
    #[serde(flatten)]
    object: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<LogprobEntries<'a>>,
}

struct LineWriter {
    model: Arc<Model>,
    reply: OllamaReply,
    /// When the request came.
    start: Instant,
    load_time: Duration,
    pairing: LogprobPairing,
    /// Calls so far.
    n_calls: usize,
    has_ended: bool,
}

impl LineWriter {
    async fn whole(mut self, mut answers: Answers) -> Result<Response, ApiError> {
        let mut list = Vec::new();
        let mut end = None;
        while let Some(event) = answers.next().await {
            match event?.1 {
                AnswerEvent::Piece(_) => {}
                AnswerEvent::Logprobs(logprobs) => list.push(logprobs),
                AnswerEvent::End(ended) => end = Some(ended),
            }
        }
        let Some(end) = end else {
            return Ok(Json(self.load_line()).into_response());
        };
        let Outcome {
            text,
            reasoning,
            calls,
            ..
        } = &end.outcome;
        let part = AnswerPart {
            text: text.clone(),
            thinking: reasoning.trim().to_owned(),
            calls: calls.iter().cloned().enumerate().collect(),
        };
        let object = self.last(part, &end);
        let model = &*self.model;
        let logprobs = self
            .reply
            .logprobs
            .then_some(LogprobEntries { model, list });
        Ok(Json(WholeAnswer { object, logprobs }).into_response())
    }

    fn line(&self, part: AnswerPart) -> Value {
        self.reply.line(&self.model.name, part)
    }

    fn load_line(&self) -> Value {
        self.reply.load_line(&self.model.name)
    }

    /// The line of a piece; a call has one when it is complete.
    fn piece_line(&mut self, piece: Piece) -> Option<Value> {
        let part = match piece {
            Piece::Text(text) => AnswerPart::text(text),
            Piece::Reasoning(thinking) => AnswerPart {
                thinking,
                ..AnswerPart::default()
            },
            Piece::Call(call) => {
                let calls = vec![(self.n_calls, call)];
                self.n_calls += 1;
                AnswerPart {
                    calls,
                    ..AnswerPart::default()
                }
            }
            Piece::CallBegin { .. } | Piece::CallArguments { .. } | Piece::CallBroken { .. } => {
                return None;
            }
        };
        Some(self.line(part))
    }

    /// The last line, or the only one.
    fn last(&mut self, part: AnswerPart, end: &AnswerEnd) -> Value {
        self.has_ended = true;
        let mut line = self.line(part);
        line["done"] = true.into();
        line["done_reason"] = match end.stop_reason() {
            StopReason::Length => "length".into(),
            _ => "stop".into(),
        };
        line["total_duration"] = nanoseconds(self.start.elapsed()).into();
        line["load_duration"] = nanoseconds(self.load_time).into();
        line["prompt_eval_count"] = end.done.n_prompt.into();
        line["prompt_eval_duration"] = nanoseconds(end.done.prefill_time).into();
        line["eval_count"] = end.done.n_generated.into();
        line["eval_duration"] = nanoseconds(end.done.decode_time).into();
        if let ReplyShape::Generate(Some(prompt)) = &self.reply.shape {
            line["context"] = context(&self.model, prompt, end).into();
        }
        line
    }
}

/// A call; its arguments are an object.
fn call_json(index: usize, call: ToolCall) -> Value {
    let function = json!({ "index": index, "name": call.name, "arguments": call.arguments });
    json!({ "id": call.id, "function": function })
}

impl EventWriter for LineWriter {
    fn write(&mut self, _: usize, event: AnswerEvent) -> Vec<StreamEvent> {
        let mut lines = Vec::new();
        for event in self.pairing.push(event) {
            lines.extend(match event {
                PairedEvent::Text(text, logprobs) => {
                    let mut line = self.line(AnswerPart::text(text));
                    if let Some(logprobs) = logprobs {
                        line["logprobs"] = json!([logprob_entry(&self.model, &logprobs)]);
                    }
                    Some(line)
                }
                PairedEvent::Piece(piece) => self.piece_line(piece),
                PairedEvent::End(end) => Some(self.last(AnswerPart::default(), &end)),
            });
        }
        lines.into_iter().map(StreamEvent::from).collect()
    }

    fn end(&mut self) -> Vec<StreamEvent> {
        match self.has_ended {
            true => Vec::new(),
            false => vec![self.load_line().into()],
        }
    }

    fn fail(&mut self, error: &ApiError) -> Vec<StreamEvent> {
        vec![ApiFlavor::Ollama.error(error, None).into()]
    }
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The tokens of the prompt and the answer, and the end token if the model ended the answer.
fn context(model: &Model, prompt: &PromptContext, end: &AnswerEnd) -> Vec<u32> {
    let tokenizer = model.engine.tokenizer();
    let mut ids = prompt.ids.clone();
    let outcome = &end.outcome;
    if !outcome.reasoning.is_empty() {
        let begin = if prompt.is_thinking { "" } else { THINK_BEGIN };
        ids.extend(tokenizer.encode_after(begin, Special::Parse));
        ids.extend(tokenizer.encode_after(&outcome.reasoning, Special::Plain));
        ids.extend(tokenizer.encode_after(THINK_END, Special::Parse));
    }
    ids.extend(tokenizer.encode_after(&outcome.text, Special::Plain));
    if end.done.finish_reason == FinishReason::Stop {
        ids.extend(tokenizer.eot().or(tokenizer.eos()));
    }
    ids
}

fn now() -> String {
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    timestamp(time.unwrap_or_default())
}

/// A time since 1970 in the format of RFC 3339.
pub(super) fn timestamp(time: Duration) -> String {
    let DateTime {
        year,
        month,
        day,
        hour,
        minute,
        second,
    } = DateTime::from_unix(time.as_secs());
    let micros = time.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339() {
        assert_eq!(
            timestamp(Duration::from_micros(1_700_000_000_000_042)),
            "2023-11-14T22:13:20.000042Z"
        );
    }

    #[test]
    fn arguments_of_calls_are_objects_and_calls_are_counted() {
        let call = ToolCall {
            id: "1".into(),
            name: "f".into(),
            arguments: json!({ "x": 1 }),
        };
        let part = AnswerPart {
            calls: vec![(0, call)],
            ..AnswerPart::default()
        };
        let function = json!({ "index": 0, "name": "f", "arguments": { "x": 1 } });
        let call = json!({ "id": "1", "function": function });
        assert_eq!(
            part.into_message(),
            json!({ "role": "assistant", "content": "", "tool_calls": [call] })
        );
    }
}
