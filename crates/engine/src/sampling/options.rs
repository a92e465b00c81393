//! The options of the sampler and the ranges of their values.

use atta_formats::{Explain, Names, Setting};

/// Maximum bytes of a sequence breaker, and maximum tokens of DRY's window. The first is
/// llama.cpp's; the second keeps the buffer below 4 MB.
const MAX_BREAKER_BYTES: usize = 40;
const MAX_DRY_WINDOW: usize = 1 << 20;

/// Sampling parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Temperature: divides the logits before the draw; 0 takes the most probable token after the
    /// penalties, the lowest id on ties.
    pub temperature: f32,
    /// Top-k sampling: keep the `top_k` most probable tokens; 0 for all.
    pub top_k: usize,
    /// Locally typical sampling: keep the most typical tokens with this total probability; 1 for
    /// all.
    pub typical: f32,
    /// Top-p (nucleus) sampling: keep the most probable tokens with this total probability; 1 for
    /// all.
    pub top_p: f32,
    /// Min-p sampling: keep tokens at least this many times as probable as the best; 0 for all.
    pub min_p: f32,
    /// Top-n-sigma sampling: keep tokens with a logit at most this many standard deviations below
    /// the best; 0 or less for all.
    pub top_n_sigma: f32,
    /// Repeat penalty: divides positive and multiplies negative logits of tokens in the window; 1
    /// for none.
    pub repeat_penalty: f32,
    /// Window of the three penalties, in last tokens; 0 for none.
    pub repeat_window: usize,
    /// Presence penalty: subtracted from the logit of every token in the window; 0 for none.
    pub presence_penalty: f32,
    /// Frequency penalty: subtracted from the logit of a token once per occurrence in the window; 0
    /// for none.
    pub frequency_penalty: f32,
    /// DRY: the penalty on continued repetitions.
    pub dry: DryOptions,
    /// Logit bias: added to the logits of these tokens first; −∞ bans a token. Several biases of
    /// one token are summed.
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the random numbers; the same seed and logits give the same tokens.
    pub seed: u64,
}

/// DRY, "don't repeat yourself": p-e-w, 2024,
/// <https://github.com/oobabooga/text-generation-webui/pull/5677>.
///
/// If the last `n ≥ allowed_length` tokens occur earlier in the text, followed by a token, that
/// token loses `multiplier * base^(n - allowed_length)`.
#[derive(Clone, Debug, PartialEq)]
pub struct DryOptions {
    /// Factor of the penalty; 0 for none.
    pub multiplier: f32,
    /// Growth of the penalty per token of the repetition, at least 1.
    pub base: f32,
    /// Shorter repetitions have no penalty.
    pub allowed_length: usize,
    /// Window that is searched, in last tokens; 0 for none.
    pub penalty_last_n: usize,
    /// Sequence breakers: texts that end a repetition.
    pub sequence_breakers: Vec<String>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            typical: 1.0,
            top_p: 0.95,
            min_p: 0.05,
            top_n_sigma: -1.0,
            repeat_penalty: 1.0,
            repeat_window: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            dry: DryOptions::default(),
            logit_bias: Vec::new(),
            seed: 42,
        }
    }
}

impl Default for DryOptions {
    fn default() -> Self {
        Self {
            multiplier: 0.0,
            base: 1.75,
            allowed_length: 2,
            penalty_last_n: 64,
            sequence_breakers: ["\n", ":", "\"", "*"].map(str::to_owned).to_vec(),
        }
    }
}

impl Sampling {
    /// Validates all parameters.
    ///
    /// # Errors
    /// The first parameter out of range. NaN always is; so is infinity, except −∞ as a bias.
    pub fn validate(&self) -> Result<(), SamplingError> {
        let unit =
            |setting, value: f32| check((0.0..=1.0).contains(&value), setting, value, "0 to 1");
        at_least_0(Setting::Temperature, self.temperature)?;
        unit(Setting::Typical, self.typical)?;
        unit(Setting::TopP, self.top_p)?;
        unit(Setting::MinP, self.min_p)?;
        finite(Setting::TopNSigma, self.top_n_sigma)?;
        self.validate_penalties()?;
        for &(_, bias) in &self.logit_bias {
            check(
                bias < f32::INFINITY,
                Setting::LogitBias,
                bias,
                "a finite number, or -inf",
            )?;
        }
        self.dry.validate()
    }

