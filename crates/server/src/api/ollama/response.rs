//! Answers as the interface writes them: a line for each piece and one with all numbers at the end,
//! or one object.
//!
//! Chat and generate differ only in where the text stands ([`Form`]).

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

use super::options::{THINK, reason_of_nothing};
use crate::{
    api::{
        flavor::ApiFlavor,
        openai::response::{Thoughts, thought},
    },
    flow::{
        answer::{AnswerEnd, AnswerEvent, Answers},
        error::ApiError,
        stream::{self, Event, EventWriter},
    },
    models::{KeepAlive, Model},
};

/// What closes the thoughts of a model.
const THINK_END: &str = "</think>\n\n";

/// Where the text of an answer stands.
pub(super) enum Form {
    /// In a message.
    Chat,
    /// In `response`. What was read for it is told with the answer, for a request that goes on with
    /// it.
    Generate(Option<Read>),
}

/// What a model has read.
pub(super) struct Read {
    pub(super) ids: Vec<u32>,
    /// Whether it ends within a thought.
    pub(super) is_thinking: bool,
}

/// How an answer is to be sent.
pub(super) struct How {
    pub(super) form: Form,
    pub(super) is_stream: bool,
    pub(super) logprobs: bool,
    /// What is said of a request for nothing but the model.
    pub(super) reason_of_nothing: &'static str,
}

impl How {
    /// For a request without words, if it wants the model to leave memory at once.
    pub(super) fn farewell(
        form: Form,
        stream: Option<bool>,
        stay: Option<KeepAlive>,
    ) -> Option<Self> {
        let is_farewell = stay == Some(KeepAlive::For(Duration::ZERO));
        let reason_of_nothing = reason_of_nothing(stay);
        is_farewell.then(|| Self {
            form,
            is_stream: stream.unwrap_or(true),
            logprobs: false,
            reason_of_nothing,
        })
    }

    /// The answer to a request without words, of a model that is not in memory.
    pub(super) fn nothing(&self, model: &str) -> Response {
        let line = self.last_of_nothing(model);
        if self.is_stream {
            stream::line(line)
        } else {
            Json(line).into_response()
        }
    }

    fn line(&self, model: &str, part: Part) -> Value {
        let mut line = json!({ "model": model, "created_at": now(), "done": false });
        match self.form {
            Form::Chat => line["message"] = part.into_message(),
            Form::Generate(_) => {
                line["response"] = part.text.into();
                if !part.thinking.is_empty() {
                    line["thinking"] = part.thinking.into();
                }
            }
        }
        line
    }

    /// The line of a request without words.
    fn last_of_nothing(&self, model: &str) -> Value {
        let mut line = self.line(model, Part::default());
        line["done"] = true.into();
        line["done_reason"] = self.reason_of_nothing.into();
        line
    }
}

/// Something that was said.
#[derive(Default)]
struct Part {
    text: String,
    thinking: String,
    /// With the number of each in its answer.
    calls: Vec<(usize, ToolCall)>,
}

/// Sends an answer that was asked for at `start`.
pub(super) async fn tell(
    mut answers: Answers,
    how: How,
    start: Instant,
) -> Result<Response, ApiError> {
    let is_stream = how.is_stream;
    let (model, load_time) = (Arc::clone(answers.model()), answers.load_time());
    let mut teller = Teller {
        model,
        how,
        start,
        load_time,
        held: None,
        n_calls: 0,
        has_ended: false,
    };
    if is_stream {
        return Ok(stream::lines(answers, teller));
    }
    let (mut end, mut thoughts) = (None, Vec::new());
    while let Some(event) = answers.next().await {
        match event?.1 {
            AnswerEvent::Piece(_) => {}
            AnswerEvent::Logprobs(one) => thoughts.push(one),
            AnswerEvent::End(ended) => end = Some(ended),
        }
    }
    let Some(end) = end else {
        return Ok(Json(teller.nothing()).into_response());
    };
    let Outcome {
        text,
        reasoning,
        calls,
        ..
    } = &end.outcome;
    let part = Part {
        text: text.clone(),
        thinking: reasoning.trim().to_owned(),
        calls: calls.iter().cloned().enumerate().collect(),
    };
    let object = teller.last(part, &end);
    let logprobs = teller.how.logprobs.then(|| Thoughts {
        model: &teller.model,
        list: thoughts,
    });
    Ok(Json(Whole { object, logprobs }).into_response())
}

/// An answer in one line.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    object: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Thoughts<'a>>,
}

struct Teller {
    model: Arc<Model>,
    how: How,
    /// When it was asked for.
    start: Instant,
    load_time: Duration,
    /// Text that waits for the log-probabilities that come with it.
    held: Option<String>,
    /// Calls so far.
    n_calls: usize,
    has_ended: bool,
}

impl Teller {
    fn line(&self, part: Part) -> Value {
        self.how.line(&self.model.name, part)
    }

