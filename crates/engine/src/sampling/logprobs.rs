//! Log-probabilities of the chosen token and of the most probable ones, from the logits of the
//! model: no bias, penalty, filter or temperature is in them.
//!
//! They are reported and decide nothing, which is why the logarithm may be the system's.

use atta_kernels::math;

use super::candidates::Candidates;

/// A token and the natural logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogProb {
    /// The token.
    pub id: u32,
    /// `ln p`, at most 0; −∞ where the model forbids the token.
    pub logprob: f32,
}

/// Log-probabilities at one position of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct LogProbs {
    /// The chosen token.
    pub chosen: LogProb,
    /// The most probable tokens, best first, the lower id first on ties. The chosen token is among
    /// them if it is one of them.
    pub top: Vec<LogProb>,
}

/// Collects log-probabilities with a buffer of its own.
pub(crate) struct LogProbCollector {
    n_top: usize,
    candidates: Candidates,
}

impl LogProbCollector {
    /// For the best `n_top` of `n_vocab` tokens, beside the chosen one.
    pub(crate) fn new(n_top: usize, n_vocab: usize) -> Self {
        let n_top = n_top.min(n_vocab);
        Self {
            n_top,
            candidates: Candidates::new(n_top.max(1), n_vocab),
        }
    }

    /// Computes log-probabilities from `logits`, `[n_vocab]`, for the selected token `chosen`.
    pub(crate) fn collect(&mut self, logits: &[f32], chosen: u32) -> LogProbs {
        self.candidates.gather(logits, self.n_top.max(1));
        let log_total = log_sum_exp(logits);
        let logprob = |id: u32| LogProb {
            id,
            logprob: (f64::from(logits[id as usize]) - log_total) as f32,
        };
        let best = (0..self.n_top).map_while(|rank| self.candidates.nth(rank));
        LogProbs {
            chosen: logprob(chosen),
            top: best.map(|best| logprob(best.id)).collect(),
        }
    }

    /// Bytes of the buffer and of one result.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.n_top * size_of::<LogProb>() + self.candidates.heap_bytes()
    }
}

/// `ln Σ exp(logit)` over `logits`, `[n_vocab]`, without NaN and −∞.
pub fn log_sum_exp(logits: &[f32]) -> f64 {
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if !best.is_finite() {
        return best.into();
    }
    let terms = logits
        .iter()
        .filter(|logit| !logit.is_nan())
        .map(|&logit| f64::from(math::exp(logit - best)));
    f64::from(best) + terms.sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::any_logits;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn probabilities_of_halves_and_quarters_are_exact_enough() {
        let mut collector = LogProbCollector::new(2, 4);
        let logprobs = collector.collect(&[1.0f32, 4.0, 2.0, 1.0].map(f32::ln), 3);
        let p = |l: LogProb| (l.id, (l.logprob.exp() * 1000.0).round());
        assert_eq!(p(logprobs.chosen), (3, 125.0));
        assert_eq!(
            logprobs.top.iter().map(|&l| p(l)).collect::<Vec<_>>(),
            [(1, 500.0), (2, 250.0)]
        );
        let logprobs = collector.collect(&[0.0, f32::NEG_INFINITY, 0.0, 0.0], 1);
        assert_eq!(logprobs.chosen.logprob, f32::NEG_INFINITY);
        assert_eq!(
            logprobs.top.iter().map(|l| l.id).collect::<Vec<_>>(),
            [0, 2]
        );
    }

    proptest! {
        #[test]
        fn log_probabilities_agree_with_the_softmax(
            logits in any_logits(),
            n_top in 0usize..30,
            chosen: prop::sample::Index,
        ) {
            let finite = |l: f32| if l.is_finite() { l.clamp(-80.0, 80.0) } else { -1.0 };
            let logits: Vec<f32> = logits.into_iter().map(finite).collect();
            prop_assume!(!logits.is_empty());
            let total: f64 = logits.iter().map(|&l| f64::from(l).exp()).sum();
            let want = |id: usize| (f64::from(logits[id]).exp() / total).ln();
            let mut order: Vec<usize> = (0..logits.len()).collect();
            order.sort_by(|&a, &b| logits[b].partial_cmp(&logits[a]).unwrap().then(a.cmp(&b)));
            let mut collector = LogProbCollector::new(n_top, logits.len());
            let capacity = collector.heap_bytes();
            for _ in 0..2 {
                let chosen = chosen.index(logits.len());
                let logprobs = collector.collect(&logits, chosen as u32);
                prop_assert!((f64::from(logprobs.chosen.logprob) - want(chosen)).abs() < 1e-4);
                let ids: Vec<usize> = logprobs.top.iter().map(|l| l.id as usize).collect();
                prop_assert_eq!(&ids[..], &order[..n_top.min(order.len())]);
                let error = |l: &LogProb| f64::from(l.logprob) - want(l.id as usize);
                prop_assert!(logprobs.top.iter().all(|l| error(l).abs() < 1e-4));
            }
            prop_assert_eq!(collector.heap_bytes(), capacity);
        }
    }
}
