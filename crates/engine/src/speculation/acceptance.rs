//! Acceptance: how often the tokens of drafts are right, and how many tokens a step with a draft
//! writes.
//!
//! Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding", section 3:
//! if each token is right with probability p, k of them make a step write
//! (1 - p^(k+1)) / (1 - p) tokens.

use super::N_CLASSES;

/// Above this many tokens of a class, older ones count half: what a text repeats changes.
const MAX_COUNT: f64 = 32.0;

/// Tokens of a class that the classes below it count as, at most.
const MAX_BORROWED: f64 = 3.0;

/// Counts of right and wrong tokens by class.
#[derive(Clone, Debug, Default)]
pub(super) struct Acceptance {
    classes: [Count; N_CLASSES],
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    n_right: f64,
    n: f64,
}

impl Acceptance {
    /// Records a draft of `n` tokens, whose first `n_right` were right. Tokens behind the
    /// first wrong one were not compared.
    pub(super) fn record(&mut self, class: usize, n_right: usize, n: usize) {
        let count = &mut self.classes[class.min(N_CLASSES - 1)];
        count.n_right += n_right as f64;
        count.n += n.min(n_right + 1) as f64;
        if count.n > MAX_COUNT {
            count.n_right /= 2.0;
            count.n /= 2.0;
        }
    }

    /// Probability that a token of a draft of this class is right; 0 before the first draft of this
    /// class or of one below. Drafts of a higher class are surer: until they are counted
    /// themselves, they are right as often as those below.
    pub(super) fn probability(&self, class: usize) -> f64 {
        let mut p = 0.0;
        let mut n_below = 0.0;
        for own in &self.classes[..=class.min(N_CLASSES - 1)] {
            let n_borrowed = f64::min(n_below, MAX_BORROWED);
            p = (own.n_right + n_borrowed * p) / (own.n + n_borrowed.max(1.0));
            n_below += own.n;
        }
        p
    }
}

/// Tokens that a step with a draft of `k` writes on average; `p`, below 1, as of
/// [`Acceptance::probability`].
pub(super) fn tokens_per_step(p: f64, k: usize) -> f64 {
    (1.0 - p.powi(k as i32 + 1)) / (1.0 - p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_writes_one_token_and_those_of_the_draft_that_are_right() {
        assert!((tokens_per_step(0.0, 5) - 1.0).abs() < 1e-12);
        assert!((tokens_per_step(0.5, 2) - 1.75).abs() < 1e-12);
        assert!((tokens_per_step(0.8, 7) - 4.16).abs() < 0.01);
    }

    #[test]
    fn acceptance_is_counted_by_class_and_forgets() {
        let mut acceptance = Acceptance::default();
        assert!(acceptance.probability(1) < 1e-12);
        acceptance.record(1, 4, 4);
        assert!((acceptance.probability(1) - 0.8).abs() < 1e-12);
        // Of a draft that was wrong at once, one token was compared.
        acceptance.record(1, 0, 9);
        assert!((acceptance.probability(1) - 4.0 / 6.0).abs() < 1e-12);
        assert!(acceptance.probability(0) < 1e-12);
        (0..40).for_each(|_| acceptance.record(1, 8, 8));
        (0..40).for_each(|_| acceptance.record(1, 0, 8));
        assert!(acceptance.probability(1) < 0.3);
    }

    #[test]
    fn a_class_is_as_right_as_those_below_until_it_is_counted_itself() {
        let mut acceptance = Acceptance::default();
        acceptance.record(0, 6, 6);
        let below = acceptance.probability(0);
        assert!((acceptance.probability(3) - below).abs() < 1e-12);
        (0..4).for_each(|_| acceptance.record(2, 0, 8));
        assert!(acceptance.probability(2) < 0.5 * below);
        (0..9).for_each(|_| acceptance.record(2, 8, 8));
        assert!(acceptance.probability(2) > 0.9);
        assert!(
            (acceptance.probability(0) - below).abs() < 1e-12,
            "not from above"
        );
    }
}
