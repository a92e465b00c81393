//! Sampling fields that chat, completions and responses share: OpenAI's names, and those of
//! llama.cpp's server and vLLM.

use atta_engine::GenerateOptions;
use serde::Deserialize;

use crate::flow::{
    body::BodyFields,
    error::ApiError,
    request::SharedFields,
    sampling::{self, Defaults, LogitBias, OneOrMore, SamplingFields, SpeculationName},
};

/// The limits of an answer, for which each path has names of its own.
pub(super) struct AnswerLimits {
    pub(super) max_tokens: Option<usize>,
    pub(super) n_logprobs: Option<usize>,
}

/// The fields that are kept.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct OpenAiSampling {
    pub(super) temperature: Option<f32>,
    pub(super) top_p: Option<f32>,
    #[serde(default, deserialize_with = "sampling::top_k")]
    top_k: Option<usize>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    repeat_penalty: Option<f32>,
    /// vLLM's name for `repeat_penalty`.
    repetition_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    logit_bias: Option<LogitBias>,
    seed: Option<i64>,
    stop: Option<OneOrMore>,
    speculation: Option<SpeculationName>,
}

impl SharedFields for OpenAiSampling {
    fn take(fields: &mut BodyFields) -> Result<Self, ApiError> {
        fields.take()
    }
}

impl OpenAiSampling {
    pub(super) fn into_options(
        self,
        limits: AnswerLimits,
        defaults: &Defaults,
    ) -> Result<GenerateOptions, ApiError> {
        let only_ids = |biases: LogitBias| biases.into_ids(|_| None);
        let fields = SamplingFields {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repeat_penalty: self.repeat_penalty.or(self.repetition_penalty),
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: self.logit_bias.map(only_ids).transpose()?,
            seed: self.seed,
            stop: self.stop.map(OneOrMore::into_vec),
            max_tokens: limits.max_tokens,
            n_logprobs: limits.n_logprobs,
            speculation: self.speculation,
            ..SamplingFields::default()
        };
        fields.into_options(defaults)
    }
}
