//! Sampling: selects the next token from logits. Knows numbers and ids: no text, no model, no
//! grammar, no clock.
//!
//! The one idea: a chain in a fixed order, which is llama.cpp's default order
//! (`common_params_sampling::samplers`, with the logit bias before all) and does not depend on how
//! the options were given:
//! 1. on all logits, in place: logit bias; repeat, frequency and presence penalties; DRY;
//!    top-n-sigma, which masks with −∞;
//! 2. top-k: the best `top_k` become the list of candidates;
//! 3. on that list, one function each: typical, top-p, min-p;
//! 4. temperature and the draw, in one step, since the temperature only scales the weights of the
//!    draw.
//!
//! At temperature 0 the best token after step 1 is taken. Of the filters only typical could remove
//! it, and does not apply.
//!
//! Results are the same on every machine: ties go to the lower id, weights are summed as integers,
//! `exp` and the random numbers are our own, and every draw takes exactly one random number.
//! After [`Sampler::new`] nothing allocates.

mod breakers;
mod candidates;
mod dry;
mod filters;
#[cfg(test)]
mod golden;
mod logprobs;
mod options;
mod penalties;
mod random;
mod sigma;

pub use breakers::Breakers;
pub(crate) use logprobs::LogProbCollector;
pub use logprobs::{LogProb, LogProbs, log_sum_exp};
pub use options::{DryOptions, Sampling, SamplingError};

use candidates::{Candidates, weight};
use dry::Dry;
use penalties::Penalties;
use random::SplitMix64;

/// Samples one token after the other. A clone continues with the same random numbers.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    n_vocab: usize,
    penalties: Penalties,
    dry: Dry,
    candidates: Candidates,
    random: SplitMix64,
}

impl Sampler {
    /// Creates a sampler for `n_vocab` tokens. It ignores the sequence breakers in `sampling`,
    /// which are texts: [`with_breakers`](Self::with_breakers) takes them as tokens.
    ///
    /// # Errors
    /// Those of [`Sampling::validate`], and [`SamplingError::BiasedToken`].
    pub fn new(sampling: Sampling, n_vocab: usize) -> Result<Self, SamplingError> {
        sampling.validate()?;
        if let Some(&(id, _)) = sampling
            .logit_bias
            .iter()
            .find(|(id, _)| *id as usize >= n_vocab)
        {
            return Err(SamplingError::BiasedToken { id, n_vocab });
        }
        let penalties = Penalties::new(&sampling, n_vocab);
        let limit = if sampling.temperature == 0.0 {
            1
        } else {
            limit(sampling.top_k, n_vocab)
        };
        Ok(Self {
            n_vocab,
            penalties,
            dry: Dry::new(&sampling.dry, n_vocab),
            candidates: Candidates::new(limit, n_vocab),
            random: SplitMix64::new(sampling.seed),
            sampling,
        })
    }

    /// Sets the sequence breakers of DRY, as tokens from [`Breakers::find`].
    pub fn with_breakers(mut self, breakers: Breakers) -> Self {
        self.dry.set_breakers(breakers);
        self
    }

    /// Samples the next token. Step 1 of the chain changes `logits` \[n_vocab\]; `history` has all
    /// tokens so far, prompt included, oldest first. Penalties apply to windows at its end.
    ///
    /// A token with a logit of −∞ or NaN is never selected while there is another one; +∞ is the
    /// greatest logit. If all logits are −∞ or NaN, the result is the lowest id that is not NaN,
    /// else 0.
    ///
    /// # Panics
    /// If the number of logits is not the `n_vocab` of [`Sampler::new`].
    pub fn sample(&mut self, logits: &mut [f32], history: &[u32]) -> u32 {
        assert_eq!(logits.len(), self.n_vocab, "logits of another vocabulary");
        self.sampling
            .logit_bias
            .iter()
            .for_each(|&(id, bias)| logits[id as usize] += bias);
        self.penalties.apply(logits, history);
        self.dry.apply(logits, history);
        sigma::top_n_sigma(logits, self.sampling.top_n_sigma);
        self.gather(logits);
        self.draw().unwrap_or_else(|| last_resort(logits))
    }

