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

use std::time::Instant;

use axum::response::Response;

use self::response::OllamaReply;
use crate::{
    app::App,
    flow::{
        body::Incoming,
        error::ApiError,
        prepare::Prepared,
        request::{ApiRequest, ReceivedRequest},
        warnings::Warnings,
    },
    models::Model,
};

/// A request for an answer. Without a prompt it only loads or unloads its model.
trait OllamaRequest: ApiRequest {
    /// The reply to a request that only unloads its model.
    fn unload_reply(&self) -> Option<OllamaReply>;
}

/// Answers a request. A model that is to be unloaded is not loaded for that.
async fn answer<R: OllamaRequest>(
    app: &App,
    incoming: Incoming,
    prepare: impl FnOnce(&Model, R, &Warnings) -> Result<(Prepared, OllamaReply), ApiError>
    + Send
    + 'static,
) -> Result<Response, ApiError> {
    let start = Instant::now();
    let received = ReceivedRequest::<R>::read(app, incoming).await?;
    if let Some(reply) = received.request.unload_reply()
        && let (name, false) = app
            .models
            .inspect(received.request.model(), |name, model| {
                (name.to_owned(), model.is_some())
            })?
    {
        return Ok(reply.without_answer(&name));
    }
    let (answers, reply) = received.submit(app, prepare).await?;
    response::respond(answers, reply, start).await
}
