//! `POST /v1/completions`: continues texts.

pub(crate) mod request;
mod response;

use std::sync::Arc;

use axum::{extract::State, response::Response};

use self::{
    request::CompletionRequest,
    response::{CompletionWriter, whole},
};
use super::choices::{ChoiceOptions, Envelope};
use crate::{
    app::App,
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
    let (answers, choices) = flow_request::submit(&app, incoming, prepare).await?;
    let envelope = Envelope::new(&app, "cmpl-", &answers);
    match choices.stream {
        true => {
            let writer = CompletionWriter::new(envelope, choices, answers.len());
            Ok(stream::events(answers, writer))
        }
        false => whole(&envelope, answers, choices.n).await,
    }
}

fn prepare(
    model: &Model,
    request: CompletionRequest,
    warnings: &Warnings,
) -> Result<(Prepared, ChoiceOptions), ApiError> {
    let completion = request.parsed(model, warnings)?;
    let ChoiceOptions { n, tier, .. } = completion.choices;
    let prepared = prepare::continuations(model, &completion.prompts, &completion.options, n)
        .map_err(|error| error.renamed("messages", "prompt"))?;
    Ok((prepared.with_priority(tier.priority()), completion.choices))
}
