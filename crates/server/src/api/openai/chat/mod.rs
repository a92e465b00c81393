//! `POST /v1/chat/completions`, and `/v1/chat/completions/input_tokens`.

pub(crate) mod request;
mod response;

use std::sync::Arc;

use axum::{extract::State, response::Response};

use self::{
    request::{ChatReply, ChatRequest},
    response::{ChatWriter, whole},
};
use super::{
    choices::{ChoiceOptions, Envelope},
    response::token_count,
};
use crate::{
    app::App,
    flow::{
        body::Incoming,
        error::ApiError,
        prepare::{self, Prepared},
        request::{self as flow_request, LoadedRequest},
        stream,
        warnings::Warnings,
    },
    models::Model,
};

/// Answers a conversation.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let (answers, reply) = flow_request::submit(&app, incoming, prepare).await?;
    let envelope = Envelope::new(&app, "chatcmpl-", &answers);
    match reply.choices.stream {
        true => Ok(stream::events(answers, ChatWriter::new(envelope, reply))),
        false => whole(&envelope, answers, reply).await,
    }
}

fn prepare(
    model: &Model,
    request: ChatRequest,
    warnings: &Warnings,
) -> Result<(Prepared, ChatReply), ApiError> {
    let chat = request.parsed(model, warnings)?;
    let reply = chat.reply;
    let ChoiceOptions { n, tier, .. } = reply.choices;
    let prepared = prepare::answers(model, &chat.input(), &chat.options, n, warnings)?;
    Ok((prepared.with_priority(tier.priority()), reply))
}

/// Counts the tokens of a prompt.
pub(crate) async fn count(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let count = |model: &Model, request: ChatRequest, warnings: &Warnings| {
        let chat = request.parsed(model, warnings)?;
        prepare::count_tokens(model, &chat.input(), &chat.options, warnings)
    };
    let request = LoadedRequest::read(&app, incoming).await?;
    Ok(token_count(request.map(count).await?))
}
