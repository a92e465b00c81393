//! Ollama's interface: `/api/chat`, `/api/generate`, `/api/embed`, `/api/embeddings`, `/api/tags`,
//! `/api/ps`, `/api/show`, `/api/pull`, `/api/version`.
//!
//! Source: Ollama, API reference (docs/api.md), 2025. Answers are lines of JSON unless `stream` is
//! false; times are nanoseconds. An option that would change the result and is not supported is
//! refused by its name.

pub(crate) mod chat;
pub(crate) mod embed;
pub(crate) mod generate;
mod keep_alive;
mod messages;
pub(crate) mod models;
pub(crate) mod options;
mod response;
mod think;

use std::{sync::Arc, time::Instant};

use axum::{extract::State, response::Response};

use self::{
    options::{OllamaShared, ParsedFields},
    response::{OllamaReply, ReplyShape},
};
use crate::{
    app::App,
    flow::{
        body::Incoming,
        error::ApiError,
        prepare::Prepared,
        request::{PathFields, PathRequest, ReceivedRequest},
        warnings::Warnings,
    },
    models::Model,
};

/// The fields of a path that answers. A request without a prompt only loads or unloads its model.
pub(crate) trait OllamaPath: PathFields<Shared = OllamaShared> {
    /// The shape of the reply, if no field asks for anything.
    fn empty_shape(&self) -> Option<ReplyShape>;

    /// Refuses fields that are not supported, or not with others.
    fn check(&self, _model: &Model, _shared: &OllamaShared) -> Result<(), ApiError> {
        Ok(())
    }

    /// Prepares the answer; without a prompt there is no job.
    fn prepare(
        self,
        model: &Model,
        fields: &ParsedFields,
        warnings: &Warnings,
    ) -> Result<(Prepared, ReplyShape), ApiError>;
}

/// Answers a request. A model that is to be unloaded is not loaded for that.
pub(crate) async fn answer<F: OllamaPath>(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let start = Instant::now();
    let received = ReceivedRequest::<PathRequest<F>>::read(&app, incoming).await?;
    let request = &received.request;
    let shape = request.own.empty_shape();
    if let Some(reply) = shape.and_then(|shape| OllamaReply::unload(shape, &request.shared))
        && let (name, false) = app.models.inspect(request.own.model(), |name, model| {
            (name.to_owned(), model.is_some())
        })?
    {
        return Ok(reply.without_answer(&name));
    }
    let (answers, reply) = received.submit(&app, prepare).await?;
    response::respond(answers, reply, start).await
}

fn prepare<F: OllamaPath>(
    model: &Model,
    request: PathRequest<F>,
    warnings: &Warnings,
) -> Result<(Prepared, OllamaReply), ApiError> {
    let PathRequest { shared, own } = request;
    own.check(model, &shared)?;
    let fields = shared.parsed(model.n_ctx, &model.defaults, warnings)?;
    let (prepared, shape) = own.prepare(model, &fields, warnings)?;
    Ok((prepared, OllamaReply::new(shape, &fields)))
}
