//! DRY: penalises tokens that would continue a repetition, more for a longer one. Knows ids, and
//! breakers as ids.
//!
//! The one idea: the lengths of all repetitions of the end of the text are the Z-array of the
//! reversed text, which takes linear time: Gusfield, "Algorithms on strings, trees and sequences",
//! 1997, §1.3. The result equals llama.cpp's.

use atta_kernels::math;

use super::{Breakers, DryOptions};

/// The penalty and its buffers.
#[derive(Clone, Debug)]
pub(super) struct Dry {
    multiplier: f64,
    base: f64,
    allowed_length: usize,
    window: usize,
    breakers: Breakers,
    /// Length of the repetition that ends `i` tokens before the end, \[window\].
    lengths: Vec<u32>,
    /// One more than the longest repetition that each token would continue, \[n_vocab\]; all 0
    /// between calls, empty if the penalty is off.
    longest: Vec<u32>,
}

impl Dry {
    pub(super) fn new(options: &DryOptions, n_vocab: usize) -> Self {
        let window = if options.applies() {
            options.penalty_last_n
        } else {
            0
        };
        Self {
            multiplier: options.multiplier.into(),
            base: options.base.into(),
            allowed_length: options.allowed_length,
            window,
            breakers: Breakers::default(),
            lengths: vec![0; window],
            longest: vec![0; if window > 0 { n_vocab } else { 0 }],
        }
    }

    pub(super) fn set_breakers(&mut self, breakers: Breakers) {
        self.breakers = if self.window > 0 {
            breakers
        } else {
            Breakers::default()
        };
    }

    /// Lowers the `logits` \[n_vocab\] of tokens that would continue a repetition in the last
    /// tokens of `history`.
    pub(super) fn apply(&mut self, logits: &mut [f32], history: &[u32]) {
        let window = &history[history.len().saturating_sub(self.window)..];
        if window.len() <= self.allowed_length {
            return;
        }
        let limit = self.breakers.n_after_last(window);
        if limit < self.allowed_length {
            return;
        }
        let lengths = &mut self.lengths[..window.len()];
        repetitions(window, lengths);
        for (&id, &length) in window.iter().rev().zip(&lengths[1..]) {
            let length = length.min(limit as u32);
            if length as usize >= self.allowed_length
                && let Some(longest) = self.longest.get_mut(id as usize)
            {
                *longest = (*longest).max(length + 1);
            }
        }
        for &id in window {
            let longest = self.longest.get_mut(id as usize).map_or(0, std::mem::take);
            if longest > 0 && !self.breakers.is_whole(id) {
                logits[id as usize] -= self.penalty(longest as usize - 1);
            }
        }
    }

    fn penalty(&self, length: usize) -> f32 {
        let exponent = (length - self.allowed_length) as f64;
        (self.multiplier * math::pow(self.base, exponent)).min(f32::MAX.into()) as f32
    }

    pub(super) fn heap_bytes(&self) -> usize {
        (self.lengths.capacity() + self.longest.capacity()) * size_of::<u32>()
            + self.breakers.heap_bytes()
    }
}