    fn text(&self, text: String) -> Value {
        self.line(Part {
            text,
            ..Part::default()
        })
    }

    /// The last line, or the only one.
    fn last(&mut self, part: Part, end: &AnswerEnd) -> Value {
        self.has_ended = true;
        let mut line = self.line(part);
        line["done"] = true.into();
        line["done_reason"] = reason(end.done.finish_reason).into();
        line["total_duration"] = nanoseconds(self.start.elapsed());
        line["load_duration"] = nanoseconds(self.load_time);
        line["prompt_eval_count"] = end.done.n_prompt.into();
        line["prompt_eval_duration"] = nanoseconds(end.done.prefill_time);
        line["eval_count"] = end.done.n_generated.into();
        line["eval_duration"] = nanoseconds(end.done.decode_time);
        if let Form::Generate(Some(read)) = &self.how.form {
            line["context"] = context(&self.model, read, end).into();
        }
        line
    }

    fn nothing(&self) -> Value {
        self.how.last_of_nothing(&self.model.name)
    }
}

impl Part {
    fn into_message(self) -> Value {
        let mut message = json!({ "role": "assistant", "content": self.text });
        if !self.thinking.is_empty() {
            message["thinking"] = self.thinking.into();
        }
        if !self.calls.is_empty() {
            message["tool_calls"] = self.calls.into_iter().map(call).collect();
        }
        message
    }

    /// What a piece adds; calls come when they are complete, and are counted.
    fn of(piece: Piece, n_calls: &mut usize) -> Option<Self> {
        match piece {
            Piece::Text(text) => Some(Self {
                text,
                ..Self::default()
            }),
            Piece::Reasoning(thinking) => Some(Self {
                thinking,
                ..Self::default()
            }),
            Piece::Call(call) => {
                *n_calls += 1;
                Some(Self {
                    calls: vec![(*n_calls - 1, call)],
                    ..Self::default()
                })
            }
            Piece::CallBegin { .. } | Piece::CallArguments { .. } | Piece::CallBroken { .. } => {
                None
            }
        }
    }
}

/// A call; its arguments are an object, as the interface has it.
fn call((index, call): (usize, ToolCall)) -> Value {
    json!({ "id": call.id, "function": { "index": index, "name": call.name, "arguments": call.arguments } })
}

impl EventWriter for Teller {
    fn begin(&mut self) -> Vec<Event> {
        Vec::new()
    }

    fn write(&mut self, _: usize, event: AnswerEvent) -> Vec<Event> {
        if let AnswerEvent::Logprobs(one) = event {
            let text = self.held.take().unwrap_or_default();
            let mut line = self.text(text);
            line["logprobs"] = json!([thought(&self.model, &one)]);
            return vec![line.into()];
        }
        let held = self.held.take().map(|text| self.text(text));
        let more = match event {
            AnswerEvent::Piece(Piece::Text(text)) if self.how.logprobs => {
                self.held = Some(text);
                None
            }
            AnswerEvent::Piece(piece) => {
                Part::of(piece, &mut self.n_calls).map(|part| self.line(part))
            }
            AnswerEvent::End(end) => Some(self.last(Part::default(), &end)),
            AnswerEvent::Logprobs(_) => None,
        };
        held.into_iter().chain(more).map(Event::from).collect()
    }

    fn end(&mut self) -> Vec<Event> {
        if self.has_ended {
            Vec::new()
        } else {
            vec![self.nothing().into()]
        }
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        vec![ApiFlavor::Ollama.error(error, None).into()]
    }
}

fn reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Length => "length",
        FinishReason::Stop | FinishReason::Interrupted => "stop",
    }
}

fn nanoseconds(time: Duration) -> Value {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).into()
}

/// What was read and written, and what ends an answer.
fn context(model: &Model, read: &Read, end: &AnswerEnd) -> Vec<u32> {
    let tokenizer = model.engine.tokenizer();
    let (mut ids, outcome) = (read.ids.clone(), &end.outcome);
    if !outcome.reasoning.is_empty() {
        let begin = if read.is_thinking { "" } else { THINK };
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
    stamp(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default(),
    )
}

/// A time since the beginning of 1970, as RFC 3339 has it.
pub(super) fn stamp(time: Duration) -> String {
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
            stamp(Duration::from_micros(1_700_000_000_000_042)),
            "2023-11-14T22:13:20.000042Z"
        );
    }

    #[test]
    fn arguments_of_calls_are_objects_and_calls_are_counted() {
        let calls = vec![(
            0,
            ToolCall {
                id: "1".into(),
                name: "f".into(),
                arguments: json!({ "x": 1 }),
            },
        )];
        let message = Part {
            calls,
            ..Part::default()
        }
        .into_message();
        let function = json!({ "index": 0, "name": "f", "arguments": { "x": 1 } });
        let call = json!({ "id": "1", "function": function });
        assert_eq!(
            message,
            json!({ "role": "assistant", "content": "", "tool_calls": [call] })
        );
    }
}
