//! llama.cpp's own interface, as far as clients use it: `/completion`, `/infill`,
//! `/apply-template`, `/props`, `/slots`, `/lora-adapters`.
//!
//! Source: llama.cpp, tools/server/README.md, 2025. Errors are like OpenAI's. `/tokenize` and
//! `/detokenize` are in [`native`](super::native).

pub(crate) mod completion;
pub(crate) mod infill;
pub(crate) mod info;
pub(crate) mod lora;
pub(crate) mod options;
pub(crate) mod rerank;
mod response;
pub(crate) mod template;

use std::sync::Arc;

use axum::{extract::State, response::Response};

use self::{options::LlamaShared, response::LlamaReply};
use crate::{
    app::App,
    flow::{
        body::Incoming,
        error::ApiError,
        prepare::Prepared,
        request::{self, PathFields, PathRequest},
        warnings::Warnings,
    },
    models::Model,
};

/// The fields of a path that continues prompts.
pub(crate) trait LlamaPath: PathFields<Shared = LlamaShared> {
    /// Tokenizes the prompts.
    fn into_prompts(self, model: &Model) -> Result<LlamaPrompts, ApiError>;
}

/// The prompts of a request.
pub(crate) struct LlamaPrompts {
    /// Whether the request has a list of them; the response has one, then.
    is_list: bool,
    ids: Vec<Vec<u32>>,
}

/// Continues each prompt.
pub(crate) async fn answer<F: LlamaPath>(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let (answers, reply) = request::submit(&app, incoming, prepare::<F>).await?;
    response::respond(answers, reply).await
}

fn prepare<F: LlamaPath>(
    model: &Model,
    request: PathRequest<F>,
    warnings: &Warnings,
) -> Result<(Prepared, LlamaReply), ApiError> {
    let LlamaShared { options, reply } = request.shared;
    let prompts = request.own.into_prompts(model)?;
    let options = options.into_options(model.into(), warnings)?;
    response::prepare(model, &prompts, options, reply)
}
