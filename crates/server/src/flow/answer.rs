//! From events of jobs to events of answers: text is parsed into content, reasoning and tool calls.
//!
//! Knows no client's JSON. A streaming response writes each event at once; another one collects
//! them.

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
use tokio::sync::{OwnedSemaphorePermit, mpsc::UnboundedReceiver};

use super::{error::ApiError, logprobs::TokenLogprobs};
use crate::{
    models::Model,
    worker::{IndexedJobEvent, JobEvent},
};

/// An event of an answer.
#[derive(Debug)]
pub(crate) enum AnswerEvent {
    /// More content, reasoning, or a part of a tool call.
    Piece(Piece),
    /// Log-probabilities of the token that was sampled.
    Logprobs(TokenLogprobs),
    /// The answer is complete.
    End(AnswerEnd),
}

/// A complete answer.
#[derive(Debug)]
pub(crate) struct AnswerEnd {
    pub(crate) done: Done,
    /// The whole content, reasoning and tool calls.
    pub(crate) outcome: Outcome,
    /// The embedding; empty if none was requested or the deadline passed.
    pub(crate) embedding: Vec<f32>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The token limit, a full context, or the deadline.
    Length,
    /// The model called tools.
    ToolCalls,
    /// One of the stop strings.
    StopString,
    /// The model ended its text.
    EndOfText,
}

impl AnswerEnd {
    pub(crate) fn stop_reason(&self) -> StopReason {
        match self.done.finish_reason {
            FinishReason::Length => StopReason::Length,
            _ if !self.outcome.calls.is_empty() => StopReason::ToolCalls,
            _ if self.done.stop.is_some() => StopReason::StopString,
            _ => StopReason::EndOfText,
        }
    }
}

/// The answers to one request, while they are generated.
pub(crate) struct Answers {
    events: UnboundedReceiver<IndexedJobEvent>,
    /// One for each answer that is not complete.
    parsers: Vec<Option<AnswerParser>>,
    ready: VecDeque<(usize, AnswerEvent)>,
    model: Arc<Model>,
    load_time: Duration,
    /// Released when the request is answered or its client disconnects.
    _permit: OwnedSemaphorePermit,
}

/// Parses the output of a job.
pub(crate) enum AnswerParser {
    /// Plain text, so far.
    Plain(String),
    /// A message of the assistant; whitespace at its start is dropped.
    Message {
        /// Finds reasoning and tool calls.
        parser: Box<Parser>,
        /// Whether anything but whitespace has come.
        has_begun: bool,
    },
    /// An embedding.
    Embedding(Vec<f32>),
}

impl AnswerParser {
    pub(crate) fn message(parser: Parser) -> Self {
        Self::Message {
            parser: Box::new(parser),
            has_begun: false,
        }
    }

    /// For an answer that continues a message: whitespace at its start is part of the message.
    pub(crate) fn rest_of_message(parser: Parser) -> Self {
        Self::Message {
            parser: Box::new(parser),
            has_begun: true,
        }
    }

    fn push(&mut self, text: String) -> Vec<Piece> {
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
            Self::Embedding(_) => Vec::new(),
        }
    }

    /// Returns the last pieces, and the complete answer.
    fn finish(self, done: Done) -> (Vec<Piece>, AnswerEnd) {
        let mut end = AnswerEnd {
            done,
            outcome: Outcome::default(),
            embedding: Vec::new(),
        };
        let mut pieces = Vec::new();
        match self {
            Self::Plain(text) => end.outcome.text = text,
            Self::Message { parser, .. } => {
                (pieces, end.outcome) = parser.finish(end.done.text_end());
            }
            Self::Embedding(embedding) => end.embedding = embedding,
        }
        (pieces, end)
    }
}

impl Answers {
    /// `parsers` has one entry for each job.
    pub(crate) fn new(
        model: Arc<Model>,
        load_time: Duration,
        events: UnboundedReceiver<IndexedJobEvent>,
        parsers: Vec<AnswerParser>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let parsers = parsers.into_iter().map(Some).collect();
        Self {
            events,
            parsers,
            ready: VecDeque::new(),
            model,
            load_time,
            _permit: permit,
        }
    }

    pub(crate) fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// How long the request waited for its model to be loaded.
    pub(crate) fn load_time(&self) -> Duration {
        self.load_time
    }

    /// Number of answers.
    pub(crate) fn len(&self) -> usize {
        self.parsers.len()
    }

    /// The next event, with the index of its answer; `None` when all answers are complete.
    pub(crate) async fn next(&mut self) -> Option<Result<(usize, AnswerEvent), ApiError>> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<(usize, AnswerEvent), ApiError>>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
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
                Poll::Ready(Some((i, event))) => self.receive(i, event),
                // The worker has ended.
                Poll::Ready(None) => {
                    self.parsers.clear();
                    return Poll::Ready(Some(Err(ApiError::stopping())));
                }
            }
        }
    }

    fn receive(&mut self, i: usize, event: JobEvent) {
        match event {
            JobEvent::Text(text) => {
                let pieces = self.parsers[i].as_mut().map(|parser| parser.push(text));
                self.add_pieces(i, pieces.unwrap_or_default());
            }
            JobEvent::Logprobs(logprobs) => {
                self.ready.push_back((i, AnswerEvent::Logprobs(logprobs)));
            }
            JobEvent::Embedding(vector) => {
                self.parsers[i] = Some(AnswerParser::Embedding(vector));
            }
            JobEvent::Done(done) => {
                let Some(parser) = self.parsers[i].take() else {
                    return;
                };
                let (pieces, end) = parser.finish(done);
                self.add_pieces(i, pieces);
                self.ready.push_back((i, AnswerEvent::End(end)));
            }
            JobEvent::Failed(_) => unreachable!("poll_next returns errors"),
        }
    }

    fn add_pieces(&mut self, i: usize, pieces: Vec<Piece>) {
        let events = pieces
            .into_iter()
            .map(|piece| (i, AnswerEvent::Piece(piece)));
        self.ready.extend(events);
    }
}

/// The embeddings of all texts of a request, in order.
pub(crate) struct Embeddings {
    pub(crate) vectors: Vec<Vec<f32>>,
    /// Tokens of all texts together.
    pub(crate) n_prompt: usize,
}

impl Embeddings {
    /// Waits for all of them.
    ///
    /// # Errors
    /// A job that failed, or that the deadline has ended.
    pub(crate) async fn collect(answers: &mut Answers) -> Result<Self, ApiError> {
        let mut vectors = vec![Vec::new(); answers.len()];
        let mut n_prompt = 0;
        while let Some(event) = answers.next().await {
            let (i, AnswerEvent::End(end)) = event? else {
                continue;
            };
            if end.embedding.is_empty() {
                return Err(ApiError::out_of_time());
            }
            n_prompt += end.done.n_prompt;
            vectors[i] = end.embedding;
        }
        Ok(Self { vectors, n_prompt })
    }
}
