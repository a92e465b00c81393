//! Filters on the list of candidates. Each is one function that keeps at least one candidate; none
//! knows the others, the temperature or the random numbers.
//!
//! Top-k is part of [`Candidates::gather`].

use atta_kernels::math;

use super::candidates::{Candidates, weight};

/// Keeps the smallest set of best candidates whose probabilities reach `p`: Holtzman et al., "The
/// curious case of neural text degeneration", 2019, §3.1. Probabilities are those among the
/// candidates still there.
pub(super) fn top_p(candidates: &mut Candidates, p: f32) {
    let Some(best) = candidates.nth(0) else {
        return;
    };
    if p >= 1.0 {
        return;
    }
    let goal = (f64::from(p) * candidates.total_weight(best.logit, 1.0) as f64).ceil() as u64;
    let mut sum = 0;
    let mut n = 0;
    while sum < goal
        && let Some(candidate) = candidates.nth(n)
    {
        sum += weight(candidate.logit - best.logit);
        n += 1;
    }
    candidates.truncate(n.max(1));
}

/// Keeps the candidates at least `p` times as probable as the best: Nguyen et al., "Turning up the
/// heat: min-p sampling", 2024, §3.
pub(super) fn min_p(candidates: &mut Candidates, p: f32) {
    let Some(best) = candidates.nth(0) else {
        return;
    };
    if p <= 0.0 {
        return;
    }
    let mut n = 1;
    while let Some(candidate) = candidates.nth(n)
        && math::exp(candidate.logit - best.logit) >= p
    {
        n += 1;
    }
    candidates.truncate(n);
}

/// Keeps the candidates whose surprise, −ln p, is nearest to the entropy, until their probabilities
/// exceed `p`: Meister et al., "Locally typical sampling", 2022, §3. Probabilities are those among
/// the candidates still there.
pub(super) fn typical(candidates: &mut Candidates, p: f32) {
    let Some(best) = candidates.nth(0) else {
        return;
    };
    if p >= 1.0 {
        return;
    }
    // Surprise and entropy contain the same ln of the total. Without it they are the distance below
    // the best logit, and the mean distance, so no logarithm is needed.
    let (total, distance) = candidates.weighted_distance(best.logit);
    let goal = (f64::from(p) * total as f64).floor() as u64;
    let center = f64::from(best.logit) + distance;
    candidates.keep_nearest(center, |kept| kept <= goal, best.logit);
}

#[cfg(test)]
mod tests {
    use super::super::candidates::Candidate;
    use super::super::candidates::tests::{any_logits, left, sorted};
    use super::*;
    use proptest::prelude::*;

    fn gathered(logits: &[f32]) -> Candidates {
        let mut candidates = Candidates::new(logits.len(), logits.len());
        candidates.gather(logits, logits.len().max(1));
        candidates
    }

    /// Runs `filter` over everything in `logits` and returns the survivors, best first.
    fn kept(logits: &[f32], filter: impl Fn(&mut Candidates)) -> Vec<Candidate> {
        let mut candidates = gathered(logits);
        filter(&mut candidates);
        left(&mut candidates)
    }

    /// Probabilities of sorted candidates in f64.
    fn softmax(list: &[Candidate]) -> Vec<f64> {
        let weights = list
            .iter()
            .map(|c| (f64::from(c.logit) - f64::from(list[0].logit)).exp());
        let total: f64 = weights.clone().sum();
        weights.map(|w| w / total).collect()
    }

    #[test]
    fn top_p_takes_the_token_that_crosses_the_line() {
        // Probabilities 0.5, 0.25, 0.125, 0.125.
        let logits = [1.0f32, 4.0, 2.0, 1.0].map(f32::ln);
        let ids = |p| {
            kept(&logits, |c| top_p(c, p))
                .iter()
                .map(|c| c.id)
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(0.0), [1]);
        assert_eq!(ids(0.49), [1]);
        assert_eq!(ids(0.51), [1, 2]);
        assert_eq!(ids(0.8), [1, 2, 0]);
        assert_eq!(ids(0.99), [1, 2, 0, 3]);
    }

    #[test]
    fn top_p_stops_where_the_sum_is_exact() {
        assert_eq!(kept(&[0.0; 4], |c| top_p(c, 0.5)).len(), 2);
        assert_eq!(kept(&[0.0; 4], |c| top_p(c, 0.75)).len(), 3);
    }

    #[test]
    fn min_p_is_relative_to_the_best() {
        let logits = [1.0f32, 4.0, 2.0, 1.0].map(f32::ln);
        let ids = |p| {
            kept(&logits, |c| min_p(c, p))
                .iter()
                .map(|c| c.id)
                .collect::<Vec<_>>()
        };
        assert_eq!(ids(0.0), [1, 2, 0, 3]);
        assert_eq!(ids(0.26), [1, 2]);
        assert_eq!(ids(1.0), [1]);
    }

