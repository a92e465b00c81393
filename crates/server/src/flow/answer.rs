//! Answers while they come: events of several jobs, read as text, thoughts and calls.
//!
//! Knows no interface of any other server. What comes out is for one that writes it down at once,
//! and for one that waits for all of it.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use atta_engine::{
    Done, FinishReason,
    tools::{Outcome, Parser, Piece},
};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, mpsc::UnboundedReceiver};

use crate::{
    flow::error::ApiError,
    flow::logprobs::TokenLogprobs,
    models::Model,
    worker::{IndexedJobEvent, JobEvent},
};

/// Something that happened to one of several answers.
#[derive(Debug)]
pub(crate) enum AnswerEvent {
    /// Its text, thoughts or calls grew.
    Piece(Piece),
    /// A token was chosen, and this is what the model logprobs of it.
    Logprobs(TokenLogprobs),
    /// It is complete.
    End(AnswerEnd),
}

/// A complete answer.
#[derive(Debug)]
pub(crate) struct AnswerEnd {
    pub(crate) done: Done,
    /// What it was altogether.
    pub(crate) outcome: Outcome,
    /// What the text was as a vector, if that was asked for and there was time for it.
    pub(crate) vector: Vec<f32>,
}

impl AnswerEnd {
    /// Why it ended, as OpenAI's interface has it.
    pub(crate) fn reason(&self) -> &'static str {
        match self.done.finish_reason {
            FinishReason::Length => "length",
            _ if !self.outcome.calls.is_empty() => "tool_calls",
            _ => "stop",
        }
    }

    /// How fast it was read and written, as llama.cpp's server tells it.
    pub(crate) fn timings(&self) -> Value {
        let done = &self.done;
        let n_read = done.n_prompt - done.n_cached.min(done.n_prompt);
        let rate = |n: usize, time: Duration| {
            if time.is_zero() {
                0.0
            } else {
                n as f64 / time.as_secs_f64()
            }
        };
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let each = |n: usize, time: Duration| {
            if n == 0 {
                0.0
            } else {
                milliseconds(time) / n as f64
            }
        };
        json!({
            "cache_n": done.n_cached,
            "prompt_n": n_read,
            "prompt_ms": milliseconds(done.prefill_time),
            "prompt_per_token_ms": each(n_read, done.prefill_time),
            "prompt_per_second": rate(n_read, done.prefill_time),
            "predicted_n": done.n_generated,
            "predicted_ms": milliseconds(done.decode_time),
            "predicted_per_token_ms": each(done.n_generated, done.decode_time),
            "predicted_per_second": rate(done.n_generated, done.decode_time),
        })
    }
}

/// Answers that are being written.
pub(crate) struct Answers {
    events: UnboundedReceiver<IndexedJobEvent>,
    /// One for each answer that is not complete.
    parsers: Vec<Option<AnswerParser>>,
    ready: VecDeque<(usize, AnswerEvent)>,
    model: Arc<Model>,
    load_time: Duration,
    /// That of the request, until it is answered or its client is gone.
    _place: OwnedSemaphorePermit,
}

/// Reads an answer.
pub(crate) enum AnswerParser {
    /// As text, and nothing else.
    Plain(String),
    /// As a message, which does not begin with white space.
    Message {
        /// Finds thoughts and calls.
        parser: Box<Parser>,
        /// Whether anything but white space has come.
        has_begun: bool,
    },
    /// As a vector.
    Vector(Vec<f32>),
}

impl AnswerParser {
    pub(crate) fn message(parser: Parser) -> Self {
        Self::Message {
            parser: Box::new(parser),
            has_begun: false,
        }
    }

    /// A message that goes on with one that has begun: the white space in front is part of it.
    pub(crate) fn rest_of_message(parser: Parser) -> Self {
        Self::Message {
            parser: Box::new(parser),
            has_begun: true,
        }
    }

