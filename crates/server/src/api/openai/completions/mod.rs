//! `POST /v1/completions`: continues texts.

pub(crate) mod request;
mod response;

use std::sync::Arc;

use axum::{extract::State, response::Response};

use self::{
    request::{CompletionReply, CompletionRequest},
    response::{CompletionEnvelope, CompletionWriter, whole},
};
use crate::{
    app::{self, App},
    flow::{
        body::Incoming,
        error::ApiError,
        prepare::{self, Prepared},
        request as flow_request, stream,
        warnings::Warnings,
    },
    models::Model,
};

/// Continues each prompt.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let (answers, reply) = flow_request::submit(&app, incoming, prepare).await?;
    let envelope = CompletionEnvelope {
        id: app.id("cmpl-"),
        created: app::now(),
        model: Arc::clone(answers.model()),
    };
    match reply.stream {
        true => {
            let writer = CompletionWriter::new(envelope, reply, answers.len());
            Ok(stream::events(answers, writer))
        }
        false => whole(&envelope, answers, reply.n).await,
    }
}

fn prepare(
    model: &Model,
    request: CompletionRequest,
    warnings: &Warnings,
) -> Result<(Prepared, CompletionReply), ApiError> {
    let completion = request.parsed(model, warnings)?;
    let reply = completion.reply;
    let prepared = prepare::continuations(model, &completion.prompts, &completion.options, reply.n)
        .map_err(|error| error.renamed("messages", "prompt"))?;
    Ok((prepared.with_priority(completion.priority), reply))
}
