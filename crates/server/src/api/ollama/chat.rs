//! `POST /api/chat`.

use std::sync::Arc;

use atta_engine::chat::ChatInput;
use axum::{extract::State, response::Response};
use serde::Deserialize;
use serde_json::Value;

use super::{
    OllamaRequest,
    messages::{WireMessage, messages},
    options::{ACCEPTED_FIELDS, SharedFields},
    response::{OllamaReply, ReplyShape},
    think::Think,
};
use crate::{
    app::App,
    flow::{
        body::{Accepted, BodyFields, Incoming},
        error::ApiError,
        prepare::{self, Prepared},
        request::ApiRequest,
        tools::ToolRequest,
        warnings::Warnings,
    },
    models::{KeepAlive, Model},
};

/// The fields that are kept, in the parts that read them.
pub(crate) struct OllamaChatRequest {
    shared: SharedFields,
    chat: OllamaChatFields,
}

/// The fields of `/api/chat` alone.
#[derive(Debug, Deserialize)]
pub(crate) struct OllamaChatFields {
    model: String,
    #[serde(default)]
    messages: Vec<WireMessage>,
    tools: Option<Vec<Value>>,
}

impl ApiRequest for OllamaChatRequest {
    const TAKES_ANY_NAME: bool = false;
    const ACCEPTED: Accepted = ACCEPTED_FIELDS;

    fn read(mut fields: BodyFields, warnings: &Warnings) -> Result<Self, ApiError> {
        Ok(Self {
            shared: fields.take()?,
            chat: fields.rest(Self::ACCEPTED, warnings)?,
        })
    }

    fn model(&self) -> Option<&str> {
        Some(&self.chat.model)
    }

    fn keep_alive(&self) -> Option<KeepAlive> {
        self.shared.keep_alive()
    }
}

impl OllamaRequest for OllamaChatRequest {
    fn unload_reply(&self) -> Option<OllamaReply> {
        // Every field, so that a new one is not forgotten here.
        let OllamaChatFields {
            model: _,
            messages,
            tools: None,
        } = &self.chat
        else {
            return None;
        };
        match messages.is_empty() {
            true => OllamaReply::unload(ReplyShape::Chat, &self.shared),
            false => None,
        }
    }
}

/// Answers a conversation.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    super::answer(&app, incoming, prepare).await
}

fn prepare(
    model: &Model,
    request: OllamaChatRequest,
    warnings: &Warnings,
) -> Result<(Prepared, OllamaReply), ApiError> {
    let fields = request
        .shared
        .parsed(model.n_ctx, &model.defaults, warnings)?;
    let messages = messages(request.chat.messages, warnings)?;
    let tools = ToolRequest {
        tools: request.chat.tools,
        ..ToolRequest::default()
    };
    let tools = tools.into_use(warnings)?;
    let reply = OllamaReply::new(ReplyShape::Chat, &fields);
    if messages.is_empty() {
        return Ok((Prepared::default(), reply));
    }
    let input = ChatInput {
        messages: &messages,
        tools: tools.as_ref(),
        extra: Some(&Think::variables(fields.think.as_ref())),
        ..ChatInput::default()
    };
    let (prepared, prompt) = prepare::answer_after(model, &[], &input, &fields.options, warnings)?;
    if let Some(think) = &fields.think {
        think.check(model, &prompt.text, warnings)?;
    }
    Ok((prepared, reply))
}
