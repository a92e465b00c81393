//! `POST /v1/chat/completions`, and `/v1/chat/completions/input_tokens`.

pub(crate) mod request;
mod response;

use std::sync::Arc;

use axum::{extract::State, response::Response};

use self::{
    request::{ChatReply, ChatRequest},
    response::{ChatEnvelope, ChatWriter, whole},
};
use super::response::token_count;
use crate::{
    app::{self, App},
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
    let envelope = ChatEnvelope {
        id: app.id("chatcmpl-"),
        created: app::now(),
        model: Arc::clone(answers.model()),
    };
    match reply.stream {
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
    let prepared = prepare::answers(model, &chat.input(), &chat.options, reply.n, warnings)?;
    let priority = reply.tier.unwrap_or_default().priority();
    Ok((prepared.with_priority(priority), reply))
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
