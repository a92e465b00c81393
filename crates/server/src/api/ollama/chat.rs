//! `POST /api/chat`.

use atta_engine::chat::ChatInput;
use serde::Deserialize;
use serde_json::Value;

use super::{
    OllamaPath,
    messages::{WireMessage, messages},
    options::{ACCEPTED_FIELDS, OllamaShared, ParsedFields},
    response::ReplyShape,
};
use crate::{
    flow::{
        body::Accepted, error::ApiError, prepare::Prepared, request::PathFields,
        tools::ToolRequest, warnings::Warnings,
    },
    models::Model,
};

/// The fields of `/api/chat` alone.
#[derive(Debug, Deserialize)]
pub(crate) struct OllamaChatFields {
    model: String,
    #[serde(default)]
    messages: Vec<WireMessage>,
    tools: Option<Vec<Value>>,
}

impl PathFields for OllamaChatFields {
    type Shared = OllamaShared;
    const ACCEPTED: Accepted = ACCEPTED_FIELDS;

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }
}

impl OllamaPath for OllamaChatFields {
    fn empty_shape(&self) -> Option<ReplyShape> {
        // Every field, so that a new one is not forgotten here.
        let Self {
            model: _,
            messages,
            tools,
        } = self;
        (messages.is_empty() && tools.is_none()).then_some(ReplyShape::Chat)
    }

    fn prepare(
        self,
        model: &Model,
        fields: &ParsedFields,
        warnings: &Warnings,
    ) -> Result<(Prepared, ReplyShape), ApiError> {
        let messages = messages(self.messages, warnings)?;
        let tools = ToolRequest {
            tools: self.tools,
            ..ToolRequest::default()
        };
        let tools = tools.into_use(warnings)?;
        if messages.is_empty() {
            return Ok((Prepared::default(), ReplyShape::Chat));
        }
        let input = ChatInput {
            messages: &messages,
            tools: tools.as_ref(),
            ..ChatInput::default()
        };
        let (prepared, _) = fields.answer_after(model, &[], &input, warnings)?;
        Ok((prepared, ReplyShape::Chat))
    }
}
