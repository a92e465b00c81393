//! `POST /completion`: continues texts, with llama.cpp's fields.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use serde::Deserialize;

use super::{
    options::{self, LlamaOptions},
    response::{self, LlamaReply, ReplyFields},
};
use crate::{
    app::App,
    flow::{
        body::{BodyFields, Incoming},
        error::ApiError,
        prepare::Prepared,
        prompt::{PromptLimits, Prompts},
        request::{self, ApiRequest},
        warnings::Warnings,
    },
    models::Model,
};

const PROMPT_LIMITS: PromptLimits = PromptLimits {
    field: "prompt",
    max: 64,
};

/// The fields that are kept or refused, in the parts that read them.
pub(crate) struct LlamaCompletionRequest {
    options: LlamaOptions,
    reply: ReplyFields,
    completion: LlamaCompletionFields,
}

/// The fields of `/completion` alone.
#[derive(Debug, Deserialize)]
struct LlamaCompletionFields {
    prompt: Prompts,
    model: Option<String>,
}

impl ApiRequest for LlamaCompletionRequest {
    fn read(mut fields: BodyFields, warnings: &Warnings) -> Result<Self, ApiError> {
        Ok(Self {
            options: fields.take()?,
            reply: fields.take()?,
            completion: fields.rest(options::ACCEPTED, warnings)?,
        })
    }

    fn model(&self) -> Option<&str> {
        self.completion.model.as_deref()
    }
}

/// Continues each prompt.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let (answers, reply) = request::submit(&app, incoming, prepare).await?;
    response::respond(answers, reply).await
}

fn prepare(
    model: &Model,
    request: LlamaCompletionRequest,
    warnings: &Warnings,
) -> Result<(Prepared, LlamaReply), ApiError> {
    let is_list = request.completion.prompt.is_list();
    let prompts = request.completion.prompt.into_ids(model, PROMPT_LIMITS)?;
    let options = request.options.into_options(model, warnings)?;
    let (prepared, mut reply) = response::prepare(model, &prompts, options, request.reply)?;
    reply.is_list = is_list;
    Ok((prepared, reply))
}
