//! The response object around its items.

use std::sync::Arc;

use atta_engine::tokenizer::Special;
use serde_json::{Value, json};

use crate::{
    app,
    flow::{
        answer::{AnswerEnd, StopReason},
        error::ApiError,
    },
    models::Model,
};

/// What a response has from its beginning to its end.
pub(super) struct ResponseEnvelope {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: Arc<Model>,
    /// Fields of the request, as the response repeats them.
    pub(super) settings: Value,
}

impl ResponseEnvelope {
    /// The response before its first item.
    pub(super) fn begun(&self) -> Value {
        self.body("in_progress", &[])
    }

    /// The complete or cut response.
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

    /// The response after an error of the server.
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

    /// The reasoning tokens are counted by tokenizing the reasoning again.
    fn usage(&self, end: &AnswerEnd) -> Value {
        let done = &end.done;
        let reasoning = end.outcome.reasoning.as_bytes();
        let n_reasoning = self
            .model
            .engine
            .tokenizer()
            .encode(reasoning, Special::Plain)
            .len();
        json!({
            "input_tokens": done.n_prompt,
            "input_tokens_details": {
                "cached_tokens": done.n_cached,
                "cache_write_tokens": 0,
                "approximate_tokens": done.n_approximate,
            },
            "output_tokens": done.n_generated,
            "output_tokens_details": { "reasoning_tokens": n_reasoning.min(done.n_generated) },
            "total_tokens": done.n_prompt + done.n_generated,
        })
    }
}

/// Whether the answer was cut by its length.
pub(super) fn is_cut(end: &AnswerEnd) -> bool {
    end.stop_reason() == StopReason::Length
}
