//! `POST /api/chat`.

use std::sync::Arc;

use atta_engine::chat::ChatInput;
use axum::{extract::State, response::Response};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    ForModel, PRIORITY,
    keep_alive::KeepAliveField,
    messages::{Says, messages},
    options::{ACCEPTED_FIELDS, Settings, reason_of_nothing},
    response::{Form, How},
};
use crate::{
    api::openai::messages::tool_use,
    app::App,
    flow::{
        body::{Accepted, Incoming},
        error::ApiError,
        prepare::{self, Ask, Prepared},
        warnings::Warnings,
    },
    models::{KeepAlive, Model},
};

/// What may be asked for.
#[derive(Debug, Deserialize)]
pub(crate) struct ChatRequest {
    model: String,
    #[serde(default)]
    messages: Vec<Says>,
    tools: Option<Vec<Value>>,
    options: Option<Map<String, Value>>,
    format: Option<Value>,
    stream: Option<bool>,
    think: Option<Value>,
    keep_alive: Option<KeepAliveField>,
    logprobs: Option<bool>,
    top_logprobs: Option<usize>,
}

impl Ask for ChatRequest {
    const TAKES_ANY_NAME: bool = false;
    const ACCEPTED: Accepted = ACCEPTED_FIELDS;

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }

    fn stay(&self) -> Option<KeepAlive> {
        self.keep_alive.map(|KeepAliveField(stay)| stay)
    }
}

impl ForModel for ChatRequest {
    fn farewell(&self) -> Option<How> {
        #[rustfmt::skip] // Every field, so that a new one cannot be forgotten here.
        let Self {
            model: _, messages, tools: None, options: None, format: None, stream, think: None, keep_alive: _,
            logprobs: None, top_logprobs: None,
        } = self else { return None };
        if messages.is_empty() {
            How::farewell(Form::Chat, *stream, self.stay())
        } else {
            None
        }
    }
}

/// Answers a conversation.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    super::answer(&app, incoming, prepared).await
}

fn prepared(
    model: &Model,
    request: ChatRequest,
    warnings: &Warnings,
) -> Result<(Prepared, How), ApiError> {
    let reason_of_nothing = reason_of_nothing(request.stay());
    let settings = Settings {
        options: request.options,
        format: request.format,
        think: request.think,
        logprobs: request.logprobs,
        top_logprobs: request.top_logprobs,
    };
    let understood = settings.understand(model.n_ctx, &model.defaults, warnings)?;
    let messages = messages(request.messages, warnings)?;
    let tools = tool_use(request.tools, None, None)?;
    warnings.extend(tools.iter().flat_map(|used| used.tools.remarks().to_vec()));
    let is_stream = request.stream.unwrap_or(true);
    let logprobs = understood.options.n_logprobs.is_some();
    let how = How {
        form: Form::Chat,
        is_stream,
        logprobs,
        reason_of_nothing,
    };
    if messages.is_empty() {
        return Ok((Prepared::default(), how));
    }
    let extra = understood.extra();
    let said = ChatInput {
        messages: &messages,
        tools: tools.as_ref(),
        extra: Some(&extra),
        ..ChatInput::default()
    };
    let (prepared, prompt) = prepare::answers_after(model, &[], &said, &understood.options, 1)?;
    understood.check_thinking(model, &prompt.text, warnings)?;
    Ok((prepared.with_priority(PRIORITY), how))
}
