//! The message object, and its stop reason and usage.

use std::sync::Arc;

use atta_engine::Done;
use axum::{
    Json,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::content::Content;
use crate::{
    flow::{
        answer::{AnswerEnd, AnswerEvent, Answers, StopReason},
        error::ApiError,
    },
    models::Model,
};

/// What a message has from its beginning to its end.
pub(super) struct MessageEnvelope {
    pub(super) id: String,
    pub(super) model: Arc<Model>,
    /// The client's stop strings; an answer may also end at one of the server's.
    pub(super) stop_sequences: Vec<String>,
}

impl MessageEnvelope {
    pub(super) fn message(&self, content: Value, ending: &Ending, usage: Value) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model.name,
            "content": content,
            "stop_reason": ending.reason,
            "stop_sequence": ending.stop_sequence,
            "usage": usage,
        })
    }

    pub(super) fn ending(&self, end: &AnswerEnd) -> Ending {
        let stop = end.done.stop.as_ref();
        let stop = stop.filter(|stop| self.stop_sequences.contains(stop));
        let mut ending = Ending::default();
        ending.reason = Some(match end.stop_reason() {
            StopReason::Length => "max_tokens",
            StopReason::ToolCalls => "tool_use",
            StopReason::StopString if stop.is_some() => {
                ending.stop_sequence = stop.cloned();
                "stop_sequence"
            }
            StopReason::StopString | StopReason::EndOfText => "end_turn",
        });
        ending
    }
}

/// Why an answer ended; empty before that.
#[derive(Default)]
pub(super) struct Ending {
    pub(super) reason: Option<&'static str>,
    pub(super) stop_sequence: Option<String>,
}

/// Tokens of the prompt that were in the prefix cache are counted apart from the others.
pub(super) fn usage(done: &Done) -> Value {
    json!({
        "input_tokens": done.n_prompt.saturating_sub(done.n_cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": done.n_cached,
        "cache_read_approximate_tokens": done.n_approximate,
        "output_tokens": done.n_generated,
    })
}

/// Collects the answer.
pub(super) async fn whole(
    envelope: &MessageEnvelope,
    mut answers: Answers,
) -> Result<Response, ApiError> {
    let mut content = Content::default();
    while let Some(event) = answers.next().await {
        match event?.1 {
            AnswerEvent::Piece(piece) => content.push(piece),
            AnswerEvent::Logprobs(_) => {}
            AnswerEvent::End(end) => {
                let content = content.into_json();
                let message = envelope.message(content, &envelope.ending(&end), usage(&end.done));
                return Ok(Json(message).into_response());
            }
        }
    }
    Err(ApiError::broken())
}
