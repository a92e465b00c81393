//! `POST /apply-template`: renders the prompt of a conversation.

use std::sync::Arc;

use atta_engine::{
    GenerateOptions,
    chat::{ChatInput, PromptEnd},
};
use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    api::openai::messages::{WireMessage, messages},
    app::App,
    flow::{
        body::{Accepted, BodyFields, Incoming},
        error::ApiError,
        prepare,
        request::{ApiRequest, LoadedRequest},
        thinking::template_variables,
        tools::ToolRequest,
        warnings::Warnings,
    },
    models::Model,
};

/// The fields that are kept.
#[derive(Debug, Deserialize)]
pub(crate) struct TemplateRequest {
    messages: Vec<WireMessage>,
    model: Option<String>,
    tools: Option<Vec<Value>>,
    chat_template_kwargs: Option<Map<String, Value>>,
    add_generation_prompt: Option<bool>,
}

impl ApiRequest for TemplateRequest {
    const ACCEPTED: Accepted = &[
        ("stream", "there is no answer to send"),
        ("max_tokens", "there is no answer to cut"),
        ("temperature", "there is no answer to choose"),
        ("tool_choice", "the prompt is the same with every choice"),
    ];

    fn read(fields: BodyFields, warnings: &Warnings) -> Result<Self, ApiError> {
        fields.rest(Self::ACCEPTED, warnings)
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// Renders the prompt of a conversation.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Json<Value>, ApiError> {
    let request = LoadedRequest::read(&app, incoming).await?;
    request.map(prompt).await.map(Json)
}

fn prompt(model: &Model, request: TemplateRequest, warnings: &Warnings) -> Result<Value, ApiError> {
    let messages = messages(request.messages, warnings)?;
    let tools = ToolRequest {
        tools: request.tools,
        ..ToolRequest::default()
    };
    let tools = tools.into_use(warnings)?;
    let variables = template_variables(request.chat_template_kwargs)?;
    let is_closed = request.add_generation_prompt == Some(false);
    let end = if is_closed {
        PromptEnd::LastMessage
    } else {
        PromptEnd::Answer
    };
    let input = ChatInput {
        messages: &messages,
        tools: tools.as_ref(),
        extra: Some(&variables),
        end,
        ..ChatInput::default()
    };
    let chat = prepare::render(model, &input, &GenerateOptions::default(), warnings)?;
    Ok(json!({ "prompt": chat.prompt.text }))
}
