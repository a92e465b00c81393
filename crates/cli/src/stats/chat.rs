//! The statistics of a chat, which list every answer.

use atta::chat::Reply;
use serde_json::json;

use super::{CachedPrefix, Stats};

impl Stats {
    /// The statistics of a chat before its first answer.
    pub(crate) fn of_chat() -> Self {
        Self {
            turns: Some(Vec::new()),
            ..Self::new()
        }
    }

    /// Records an answer. The object describes it until the next answer.
    pub(crate) fn answered(&mut self, reply: Reply) {
        self.reused(CachedPrefix {
            n_tokens: reply.n_cached,
            time: reply.restore_time,
        });
        self.generated(reply.summary);
        let turn = json!({
            "prompt_tokens": self.n_prompt,
            "cached_tokens": self.cached.n_tokens,
            "generated_tokens": self.n_generated,
            "finish_reason": self.finish_reason(None),
        });
        self.turns.get_or_insert_default().push(turn);
    }
}
