//! Settings that an error can blame or suggest, without the name that any interface has for them.
//!
//! A library does not know whether its caller has flags, JSON fields or arguments. An error says
//! which [`Setting`] is meant; an interface prints it by [`Explain::explain`] with its own names,
//! and `Display` falls back to plain words. It is in this crate because all others depend on it.

use std::fmt;

/// A setting of any interface.
///
/// Interfaces name settings by an exhaustive `match`, so a new setting has no name by accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Setting {
    /// Softmax temperature.
    Temperature,
    /// Locally typical sampling.
    Typical,
    /// Top-p sampling.
    TopP,
    /// Min-p sampling.
    MinP,
    /// Top-n-sigma sampling.
    TopNSigma,
    /// Repetition penalty.
    RepeatPenalty,
    /// Presence penalty.
    PresencePenalty,
    /// Frequency penalty.
    FrequencyPenalty,
    /// Additions to logits.
    LogitBias,
    /// Factor of the DRY penalty.
    DryMultiplier,
    /// Base of the DRY penalty.
    DryBase,
    /// Tokens that DRY searches.
    DryPenaltyLastN,
    /// Texts that break a repetition.
    DrySequenceBreaker,
    /// Stop strings.
    Stop,
    /// The most tokens to generate.
    NPredict,
    /// What happens when constrained output reaches its length limit.
    OnLength,
    /// Context length, tokens.
    NCtx,
    /// Prompt tokens per batch.
    NBatch,
    /// Element type of the KV cache.
    KvType,
    /// Where the weights are.
    Weights,
    /// Reducing a session until it fits into memory.
    Fit,
    /// The part of a model's quality that is to be kept.
    Quality,
    /// Experts for each position.
    Experts,
    /// The vocabulary file of a model without one.
    TokenizerFile,
    /// The pre-tokenizer of a vocabulary.
    PreTokenizer,
    /// The keys of a server.
    ApiKey,
    /// Serving other machines without keys.
    Insecure,
    /// Origins of web pages that a server answers.
    AllowOrigin,
    /// Names by which a server is asked.
    AllowHost,
}

impl Setting {
    /// The setting in plain words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Temperature => "the temperature",
            Self::Typical => "typical-p",
            Self::TopP => "top-p",
            Self::MinP => "min-p",
            Self::TopNSigma => "top-n-sigma",
            Self::RepeatPenalty => "the repetition penalty",
            Self::PresencePenalty => "the presence penalty",
            Self::FrequencyPenalty => "the frequency penalty",
            Self::LogitBias => "the logit bias",
            Self::DryMultiplier => "the DRY multiplier",
            Self::DryBase => "the DRY base",
            Self::DryPenaltyLastN => "the DRY window",
            Self::DrySequenceBreaker => "a DRY sequence breaker",
            Self::Stop => "a stop string",
            Self::NPredict => "the number of tokens to generate",
            Self::OnLength => "the on-length mode",
            Self::NCtx => "the context length",
            Self::NBatch => "the batch size",
            Self::KvType => "the KV cache type",
            Self::Weights => "the weights mode",
            Self::Fit => "automatic fitting",
            Self::Quality => "the quality",
            Self::Experts => "the number of experts",
            Self::TokenizerFile => "a tokenizer file",
            Self::PreTokenizer => "a pre-tokenizer",
            Self::ApiKey => "an API key",
            Self::Insecure => "insecure access",
            Self::AllowOrigin => "the allowed origin",
            Self::AllowHost => "the allowed host name",
        }
    }

    /// Its field in a request to OpenAI's or llama.cpp's interfaces, after which options of the C
    /// interface are named. Settings that no request has keep their words.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Temperature => "temperature",
            Self::Typical => "typical_p",
            Self::TopP => "top_p",
            Self::MinP => "min_p",
            Self::TopNSigma => "top_n_sigma",
            Self::RepeatPenalty => "repeat_penalty",
            Self::PresencePenalty => "presence_penalty",
            Self::FrequencyPenalty => "frequency_penalty",
            Self::LogitBias => "logit_bias",
            Self::DryMultiplier => "dry_multiplier",
            Self::DryBase => "dry_base",
            Self::DryPenaltyLastN => "dry_penalty_last_n",
            Self::DrySequenceBreaker => "dry_sequence_breakers",
            Self::Stop => "stop",
            Self::NPredict => "max_tokens",
            Self::OnLength
            | Self::NCtx
            | Self::NBatch
            | Self::KvType
            | Self::Weights
            | Self::Fit
            | Self::Quality
            | Self::Experts
            | Self::TokenizerFile
            | Self::PreTokenizer
            | Self::ApiKey
            | Self::Insecure
            | Self::AllowOrigin
            | Self::AllowHost => self.words(),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// The names that an interface has for settings.
pub type Names = fn(Setting) -> &'static str;

/// An error whose message can name settings.
///
/// `Display` of the error is `explain(Setting::words)`.
pub trait Explain: fmt::Display {
    /// The message with an interface's names of settings.
    fn explain(&self, names: Names) -> String;
}

/// A change of a setting that would help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suggestion {
    /// A value below this number.
    Below(Setting, usize),
    /// This value.
    Choose(Setting, &'static str),
    /// Turning the setting on.
    TurnOn(Setting),
}

impl Suggestion {
    /// The suggestion with an interface's names of settings.
    pub fn explain(&self, names: Names) -> String {
        match *self {
            Self::Below(setting, n) => format!("{} below {n}", names(setting)),
            Self::Choose(setting, value) => format!("{} {value}", names(setting)),
            Self::TurnOn(setting) => names(setting).to_owned(),
        }
    }
}
