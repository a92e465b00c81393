//! Tool-call probe: looks back at the first tool call of a constrained text, which may be rolled
//! back.
//!
//! Knows logits and the bytes of tokens; no session, no grammar and no sampler. The one idea: a
//! grammar allows only the names of tools that exist, so a model that begins to call another one is
//! forced to a name that it did not mean. The share of the model's probability that the grammar
//! leaves on the way through the name tells the two cases apart. Until the name is complete, the
//! tokens of the call are tentative.

use std::borrow::Cow;

use atta_kernels::math;
use atta_store::Reservation;

use super::constraint_state::RolledBack;
use crate::{CallStart, Engine, Error};

/// The first tool call of a text, while it may be rolled back.
pub(super) struct ToolCallProbe {
    start: CallStart,
    is_thinking: bool,
    /// Whether a call has begun that may be rolled back.
    is_open: bool,
    /// Whether a call is final. Later ones are not probed.
    is_committed: bool,
    /// Tokens of the call, the marker included.
    n_tokens: usize,
    /// Text of the call, without the marker.
    text: Vec<u8>,
    /// Probability of the marker.
    p_marker: f64,
    /// Probability of the names that the grammar allows.
    p_names: f64,
    /// Logits from which the marker was selected, `[n_vocab]`.
    logits: Vec<f32>,
    banned: Banned,
    _memory: Reservation,
}

impl ToolCallProbe {
    pub(super) fn new(engine: &Engine, start: CallStart) -> Result<Self, Error> {
        let n_vocab = engine.spec().n_vocab;
        Ok(Self::within(
            engine.budget().reserve("sampler", 4 * n_vocab as u64)?,
            start,
            n_vocab,
        ))
    }

    fn within(memory: Reservation, start: CallStart, n_vocab: usize) -> Self {
        Self {
            start,
            is_thinking: start.thoughts.is_some_and(|thoughts| thoughts.open),
            is_open: false,
            is_committed: false,
            n_tokens: 0,
            text: Vec::new(),
            p_marker: 0.0,
            p_names: 1.0,
            logits: Vec::with_capacity(n_vocab),
            banned: Banned::Nothing,
            _memory: memory,
        }
    }

    /// Whether a call has begun that may be rolled back.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether the next token may be one of the name.
    pub(super) fn is_in_name(&self) -> bool {
        self.is_open && self.n_tokens > 0 && self.start.name.is_next(&self.text)
    }

    /// Whether this token begins a call that may be rolled back.
    pub(super) fn may_begin(&self, token: u32) -> bool {
        token == self.start.marker && !(self.is_open || self.is_committed || self.is_thinking)
    }

    /// Begins a call whose marker was selected from these logits, `[n_vocab]`; the marker is
    /// [pushed](Self::push) like all others.
    pub(super) fn begin(&mut self, logits: &[f32]) {
        self.is_open = true;
        self.n_tokens = 0;
        self.p_names = 1.0;
        self.text.clear();
        self.logits.clear();
        self.logits.extend_from_slice(logits);
        let weights = Weights::of(logits);
        self.p_marker = weights.share(&logits[self.start.marker as usize..][..1]);
    }

    /// Appends a token with these bytes. The end of the name makes the call final.
    pub(super) fn push(&mut self, token: u32, bytes: &[u8]) {
        if let Some(thoughts) = self.start.thoughts {
            self.is_thinking =
                token == thoughts.begin || (self.is_thinking && token != thoughts.end);
        }
        if !self.is_open {
            return;
        }
        if self.n_tokens > 0 {
            self.text.extend_from_slice(bytes);
        }
        self.n_tokens += 1;
        if self.start.name.is_complete(&self.text) {
            self.commit();
        }
    }

