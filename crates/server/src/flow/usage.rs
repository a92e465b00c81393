//! Token counts and timings of answers.

use std::time::Duration;

use atta_engine::Done;
use serde_json::{Value, json};

/// Tokens of several answers to one prompt, which counts once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) n_prompt: usize,
    /// Tokens of the prompt whose keys and values were in the prefix cache.
    pub(crate) n_cached: usize,
    /// Those whose state is approximate.
    pub(crate) n_approximate: usize,
    pub(crate) n_generated: usize,
    /// Tokens of drafts that were evaluated.
    pub(crate) n_drafted: usize,
    /// Those that became part of an answer.
    pub(crate) n_accepted: usize,
}

impl Usage {
    /// Adds an answer to the same prompt.
    pub(crate) fn add(&mut self, done: &Done) {
        self.n_prompt = self.n_prompt.max(done.n_prompt);
        // The first answer computes the prompt; the others find it in the cache.
        self.n_cached = if self.n_generated == 0 {
            done.n_cached
        } else {
            self.n_cached.min(done.n_cached)
        };
        self.n_approximate = self.n_approximate.max(done.n_approximate);
        self.n_generated += done.n_generated;
        let speculation = done.speculation.unwrap_or_default();
        self.n_drafted += speculation.n_drafted;
        self.n_accepted += speculation.n_accepted;
    }

    /// The sum for two prompts.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            n_prompt: self.n_prompt + other.n_prompt,
            n_cached: self.n_cached + other.n_cached,
            n_approximate: self.n_approximate + other.n_approximate,
            n_generated: self.n_generated + other.n_generated,
            n_drafted: self.n_drafted + other.n_drafted,
            n_accepted: self.n_accepted + other.n_accepted,
        }
    }
}

/// The `timings` of llama.cpp's server.
pub(crate) fn timings(done: &Done) -> Value {
    let n_prefilled = done.n_prompt.saturating_sub(done.n_cached);
    let speculation = done.speculation.unwrap_or_default();
    json!({
        "cache_n": done.n_cached,
        "cache_approximate_n": done.n_approximate,
        "prompt_n": n_prefilled,
        "prompt_ms": milliseconds(done.prefill_time),
        "prompt_per_token_ms": milliseconds_per_token(n_prefilled, done.prefill_time),
        "prompt_per_second": tokens_per_second(n_prefilled, done.prefill_time),
        "predicted_n": done.n_generated,
        "predicted_ms": milliseconds(done.decode_time),
        "predicted_per_token_ms": milliseconds_per_token(done.n_generated, done.decode_time),
        "predicted_per_second": tokens_per_second(done.n_generated, done.decode_time),
        "draft_n": speculation.n_drafted,
        "draft_n_accepted": speculation.n_accepted,
    })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn milliseconds_per_token(n: usize, time: Duration) -> f64 {
    match n {
        0 => 0.0,
        n => milliseconds(time) / n as f64,
    }
}

fn tokens_per_second(n: usize, time: Duration) -> f64 {
    if time.is_zero() {
        0.0
    } else {
        n as f64 / time.as_secs_f64()
    }
}
