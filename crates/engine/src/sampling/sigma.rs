//! Top-n-sigma: a filter on logits, before candidates are gathered.

/// Masks with −∞ all of `logits` \[n_vocab\] that are more than `n` standard deviations below the
/// greatest: Tang et al., "Top-nσ: not all logits are you need", 2024, §3. NaN and −∞ are not part
/// of the statistics; `n ≤ 0` does nothing.
pub(super) fn top_n_sigma(logits: &mut [f32], n: f32) {
    if n <= 0.0 {
        return;
    }
    // As in `Candidates::gather`: no NaN, no −∞, and +∞ as the greatest finite number.
    let choosable = |&&logit: &&f32| logit > f32::NEG_INFINITY;
    let values = || {
        logits
            .iter()
            .filter(choosable)
            .map(|&logit| f64::from(logit.min(f32::MAX)))
    };
    let mut sum = 0.0;
    let mut count = 0u32;
    let mut best = f64::NEG_INFINITY;
    for value in values() {
        sum += value;
        count += 1;
        best = best.max(value);
    }
    let mean = sum / f64::from(count.max(1));
    let squares: f64 = values().map(|value| (value - mean) * (value - mean)).sum();
    let floor = best - f64::from(n) * (squares / f64::from(count.max(1))).sqrt();
    logits
        .iter_mut()
        .filter(|logit| f64::from(**logit) < floor)
        .for_each(|logit| *logit = f32::NEG_INFINITY);
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::any_logits;
    use super::*;
    use proptest::prelude::*;

    fn kept(logits: &[f32], n: f32) -> Vec<usize> {
        let mut logits = logits.to_vec();
        top_n_sigma(&mut logits, n);
        (0..logits.len())
            .filter(|&i| logits[i] > f32::NEG_INFINITY)
            .collect()
    }

    #[test]
    fn what_is_far_below_the_best_is_forbidden() {
        // Mean 2.5, deviation 1.118.
        assert_eq!(kept(&[1.0, 4.0, 3.0, 2.0], 1.0), [1, 2]);
        assert_eq!(kept(&[1.0, 4.0, 3.0, 2.0], 2.0), [1, 2, 3]);
        assert_eq!(
            kept(&[1.0, 4.0, 3.0, f32::NAN, f32::NEG_INFINITY, 2.0], 1.0),
            [1, 2]
        );
        assert_eq!(kept(&[1.0, 4.0], 0.0), [0, 1]);
        assert_eq!(kept(&[5.0; 3], 0.5), [0, 1, 2]);
        assert!(kept(&[], 1.0).is_empty());
    }

    proptest! {
        #[test]
        fn top_n_sigma_agrees_with_the_definition(logits in any_logits(), n in -1.0f32..4.0) {
            let finite: Vec<f64> = logits.iter().filter(|l| !l.is_nan() && **l != f32::NEG_INFINITY)
                .map(|l| f64::from(l.clamp(f32::MIN, f32::MAX))).collect();
            let mean = finite.iter().sum::<f64>() / finite.len() as f64;
            let squares = finite.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
            let variance = squares / finite.len() as f64;
            let best = finite.iter().copied().fold(f64::MIN, f64::max);
            let got = kept(&logits, n);
            let is_possible = |l: f32| !l.is_nan() && l != f32::NEG_INFINITY;
            for (i, &logit) in logits.iter().enumerate().filter(|(_, l)| is_possible(**l)) {
                let logit = f64::from(logit.min(f32::MAX));
                let keeps = n <= 0.0 || logit >= best - f64::from(n) * variance.sqrt();
                prop_assert_eq!(got.contains(&i), keeps, "{} of {:?}", logit, logits);
            }
        }
    }
}
