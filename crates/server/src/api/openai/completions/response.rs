//! The response of completions: one object, or chunks.

use std::sync::Arc;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::super::{
    choices::{ChoiceOptions, Chunks, Envelope, UsagePerPrompt},
    response::{WithChoices, finish_reason, token_logprob},
};
use crate::{
    api::flavor::ApiFlavor,
    flow::{
        answer::{AnswerEnd, AnswerEvent, Answers},
        error::ApiError,
        logprobs::{PairedEvent, TokenLogprobs},
        stream::{EventWriter, StreamEvent},
    },
    models::Model,
};

/// The value of `object`, in responses and chunks.
const KIND: &str = "text_completion";

#[derive(Serialize)]
struct CompletionChoice<'a> {
    text: String,
    index: usize,
    logprobs: Option<CompletionLogprobs<'a>>,
    finish_reason: &'static str,
}

/// Collects all answers.
pub(super) async fn whole(
    envelope: &Envelope,
    mut answers: Answers,
    n: usize,
) -> Result<Response, ApiError> {
    let mut choices = Vec::with_capacity(answers.len());
    let mut logprobs: Vec<Vec<TokenLogprobs>> = (0..answers.len()).map(|_| Vec::new()).collect();
    let mut usage = UsagePerPrompt::new(n);
    while let Some(event) = answers.next().await {
        match event? {
            (_, AnswerEvent::Piece(_)) => {}
            (i, AnswerEvent::Logprobs(one)) => logprobs[i].push(one),
            (index, AnswerEvent::End(end)) => {
                usage.add(index, &end);
                let list = std::mem::take(&mut logprobs[index]);
                let logprobs = (!list.is_empty())
                    .then(|| CompletionLogprobs::new(&envelope.model, list, &mut 0));
                choices.push(CompletionChoice {
                    finish_reason: finish_reason(end.stop_reason()),
                    text: end.outcome.text,
                    index,
                    logprobs,
                });
            }
        }
    }
    choices.sort_by_key(|choice| choice.index);
    let mut object = envelope.object(KIND);
    object["usage"] = usage.to_json();
    Ok(Json(WithChoices { object, choices }).into_response())
}

/// Log-probabilities as lists of equal length.
#[derive(Serialize)]
struct CompletionLogprobs<'a> {
    tokens: Vec<Value>,
    token_logprobs: Vec<Value>,
    top_logprobs: TopLogprobs<'a>,
    text_offset: Vec<usize>,
}

impl<'a> CompletionLogprobs<'a> {
    /// `offset` is the number of characters in front of the tokens; it is moved behind them.
    fn new(model: &'a Model, list: Vec<TokenLogprobs>, offset: &mut usize) -> Self {
        let mut tokens = Vec::with_capacity(list.len());
        let mut token_logprobs = Vec::with_capacity(list.len());
        let mut text_offset = Vec::with_capacity(list.len());
        for logprobs in &list {
            let mut entry = token_logprob(model, logprobs.chosen);
            text_offset.push(*offset);
            let text = entry["token"].as_str().unwrap_or_default();
            *offset += text.chars().count();
            tokens.push(entry["token"].take());
            token_logprobs.push(entry["logprob"].take());
        }
        Self {
            tokens,
            token_logprobs,
            top_logprobs: TopLogprobs { model, list },
            text_offset,
        }
    }
}

/// The most probable tokens at each position, made when they are serialized.
struct TopLogprobs<'a> {
    model: &'a Model,
    list: Vec<TokenLogprobs>,
}

impl Serialize for TopLogprobs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let by_text = |mut one: Value| {
            let text = one["token"].as_str().unwrap_or_default().to_owned();
            (text, one["logprob"].take())
        };
        let top = |logprobs: &TokenLogprobs| -> Map<String, Value> {
            let top = logprobs.top.iter();
            top.map(|&token| by_text(token_logprob(self.model, token)))
                .collect()
        };
        serializer.collect_seq(self.list.iter().map(top))
    }
}

/// Writes the chunks of a streamed response.
pub(super) struct CompletionWriter {
    model: Arc<Model>,
    chunks: Chunks,
    /// Characters of each answer in front of the next token.
    offsets: Vec<usize>,
}

impl CompletionWriter {
    pub(super) fn new(envelope: Envelope, choices: ChoiceOptions, n_answers: usize) -> Self {
        Self {
            chunks: Chunks::new(envelope.object(KIND), choices, n_answers),
            model: envelope.model,
            offsets: vec![0; n_answers],
        }
    }

    fn text_chunk(&mut self, index: usize, text: &str, logprobs: Option<TokenLogprobs>) -> Value {
        let offset = &mut self.offsets[index];
        let logprobs = logprobs.map(|one| CompletionLogprobs::new(&self.model, vec![one], offset));
        self.chunks.chunk(CompletionChunk {
            text,
            index,
            logprobs,
            finish_reason: None,
        })
    }

    fn last_chunk(&mut self, index: usize, end: &AnswerEnd) -> Value {
        self.chunks.usage.add(index, end);
        self.chunks.chunk(CompletionChunk {
            text: "",
            index,
            logprobs: None,
            finish_reason: Some(finish_reason(end.stop_reason())),
        })
    }
}

#[derive(Serialize)]
struct CompletionChunk<'a> {
    text: &'a str,
    index: usize,
    logprobs: Option<CompletionLogprobs<'a>>,
    finish_reason: Option<&'static str>,
}

impl EventWriter for CompletionWriter {
    fn write(&mut self, i: usize, event: AnswerEvent) -> Vec<StreamEvent> {
        let mut chunks = Vec::new();
        for event in self.chunks.paired(i, event) {
            chunks.extend(match event {
                PairedEvent::Text(text, logprobs) => Some(self.text_chunk(i, &text, logprobs)),
                PairedEvent::Piece(_) => None,
                PairedEvent::End(end) => Some(self.last_chunk(i, &end)),
            });
        }
        chunks.into_iter().map(StreamEvent::from).collect()
    }

    fn end(&mut self) -> Vec<StreamEvent> {
        self.chunks.end(None)
    }

    fn fail(&mut self, error: &ApiError) -> Vec<StreamEvent> {
        vec![ApiFlavor::OpenAi.error(error, None).into()]
    }
}
