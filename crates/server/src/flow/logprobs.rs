//! Log-probabilities of tokens: how many a request asks for, and which text they belong to.

use atta_engine::{LogProb, LogProbs, tools::Piece};

use super::{
    answer::{AnswerEnd, AnswerEvent},
    error::ApiError,
};

/// Alternatives of a token that a request may ask for.
pub(crate) const MAX_TOP_LOGPROBS: usize = 20;

/// JSON has no infinity: the log-probability of an impossible token.
const IMPOSSIBLE: f32 = -9999.0;

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

/// A log-probability as a number that JSON has.
pub(crate) fn finite(logprob: f32) -> f32 {
    logprob.max(IMPOSSIBLE)
}

/// The alternatives per token that a request asks for by `top_logprobs`; `None` if it asks for no
/// log-probabilities at all. `switch` is the field that asks for them.
///
/// # Errors
/// Too many alternatives, and alternatives without `switch`.
pub(crate) fn n_alternatives(
    is_wanted: bool,
    top_logprobs: Option<usize>,
    switch: &str,
) -> Result<Option<usize>, ApiError> {
    let error = |message| Err(ApiError::field("top_logprobs", message));
    match (is_wanted, top_logprobs.unwrap_or(0)) {
        (_, n) if n > MAX_TOP_LOGPROBS => error(format!(
            "top_logprobs is {n}, expected at most {MAX_TOP_LOGPROBS}"
        )),
        (false, 0) => Ok(None),
        (false, _) => error(format!("top_logprobs is of no use without {switch}")),
        (true, n) => Ok(Some(n)),
    }
}

/// An event of an answer whose text comes with its log-probabilities.
pub(crate) enum PairedEvent {
    /// Text, with the log-probabilities of its token if they were requested.
    Text(String, Option<TokenLogprobs>),
    /// Reasoning, or a part of a tool call.
    Piece(Piece),
    End(AnswerEnd),
}

/// Pairs the text of one answer with log-probabilities. Those of a token come after its text, so
/// that text is held back until the next event.
#[derive(Clone, Debug)]
pub(crate) struct LogprobPairing {
    holds_text: bool,
    held: Option<String>,
}

impl LogprobPairing {
    /// Without log-probabilities, text is passed on at once.
    pub(crate) fn new(with_logprobs: bool) -> Self {
        Self {
            holds_text: with_logprobs,
            held: None,
        }
    }

    pub(crate) fn push(&mut self, event: AnswerEvent) -> Vec<PairedEvent> {
        let held = self.held.take();
        let event = match event {
            AnswerEvent::Logprobs(logprobs) => {
                return vec![PairedEvent::Text(held.unwrap_or_default(), Some(logprobs))];
            }
            AnswerEvent::Piece(Piece::Text(text)) if self.holds_text => {
                self.held = Some(text);
                None
            }
            AnswerEvent::Piece(Piece::Text(text)) => Some(PairedEvent::Text(text, None)),
            AnswerEvent::Piece(piece) => Some(PairedEvent::Piece(piece)),
            AnswerEvent::End(end) => Some(PairedEvent::End(end)),
        };
        let held = held.map(|text| PairedEvent::Text(text, None));
        held.into_iter().chain(event).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternatives_need_the_switch_and_have_a_limit() {
        let n = |is_wanted, top| n_alternatives(is_wanted, top, "logprobs: true");
        assert_eq!(n(false, None), Ok(None));
        assert_eq!(n(false, Some(0)), Ok(None));
        assert_eq!(n(true, None), Ok(Some(0)));
        assert_eq!(n(true, Some(20)), Ok(Some(20)));
        for wrong in [n(false, Some(1)), n(true, Some(21))] {
            let error = wrong.unwrap_err();
            assert_eq!(error.param.as_deref(), Some("top_logprobs"));
        }
    }

    #[test]
    fn text_waits_for_its_log_probabilities_and_no_longer_than_for_the_next_event() {
        let text = |text: &str| AnswerEvent::Piece(Piece::Text(text.to_owned()));
        let logprobs = || {
            AnswerEvent::Logprobs(TokenLogprobs {
                chosen: LogProb {
                    id: 1,
                    logprob: 0.0,
                },
                top: Vec::new(),
            })
        };
        let mut pairing = LogprobPairing::new(true);
        let mut push = |event| -> Vec<(String, bool)> {
            let pairs = pairing.push(event).into_iter();
            let pairs = pairs.filter_map(|event| match event {
                PairedEvent::Text(text, logprobs) => Some((text, logprobs.is_some())),
                _ => None,
            });
            pairs.collect()
        };
        assert_eq!(push(text("a")), []);
        assert_eq!(push(logprobs()), [("a".to_owned(), true)]);
        assert_eq!(push(logprobs()), [(String::new(), true)]);
        assert_eq!(push(text("b")), []);
        assert_eq!(push(text("c")), [("b".to_owned(), false)]);
    }
}