    /// Updates the probability of the allowed names before a token of the name: `model` are its
    /// logits, `left` those that the grammar leaves, both `[n_vocab]`.
    ///
    /// Tokens that end the name count as allowed wherever the grammar allows one of them: they
    /// differ in the text behind the name only.
    pub(super) fn narrow<'t>(
        &mut self,
        model: &[f32],
        left: &[f32],
        bytes: impl Fn(u32) -> Cow<'t, [u8]>,
    ) {
        let is_open = self.start.name.is_open(&self.text);
        let name = self.start.name;
        let ends_name = |id: usize| {
            let token = bytes(id as u32);
            is_open && token.first().is_some_and(|&byte| name.is_end(byte))
        };
        let weights = Weights::of(model);
        let is_left = |id: usize| left[id] > f32::NEG_INFINITY;
        let may_end = (0..left.len()).any(|id| is_left(id) && ends_name(id));
        let counts = |id: usize| {
            is_left(id) || (may_end && weights.share(&model[id..=id]) > NEGLIGIBLE && ends_name(id))
        };
        let share: f64 = (0..model.len())
            .filter(|&id| counts(id))
            .map(|id| weights.share(&model[id..=id]))
            .sum();
        self.p_names *= share.min(1.0);
    }

    /// Whether the model meant another name: `p_names / (1 - p_names) < 1 - p_marker`. A marker
    /// that was certain is never doubted, nor are names with a probability above one half.
    pub(super) fn is_doubtful(&self) -> bool {
        self.is_open && self.p_names < (1.0 - self.p_names) * (1.0 - self.p_marker)
    }

    /// Rolls back the call at the end of a text of `n_generated` tokens, and bans its marker from
    /// the next selection; end-of-generation tokens, too, if the call is all of the text.
    pub(super) fn roll_back(&mut self, n_generated: usize) -> RolledBack {
        self.is_open = false;
        self.banned = if n_generated == self.n_tokens {
            Banned::MarkerAndEnd
        } else {
            Banned::Marker
        };
        RolledBack {
            n_tokens: self.n_tokens,
            logits: std::mem::take(&mut self.logits),
        }
    }

    /// Makes a call that has begun final.
    pub(super) fn commit(&mut self) {
        self.is_committed |= self.is_open;
        self.is_open = false;
    }

    /// Masks the banned tokens with −∞, once after a call was rolled back; `eog` are the
    /// end-of-generation tokens.
    pub(super) fn ban(&mut self, logits: &mut [f32], eog: &[u32]) {
        let ends = match std::mem::take(&mut self.banned) {
            Banned::Nothing => return,
            Banned::Marker => &[],
            Banned::MarkerAndEnd => eog,
        };
        ends.iter()
            .chain([&self.start.marker])
            .for_each(|&id| logits[id as usize] = f32::NEG_INFINITY);
    }
}

/// Tokens that may not be selected in front of a call that was rolled back.
#[derive(Clone, Copy, Default)]
enum Banned {
    #[default]
    Nothing,
    Marker,
    MarkerAndEnd,
}

/// Probability below which the bytes of a token are not looked at.
const NEGLIGIBLE: f64 = 1e-3;

/// Softmax weights of a vocabulary.
#[derive(Clone, Copy)]
struct Weights {
    best: f32,
    total: f64,
}

impl Weights {
    fn of(logits: &[f32]) -> Self {
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        Self {
            best,
            total: sum(logits, best),
        }
    }

    /// Probability of some of the logits.
    fn share(self, logits: &[f32]) -> f64 {
        // Without a finite best logit there are no probabilities.
        if self.total.is_normal() {
            (sum(logits, self.best) / self.total).min(1.0)
        } else {
            1.0
        }
    }
}