/// Sets `lengths[i]`, \[n\], to the length of the common suffix of `window` and `window[..n - i]`:
/// the Z-array of the reversed window. `lengths[0]` is not set.
fn repetitions(window: &[u32], lengths: &mut [u32]) {
    let n = window.len();
    let back = |i: usize| window[n - 1 - i];
    // The match that reaches farthest: `start..end` equals `0..end - start`.
    let mut start = 0;
    let mut end = 0;
    for i in 1..n {
        let mut length = if i < end {
            (lengths[i - start] as usize).min(end - i)
        } else {
            0
        };
        while i + length < n && back(length) == back(i + length) {
            length += 1;
        }
        lengths[i] = length as u32;
        if i + length > end {
            start = i;
            end = i + length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::breakers::tests::breakers;
    use super::*;
    use proptest::prelude::*;

    fn options() -> DryOptions {
        DryOptions {
            multiplier: 1.0,
            base: 2.0,
            ..DryOptions::default()
        }
    }

    fn penalties(options: &DryOptions, sequences: &[&[u32]], history: &[u32]) -> Vec<f32> {
        let mut dry = Dry::new(options, 10);
        dry.set_breakers(breakers(sequences));
        let mut logits = vec![0.0; 10];
        dry.apply(&mut logits, history);
        logits.iter().map(|logit| 0.0 - logit).collect()
    }

    #[test]
    fn what_would_go_on_with_a_repetition_is_penalised_by_its_length() {
        // 1 2 3 was followed by 4, 2 3 by 5, and 3 by 6, which is too short.
        let history = [1, 2, 3, 4, 2, 3, 5, 3, 6, 1, 2, 3];
        let mut want = vec![0.0; 10];
        (want[4], want[5]) = (2.0, 1.0);
        assert_eq!(penalties(&options(), &[], &history), want);
        assert_eq!(
            penalties(
                &DryOptions {
                    multiplier: 0.0,
                    ..options()
                },
                &[],
                &history
            ),
            [0.0; 10]
        );
        assert_eq!(
            penalties(
                &DryOptions {
                    penalty_last_n: 0,
                    ..options()
                },
                &[],
                &history
            ),
            [0.0; 10]
        );
    }

    #[test]
    fn no_repetition_reaches_over_a_breaker_and_breakers_are_free() {
        let history = [1, 2, 3, 4, 2, 3, 5, 3, 6, 1, 2, 3];
        let mut want = vec![0.0; 10];
        (want[4], want[5]) = (1.0, 1.0);
        assert_eq!(penalties(&options(), &[&[1]], &history), want);
        assert_eq!(penalties(&options(), &[&[2]], &history), [0.0; 10]);
        assert_eq!(penalties(&options(), &[&[4]], &history)[4], 0.0);
    }

    #[test]
    fn a_very_long_repetition_is_no_overflow() {
        let penalties = penalties(
            &DryOptions {
                penalty_last_n: 5000,
                ..options()
            },
            &[],
            &[1; 5000],
        );
        assert_eq!(penalties[1], f32::MAX);
    }

    #[test]
    fn nothing_is_kept_where_it_is_off() {
        let mut dry = Dry::new(&DryOptions::default(), 1000);
        dry.set_breakers(breakers(&[&[1], &[2]]));
        assert_eq!(dry.heap_bytes(), 0);
    }

    /// The definition, comparing tokens one by one and with no memory.
    fn reference(o: &DryOptions, sequences: &[&[u32]], history: &[u32], id: u32) -> f32 {
        let window = &history[history.len() - history.len().min(o.penalty_last_n)..];
        let breaks = |at: usize| {
            sequences
                .iter()
                .filter(move |s| window[at..].starts_with(s))
                .map(|s| s.len())
                .max()
        };
        let after = (0..window.len())
            .rev()
            .find_map(|at| Some(window.len() - at - breaks(at)?));
        let limit = after.unwrap_or(window.len());
        if window.len() <= o.allowed_length || sequences.contains(&[id].as_slice()) {
            return 0.0;
        }
        let before = (1..window.len()).filter(|&at| window[at] == id);
        let lengths = before.map(|at| {
            let pairs = window[..at].iter().rev().zip(window.iter().rev());
            pairs.take_while(|(a, b)| a == b).count().min(limit)
        });
        let longest = lengths
            .max()
            .filter(|&n| n >= o.allowed_length && limit >= o.allowed_length);
        longest.map_or(0.0, |n| {
            o.multiplier * o.base.powi((n - o.allowed_length) as i32)
        })
    }

    proptest! {
        #[test]
        fn dry_agrees_with_comparing_everything(
            history in prop::collection::vec(0u32..4, 0..40),
            multiplier in 0.1f32..2.0,
            base in 1.0f32..1.5,
            allowed_length in 0usize..4,
            penalty_last_n in 1usize..50,
            with_breakers: bool,
        ) {
            let o = DryOptions {
                multiplier, base, allowed_length, penalty_last_n, ..DryOptions::default()
            };
            let some: &[&[u32]] = &[&[3], &[2, 2], &[2, 2, 1]];
            let sequences = if with_breakers { some } else { &[] };
            let mut dry = Dry::new(&o, 4);
            dry.set_breakers(breakers(sequences));
            // Twice, because the first call must leave nothing behind for the second.
            for _ in 0..2 {
                let mut got = [0.0; 4];
                dry.apply(&mut got, &history);
                for (id, got) in got.iter().enumerate() {
                    let want = reference(&o, sequences, &history, id as u32);
                    prop_assert!((got + want).abs() <= 1e-4 * want.max(1.0), "{id}: {got}, expected -{want}");
                }
            }
        }
    }
}
