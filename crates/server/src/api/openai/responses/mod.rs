//! `POST /v1/responses`: an answer as a list of items: thoughts, messages, calls.
//!
//! Source: OpenAI, "API reference: Responses", 2025. Nothing is stored, so that a client sends back
//! the items that it got. The one idea: [`Output`] makes items of what happens and tells of each in
//! events. A stream is these events; an answer in one piece is what has become of the items, so
//! that both say the same.

mod head;
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
    head::Head,
    output::Output,
    request::{How, ResponseRequest, Understood},
    stream::Events,
};
use crate::{
    api::openai::chat::counted,
    app::{self, App},
    flow::{
        answer::{AnswerEvent, Answers},
        body::Incoming,
        error::ApiError,
        prepare::{self, Asked, Prepared},
        warnings::Warnings,
    },
    models::Model,
};

/// Answers a conversation.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let (answers, how) = prepare::begin(&app, incoming, prepared).await?;
    let (id, model) = (app.id(""), Arc::clone(answers.model()));
    let output = Output::new(id.clone(), how.logprobs, how.names);
    let head = Head {
        id: format!("resp_{id}"),
        created: app::now(),
        model,
        settings: how.settings,
    };
    match how.stream {
        true => Ok(crate::flow::stream::events(
            answers,
            Events::new(head, output),
        )),
        false => whole(&head, output, answers).await,
    }
}

fn prepared(
    model: &Model,
    request: ResponseRequest,
    warnings: &Warnings,
) -> Result<(Prepared, How), ApiError> {
    let ask = understood(model, request, warnings)?;
    let prepared =
        prepare::answers(model, &ask.said(), &ask.options, 1).map_err(request::as_named_here)?;
    Ok((prepared.with_priority(ask.tier.priority()), ask.how))
}

fn understood(
    model: &Model,
    request: ResponseRequest,
    warnings: &Warnings,
) -> Result<Understood, ApiError> {
    let mut ask = request
        .into_ask(&model.defaults, warnings)
        .map_err(request::as_named_here)?;
    ask.thinking
        .set("reasoning.effort", model, &mut ask.extra, warnings);
    Ok(ask)
}

/// Counts the tokens of a prompt.
pub(crate) async fn count(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let count = |model: &Model, request, warnings: &Warnings| {
        let ask = understood(model, request, warnings)?;
        let (asked, _) =
            prepare::ask(model, &ask.said(), &ask.options).map_err(request::as_named_here)?;
        Ok(asked.prompt.ids.len())
    };
    Ok(counted(
        Asked::read(&app, incoming).await?.map(count).await?,
    ))
}

/// The answer, when it is complete.
async fn whole(
    head: &Head,
    mut output: Output,
    mut answers: Answers,
) -> Result<Response, ApiError> {
    while let Some(event) = answers.next().await {
        match event?.1 {
            AnswerEvent::Piece(piece) => output.piece(piece),
            AnswerEvent::Logprobs(thought) => {
                output.thought(super::response::thought(&head.model, &thought))
            }
            AnswerEvent::End(end) => {
                output.end(head::is_cut(&end));
                return Ok(Json(head.ended(&end, output.items())).into_response());
            }
        }
        // Nobody listens to them here.
        output.take_events();
    }
    Err(ApiError::broken())
}