    fn validate_penalties(&self) -> Result<(), SamplingError> {
        let positive = self.repeat_penalty.is_finite() && self.repeat_penalty > 0.0;
        check(
            positive,
            Setting::RepeatPenalty,
            self.repeat_penalty,
            "a finite number above 0",
        )?;
        finite(Setting::PresencePenalty, self.presence_penalty)?;
        finite(Setting::FrequencyPenalty, self.frequency_penalty)
    }
}

impl DryOptions {
    /// Whether the penalty is on.
    pub(crate) fn applies(&self) -> bool {
        self.multiplier != 0.0 && self.penalty_last_n > 0
    }

    fn validate(&self) -> Result<(), SamplingError> {
        at_least_0(Setting::DryMultiplier, self.multiplier)?;
        let base_is_sane = self.base.is_finite() && self.base >= 1.0;
        check(
            base_is_sane,
            Setting::DryBase,
            self.base,
            "a finite number, 1 or more",
        )?;
        let window_is_sane = self.penalty_last_n <= MAX_DRY_WINDOW;
        check(
            window_is_sane,
            Setting::DryPenaltyLastN,
            self.penalty_last_n as f32,
            "0 to 1048576",
        )?;
        match self
            .sequence_breakers
            .iter()
            .find(|text| !(1..=MAX_BREAKER_BYTES).contains(&text.len()))
        {
            Some(text) => Err(SamplingError::Breaker {
                n_bytes: text.len(),
                max: MAX_BREAKER_BYTES,
            }),
            None => Ok(()),
        }
    }
}

fn finite(setting: Setting, value: f32) -> Result<(), SamplingError> {
    check(value.is_finite(), setting, value, "a finite number")
}

fn at_least_0(setting: Setting, value: f32) -> Result<(), SamplingError> {
    check(
        value.is_finite() && value >= 0.0,
        setting,
        value,
        "a finite number, 0 or more",
    )
}

fn check(
    holds: bool,
    setting: Setting,
    value: f32,
    expected: &'static str,
) -> Result<(), SamplingError> {
    if holds {
        Ok(())
    } else {
        Err(SamplingError::OutOfRange {
            setting,
            value,
            expected,
        })
    }
}

/// An invalid [`Sampling`].
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SamplingError {
    /// A value out of range.
    #[error("{}", out_of_range(*setting, *value, expected, Setting::words))]
    OutOfRange {
        /// The setting.
        setting: Setting,
        /// Value given.
        value: f32,
        /// Valid values.
        expected: &'static str,
    },
    /// A sequence breaker that is empty or too long.
    #[error("{}", breaker(*n_bytes, *max, Setting::words))]
    Breaker {
        /// Its length.
        n_bytes: usize,
        /// Maximum.
        max: usize,
    },
    /// A bias of −∞ on every token that could follow.
    #[error("{}", nothing_left(Setting::words))]
    NothingLeft,
    /// A bias on a token outside the vocabulary.
    #[error("{}", biased_token(*id, *n_vocab, Setting::words))]
    BiasedToken {
        /// The token.
        id: u32,
        /// Tokens of the vocabulary.
        n_vocab: usize,
    },
}

impl Explain for SamplingError {
    fn explain(&self, names: Names) -> String {
        match *self {
            Self::OutOfRange {
                setting,
                value,
                expected,
            } => out_of_range(setting, value, expected, names),
            Self::Breaker { n_bytes, max } => breaker(n_bytes, max, names),
            Self::NothingLeft => nothing_left(names),
            Self::BiasedToken { id, n_vocab } => biased_token(id, n_vocab, names),
        }
    }
}

fn out_of_range(setting: Setting, value: f32, expected: &str, names: Names) -> String {
    format!("{} is {value}, expected {expected}", names(setting))
}

fn breaker(n_bytes: usize, max: usize, names: Names) -> String {
    let setting = names(Setting::DrySequenceBreaker);
    format!("{setting} has {n_bytes} bytes, expected 1 to {max}")
}

fn nothing_left(names: Names) -> String {
    format!("{} forbids every token", names(Setting::LogitBias))
}

fn biased_token(id: u32, n_vocab: usize, names: Names) -> String {
    let setting = names(Setting::LogitBias);
    format!("{setting}: token {id} is out of range, the model has {n_vocab} tokens")
}
