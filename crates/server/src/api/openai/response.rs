//! Parts of responses that chat and completions share.

use atta_engine::LogProb;
use axum::{
    Json,
    response::{IntoResponse, Response},
};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::{
    flow::{
        answer::StopReason,
        logprobs::{TokenLogprobs, finite},
        stream::StreamEvent,
        usage::Usage,
    },
    models::Model,
};

pub(super) fn usage_json(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.n_prompt,
        "completion_tokens": usage.n_generated,
        "total_tokens": usage.n_prompt + usage.n_generated,
        "prompt_tokens_details": {
            "cached_tokens": usage.n_cached,
            "approximate_tokens": usage.n_approximate,
        },
        "completion_tokens_details": {
            "accepted_prediction_tokens": usage.n_accepted,
            "rejected_prediction_tokens": usage.n_drafted - usage.n_accepted,
        },
    })
}

pub(super) fn finish_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Length => "length",
        StopReason::ToolCalls => "tool_calls",
        StopReason::StopString | StopReason::EndOfText => "stop",
    }
}

/// A token with its log-probability.
pub(super) fn token_logprob(model: &Model, token: LogProb) -> Value {
    let bytes = model.engine.tokenizer().token_bytes(token.id);
    json!({
        "token": String::from_utf8_lossy(&bytes),
        "logprob": finite(token.logprob),
        "bytes": bytes,
    })
}

/// An entry of `logprobs.content`.
pub(crate) fn logprob_entry(model: &Model, logprobs: &TokenLogprobs) -> Value {
    let mut entry = token_logprob(model, logprobs.chosen);
    let top = logprobs.top.iter();
    entry["top_logprobs"] = top.map(|&token| token_logprob(model, token)).collect();
    entry
}

/// The entries of an answer. Each is made when it is serialized, because as `Value`s all of them
/// take thirty times the bytes of their text.
pub(crate) struct LogprobEntries<'a> {
    pub(crate) model: &'a Model,
    pub(crate) list: Vec<TokenLogprobs>,
}

impl Serialize for LogprobEntries<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let entries = self.list.iter().map(|one| logprob_entry(self.model, one));
        serializer.collect_seq(entries)
    }
}

/// A response in one piece.
#[derive(Serialize)]
pub(super) struct WithChoices<C> {
    /// All fields but the choices.
    #[serde(flatten)]
    pub(super) object: Value,
    pub(super) choices: Vec<C>,
}

/// The end of a stream.
pub(super) fn done() -> StreamEvent {
    StreamEvent {
        name: None,
        data: "[DONE]".to_owned(),
    }
}

/// The response of `/v1/chat/completions/input_tokens` and `/v1/responses/input_tokens`.
pub(super) fn token_count(n_tokens: usize) -> Response {
    Json(json!({ "object": "response.input_tokens", "input_tokens": n_tokens })).into_response()
}
