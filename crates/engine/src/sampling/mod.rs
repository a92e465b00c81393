//! Choosing the next token from logits. Knows numbers and ids: no text, no model, no grammar, no clock.
//!
//! The one idea: a chain in a fixed order, which is llama.cpp's default order and does not depend on how the options
//! were given:
//! 1. on all logits, in place: (to come) logit bias; penalties; (to come) DRY, top-n-sigma, which forbids by −∞;
//! 2. the best `top_k` become the list of candidates;
//! 3. on that list, one function each: (to come) typical, top-p, min-p;
//! 4. temperature and the draw, in one step, since temperature last changes only the weights of the draw.
//!
//! Everything is deterministic on every machine: ties go to the lower id, weights are summed as integers, `exp` and the
//! random numbers are ours, and every draw takes exactly one random number. After [`Sampler::new`] nothing allocates.

mod candidates;
mod filters;
mod penalties;
mod random;

use candidates::{Candidates, weight};
use penalties::Penalties;
use random::SplitMix64;

/// How the next token is chosen. Names and defaults are those of the command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits before the draw; 0 takes the most probable token after the penalties, lowest id on ties.
    pub temperature: f32,
    /// Only the `top_k` most probable tokens; 0 for all.
    pub top_k: usize,
    /// Only the smallest set of most probable tokens that reaches this probability; 1 for all.
    pub top_p: f32,
    /// Only tokens at least this many times as probable as the best; 0 for all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens in the window; 1 for none.
    pub repeat_penalty: f32,
    /// How many of the last tokens the penalties look at; 0 for none.
    pub repeat_window: usize,
    /// Subtracted from the logit of every token in the window; 0 for none.
    pub presence_penalty: f32,
    /// Subtracted from the logit of a token once per occurrence in the window; 0 for none.
    pub frequency_penalty: f32,
    /// Start of the random numbers; equal seeds and equal logits give equal tokens.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            repeat_window: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: 42,
        }
    }
}

impl Sampling {
    /// Checks every option.
    ///
    /// # Errors
    /// [`SamplingError::OutOfRange`] for the first option whose value makes no sense; NaN and infinities never do.
    pub fn validate(&self) -> Result<(), SamplingError> {
        let unit = |option, value: f32| check((0.0..=1.0).contains(&value), option, value, "0 to 1");
        let finite = |option, value: f32| check(value.is_finite(), option, value, "a finite number");
        let at_least_0 = self.temperature.is_finite() && self.temperature >= 0.0;
        check(at_least_0, "-t", self.temperature, "a finite number, 0 or more")?;
        unit("--top-p", self.top_p)?;
        unit("--min-p", self.min_p)?;
        let positive = self.repeat_penalty.is_finite() && self.repeat_penalty > 0.0;
        check(positive, "--repeat-penalty", self.repeat_penalty, "a finite number above 0")?;
        finite("--presence-penalty", self.presence_penalty)?;
        finite("--frequency-penalty", self.frequency_penalty)
    }
}

fn check(holds: bool, option: &'static str, value: f32, expected: &'static str) -> Result<(), SamplingError> {
    if holds { Ok(()) } else { Err(SamplingError::OutOfRange { option, value, expected }) }
}

/// What is wrong with a [`Sampling`].
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SamplingError {
    /// A value outside the range of its option.
    #[error("{option} is {value}, expected {expected}")]
    OutOfRange {
        /// The option as on the command line.
        option: &'static str,
        /// Value given.
        value: f32,
        /// Values that would do.
        expected: &'static str,
    },
}

/// Chooses tokens one after the other. A clone goes on with the same random numbers.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    n_vocab: usize,
    penalties: Penalties,
    candidates: Candidates,
    random: SplitMix64,
}

impl Sampler {
    /// A sampler for logits of `n_vocab` tokens.
    ///
    /// # Errors
    /// Those of [`Sampling::validate`].
    pub fn new(sampling: Sampling, n_vocab: usize) -> Result<Self, SamplingError> {
        sampling.validate()?;
        let penalties = Penalties::new(&sampling, n_vocab);
        let limit = if sampling.temperature == 0.0 { 1 } else { limit(sampling.top_k, n_vocab) };
        let random = SplitMix64::new(sampling.seed);
        Ok(Self { sampling, n_vocab, penalties, candidates: Candidates::new(limit, n_vocab), random })
    }

