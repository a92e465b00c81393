//! Events of a generation, and how it ended.

use std::time::Duration;

use crate::{LogProbs, SpeculationStats};

/// An event of a generation. The caller may end the generation after any of them.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Progress of prefill: `done` of `total` prompt tokens are evaluated.
    Prompt {
        /// Evaluated tokens.
        done: usize,
        /// Tokens of the prompt.
        total: usize,
    },
    /// The `n`th token, counted from 1. The text that it completes came before.
    Token {
        /// Number of tokens so far.
        n: usize,
        /// The token.
        id: u32,
        /// Log-probabilities, if asked for and if the token was sampled.
        logprobs: Option<LogProbs>,
    },
    /// A tentative token was sampled. Its `Token` follows later, unless it is rolled back; an
    /// interruption before rolls it back, too.
    Tentative,
    /// Final text: whole characters, never a part of a stop string.
    Text(String),
    /// A warning that does not concern the text, in one line.
    Note(String),
}

/// Why a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-generation token, a stop string, or a complete constrained text.
    Stop,
    /// `n_predict` tokens, or a full context.
    Length,
    /// The caller.
    Interrupted,
}

/// Result of a generation.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// The stop string that ended it, if any.
    pub stop: Option<String>,
    /// Evaluated prompt tokens, begin-of-sequence included.
    pub n_prompt: usize,
    /// Generated tokens, including an end-of-generation token, which no event announces.
    pub n_generated: usize,
    /// Time of prefill.
    pub prefill_time: Duration,
    /// Time from the end of prefill to the last token.
    pub decode_time: Duration,
    /// Time to sample the first token, which needs no decoding step.
    pub first_token_time: Duration,
    /// Tokens of the first step: the first token and those that a constraint forced behind it.
    pub n_first: usize,
    /// Pending tokens: the last tokens of the text, which the session has not evaluated. To go on
    /// with the text, append them first.
    pub pending: Vec<u32>,
    /// Bytes appended behind the last token to complete a constrained text.
    pub n_closing_bytes: usize,
    /// How drafts went, if the text was speculated.
    pub speculation: Option<SpeculationStats>,
}

impl Summary {
    /// Prompt tokens per second.
    pub fn prefill_tok_s(&self) -> f64 {
        rate(self.n_prompt, self.prefill_time)
    }

    /// Generated tokens per second, without those of the first step.
    pub fn decode_tok_s(&self) -> f64 {
        rate(
            self.n_generated.saturating_sub(self.n_first.max(1)),
            self.decode_time.saturating_sub(self.first_token_time),
        )
    }
}

fn rate(n: usize, time: Duration) -> f64 {
    if time.is_zero() {
        0.0
    } else {
        n as f64 / time.as_secs_f64()
    }
}
