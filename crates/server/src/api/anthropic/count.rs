//! `POST /v1/messages/count_tokens`: how long a prompt would be.

use std::sync::Arc;

use atta_engine::GenerateOptions;
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    accepted,
    messages::Turn,
    request::{OutputConfig, Talk, Thinking, Thread},
    tools::{Choice, Tool},
};
use crate::{
    app::App,
    flow::{
        body::{Accepted, Incoming},
        error::ApiError,
        prepare::{self, Ask, Asked},
        warnings::Warnings,
    },
    models::Model,
};

/// What a prompt is made of. All other fields of a request for an answer are accepted.
#[derive(Debug, Deserialize)]
pub(crate) struct CountRequest {
    messages: Vec<Turn>,
    model: Option<String>,
    system: Option<Value>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<Choice>,
    thinking: Option<Thinking>,
    output_config: Option<OutputConfig>,
    thread: Option<Thread>,
}

impl Ask for CountRequest {
    const ACCEPTED: Accepted = accepted::FIELDS;

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// Counts the tokens of a prompt.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let count = Asked::read(&app, incoming).await?.map(count).await?;
    Ok(Json(json!({ "input_tokens": count })).into_response())
}

fn count(model: &Model, request: CountRequest, warnings: &Warnings) -> Result<usize, ApiError> {
    let CountRequest {
        messages: turns,
        system,
        tools,
        tool_choice,
        thinking,
        output_config,
        thread,
        ..
    } = request;
    let talk = Talk {
        turns,
        system,
        tools,
        tool_choice,
        thinking,
        output_config,
        thread,
    }
    .understood(model, warnings)?;
    Ok(
        prepare::ask(model, &talk.said(), &GenerateOptions::default())?
            .0
            .prompt
            .ids
            .len(),
    )
}