    /// Gathers the candidates, and applies the filters that go by probability.
    fn gather(&mut self, logits: &[f32]) {
        if self.sampling.temperature == 0.0 {
            self.candidates.gather(logits, 1);
            return;
        }
        self.candidates
            .gather(logits, limit(self.sampling.top_k, self.n_vocab));
        filters::typical(&mut self.candidates, self.sampling.typical);
        filters::top_p(&mut self.candidates, self.sampling.top_p);
        filters::min_p(&mut self.candidates, self.sampling.min_p);
    }

    /// Draws a candidate by the weights at the temperature; `None` without candidates.
    fn draw(&mut self) -> Option<u32> {
        let best = self.candidates.nth(0)?;
        let temperature = self.sampling.temperature;
        if temperature == 0.0 {
            return Some(best.id);
        }
        let mut left = self
            .random
            .below(self.candidates.total_weight(best.logit, temperature));
        let mut rank = 0;
        loop {
            let candidate = self.candidates.nth(rank)?;
            let weight = weight((candidate.logit - best.logit) / temperature);
            if left < weight {
                return Some(candidate.id);
            }
            left -= weight;
            rank += 1;
        }
    }

    /// Bytes on the heap, constant after construction: 8 per candidate (twice `top_k`, at least
    /// 256, or `n_vocab` without it), 4 per token of the vocabulary for penalties, and for DRY the
    /// same, 4 per token of its window, and its breakers.
    pub fn heap_bytes(&self) -> usize {
        self.candidates.heap_bytes() + self.penalties.heap_bytes() + self.dry.heap_bytes()
    }
}

/// Maximum number of candidates, at least 1.
fn limit(top_k: usize, n_vocab: usize) -> usize {
    if top_k == 0 { n_vocab.max(1) } else { top_k }
}

