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

use std::time::Instant;

use axum::response::Response;

use self::response::How;
use crate::{
    app::App,
    flow::{
        body::Incoming,
        error::ApiError,
        prepare::{Ask, Prepared, Received},
        warnings::Warnings,
    },
    models::Model,
};

/// That of requests which do not say how urgent they are.
const PRIORITY: u8 = 1;

/// A request for an answer or, without words, for the model to come or go.
trait ForModel: Ask {
    /// How a request is answered that wants nothing but that its model leaves memory.
    fn farewell(&self) -> Option<How>;
}

/// Answers a request; a model that is to leave is not loaded for it.
async fn answer<R: ForModel>(
    app: &App,
    incoming: Incoming,
    prepared: impl FnOnce(&Model, R, &Warnings) -> Result<(Prepared, How), ApiError> + Send + 'static,
) -> Result<Response, ApiError> {
    let start = Instant::now();
    let received = Received::<R>::read(app, incoming).await?;
    if let Some(how) = received.request.farewell()
        && let (name, None) = app.models.look_up(received.request.model())?
    {
        return Ok(how.nothing(name));
    }
    let (answers, how) = received.begin(app, prepared).await?;
    response::tell(answers, how, start).await
}