    #[test]
    fn a_filter_that_is_off_keeps_everything() {
        let logits: Vec<f32> = (0..1000).map(|i| i as f32).collect();
        assert_eq!(kept(&logits, |c| top_p(c, 1.0)).len(), 1000);
        assert_eq!(kept(&logits, |c| min_p(c, 0.0)).len(), 1000);
    }

    #[test]
    fn typical_may_leave_the_best_out() {
        // Probabilities 0.5 and ten times 0.05: the entropy is 1.84, the surprises 0.69 and 3.0.
        let flat: Vec<f32> = std::iter::once(10.0f32)
            .chain([1.0; 10])
            .map(f32::ln)
            .collect();
        assert_eq!(kept(&flat, |c| typical(c, 0.4)).len(), 1);
        // 0.3 and seven times 0.1: 1.97, 1.2 and 2.3, so that the small ones come first.
        let spread: Vec<f32> = std::iter::once(3.0f32)
            .chain([1.0; 7])
            .map(f32::ln)
            .collect();
        let ids: Vec<u32> = kept(&spread, |c| typical(c, 0.25))
            .iter()
            .map(|c| c.id)
            .collect();
        assert_eq!(ids, [1, 2, 3]);
        assert_eq!(kept(&spread, |c| typical(c, 0.0)).len(), 1);
        assert_eq!(kept(&spread, |c| typical(c, 1.0)).len(), 8);
    }

    proptest! {
        #[test]
        fn typical_agrees_with_sorting_everything(logits in any_logits(), p in 0.0f32..1.0) {
            // Where distances are beyond measure, the definition itself is not computable.
            let near = |l: f32| if l.is_nan() { -9.0 } else { l.clamp(-9.0, 9.0) };
            let logits: Vec<f32> = logits.into_iter().map(near).collect();
            let all = sorted(&logits);
            let got = kept(&logits, |c| typical(c, p));
            prop_assume!(!all.is_empty());
            let probabilities = softmax(&all);
            let entropy: f64 = probabilities.iter().map(|p| -p * p.ln()).sum();
            let score = |i: usize| (-probabilities[i].ln() - entropy).abs();
            let is_kept = |i: usize| got.contains(&all[i]);
            let sum = |indices: &[usize]| indices.iter().map(|&i| probabilities[i]).sum::<f64>();
            let (inside, outside): (Vec<usize>, Vec<usize>) =
                (0..all.len()).partition(|&i| is_kept(i));
            prop_assert_eq!(inside.len(), got.len());
            let by_score = |a: &usize, b: &usize| score(*a).total_cmp(&score(*b));
            let farthest = inside.iter().copied().max_by(by_score).unwrap();
            prop_assert!(outside.iter().all(|&i| score(i) > score(farthest) - 1e-5), "a nearer one was left out");
            prop_assert!(outside.is_empty() || sum(&inside) > f64::from(p) - 1e-5, "the set is too small");
            let without = sum(&inside) - probabilities[farthest];
            prop_assert!(got.len() == 1 || without < f64::from(p) + 1e-5, "the set is too large");
        }

        #[test]
        fn top_p_agrees_with_sorting_everything(logits in any_logits(), p in 0.0f32..1.0) {
            let all = sorted(&logits);
            let got = kept(&logits, |c| top_p(c, p));
            prop_assert_eq!(&got[..], &all[..got.len()]);
            if !all.is_empty() {
                let p = f64::from(p);
                let sums = softmax(&all);
                let reached = |n: usize| sums[..n].iter().sum::<f64>();
                prop_assert!(reached(got.len()) > p - 1e-6, "the set is too small");
                prop_assert!(got.len() == 1 || reached(got.len() - 1) < p + 1e-6, "the set is too large");
            }
        }

        #[test]
        fn min_p_agrees_with_sorting_everything(logits in any_logits(), p in 0.0f32..=1.0) {
            let all = sorted(&logits);
            let got = kept(&logits, |c| min_p(c, p));
            prop_assert_eq!(&got[..], &all[..got.len()]);
            prop_assume!(!all.is_empty());
            let best = f64::from(all[0].logit);
            let ratio = |c: &Candidate| (f64::from(c.logit) - best).exp() / f64::from(p);
            prop_assert!(got.iter().all(|c| ratio(c) > 1.0 - 1e-6));
            prop_assert!(all[got.len()..].iter().all(|c| ratio(c) < 1.0 + 1e-6));
        }
    }
}