/// Sum of `exp(logit - best)`; NaN counts as 0.
fn sum(logits: &[f32], best: f32) -> f64 {
    logits
        .iter()
        .filter(|logit| !logit.is_nan())
        .map(|&logit| f64::from(math::exp(logit - best)))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NamePlace, Thoughts};
    use atta_store::Budget;

    /// A call that has begun behind a marker of such a probability; the marker is token 4 of 5.
    fn begun(p_marker: f32) -> ToolCallProbe {
        let logits = [
            (1.0 - p_marker).ln(),
            f32::NEG_INFINITY,
            f32::NEG_INFINITY,
            f32::NEG_INFINITY,
            p_marker.ln(),
        ];
        let start = CallStart {
            marker: 4,
            name: NamePlace::FirstValue,
            thoughts: None,
        };
        let mut probe =
            ToolCallProbe::within(Budget::unlimited().reserve("sampler", 0).unwrap(), start, 5);
        probe.begin(&logits);
        probe.push(4, b"<call>");
        probe
    }

    #[test]
    fn a_call_is_doubted_if_the_model_meant_another_name_and_was_not_certain_to_call() {
        let texts: [&[u8]; 5] = [b"set", b"get", b"\"", b"\"}", b"<call>"];
        let model = [0.02f32, 0.6, 0.06, 0.28, 0.04].map(f32::ln);
        let left = |ids: &[usize]| {
            std::array::from_fn::<f32, 5, _>(|id| {
                if ids.contains(&id) {
                    model[id]
                } else {
                    f32::NEG_INFINITY
                }
            })
        };
        let doubtful = |p_marker: f32, ids: &[usize]| {
            let mut probe = begun(p_marker);
            probe.push(0, b"{\"name\": \"");
            probe.narrow(&model, &left(ids), |id| Cow::Borrowed(texts[id as usize]));
            (probe.is_doubtful(), (100.0 * probe.p_names).round())
        };
        assert_eq!(doubtful(0.9, &[0]), (true, 2.0));
        assert_eq!(doubtful(0.99, &[0]), (false, 2.0), "it was certain to call");
        assert_eq!(doubtful(0.5, &[0, 1]), (false, 62.0));
        // However it ends a name, it is that name.
        assert_eq!(doubtful(0.5, &[2]), (false, 34.0));
    }

    #[test]
    fn the_first_call_is_judged_and_neither_thoughts_nor_later_ones() {
        let mut probe = begun(0.5);
        assert!(!probe.may_begin(4), "it has begun");
        assert_eq!(probe.roll_back(3).n_tokens, 1);
        assert!(probe.may_begin(4) && !probe.may_begin(3));
        probe.begin(&[0.0; 5]);
        probe.commit();
        assert!(!probe.may_begin(4));
        let mut thinker = begun(0.5);
        thinker.roll_back(3);
        thinker.start.thoughts = Some(Thoughts {
            begin: 0,
            end: 1,
            open: false,
        });
        for (token, may_begin) in [(2, true), (0, false), (2, false), (1, true)] {
            thinker.push(token, b"");
            assert_eq!(thinker.may_begin(4), may_begin, "behind {token}");
        }
    }

    #[test]
    fn a_text_does_not_end_where_the_call_was_all_of_it() {
        for (n_written, banned) in [
            (1, [false, true, false, false, true]),
            (2, [false, false, false, false, true]),
        ] {
            let mut probe = begun(0.5);
            probe.roll_back(n_written);
            for banned in [banned, [false; 5]] {
                let mut logits = [0.0; 5];
                probe.ban(&mut logits, &[1]);
                assert_eq!(logits.map(|logit| logit == f32::NEG_INFINITY), banned);
            }
        }
    }

    #[test]
    fn shares_are_those_of_the_softmax() {
        let logits = [1.0f32, 4.0, 2.0, 1.0].map(f32::ln);
        let weights = Weights::of(&logits);
        assert!((weights.share(&logits[1..3]) - 0.75).abs() < 1e-6);
        assert!((weights.share(&[logits[0], f32::NEG_INFINITY, f32::NAN]) - 0.125).abs() < 1e-6);
        for odd in [f32::NAN, f32::NEG_INFINITY, f32::INFINITY] {
            assert_eq!(Weights::of(&[odd; 3]).share(&[odd]), 1.0);
        }
        assert_eq!(Weights::of(&[f32::INFINITY, 0.0]).share(&[0.0]), 1.0);
    }
}
