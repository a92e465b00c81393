//! A call that has begun in a constrained text, and may yet be taken back.
//!
//! Knows logits and the bytes of tokens; no session, no grammar and no sampler. The one idea: a
//! grammar lets only those tools be named that there are, so a model that begins to call another
//! one is made to name one that it did not mean. How much of the model's probability the grammar
//! leaves on the way through the name tells one from the other; until the name is complete, nothing
//! of the call is said.

use std::borrow::Cow;

use atta_kernels::math;
use atta_store::Reservation;

use super::constraint_state::TakenBack;
use crate::{CallStart, Engine, Error};

/// What there is of a call that may be taken back.
pub(crate) struct Backtrack {
    start: CallStart,
    thinks: bool,
    begun: bool,
    /// A call is certain: it was the first.
    is_settled: bool,
    /// Tokens of the call, the marker included.
    n_tokens: usize,
    /// What they stand for, without the marker.
    text: Vec<u8>,
    /// What the model gave the marker, of 1.
    p_marker: f64,
    /// What it gave to names that there are, of 1.
    share: f64,
    /// From which the marker was chosen, `[n_vocab]`.
    logits: Vec<f32>,
    /// What may not be chosen next.
    barred: Barred,
    _memory: Reservation,
}

impl Backtrack {
    pub(crate) fn new(engine: &Engine, start: CallStart) -> Result<Self, Error> {
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
            thinks: start.thoughts.is_some_and(|thoughts| thoughts.open),
            begun: false,
            is_settled: false,
            n_tokens: 0,
            text: Vec::new(),
            p_marker: 0.0,
            share: 1.0,
            logits: Vec::with_capacity(n_vocab),
            barred: Barred::Nothing,
            _memory: memory,
        }
    }

    /// Whether a call has begun that may be taken back.
    pub(crate) fn is_open(&self) -> bool {
        self.begun
    }

    /// Whether the next token may be one of the name.
    pub(crate) fn is_in_name(&self) -> bool {
        self.begun && self.n_tokens > 0 && self.start.name.is_next(&self.text)
    }

    /// Whether this token begins a call that may be taken back.
    pub(crate) fn may_begin(&self, token: u32) -> bool {
        token == self.start.marker && !(self.begun || self.is_settled || self.thinks)
    }

    /// Begins a call whose marker was chosen from these logits, `[n_vocab]`; the marker is
    /// [pushed](Self::push) like all others.
    pub(crate) fn begin(&mut self, logits: &[f32]) {
        (self.begun, self.n_tokens, self.share) = (true, 0, 1.0);
        self.text.clear();
        self.logits.clear();
        self.logits.extend_from_slice(logits);
        let weights = Weights::of(logits);
        self.p_marker = weights.share(&logits[self.start.marker as usize..][..1]);
    }

    /// Goes on by a token that stands for these bytes. With the end of the name the call is
    /// certain.
    pub(crate) fn push(&mut self, token: u32, bytes: &[u8]) {
        if let Some(thoughts) = self.start.thoughts {
            self.thinks = token == thoughts.begin || (self.thinks && token != thoughts.end);
        }
        if !self.begun {
            return;
        }
        if self.n_tokens > 0 {
            self.text.extend_from_slice(bytes);
        }
        self.n_tokens += 1;
        if self.start.name.is_complete(&self.text) {
            self.settle();
        }
    }

    /// Notes what a token of the name is chosen from: `model`'s logits, and what the grammar has
    /// `left` of them, both `[n_vocab]`.
    ///
    /// A model may end a name in other ways than the grammar, which is about what stands behind it,
    /// and no matter here.
    pub(crate) fn narrow<'t>(
        &mut self,
        model: &[f32],
        left: &[f32],
        bytes: impl Fn(u32) -> Cow<'t, [u8]>,
    ) {
        let is_open = self.start.name.is_open(&self.text);
        let ends_name =
            |id: usize| is_open && bytes(id as u32).first() == Some(&self.start.name.delimiter());
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
        self.share *= share.min(1.0);
    }

    /// Whether the model meant something else: that the name should be another one is more
    /// probable, by more than the marker was against all else. A marker that was certain is
    /// never doubted, and neither is a name that the model would have chosen itself.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.begun && self.share < (1.0 - self.share) * (1.0 - self.p_marker)
    }

    /// Takes the call back: how many tokens it had, and the logits in front of it. The next token
    /// is chosen from these, and is not the marker; nor does it end the text, of which the call
    /// was the last of `n_written` tokens, if there is nothing else of it.
    pub(crate) fn take_back(&mut self, n_written: usize) -> TakenBack {
        self.begun = false;
        self.barred = if n_written == self.n_tokens {
            Barred::MarkerAndEnd
        } else {
            Barred::Marker
        };
        TakenBack {
            n_tokens: self.n_tokens,
            logits: std::mem::take(&mut self.logits),
        }
    }

    /// The call is certain, if one has begun.
    pub(crate) fn settle(&mut self) {
        self.is_settled |= self.begun;
        self.begun = false;
    }

    /// Makes impossible what may not be chosen, once after a call was taken back; `eog` are the
    /// tokens that end a text.
    pub(crate) fn bar(&mut self, logits: &mut [f32], eog: &[u32]) {
        let ends = match std::mem::take(&mut self.barred) {
            Barred::Nothing => return,
            Barred::Marker => &[],
            Barred::MarkerAndEnd => eog,
        };
        ends.iter()
            .chain([&self.start.marker])
            .for_each(|&id| logits[id as usize] = f32::NEG_INFINITY);
    }
}

