//! Log-probabilities of tokens.

use atta_engine::{LogProb, LogProbs};

/// A sampled token with its log-probability, and the most probable tokens at its position.
#[derive(Debug)]
pub(crate) struct TokenLogprobs {
    pub(crate) chosen: LogProb,
    pub(crate) top: Vec<LogProb>,
}

impl TokenLogprobs {
    pub(crate) fn of(logprobs: LogProbs) -> Self {
        Self {
            chosen: logprobs.chosen,
            top: logprobs.top,
        }
    }
}