/// The token where no logit \[n_vocab\] is above −∞.
fn last_resort(logits: &[f32]) -> u32 {
    logits.iter().position(|logit| !logit.is_nan()).unwrap_or(0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use candidates::tests::{any_logits, sorted};
    use proptest::prelude::*;

    const NEVER: f32 = f32::NEG_INFINITY;

    fn sampler(sampling: Sampling, n_vocab: usize) -> Sampler {
        Sampler::new(sampling, n_vocab).unwrap()
    }

    fn unfiltered() -> Sampling {
        Sampling {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            ..Sampling::default()
        }
    }

    fn greedy() -> Sampling {
        Sampling {
            temperature: 0.0,
            ..Sampling::default()
        }
    }

    #[test]
    fn errors_name_the_setting_in_plain_words() {
        let message = |sampling: Sampling| sampling.validate().unwrap_err().to_string();
        let default = Sampling::default;
        assert_eq!(
            message(Sampling {
                top_p: 1.5,
                ..default()
            }),
            "top-p is 1.5, expected 0 to 1"
        );
        assert_eq!(
            message(Sampling {
                min_p: f32::NAN,
                ..default()
            }),
            "min-p is NaN, expected 0 to 1"
        );
        assert_eq!(
            message(Sampling {
                temperature: -1.0,
                ..default()
            }),
            "the temperature is -1, expected a finite number, 0 or more"
        );
        assert_eq!(
            message(Sampling {
                repeat_penalty: 0.0,
                ..default()
            }),
            "the repetition penalty is 0, expected a finite number above 0"
        );
        assert_eq!(
            message(Sampling {
                presence_penalty: f32::INFINITY,
                ..default()
            }),
            "the presence penalty is inf, expected a finite number"
        );
    }

    #[test]
    fn nan_is_refused_in_every_option() {
        let fields: [fn(&mut Sampling) -> &mut f32; 10] = [
            |s| &mut s.temperature,
            |s| &mut s.top_p,
            |s| &mut s.min_p,
            |s| &mut s.repeat_penalty,
            |s| &mut s.presence_penalty,
            |s| &mut s.frequency_penalty,
            |s| &mut s.typical,
            |s| &mut s.top_n_sigma,
            |s| &mut s.dry.multiplier,
            |s| &mut s.dry.base,
        ];
        for field in fields {
            let mut sampling = Sampling::default();
            *field(&mut sampling) = f32::NAN;
            assert!(sampling.validate().is_err() && Sampler::new(sampling, 4).is_err());
        }
        assert_eq!(Sampling::default().validate(), Ok(()));
    }

    #[test]
    fn temperature_zero_takes_the_lowest_id_of_the_greatest() {
        assert_eq!(
            sampler(greedy(), 5).sample(&mut [1.0, f32::NAN, 3.0, 3.0, -0.5], &[]),
            2
        );
        assert_eq!(sampler(greedy(), 2).sample(&mut [-0.0, 0.0], &[]), 0);
    }

    #[test]
    fn temperature_zero_comes_after_the_penalties() {
        let sampling = Sampling {
            repeat_penalty: 2.0,
            ..greedy()
        };
        assert_eq!(sampler(sampling, 3).sample(&mut [3.0, 2.0, 1.0], &[0]), 1);
    }

    #[test]
    fn the_order_is_bias_penalties_dry_sigma_top_k_typical() {
        let off = Sampling {
            temperature: 0.01,
            ..unfiltered()
        };
        let first = |sampling: Sampling, logits: &mut [f32], history: &[u32]| {
            let n_vocab = logits.len();
            sampler(sampling, n_vocab).sample(logits, history)
        };
        // The bias of 4 is halved by the penalty, and is not enough then.
        let bias = Sampling {
            logit_bias: vec![(0, 3.0), (0, 1.0)],
            repeat_penalty: 2.0,
            ..off.clone()
        };
        let mut logits = [0.0, 3.0];
        assert_eq!((first(bias, &mut logits, &[0]), logits), (1, [2.0, 3.0]));
        // DRY takes the best away before its distance to the others counts.
        let dry = DryOptions {
            multiplier: 9.0,
            ..DryOptions::default()
        };
        let mut logits = [0.0, 9.0, 5.0];
        assert_eq!(
            first(
                Sampling {
                    dry,
                    top_n_sigma: 0.5,
                    ..off.clone()
                },
                &mut logits,
                &[2, 0, 1, 2, 0]
            ),
            2
        );
        assert_eq!(logits, [NEVER, NEVER, 5.0]);
        // Of all tokens the flat ones are typical, of the best two the best one is.
        let spread: Vec<f32> = std::iter::once(3.0f32)
            .chain([1.0; 7])
            .map(f32::ln)
            .collect();
        let typical = Sampling {
            temperature: 1.0,
            typical: 0.25,
            ..unfiltered()
        };
        assert_ne!(first(typical.clone(), &mut spread.clone(), &[]), 0);
        assert_eq!(
            first(
                Sampling {
                    top_k: 1,
                    ..typical.clone()
                },
                &mut spread.clone(),
                &[]
            ),
            0
        );
        // At temperature 0 it does not apply.
        assert_eq!(
            first(
                Sampling {
                    temperature: 0.0,
                    ..typical
                },
                &mut spread.clone(),
                &[]
            ),
            0
        );
    }

    #[test]
    fn a_bias_of_minus_infinity_forbids_and_none_may_lie_outside_the_vocabulary() {
        let never = Sampling {
            logit_bias: vec![(1, NEVER)],
            ..greedy()
        };
        assert_eq!(
            sampler(never.clone(), 3).sample(&mut [0.0, 9.0, 1.0], &[]),
            2
        );
        let error = Sampler::new(never, 1).unwrap_err().to_string();
        assert_eq!(
            error,
            "the logit bias: token 1 is out of range, the model has 1 tokens"
        );
        let always = Sampling {
            logit_bias: vec![(1, f32::INFINITY)],
            ..greedy()
        };
        assert!(
            always
                .validate()
                .unwrap_err()
                .to_string()
                .starts_with("the logit bias is inf")
        );
    }

    #[test]
    fn breakers_have_letters_and_not_too_many() {
        for text in [String::new(), "x".repeat(41)] {
            let dry = DryOptions {
                sequence_breakers: vec![text],
                ..DryOptions::default()
            };
            assert!(matches!(
                Sampling { dry, ..greedy() }.validate(),
                Err(SamplingError::Breaker { .. })
            ));
        }
    }

    #[test]
    fn hopeless_logits_give_the_lowest_id_that_is_a_number() {
        for sampling in [Sampling::default(), greedy(), unfiltered()] {
            assert_eq!(sampler(sampling.clone(), 3).sample(&mut [NEVER; 3], &[]), 0);
            assert_eq!(
                sampler(sampling.clone(), 3).sample(&mut [f32::NAN; 3], &[]),
                0
            );
            assert_eq!(
                sampler(sampling.clone(), 3).sample(&mut [f32::NAN, NEVER, NEVER], &[]),
                1
            );
            assert_eq!(
                sampler(sampling.clone(), 3).sample(&mut [0.0, f32::INFINITY, f32::NAN], &[]),
                1
            );
            assert_eq!(sampler(sampling, 0).sample(&mut [], &[]), 0);
        }
    }

    #[test]
    fn extreme_temperatures_are_harmless() {
        let hot = Sampling {
            temperature: f32::MAX,
            ..unfiltered()
        };
        let cold = Sampling {
            temperature: f32::from_bits(1),
            ..unfiltered()
        };
        let logits = [f32::MIN, 0.0, f32::MAX, 1.0];
        assert!(sampler(hot, 4).sample(&mut logits.clone(), &[]) < 4);
        assert_eq!(sampler(cold, 4).sample(&mut logits.clone(), &[]), 2);
    }

    #[test]
    fn the_tokens_of_a_seed_never_change() {
        let mut sampler = sampler(
            Sampling {
                repeat_penalty: 1.1,
                ..Sampling::default()
            },
            50,
        );
        let mut history = vec![];
        for step in 0..16u32 {
            let mut logits: Vec<f32> = (0..50)
                .map(|i| ((i * 37 + step * 11) % 50) as f32 / 8.0)
                .collect();
            history.push(sampler.sample(&mut logits, &history));
        }
        assert_eq!(
            history,
            [43, 1, 25, 22, 15, 36, 13, 26, 7, 35, 24, 2, 49, 23, 43, 9]
        );
    }

    /// Pearson's χ² of `n` draws against the softmax of `logits` \[n_vocab\] at the temperature.
    fn chi_square(sampling: &Sampling, logits: &[f32], n: usize) -> f64 {
        let mut sampler = sampler(sampling.clone(), logits.len());
        let mut counts = vec![0.0; logits.len()];
        (0..n).for_each(|_| counts[sampler.sample(&mut logits.to_vec(), &[]) as usize] += 1.0);
        let weights: Vec<f64> = logits
            .iter()
            .map(|&l| (f64::from(l) / f64::from(sampling.temperature)).exp())
            .collect();
        let expected = weights
            .iter()
            .map(|w| w / weights.iter().sum::<f64>() * n as f64);
        counts
            .iter()
            .zip(expected)
            .map(|(c, e)| (c - e) * (c - e) / e)
            .sum()
    }

    #[test]
    fn draws_follow_the_softmax() {
        let logits = [0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 0.25, 1.5];
        for temperature in [0.7, 1.0, 1.8] {
            for seed in [0, 1, 42] {
                let chi = chi_square(
                    &Sampling {
                        temperature,
                        seed,
                        ..unfiltered()
                    },
                    &logits,
                    50_000,
                );
                // With 7 degrees of freedom 99.9 % are below 24.3; a seed that cannot vary would
                // give 0.
                assert!(
                    (0.3..24.3).contains(&chi),
                    "temperature {temperature}, seed {seed}: {chi}"
                );
            }
        }
    }

    #[test]
    fn every_token_in_the_set_is_drawn_and_no_other() {
        let sampling = Sampling {
            temperature: 5.0,
            top_k: 3,
            top_p: 1.0,
            min_p: 0.0,
            ..Sampling::default()
        };
        let mut sampler = sampler(sampling, 6);
        let mut counts = [0; 6];
        (0..600).for_each(|_| {
            counts[sampler.sample(&mut [1.0, 5.0, 2.0, 4.0, 3.0, NEVER], &[]) as usize] += 1
        });
        assert!(
            counts[1] > 100 && counts[3] > 100 && counts[4] > 100,
            "{counts:?}"
        );
        assert_eq!(counts.iter().filter(|&&n| n > 0).count(), 3);
    }

    #[test]
    fn a_clone_goes_on_with_the_same_tokens() {
        let mut original = sampler(Sampling::default(), 300);
        let logits: Vec<f32> = (0..300).map(|i| ((i * 37) % 300) as f32 / 50.0).collect();
        let next = |sampler: &mut Sampler| sampler.sample(&mut logits.clone(), &[]);
        next(&mut original);
        let mut clone = original.clone();
        let tokens = |sampler: &mut Sampler| (0..20).map(|_| next(sampler)).collect::<Vec<_>>();
        assert_eq!(tokens(&mut original), tokens(&mut clone));
        assert_eq!(original.heap_bytes(), clone.heap_bytes());
    }

    #[test]
    fn memory_is_what_it_says_and_stays() {
        let n_vocab = 150_000;
        assert_eq!(
            sampler(
                Sampling {
                    top_k: 500,
                    ..Sampling::default()
                },
                n_vocab
            )
            .heap_bytes(),
            2 * 500 * 8
        );
        let mut all = sampler(
            Sampling {
                frequency_penalty: 0.1,
                ..unfiltered()
            },
            n_vocab,
        );
        assert_eq!(all.heap_bytes(), n_vocab * 12);
        all.sample(&mut vec![0.5; n_vocab], &[3; 1000]);
        assert_eq!(all.heap_bytes(), n_vocab * 12);
    }

    /// The whole chain as it is defined: sort everything, cut the list three times, draw.
    fn reference(s: &Sampling, logits: &[f32], random: &mut SplitMix64) -> u32 {
        let mut list = sorted(logits);
        list.truncate(limit(s.top_k, logits.len()));
        let Some(&best) = list.first() else {
            return last_resort(logits);
        };
        let w = |l: f32, t: f32| weight((l - best.logit) / t);
        let total: u64 = list.iter().map(|c| w(c.logit, 1.0)).sum();
        let goal = (f64::from(s.top_p) * total as f64).ceil() as u64;
        let sums = list.iter().scan(0, |sum, c| {
            Some(std::mem::replace(sum, *sum + w(c.logit, 1.0)))
        });
        let n = if s.top_p < 1.0 {
            sums.take_while(|&before| before < goal).count().max(1)
        } else {
            list.len()
        };
        list.truncate(n);
        let n = list
            .iter()
            .take_while(|c| atta_kernels::math::exp(c.logit - best.logit) >= s.min_p)
            .count();
        list.truncate(n);
        let total = list.iter().map(|c| w(c.logit, s.temperature)).sum();
        let drawn = random.below(total);
        let mut sums = list.iter().scan(0, |sum, c| {
            *sum += w(c.logit, s.temperature);
            Some((*sum, c.id))
        });
        sums.find(|&(sum, _)| drawn < sum).unwrap().1
    }

    proptest! {
        #[test]
        fn the_chain_agrees_with_sorting_everything(
            logits in any_logits(),
            temperature in 0.1f32..3.0,
            top_k in prop_oneof![Just(0), 1usize..1300],
            top_p in prop_oneof![Just(1.0), 0.0f32..1.0],
            min_p in prop_oneof![Just(0.0), 0.0f32..1.0],
            seed: u64,
        ) {
            let sampling = Sampling {
                temperature, top_k, top_p, min_p, seed, ..Sampling::default()
            };
            let mut sampler = sampler(sampling.clone(), logits.len());
            let mut random = SplitMix64::new(seed);
            for _ in 0..4 {
                let want = reference(&sampling, &logits, &mut random);
                prop_assert_eq!(sampler.sample(&mut logits.clone(), &[]), want);
            }
        }
    }
}