    /// The next token. `logits` \[n_vocab\] are changed by the penalties; `history` is every token so far, prompt
    /// included, oldest first, of which the last [`Sampling::repeat_window`] count.
    ///
    /// A token whose logit is −∞ is never chosen while there is another one, nor is NaN, and +∞ is the greatest of
    /// all. Where every logit is −∞ or NaN, the token is the lowest id that is not NaN, else 0.
    ///
    /// # Panics
    /// If the number of logits is not the `n_vocab` of [`Sampler::new`].
    pub fn sample(&mut self, logits: &mut [f32], history: &[u32]) -> u32 {
        assert_eq!(logits.len(), self.n_vocab, "logits of another vocabulary");
        self.penalties.apply(logits, history);
        if self.sampling.temperature == 0.0 {
            self.candidates.gather(logits, 1);
        } else {
            self.candidates.gather(logits, limit(self.sampling.top_k, self.n_vocab));
            filters::top_p(&mut self.candidates, self.sampling.top_p);
            filters::min_p(&mut self.candidates, self.sampling.min_p);
        }
        self.draw().unwrap_or_else(|| last_resort(logits))
    }

    /// Draws by the weights at the temperature; `None` if there are no candidates.
    fn draw(&mut self) -> Option<u32> {
        let (best, temperature) = (self.candidates.nth(0)?, self.sampling.temperature);
        if temperature == 0.0 {
            return Some(best.id);
        }
        let mut left = self.random.below(self.candidates.total_weight(best.logit, temperature));
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

    /// Bytes on the heap, which stay the same from construction on: 8 per candidate that fits (twice `top_k`, at
    /// least 256, or `n_vocab` without it) and 4 per token of the vocabulary if there are penalties.
    pub fn heap_bytes(&self) -> usize {
        self.candidates.heap_bytes() + self.penalties.heap_bytes()
    }
}

/// The number of candidates that `top_k` allows, at least 1.
fn limit(top_k: usize, n_vocab: usize) -> usize {
    if top_k == 0 { n_vocab.max(1) } else { top_k }
}

/// The token to take where `logits` \[n_vocab\] hold nothing above −∞.
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
        Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Sampling::default() }
    }

    fn greedy() -> Sampling {
        Sampling { temperature: 0.0, ..Sampling::default() }
    }

    #[test]
    fn errors_name_the_option_of_the_command_line() {
        let message = |sampling: Sampling| sampling.validate().unwrap_err().to_string();
        let default = Sampling::default;
        assert_eq!(message(Sampling { top_p: 1.5, ..default() }), "--top-p is 1.5, expected 0 to 1");
        assert_eq!(message(Sampling { min_p: f32::NAN, ..default() }), "--min-p is NaN, expected 0 to 1");
        assert_eq!(
            message(Sampling { temperature: -1.0, ..default() }),
            "-t is -1, expected a finite number, 0 or more"
        );
        assert_eq!(
            message(Sampling { repeat_penalty: 0.0, ..default() }),
            "--repeat-penalty is 0, expected a finite number above 0"
        );
        assert_eq!(
            message(Sampling { presence_penalty: f32::INFINITY, ..default() }),
            "--presence-penalty is inf, expected a finite number"
        );
    }

    #[test]
    fn nan_is_refused_in_every_option() {
        let fields: [fn(&mut Sampling) -> &mut f32; 6] = [
            |s| &mut s.temperature,
            |s| &mut s.top_p,
            |s| &mut s.min_p,
            |s| &mut s.repeat_penalty,
            |s| &mut s.presence_penalty,
            |s| &mut s.frequency_penalty,
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
        assert_eq!(sampler(greedy(), 5).sample(&mut [1.0, f32::NAN, 3.0, 3.0, -0.5], &[]), 2);
        assert_eq!(sampler(greedy(), 2).sample(&mut [-0.0, 0.0], &[]), 0);
    }

    #[test]
    fn temperature_zero_comes_after_the_penalties() {
        let sampling = Sampling { repeat_penalty: 2.0, ..greedy() };
        assert_eq!(sampler(sampling, 3).sample(&mut [3.0, 2.0, 1.0], &[0]), 1);
    }

    #[test]
    fn hopeless_logits_give_the_lowest_id_that_is_a_number() {
        for sampling in [Sampling::default(), greedy(), unfiltered()] {
            assert_eq!(sampler(sampling.clone(), 3).sample(&mut [NEVER; 3], &[]), 0);
            assert_eq!(sampler(sampling.clone(), 3).sample(&mut [f32::NAN; 3], &[]), 0);
            assert_eq!(sampler(sampling.clone(), 3).sample(&mut [f32::NAN, NEVER, NEVER], &[]), 1);
            assert_eq!(sampler(sampling.clone(), 3).sample(&mut [0.0, f32::INFINITY, f32::NAN], &[]), 1);
            assert_eq!(sampler(sampling, 0).sample(&mut [], &[]), 0);
        }
    }

    #[test]
    fn extreme_temperatures_are_harmless() {
        let hot = Sampling { temperature: f32::MAX, ..unfiltered() };
        let cold = Sampling { temperature: f32::from_bits(1), ..unfiltered() };
        let logits = [f32::MIN, 0.0, f32::MAX, 1.0];
        assert!(sampler(hot, 4).sample(&mut logits.clone(), &[]) < 4);
        assert_eq!(sampler(cold, 4).sample(&mut logits.clone(), &[]), 2);
    }

    #[test]
    fn the_tokens_of_a_seed_never_change() {
        let mut sampler = sampler(Sampling { repeat_penalty: 1.1, ..Sampling::default() }, 50);
        let mut history = vec![];
        for step in 0..16u32 {
            let mut logits: Vec<f32> = (0..50).map(|i| ((i * 37 + step * 11) % 50) as f32 / 8.0).collect();
            history.push(sampler.sample(&mut logits, &history));
        }
        assert_eq!(history, [43, 1, 25, 22, 15, 36, 13, 26, 7, 35, 24, 2, 49, 23, 43, 9]);
    }

    /// Pearson's χ² of `n` draws against the softmax of `logits` \[n_vocab\] at the temperature.
    fn chi_square(sampling: &Sampling, logits: &[f32], n: usize) -> f64 {
        let mut sampler = sampler(sampling.clone(), logits.len());
        let mut counts = vec![0.0; logits.len()];
        (0..n).for_each(|_| counts[sampler.sample(&mut logits.to_vec(), &[]) as usize] += 1.0);
        let weights: Vec<f64> =
            logits.iter().map(|&l| (f64::from(l) / f64::from(sampling.temperature)).exp()).collect();
        let expected = weights.iter().map(|w| w / weights.iter().sum::<f64>() * n as f64);
        counts.iter().zip(expected).map(|(c, e)| (c - e) * (c - e) / e).sum()
    }

    #[test]
    fn draws_follow_the_softmax() {
        let logits = [0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 0.25, 1.5];
        for temperature in [0.7, 1.0, 1.8] {
            for seed in [0, 1, 42] {
                let chi = chi_square(&Sampling { temperature, seed, ..unfiltered() }, &logits, 50_000);
                // With 7 degrees of freedom 99.9 % are below 24.3; a seed that cannot vary would give 0.
                assert!((0.3..24.3).contains(&chi), "temperature {temperature}, seed {seed}: {chi}");
            }
        }
    }

    #[test]
    fn every_token_in_the_set_is_drawn_and_no_other() {
        let sampling = Sampling { temperature: 5.0, top_k: 3, top_p: 1.0, min_p: 0.0, ..Sampling::default() };
        let mut sampler = sampler(sampling, 6);
        let mut counts = [0; 6];
        (0..600).for_each(|_| counts[sampler.sample(&mut [1.0, 5.0, 2.0, 4.0, 3.0, NEVER], &[]) as usize] += 1);
        assert!(counts[1] > 100 && counts[3] > 100 && counts[4] > 100, "{counts:?}");
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
        assert_eq!(sampler(Sampling { top_k: 500, ..Sampling::default() }, n_vocab).heap_bytes(), 2 * 500 * 8);
        let mut all = sampler(Sampling { frequency_penalty: 0.1, ..unfiltered() }, n_vocab);
        assert_eq!(all.heap_bytes(), n_vocab * 12);
        all.sample(&mut vec![0.5; n_vocab], &[3; 1000]);
        assert_eq!(all.heap_bytes(), n_vocab * 12);
    }

    /// The whole chain as it is defined: sort everything, cut the list three times, draw.
    fn reference(s: &Sampling, logits: &[f32], random: &mut SplitMix64) -> u32 {
        let mut list = sorted(logits);
        list.truncate(limit(s.top_k, logits.len()));
        let Some(&best) = list.first() else { return last_resort(logits) };
        let w = |l: f32, t: f32| weight((l - best.logit) / t);
        let total: u64 = list.iter().map(|c| w(c.logit, 1.0)).sum();
        let goal = (f64::from(s.top_p) * total as f64).ceil() as u64;
        let sums = list.iter().scan(0, |sum, c| Some(std::mem::replace(sum, *sum + w(c.logit, 1.0))));
        let n = if s.top_p < 1.0 { sums.take_while(|&before| before < goal).count().max(1) } else { list.len() };
        list.truncate(n);
        let n = list.iter().take_while(|c| atta_kernels::math::exp(c.logit - best.logit) >= s.min_p).count();
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
            let sampling = Sampling { temperature, top_k, top_p, min_p, seed, ..Sampling::default() };
            let mut sampler = sampler(sampling.clone(), logits.len());
            let mut random = SplitMix64::new(seed);
            for _ in 0..4 {
                let want = reference(&sampling, &logits, &mut random);
                prop_assert_eq!(sampler.sample(&mut logits.clone(), &[]), want);
            }
        }
    }
}
