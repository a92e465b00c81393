//! From scores to figures with error bars. Knows numbers only.
//!
//! An error bar is the standard error of the mean, as if tokens were independent, carried on to
//! first order: that of a perplexity is the perplexity times that of the mean −ln p. Formulas are
//! those of `llama-perplexity`.

use super::{BaseScores, Scores};

/// A figure and its standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Its standard error; 0 where there are too few tokens to say.
    pub stderr: f64,
}

/// How well a model predicts a text.
#[derive(Clone, Debug, PartialEq)]
pub struct PerplexityReport {
    /// e to the mean of −ln p.
    pub ppl: Estimate,
    /// Tokens that were scored.
    pub n_tokens: usize,
    /// How far it is from the baseline, if there is one.
    pub divergence: Option<DivergenceReport>,
}

/// How far a model is from a baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct DivergenceReport {
    /// Perplexity of the baseline.
    pub ppl_base: Estimate,
    /// Perplexity over that of the baseline. Its error is smaller than those of both, which
    /// stumble over the same tokens.
    pub ppl_ratio: Estimate,
    /// Mean divergence, nats.
    pub kld: Estimate,
    /// Divergences below which these shares of the tokens lie, nats: 0.5, 0.9, 0.95, 0.99, 0.999
    /// and 1.
    pub kld_quantiles: [f32; 6],
    /// Share of tokens before which both find the same one most probable.
    pub same_top: Estimate,
    /// Mean change of the probability of the token that came.
    pub delta_p: Estimate,
    /// Root of the mean square of that.
    pub delta_p_rms: Estimate,
}

/// The shares of [`DivergenceReport::kld_quantiles`].
const QUANTILES: [f64; 6] = [0.5, 0.9, 0.95, 0.99, 0.999, 1.0];

impl PerplexityReport {
    /// The figures of at least one score.
    pub fn new(scores: &Scores) -> Self {
        let ppl = scores.perplexity();
        let divergence = scores
            .base
            .as_ref()
            .map(|base| DivergenceReport::new(&scores.nll, base));
        Self {
            ppl,
            n_tokens: scores.nll.len(),
            divergence,
        }
    }
}

impl Scores {
    /// Perplexity so far; NaN before the first score.
    pub fn perplexity(&self) -> Estimate {
        exponential(mean(widened(&self.nll)))
    }
}

impl DivergenceReport {
    /// `nll`, `[n]`, is the model's.
    fn new(nll: &[f32], base: &BaseScores) -> Self {
        let pairs = || widened(nll).zip(widened(&base.nll));
        let delta_p = || pairs().map(|(nll, base)| (-nll).exp() - (-base).exp());
        let square = mean(delta_p().map(|delta| delta * delta));
        let rms = square.value.sqrt();
        Self {
            ppl_base: exponential(mean(widened(&base.nll))),
            ppl_ratio: exponential(mean(pairs().map(|(nll, base)| nll - base))),
            kld: mean(widened(&base.kld)),
            kld_quantiles: quantiles(&base.kld),
            same_top: mean(base.same_top.iter().map(|&same| f64::from(u8::from(same)))),
            delta_p: mean(delta_p()),
            delta_p_rms: Estimate {
                value: rms,
                stderr: if rms > 0.0 {
                    0.5 * square.stderr / rms
                } else {
                    0.0
                },
            },
        }
    }
}

fn widened(values: &[f32]) -> impl Iterator<Item = f64> + Clone + '_ {
    values.iter().map(|&value| f64::from(value))
}

/// The mean, and the root of the variance over n − 1.
fn mean(values: impl Iterator<Item = f64> + Clone) -> Estimate {
    let n = values.clone().count() as f64;
    let value = values.clone().sum::<f64>() / n;
    let variance = values.map(|x| (x - value) * (x - value)).sum::<f64>() / n;
    Estimate {
        value,
        stderr: if n > 1.0 {
            (variance / (n - 1.0)).sqrt()
        } else {
            0.0
        },
    }
}

fn exponential(of: Estimate) -> Estimate {
    let value = of.value.exp();
    Estimate {
        value,
        stderr: value * of.stderr,
    }
}

/// [`QUANTILES`] of `values`, `[n]`, between two of them in proportion.
fn quantiles(values: &[f32]) -> [f32; 6] {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f32::total_cmp);
    QUANTILES.map(|share| {
        let place = share * (sorted.len() - 1) as f64;
        let below = sorted[place as usize];
        let above = sorted[place.ceil() as usize];
        below + (above - below) * (place.fract() as f32)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_has_its_standard_error() {
        // Variance 1.25, over 3.
        let Estimate { value, stderr } = mean([1.0, 2.0, 3.0, 4.0].into_iter());
        assert!((value - 2.5).abs() < 1e-12 && (stderr - (1.25f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(
            mean([7.0].into_iter()),
            Estimate {
                value: 7.0,
                stderr: 0.0
            }
        );
        let ppl = exponential(Estimate {
            value: 0.0,
            stderr: 0.5,
        });
        assert_eq!(
            ppl,
            Estimate {
                value: 1.0,
                stderr: 0.5
            }
        );
    }

    #[test]
    fn quantiles_lie_between_two_values() {
        let values: Vec<f32> = (0..=1000).rev().map(|i| i as f32).collect();
        assert_eq!(
            quantiles(&values),
            [500.0, 900.0, 950.0, 990.0, 999.0, 1000.0]
        );
        assert_eq!(quantiles(&[1.0, 3.0])[0], 2.0);
        assert_eq!(quantiles(&[4.0]), [4.0; 6]);
    }

    #[test]
    fn the_same_scores_diverge_by_nothing() {
        let nll = vec![1.0, 2.0, 0.5];
        let base = BaseScores {
            nll: nll.clone(),
            kld: vec![0.0; 3],
            same_top: vec![true; 3],
        };
        let report = DivergenceReport::new(&nll, &base);
        assert_eq!(
            (report.ppl_ratio.value, report.ppl_ratio.stderr),
            (1.0, 0.0)
        );
        assert_eq!(
            (
                report.kld.value,
                report.same_top.value,
                report.delta_p_rms.stderr
            ),
            (0.0, 1.0, 0.0)
        );
    }
}
