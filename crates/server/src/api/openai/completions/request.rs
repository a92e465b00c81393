//! The request of completions: its fields, and the prompts and options that they mean.

use atta_engine::GenerateOptions;
use serde::Deserialize;

use super::super::{chat::request::StreamOptions, sampling::OpenAiSampling, tier::Tier};
use crate::{
    flow::{
        body::{Accepted, BodyFields},
        error::ApiError,
        format::FormatFields,
        logprobs::MAX_TOP_LOGPROBS,
        prompt::{PromptLimits, Prompts},
        request::ApiRequest,
        sampling::{max_tokens, n_answers},
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

/// The fields that are kept or refused, in the parts that read them.
pub(crate) struct CompletionRequest {
    sampling: OpenAiSampling,
    format: FormatFields,
    completion: CompletionFields,
}

/// The fields of completions alone.
#[derive(Debug, Deserialize)]
pub(crate) struct CompletionFields {
    prompt: Prompts,
    model: Option<String>,
    stream: Option<bool>,
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    stream_options: Option<StreamOptions>,
    n: Option<usize>,
    #[serde(default, deserialize_with = "max_tokens")]
    max_tokens: Option<usize>,
    /// llama.cpp's name for `max_tokens`.
    #[serde(default, deserialize_with = "max_tokens")]
    n_predict: Option<usize>,
    logprobs: Option<usize>,
    service_tier: Option<Tier>,
    echo: Option<bool>,
    best_of: Option<usize>,
    suffix: Option<String>,
}

/// How the answers are sent.
#[derive(Clone, Copy)]
pub(super) struct CompletionReply {
    /// Answers per prompt.
    pub(super) n: usize,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) logprobs: bool,
}

/// The prompts, the options and the form of the reply.
pub(super) struct ParsedCompletion {
    pub(super) prompts: Vec<Vec<u32>>,
    pub(super) options: GenerateOptions,
    pub(super) priority: u8,
    pub(super) reply: CompletionReply,
}

impl ApiRequest for CompletionRequest {
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

    fn read(mut fields: BodyFields, warnings: &Warnings) -> Result<Self, ApiError> {
        Ok(Self {
            sampling: fields.take()?,
            format: fields.take()?,
            completion: fields.rest(Self::ACCEPTED, warnings)?,
        })
    }

    fn model(&self) -> Option<&str> {
        self.completion.model.as_deref()
    }
}

impl CompletionRequest {
    pub(super) fn parsed(
        self,
        model: &Model,
        warnings: &Warnings,
    ) -> Result<ParsedCompletion, ApiError> {
        let completion = self.completion;
        completion.refuse_unsupported()?;
        let reply = completion.reply(model.n_jobs)?;
        let default = model.defaults.n_predict.unwrap_or(DEFAULT_MAX_TOKENS);
        let max_tokens = completion.max_tokens.or(completion.n_predict);
        let sampling = self
            .sampling
            .into_fields(Some(max_tokens.unwrap_or(default)), completion.logprobs)?;
        Ok(ParsedCompletion {
            options: GenerateOptions {
                constraint: self.format.into_constraint(warnings)?,
                ..sampling.into_options(&model.defaults)?
            },
            prompts: completion.prompt.into_ids(model, PROMPT_LIMITS)?,
            priority: completion.service_tier.unwrap_or_default().priority(),
            reply,
        })
    }
}

impl CompletionFields {
    fn refuse_unsupported(&self) -> Result<(), ApiError> {
        let error = |name: &str, message: String| Err(ApiError::field(name, message));
        let has_suffix = self.suffix.as_ref().is_some_and(|text| !text.is_empty());
        if self.echo == Some(true) {
            return error("echo", "echo is not supported".to_owned());
        }
        if has_suffix {
            let message = "suffix is not supported; /infill fills gaps";
            return error("suffix", message.to_owned());
        }
        if self.best_of.is_some_and(|best| best != self.n.unwrap_or(1)) {
            return error("best_of", "best_of is not supported".to_owned());
        }
        match self.logprobs {
            Some(n) if n > MAX_TOP_LOGPROBS => {
                error("logprobs", format!("expected at most {MAX_TOP_LOGPROBS}"))
            }
            _ => Ok(()),
        }
    }

    fn reply(&self, max_answers: usize) -> Result<CompletionReply, ApiError> {
        Ok(CompletionReply {
            n: n_answers(self.n, max_answers)?,
            stream: self.stream == Some(true),
            include_usage: StreamOptions::includes_usage(self.stream_options.as_ref()),
            logprobs: self.logprobs.is_some(),
        })
    }
}
