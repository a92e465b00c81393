//! Options for sampling.

use atta::{DryOptions, Explain, GenerateOptions, Sampling};
use clap::{Args, builder::NonEmptyStringValueParser};

use super::{
    EVERYDAY, flag,
    value::{self, Seed},
};
use crate::failure::Failure;

/// How the next token is chosen, and when generation stops.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingFlags {
    /// Maximum number of tokens to generate; -1: until the model ends the text [default: 256; of
    /// `chat` the context, of the built-in model on a terminal and of `serve` -1]
    #[arg(short = 'n', long, aliases = ["max-tokens", "predict"], value_name = "N")]
    #[arg(value_parser = value::n_tokens, allow_negative_numbers = true)]
    #[arg(help_heading = EVERYDAY)]
    n_predict: Option<usize>,
    /// Temperature; 0: greedy
    #[arg(
        short = 't',
        long,
        alias = "temp",
        value_name = "TEMP",
        default_value = "0.8"
    )]
    #[arg(value_parser = value::number, allow_negative_numbers = true)]
    #[arg(help_heading = EVERYDAY)]
    temperature: f32,
    /// Top-k sampling: keep the K most probable tokens (0 = off)
    #[arg(long, value_name = "K", default_value = "40")]
    #[arg(value_parser = value::count, allow_negative_numbers = true)]
    top_k: usize,
    /// Locally typical sampling: keep the most typical tokens with total probability P (1 = off)
    #[arg(long, alias = "typical-p", value_name = "P", default_value = "1")]
    #[arg(value_parser = value::number, allow_negative_numbers = true)]
    typical: f32,
    /// Top-p sampling: keep the most probable tokens with total probability P (1 = off)
    #[arg(long, value_name = "P", default_value = "0.95")]
    #[arg(value_parser = value::number, allow_negative_numbers = true)]
    top_p: f32,
    /// Min-p sampling: keep tokens at least P times as probable as the best (0 = off)
    #[arg(long, value_name = "P", default_value = "0.05")]
    #[arg(value_parser = value::number, allow_negative_numbers = true)]
    min_p: f32,
    /// Top-n-sigma sampling: keep tokens within N standard deviations of the best logit (<= 0 =
    /// off)
    #[arg(long, alias = "top-nsigma", value_name = "N", default_value = "-1")]
    #[arg(value_parser = value::number, allow_negative_numbers = true)]
    top_n_sigma: f32,
    /// Repetition penalty (1 = off)
    #[arg(long, value_name = "X", default_value = "1")]
    #[arg(value_parser = value::number, allow_negative_numbers = true)]
    repeat_penalty: f32,
    /// Number of recent tokens that all penalties but DRY look at
    #[arg(long, alias = "repeat-last-n", value_name = "N", default_value = "64")]
    #[arg(value_parser = value::count, allow_negative_numbers = true)]
    repeat_window: usize,
    /// Presence penalty, subtracted from the logits of recent tokens (0 = off)
    #[arg(long, value_name = "X", default_value = "0")]
    #[arg(value_parser = value::number, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// Frequency penalty, subtracted once per occurrence of a recent token (0 = off)
    #[arg(long, value_name = "X", default_value = "0")]
    #[arg(value_parser = value::number, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// DRY: penalty of a token that extends a repetition, X * base^(length - allowed length)
    /// (0 = off)
    #[arg(long, value_name = "X", default_value = "0")]
    #[arg(value_parser = value::number, allow_negative_numbers = true)]
    dry_multiplier: f32,
    /// DRY: base of the penalty, at least 1
    #[arg(long, value_name = "X", default_value = "1.75")]
    #[arg(value_parser = value::number, allow_negative_numbers = true)]
    dry_base: f32,
    /// DRY: repetitions shorter than N tokens are not penalized
    #[arg(long, value_name = "N", default_value = "2")]
    #[arg(value_parser = value::count, allow_negative_numbers = true)]
    dry_allowed_length: usize,
    /// DRY: number of recent tokens searched for repetitions (0 = none)
    #[arg(long, value_name = "N", default_value = "64")]
    #[arg(value_parser = value::count, allow_negative_numbers = true)]
    dry_penalty_last_n: usize,
    /// DRY: text that breaks a repetition; repeatable, replaces the defaults; `none`: no breakers
    /// [default: newline : " *]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    dry_sequence_breaker: Vec<String>,
    /// Add X to the logit of a token, such as 15043+1 or 2-inf; repeatable
    #[arg(long, value_name = "ID(+|-)X", value_parser = value::logit_bias)]
    logit_bias: Vec<(u32, f32)>,
    /// RNG seed; -1: random [default: 42; of the built-in model on a terminal and of `serve`, -1]
    #[arg(long, value_name = "SEED", value_parser = value::seed, allow_negative_numbers = true)]
    pub(crate) seed: Option<Seed>,
    /// Stop before this text, or at this special token; repeatable
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    stop: Vec<String>,
}

