//! `POST /v1/responses`: an answer as a list of items: thoughts, messages, calls.
//!
//! Source: OpenAI, "API reference: Responses", 2025. Nothing is stored, so that a client sends back the items that it
//! got. The one idea: [`Output`] makes items of what happens and tells of each in events. A stream is these events; an
//! answer in one piece is what has become of the items, so that both say the same.

mod head;
mod input;
mod output;
pub(crate) mod request;
mod stream;
mod tools;

use std::sync::Arc;

use atta_engine::chat::Said;
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};

use self::{
    head::Head,
    output::Output,
    request::{How, ResponseRequest},
    stream::Events,
};
use crate::{
    answer::{Answers, Happening},
    app::{self, App},
    body::Incoming,
    models::Model,
    prepare::{self, Prepared},
    refusal::Refusal,
    remarks::Remarks,
};

/// Answers a conversation.
pub(crate) async fn answer(State(app): State<Arc<App>>, incoming: Incoming) -> Result<Response, Refusal> {
    let (answers, how) = prepare::begin(&app, incoming, prepared).await?;
    let (id, model) = (app.id(""), Arc::clone(answers.model()));
    let output = Output::new(id.clone(), how.logprobs);
    let head = Head { id: format!("resp_{id}"), created: app::now(), model, settings: how.settings };
    match how.stream {
        true => Ok(crate::stream::events(answers, Events::new(head, output))),
        false => whole(&head, output, answers).await,
    }
}

fn prepared(model: &Model, request: ResponseRequest, _remarks: &Remarks) -> Result<(Prepared, How), Refusal> {
    let ask = request.into_ask()?;
    let (messages, tools, system) = (&ask.messages[..], ask.tools.as_ref(), ask.system.as_deref());
    let said = Said { messages, tools, system, extra: Some(&ask.extra), ..Said::default() };
    let prepared = prepare::answers(model, &said, &ask.options, 1).map_err(request::as_named_here)?;
    Ok((prepared.with_priority(ask.tier.priority()), ask.how))
}

/// The answer, when it is complete.
async fn whole(head: &Head, mut output: Output, mut answers: Answers) -> Result<Response, Refusal> {
    while let Some(happening) = answers.next().await {
        match happening?.1 {
            Happening::Piece(piece) => output.piece(piece),
            Happening::Thought(thought) => output.thought(super::wire::thought(&head.model, &thought)),
            Happening::End(end) => {
                output.end(head::is_cut(&end));
                return Ok(Json(head.ended(&end, output.items())).into_response());
            }
        }
        // Nobody listens to them here.
        output.take_events();
    }
    Err(Refusal::broken())
}