/// What may not be chosen in front of a call that was taken back.
#[derive(Clone, Copy, Default)]
enum Barred {
    #[default]
    Nothing,
    Marker,
    MarkerAndEnd,
}

/// Shares of single tokens that are not looked at.
const NEGLIGIBLE: f64 = 1e-3;

/// The weights of all tokens of a vocabulary, in one sum.
#[derive(Clone, Copy)]
pub(crate) struct Weights {
    best: f32,
    total: f64,
}

impl Weights {
    pub(crate) fn of(logits: &[f32]) -> Self {
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        Self {
            best,
            total: sum(logits, best),
        }
    }

    /// What some of the logits have of it, of 1.
    fn share(self, logits: &[f32]) -> f64 {
        // Where the best logit is no finite number, nothing can be said against any of them.
        if self.total.is_normal() {
            (sum(logits, self.best) / self.total).min(1.0)
        } else {
            1.0
        }
    }
}

/// The weights of logits, as multiples of that of `best`; NaN has none.
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

    #[test]
    fn names_are_where_their_place_says() {
        let first = NamePlace::FirstValue;
        for (text, is_next, is_complete) in [
            ("", false, false),
            ("\n{\"na", false, false),
            ("\n{\"name\"", false, false),
            ("\n{\"name\":", true, false),
            ("{\"name\": \"set_", true, false),
            ("{\"name\": \"set_light\", ", true, true),
        ] {
            assert_eq!(
                (
                    first.is_next(text.as_bytes()),
                    first.is_complete(text.as_bytes())
                ),
                (is_next, is_complete),
                "{text}"
            );
        }
        let bare = NamePlace::UpToBracket;
        assert!(
            bare.is_next(b"")
                && !bare.is_complete(b"set_light")
                && bare.is_complete(b"set_light[ARGS]")
        );
    }

    /// A call that has begun behind a marker of such a probability; the marker is token 4 of 5.
    fn begun(p_marker: f32) -> Backtrack {
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
        let mut backtrack =
            Backtrack::within(Budget::unlimited().reserve("sampler", 0).unwrap(), start, 5);
        backtrack.begin(&logits);
        backtrack.push(4, b"<call>");
        backtrack
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
            let mut backtrack = begun(p_marker);
            backtrack.push(0, b"{\"name\": \"");
            backtrack.narrow(&model, &left(ids), |id| Cow::Borrowed(texts[id as usize]));
            (backtrack.is_doubtful(), (100.0 * backtrack.share).round())
        };
        assert_eq!(doubtful(0.9, &[0]), (true, 2.0));
        assert_eq!(doubtful(0.99, &[0]), (false, 2.0), "it was certain to call");
        assert_eq!(doubtful(0.5, &[0, 1]), (false, 62.0));
        // However it ends a name, it is that name.
        assert_eq!(doubtful(0.5, &[2]), (false, 34.0));
    }

    #[test]
    fn the_first_call_is_judged_and_neither_thoughts_nor_later_ones() {
        let mut backtrack = begun(0.5);
        assert!(!backtrack.may_begin(4), "it has begun");
        assert_eq!(backtrack.take_back(3).n_tokens, 1);
        assert!(backtrack.may_begin(4) && !backtrack.may_begin(3));
        backtrack.begin(&[0.0; 5]);
        backtrack.settle();
        assert!(!backtrack.may_begin(4));
        let mut thinker = begun(0.5);
        thinker.take_back(3);
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
        for (n_written, barred) in [
            (1, [false, true, false, false, true]),
            (2, [false, false, false, false, true]),
        ] {
            let mut backtrack = begun(0.5);
            backtrack.take_back(n_written);
            for barred in [barred, [false; 5]] {
                let mut logits = [0.0; 5];
                backtrack.bar(&mut logits, &[1]);
                assert_eq!(logits.map(|logit| logit == f32::NEG_INFINITY), barred);
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