    fn read(&mut self, text: String) -> Vec<Piece> {
        match self {
            Self::Plain(all) => {
                all.push_str(&text);
                vec![Piece::Text(text)]
            }
            Self::Message { parser, has_begun } => {
                let text = if *has_begun { &text } else { text.trim_start() };
                *has_begun |= !text.is_empty();
                if text.is_empty() {
                    Vec::new()
                } else {
                    parser.push(text)
                }
            }
            Self::Vector(_) => Vec::new(),
        }
    }

    fn finish(self, done: Done) -> (Vec<Piece>, AnswerEnd) {
        let nothing = AnswerEnd {
            done,
            outcome: Outcome::default(),
            vector: Vec::new(),
        };
        match self {
            Self::Plain(text) => (
                Vec::new(),
                AnswerEnd {
                    outcome: Outcome {
                        text,
                        ..Outcome::default()
                    },
                    ..nothing
                },
            ),
            Self::Message { parser, .. } => {
                let is_cut = is_cut(&nothing.done);
                let (pieces, outcome) = if is_cut {
                    parser.finish_cut()
                } else {
                    parser.finish()
                };
                (pieces, AnswerEnd { outcome, ..nothing })
            }
            Self::Vector(vector) => (Vec::new(), AnswerEnd { vector, ..nothing }),
        }
    }
}

/// Whether an answer ended where its model had not ended it: at its length, or at a stop string of
/// the client.
fn is_cut(done: &Done) -> bool {
    done.finish_reason != FinishReason::Stop || done.stop.is_some()
}

impl Answers {
    /// One parser for each job.
    pub(crate) fn new(
        model: Arc<Model>,
        load_time: Duration,
        events: UnboundedReceiver<IndexedJobEvent>,
        parsers: Vec<AnswerParser>,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let parsers = parsers.into_iter().map(Some).collect();
        Self {
            events,
            parsers,
            ready: VecDeque::new(),
            model,
            load_time,
            _place: place,
        }
    }

    /// Whose they are.
    pub(crate) fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// How long it took to have the model in memory.
    pub(crate) fn load_time(&self) -> Duration {
        self.load_time
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.parsers.len()
    }

    /// What happens next, to which of them; `None` when all are complete.
    pub(crate) async fn next(&mut self) -> Option<Result<(usize, AnswerEvent), ApiError>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<(usize, AnswerEvent), ApiError>>> {
        loop {
            if let Some(happening) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(happening)));
            }
            if self.parsers.iter().all(Option::is_none) {
                return Poll::Ready(None);
            }
            match self.events.poll_recv(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some((i, JobEvent::Failed(error)))) => {
                    self.parsers[i] = None;
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(Some((i, events))) => self.read(i, events),
                // The thread that computes is gone.
                Poll::Ready(None) => {
                    self.parsers.clear();
                    return Poll::Ready(Some(Err(ApiError::stopping())));
                }
            }
        }
    }

    fn read(&mut self, i: usize, events: JobEvent) {
        match events {
            JobEvent::Text(text) => {
                let pieces = self.parsers[i]
                    .as_mut()
                    .map_or_else(Vec::new, |parser| parser.read(text));
                self.ready.extend(
                    pieces
                        .into_iter()
                        .map(|piece| (i, AnswerEvent::Piece(piece))),
                );
            }
            JobEvent::Logprobs(logprobs) => {
                self.ready.push_back((i, AnswerEvent::Logprobs(logprobs)))
            }
            JobEvent::Embedding(vector) => self.parsers[i] = Some(AnswerParser::Vector(vector)),
            JobEvent::Done(done) => {
                let Some(parser) = self.parsers[i].take() else {
                    return;
                };
                let (pieces, end) = parser.finish(done);
                self.ready.extend(
                    pieces
                        .into_iter()
                        .map(|piece| (i, AnswerEvent::Piece(piece))),
                );
                self.ready.push_back((i, AnswerEvent::End(end)));
            }
            JobEvent::Failed(_) => unreachable!("it was looked at before"),
        }
    }
}
