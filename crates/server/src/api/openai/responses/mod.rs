//! `POST /v1/responses`, and `/v1/responses/input_tokens`: an answer as a list of items, which are
//! reasoning, messages and calls.
//!
//! Source: OpenAI, "API reference: Responses", 2025. Nothing is stored, so a client sends back the
//! items that it got. The one idea: [`Output`] builds the items and the events about them. A
//! streamed response sends the events, the other one the finished items, so both say the same.

mod envelope;
mod input;
mod output;
pub(crate) mod request;
mod stream;
mod tools;

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};

use self::{
    envelope::ResponseEnvelope,
    output::Output,
    request::{ParsedResponse, ResponseReply, ResponseRequest},
    stream::ResponseWriter,
};
use super::response::{logprob_entry, token_count};
use crate::{
    app::{self, App},
    flow::{
        answer::{AnswerEvent, Answers},
        body::Incoming,
        error::ApiError,
        prepare::{self, Prepared},
        request::{self as flow_request, LoadedRequest},
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
    let id = app.id("");
    let output = Output::new(id.clone(), reply.logprobs, reply.names);
    let envelope = ResponseEnvelope {
        id: format!("resp_{id}"),
        created: app::now(),
        model: Arc::clone(answers.model()),
        settings: reply.settings,
    };
    match reply.stream {
        true => {
            let writer = ResponseWriter::new(envelope, output);
            Ok(crate::flow::stream::events(answers, writer))
        }
        false => whole(&envelope, output, answers).await,
    }
}

fn prepare(
    model: &Model,
    request: ResponseRequest,
    warnings: &Warnings,
) -> Result<(Prepared, ResponseReply), ApiError> {
    let parsed = parsed(model, request, warnings)?;
    let prepared = prepare::answers(model, &parsed.input(), &parsed.options, 1, warnings)
        .map_err(request::renamed)?;
    Ok((prepared.with_priority(parsed.tier.priority()), parsed.reply))
}

fn parsed(
    model: &Model,
    request: ResponseRequest,
    warnings: &Warnings,
) -> Result<ParsedResponse, ApiError> {
    let mut parsed = request
        .parsed(&model.defaults, warnings)
        .map_err(request::renamed)?;
    let variables = &mut parsed.variables;
    parsed
        .thinking
        .set("reasoning.effort", model, variables, warnings);
    Ok(parsed)
}

/// Counts the tokens of a prompt.
pub(crate) async fn count(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let count = |model: &Model, request: ResponseRequest, warnings: &Warnings| {
        let parsed = parsed(model, request, warnings)?;
        prepare::count_tokens(model, &parsed.input(), &parsed.options, warnings)
            .map_err(request::renamed)
    };
    let request = LoadedRequest::read(&app, incoming).await?;
    Ok(token_count(request.map(count).await?))
}

/// Collects the answer.
async fn whole(
    envelope: &ResponseEnvelope,
    mut output: Output,
    mut answers: Answers,
) -> Result<Response, ApiError> {
    while let Some(event) = answers.next().await {
        match event?.1 {
            AnswerEvent::Piece(piece) => output.piece(piece),
            AnswerEvent::Logprobs(logprobs) => {
                output.logprobs(logprob_entry(&envelope.model, &logprobs));
            }
            AnswerEvent::End(end) => {
                output.end(envelope::is_cut(&end));
                return Ok(Json(envelope.ended(&end, output.items())).into_response());
            }
        }
        // Events are for streams only.
        output.take_events();
    }
    Err(ApiError::broken())
}
