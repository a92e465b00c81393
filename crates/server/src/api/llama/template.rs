//! `POST /apply-template`: the prompt that a conversation becomes, without an answer to it.

use std::sync::Arc;

use atta_engine::{
    GenerateOptions,
    chat::{ChatInput, Message, PromptEnd},
};
use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    api::openai::{chat::variables, messages::tool_use},
    app::App,
    flow::{
        body::{Accepted, Incoming},
        error::ApiError,
        prepare::{self, Ask, Asked},
        warnings::Warnings,
    },
    models::Model,
};

/// What may be asked for.
#[derive(Debug, Deserialize)]
pub(crate) struct TemplateRequest {
    messages: Vec<Value>,
    model: Option<String>,
    tools: Option<Vec<Value>>,
    chat_template_kwargs: Option<Map<String, Value>>,
    add_generation_prompt: Option<bool>,
}

impl Ask for TemplateRequest {
    const ACCEPTED: Accepted = &[
        ("stream", "there is no answer to send"),
        ("max_tokens", "there is no answer to cut"),
        ("temperature", "there is no answer to choose"),
        ("tool_choice", "the prompt is the same with every choice"),
    ];

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// The prompt of a conversation.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Json<Value>, ApiError> {
    Asked::read(&app, incoming)
        .await?
        .map(prompt)
        .await
        .map(Json)
}

fn prompt(
    model: &Model,
    request: TemplateRequest,
    _warnings: &Warnings,
) -> Result<Value, ApiError> {
    let messages = request
        .messages
        .into_iter()
        .map(message)
        .collect::<Result<Vec<_>, _>>()?;
    let tools = tool_use(request.tools, None, None)?;
    let extra = variables(request.chat_template_kwargs)?;
    let is_closed = request.add_generation_prompt == Some(false);
    let end = if is_closed {
        PromptEnd::LastMessage
    } else {
        PromptEnd::Answer
    };
    let said = ChatInput {
        messages: &messages,
        tools: tools.as_ref(),
        extra: Some(&extra),
        end,
        ..ChatInput::default()
    };
    let (asked, _) = prepare::ask(model, &said, &GenerateOptions::default())?;
    Ok(json!({ "prompt": asked.prompt.text }))
}

/// A message as OpenAI's interface has it.
fn message(mut said: Value) -> Result<Message, ApiError> {
    if said["role"] == "developer" {
        said["role"] = "system".into();
    }
    if let Value::Array(parts) = &said["content"] {
        let texts: Option<Vec<&str>> = parts.iter().map(|part| part["text"].as_str()).collect();
        let Some(texts) = texts else {
            return Err(ApiError::field(
                "messages",
                "parts of messages that are no text are not supported",
            ));
        };
        said["content"] = texts.join("\n").into();
    }
    Message::from_json(&said)
        .ok_or_else(|| ApiError::field("messages", "this is no message with a role and a content"))
}