/// The length limit and the seed of a text without `-n` and `--seed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultLength {
    /// [`DEFAULT_LENGTH`] tokens from a fixed seed: for scripts.
    Limited,
    /// Until the model ends the text, from a random seed: for a reader at a terminal.
    Unlimited,
}

/// Tokens of a limited text without `-n`.
const DEFAULT_LENGTH: usize = 256;

impl SamplingFlags {
    /// The sampler's options, checked.
    fn sampling(&self, length: DefaultLength) -> Result<Sampling, Failure> {
        let seed = match length {
            DefaultLength::Limited => Seed::Fixed(Sampling::default().seed),
            DefaultLength::Unlimited => Seed::Random,
        };
        let sampling = Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            typical: self.typical,
            top_p: self.top_p,
            min_p: self.min_p,
            top_n_sigma: self.top_n_sigma,
            repeat_penalty: self.repeat_penalty,
            repeat_window: self.repeat_window,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            dry: self.dry(),
            logit_bias: self.logit_bias.clone(),
            seed: self.seed.unwrap_or(seed).now(),
        };
        sampling
            .validate()
            .map_err(|error| Failure::Usage(error.explain(flag)))?;
        Ok(sampling)
    }

    /// Whether -n was given.
    #[cfg(feature = "chat")]
    pub(crate) fn has_length(&self) -> bool {
        self.n_predict.is_some()
    }

    /// The options of a generation, checked.
    pub(crate) fn generate_options(
        &self,
        length: DefaultLength,
    ) -> Result<GenerateOptions, Failure> {
        let sampling = self.sampling(length)?;
        let n_predict = if length == DefaultLength::Unlimited {
            usize::MAX
        } else {
            DEFAULT_LENGTH
        };
        Ok(GenerateOptions {
            n_predict: self.n_predict.unwrap_or(n_predict),
            sampling,
            stop: self.stop.clone(),
            ..GenerateOptions::default()
        })
    }

    fn dry(&self) -> DryOptions {
        let sequence_breakers = match self.dry_sequence_breaker.as_slice() {
            [] => DryOptions::default().sequence_breakers,
            given => given
                .iter()
                .filter(|text| *text != "none")
                .cloned()
                .collect(),
        };
        DryOptions {
            multiplier: self.dry_multiplier,
            base: self.dry_base,
            allowed_length: self.dry_allowed_length,
            penalty_last_n: self.dry_penalty_last_n,
            sequence_breakers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        sampling: SamplingFlags,
    }

    fn parse(line: &str) -> SamplingFlags {
        Cli::try_parse_from(line.split(' ')).unwrap().sampling
    }

    #[test]
    fn the_defaults_are_those_of_the_library() {
        let ours = parse("x").generate_options(DefaultLength::Limited).unwrap();
        let theirs = GenerateOptions::default();
        assert_eq!(ours.sampling, theirs.sampling);
        assert_eq!(ours.n_predict, theirs.n_predict);
    }

    #[test]
    fn an_unlimited_text_has_a_random_seed_and_no_length_unless_they_are_given() {
        let options = |line| {
            parse(line)
                .generate_options(DefaultLength::Unlimited)
                .unwrap()
        };
        assert_ne!(options("x").sampling.seed, options("x").sampling.seed);
        assert_ne!(
            options("x --seed -1").sampling.seed,
            options("x --seed -1").sampling.seed
        );
        assert_eq!(options("x").n_predict, usize::MAX);
        let given = options("x --seed 7 -n 8");
        assert_eq!((given.sampling.seed, given.n_predict), (7, 8));
    }

    #[test]
    fn sequence_breakers_replace_the_default_ones() {
        let breakers = |line| {
            parse(line)
                .sampling(DefaultLength::Limited)
                .unwrap()
                .dry
                .sequence_breakers
        };
        assert_eq!(breakers("x"), ["\n", ":", "\"", "*"]);
        assert_eq!(
            breakers("x --dry-sequence-breaker a --dry-sequence-breaker -b"),
            ["a", "-b"]
        );
        assert!(breakers("x --dry-sequence-breaker none").is_empty());
    }

    #[test]
    fn a_sampler_setting_out_of_range_is_wrong_usage() {
        for line in [
            "x --typical 2",
            "x --dry-base 0.5",
            "x --logit-bias 1+inf",
            "x --dry-penalty-last-n 9999999",
            "x --top-p 1.5",
            "x --min-p -0.1",
            "x -t -1",
            "x -t nan",
            "x --repeat-penalty 0",
        ] {
            let sampling = parse(line).sampling(DefaultLength::Limited);
            assert!(matches!(sampling, Err(Failure::Usage(_))), "{line}");
        }
    }
}
