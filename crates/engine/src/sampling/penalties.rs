//! Penalties on tokens that occur in the window. Knows logits and ids, no sampling.
//!
//! The one idea: count the tokens of the window in an array over the vocabulary, and reset the
//! counts in a second pass over the window, so that nothing is allocated.

use super::Sampling;

/// Repeat, presence and frequency penalties over the last tokens of the history.
#[derive(Clone, Debug)]
pub(super) struct Penalties {
    repeat: f32,
    presence: f32,
    frequency: f32,
    window: usize,
    /// Occurrences of each token in the window, \[n_vocab\]; all 0 between calls, empty if no
    /// penalty applies.
    counts: Vec<u32>,
}

impl Penalties {
    pub(super) fn new(sampling: &Sampling, n_vocab: usize) -> Self {
        let &Sampling {
            repeat_penalty: repeat,
            presence_penalty: presence,
            ..
        } = sampling;
        let &Sampling {
            frequency_penalty: frequency,
            repeat_window: window,
            ..
        } = sampling;
        let applies = window > 0 && (repeat, presence, frequency) != (1.0, 0.0, 0.0);
        Self {
            repeat,
            presence,
            frequency,
            window,
            counts: vec![0; if applies { n_vocab } else { 0 }],
        }
    }

    /// Lowers the `logits` \[n_vocab\] of the tokens in the window, each distinct token once. Ids
    /// outside the vocabulary are ignored.
    pub(super) fn apply(&mut self, logits: &mut [f32], history: &[u32]) {
        let window = &history[history.len().saturating_sub(self.window)..];
        for &id in window {
            if let Some(count) = self.counts.get_mut(id as usize) {
                *count += 1;
            }
        }
        for &id in window {
            let count = self.counts.get_mut(id as usize).map_or(0, std::mem::take);
            if count > 0 {
                logits[id as usize] = self.penalised(logits[id as usize], count);
            }
        }
    }

    /// The repeat penalty lowers a logit of any sign: Keskar et al., "CTRL", 2019, §4.1 divides,
    /// which would raise a negative one.
    fn penalised(&self, logit: f32, count: u32) -> f32 {
        let logit = if logit > 0.0 {
            logit / self.repeat
        } else {
            logit * self.repeat
        };
        logit - count as f32 * self.frequency - self.presence
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.counts.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn repeat_penalty_lowers_both_signs() {
        let sampling = Sampling {
            repeat_penalty: 2.0,
            ..Sampling::default()
        };
        let mut logits = [4.0, -4.0, 0.0, 4.0];
        Penalties::new(&sampling, 4).apply(&mut logits, &[1, 0, 0, 2]);
        assert_eq!(logits, [2.0, -8.0, 0.0, 4.0]);
    }

    #[test]
    fn ids_outside_the_vocabulary_are_ignored() {
        let sampling = Sampling {
            presence_penalty: 1.0,
            ..Sampling::default()
        };
        let mut logits = [0.0, 0.0];
        Penalties::new(&sampling, 2).apply(&mut logits, &[u32::MAX, 1, 2]);
        assert_eq!(logits, [0.0, -1.0]);
    }

    #[test]
    fn nothing_is_kept_where_no_penalty_applies() {
        assert_eq!(Penalties::new(&Sampling::default(), 1000).heap_bytes(), 0);
        let no_window = Sampling {
            repeat_penalty: 2.0,
            repeat_window: 0,
            ..Sampling::default()
        };
        assert_eq!(Penalties::new(&no_window, 1000).heap_bytes(), 0);
        let mut logits = [1.0, 2.0];
        Penalties::new(&no_window, 2).apply(&mut logits, &[0, 1]);
        assert_eq!(logits, [1.0, 2.0]);
    }

    /// The definition, counting from scratch for every token of the vocabulary.
    fn reference(s: &Sampling, logit: f32, id: usize, history: &[u32]) -> f32 {
        let recent = history.iter().rev().take(s.repeat_window);
        let count = recent.filter(|&&h| h as usize == id).count() as f32;
        if count == 0.0 {
            return logit;
        }
        let logit = if logit > 0.0 {
            logit / s.repeat_penalty
        } else {
            logit * s.repeat_penalty
        };
        logit - count * s.frequency_penalty - s.presence_penalty
    }

    proptest! {
        #[test]
        fn penalties_agree_with_counting_from_scratch(
            logits in prop::collection::vec(-10.0f32..10.0, 8),
            history in prop::collection::vec(0u32..8, 0..30),
            repeat_penalty in 0.5f32..2.0,
            presence_penalty in -1.0f32..1.0,
            frequency_penalty in -1.0f32..1.0,
            repeat_window in 0usize..40,
        ) {
            let sampling = Sampling {
                repeat_penalty,
                presence_penalty,
                frequency_penalty,
                repeat_window,
                ..Sampling::default()
            };
            let mut penalties = Penalties::new(&sampling, 8);
            // Twice, because the first call must leave the counts clean for the second.
            for _ in 0..2 {
                let mut got = logits.clone();
                penalties.apply(&mut got, &history);
                let reference = |(id, &l)| reference(&sampling, l, id, &history);
                let want: Vec<f32> = logits.iter().enumerate().map(reference).collect();
                prop_assert_eq!(got, want);
            }
        }
    }
}
