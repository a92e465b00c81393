//! The response itself, around its items.

use std::sync::Arc;

use atta_engine::{FinishReason, tokenizer::Special};
use serde_json::{Value, json};

use crate::{
    app,
    flow::{answer::AnswerEnd, error::ApiError},
    models::Model,
};

/// What is the same in a response from its beginning to its end.
pub(super) struct Head {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: Arc<Model>,
    /// Fields of the request, as they are told.
    pub(super) settings: Value,
}

impl Head {
    /// While it is written.
    pub(super) fn begun(&self) -> Value {
        self.body("in_progress", &[])
    }

    /// When it is complete, or was cut.
    pub(super) fn ended(&self, end: &AnswerEnd, items: &[Value]) -> Value {
        let mut body = match is_cut(end) {
            true => self.body("incomplete", items),
            false => self.body("completed", items),
        };
        if is_cut(end) {
            body["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        } else {
            body["completed_at"] = app::now().into();
        }
        body["usage"] = self.usage(end);
        body
    }

    /// When nothing comes any more, for a reason of ours.
    pub(super) fn failed(&self, error: &ApiError, items: &[Value]) -> Value {
        let mut body = self.body("failed", items);
        body["error"] = json!({ "code": "server_error", "message": error.message });
        body
    }

    fn body(&self, status: &str, items: &[Value]) -> Value {
        let mut body = json!({
            "id": self.id, "object": "response", "created_at": self.created, "completed_at": null, "status": status,
            "error": null, "incomplete_details": null, "model": self.model.name, "output": items, "usage": null,
        });
        for (name, value) in self.settings.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        body
    }

    /// Tokens of thoughts are those that their text has.
    fn usage(&self, end: &AnswerEnd) -> Value {
        let (done, reasoning) = (&end.done, end.outcome.reasoning.as_bytes());
        let n_reasoning = self
            .model
            .engine
            .tokenizer()
            .encode(reasoning, Special::Plain)
            .len();
        json!({
            "input_tokens": done.n_prompt,
            "input_tokens_details": { "cached_tokens": done.n_cached, "cache_write_tokens": 0 },
            "output_tokens": done.n_generated,
            "output_tokens_details": { "reasoning_tokens": n_reasoning.min(done.n_generated) },
            "total_tokens": done.n_prompt + done.n_generated,
        })
    }
}

/// Whether an answer ended before the model had ended it.
pub(super) fn is_cut(end: &AnswerEnd) -> bool {
    matches!(end.done.finish_reason, FinishReason::Length)
}
