//! `POST /completion`: continues texts, with llama.cpp's fields.

use serde::Deserialize;

use super::{
    LlamaPath, LlamaPrompts,
    options::{self, LlamaShared},
};
use crate::{
    flow::{
        body::Accepted,
        error::ApiError,
        prompt::{PromptLimits, Prompts},
        request::PathFields,
    },
    models::Model,
};

const PROMPT_LIMITS: PromptLimits = PromptLimits {
    field: "prompt",
    max: 64,
};

/// The fields of `/completion` alone.
#[derive(Debug, Deserialize)]
pub(crate) struct LlamaCompletionFields {
    prompt: Prompts,
    model: Option<String>,
}

impl PathFields for LlamaCompletionFields {
    type Shared = LlamaShared;
    const ACCEPTED: Accepted = options::ACCEPTED;

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

impl LlamaPath for LlamaCompletionFields {
    fn into_prompts(self, model: &Model) -> Result<LlamaPrompts, ApiError> {
        Ok(LlamaPrompts {
            is_list: self.prompt.is_list(),
            ids: self.prompt.into_ids(model, PROMPT_LIMITS)?,
        })
    }
}
