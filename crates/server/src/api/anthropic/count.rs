//! `POST /v1/messages/count_tokens`.

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
    messages::WireMessage,
    request::{ConversationFields, OutputConfig, Thinking, Thread},
    tools::{Choice, Tool},
};
use crate::{
    app::App,
    flow::{
        body::{Accepted, BodyFields, Incoming},
        error::ApiError,
        prepare,
        request::{ApiRequest, LoadedRequest},
        warnings::Warnings,
    },
    models::Model,
};

/// The fields of `/v1/messages` that change the prompt; the others are accepted.
#[derive(Debug, Deserialize)]
pub(crate) struct CountRequest {
    messages: Vec<WireMessage>,
    model: Option<String>,
    system: Option<Value>,
    tools: Option<Vec<Tool>>,
    tool_choice: Option<Choice>,
    thinking: Option<Thinking>,
    output_config: Option<OutputConfig>,
    thread: Option<Thread>,
}

impl ApiRequest for CountRequest {
    const ACCEPTED: Accepted = accepted::FIELDS;

    fn read(fields: BodyFields, warnings: &Warnings) -> Result<Self, ApiError> {
        fields.rest(Self::ACCEPTED, warnings)
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// Counts the tokens of a prompt.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let request = LoadedRequest::read(&app, incoming).await?;
    let n_tokens = request.map(count).await?;
    Ok(Json(json!({ "input_tokens": n_tokens })).into_response())
}

fn count(model: &Model, request: CountRequest, warnings: &Warnings) -> Result<usize, ApiError> {
    let fields = ConversationFields {
        messages: request.messages,
        system: request.system,
        tools: request.tools,
        tool_choice: request.tool_choice,
        thinking: request.thinking,
        output_config: request.output_config,
        thread: request.thread,
    };
    let conversation = fields.parsed(model, warnings)?;
    let options = GenerateOptions::default();
    prepare::count_tokens(model, &conversation.input(), &options, warnings)
}
