//! The request of completions: its fields, and the prompts and options that they mean.

use atta_engine::GenerateOptions;
use serde::Deserialize;

use super::super::{
    choices::{ChoiceOptions, ChoicesShared},
    sampling::AnswerLimits,
};
use crate::{
    flow::{
        body::Accepted,
        error::ApiError,
        logprobs::MAX_TOP_LOGPROBS,
        prompt::{PromptLimits, Prompts},
        request::{PathFields, PathRequest},
        sampling::max_tokens,
        warnings::Warnings,
    },
    models::Model,
};

const PROMPT_LIMITS: PromptLimits = PromptLimits {
    field: "prompt",
    max: 64,
};

/// OpenAI's default for `max_tokens`.
const DEFAULT_MAX_TOKENS: usize = 16;

pub(crate) type CompletionRequest = PathRequest<CompletionFields>;

/// The fields of completions alone.
#[derive(Debug, Deserialize)]
pub(crate) struct CompletionFields {
    prompt: Prompts,
    model: Option<String>,
    #[serde(default, deserialize_with = "max_tokens")]
    max_tokens: Option<usize>,
    /// llama.cpp's name for `max_tokens`.
    #[serde(default, deserialize_with = "max_tokens")]
    n_predict: Option<usize>,
    logprobs: Option<usize>,
    echo: Option<bool>,
    best_of: Option<usize>,
    suffix: Option<String>,
}

/// The prompts, the options and the form of the reply.
pub(super) struct ParsedCompletion {
    pub(super) prompts: Vec<Vec<u32>>,
    pub(super) options: GenerateOptions,
    pub(super) choices: ChoiceOptions,
}

impl PathFields for CompletionFields {
    type Shared = ChoicesShared;
    const ACCEPTED: Accepted = &[
        ("user", "there are no accounts"),
        ("safety_identifier", "there are no accounts"),
        ("metadata", "this server stores nothing"),
        ("store", "this server stores nothing"),
        ("prompt_cache_key", "the beginnings of all prompts are kept"),
        ("cache_prompt", "the beginnings of all prompts are kept"),
        ("id_slot", "the server gives out its slots"),
        ("samplers", "samplers have one order"),
        (
            "add_special_tokens",
            "the model's file says which there are",
        ),
    ];

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

impl CompletionRequest {
    pub(super) fn parsed(
        self,
        model: &Model,
        warnings: &Warnings,
    ) -> Result<ParsedCompletion, ApiError> {
        let completion = self.own;
        let with_logprobs = completion.logprobs.is_some();
        let choices = self.shared.choices.parsed(model.n_jobs, with_logprobs)?;
        completion.refuse_unsupported(choices.n)?;
        let default = model.defaults.n_predict.unwrap_or(DEFAULT_MAX_TOKENS);
        let max_tokens = completion.max_tokens.or(completion.n_predict);
        let limits = AnswerLimits {
            max_tokens: Some(max_tokens.unwrap_or(default)),
            n_logprobs: completion.logprobs,
        };
        Ok(ParsedCompletion {
            options: self
                .shared
                .into_options(limits, &model.defaults, warnings)?,
            prompts: completion.prompt.into_ids(model, PROMPT_LIMITS)?,
            choices,
        })
    }
}

impl CompletionFields {
    fn refuse_unsupported(&self, n: usize) -> Result<(), ApiError> {
        let error = |name: &str, message: String| Err(ApiError::field(name, message));
        let has_suffix = self.suffix.as_ref().is_some_and(|text| !text.is_empty());
        if self.echo == Some(true) {
            return error("echo", "echo is not supported".to_owned());
        }
        if has_suffix {
            let message = "suffix is not supported; /infill fills gaps";
            return error("suffix", message.to_owned());
        }
        if self.best_of.is_some_and(|best| best != n) {
            return error("best_of", "best_of is not supported".to_owned());
        }
        match self.logprobs {
            Some(n) if n > MAX_TOP_LOGPROBS => {
                error("logprobs", format!("expected at most {MAX_TOP_LOGPROBS}"))
            }
            _ => Ok(()),
        }
    }
}
