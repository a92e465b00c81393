//! Pieces of answers that chat and completions write alike.

use atta_engine::{Done, LogProb};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::{flow::logprobs::TokenLogprobs, flow::stream::Event, models::Model};

/// What was used by several answers to one prompt: the prompt counts once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    n_prompt: usize,
    n_cached: usize,
    n_generated: usize,
}

impl Usage {
    /// Adds an answer to the same prompt as those before.
    pub(super) fn add(&mut self, done: &Done) {
        self.n_prompt = self.n_prompt.max(done.n_prompt);
        // The first of several reads the prompt; for the others it is there.
        self.n_cached = if self.n_generated == 0 {
            done.n_cached
        } else {
            self.n_cached.min(done.n_cached)
        };
        self.n_generated += done.n_generated;
    }

    /// Of two prompts.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            n_prompt: self.n_prompt + other.n_prompt,
            n_cached: self.n_cached + other.n_cached,
            n_generated: self.n_generated + other.n_generated,
        }
    }

    pub(super) fn to_json(self) -> Value {
        json!({
            "prompt_tokens": self.n_prompt,
            "completion_tokens": self.n_generated,
            "total_tokens": self.n_prompt + self.n_generated,
            "prompt_tokens_details": { "cached_tokens": self.n_cached },
        })
    }
}

/// A token as OpenAI's interface writes it, with its log-probability. One that is impossible has
/// the number that this interface has for it.
pub(super) fn logprob(model: &Model, token: LogProb) -> Value {
    let bytes = model.engine.tokenizer().token_bytes(token.id);
    json!({ "token": String::from_utf8_lossy(&bytes), "logprob": token.logprob.max(-9999.0), "bytes": bytes })
}

/// An entry of a chat answer's `logprobs.content`.
pub(crate) fn thought(model: &Model, thought: &TokenLogprobs) -> Value {
    let mut entry = logprob(model, thought.chosen);
    entry["top_logprobs"] = thought
        .top
        .iter()
        .map(|&token| logprob(model, token))
        .collect();
    entry
}

/// The entries of an answer, each made when it is written: all of them as values take thirty times
/// the bytes of their text.
pub(crate) struct Thoughts<'a> {
    pub(crate) model: &'a Model,
    pub(crate) list: Vec<TokenLogprobs>,
}

impl Serialize for Thoughts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.list.iter().map(|one| thought(self.model, one)))
    }
}

/// Answers, whole.
#[derive(Serialize)]
pub(super) struct Completion<C> {
    /// All but the choices.
    #[serde(flatten)]
    pub(super) object: Value,
    pub(super) choices: Vec<C>,
}

/// What stands behind the last event.
pub(super) fn done() -> Event {
    Event {
        name: None,
        data: "[DONE]".to_owned(),
    }
}
