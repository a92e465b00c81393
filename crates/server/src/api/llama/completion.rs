//! `POST /completion`: a text goes on, with llama.cpp's own fields.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    options::{self, Settings},
    prompt,
    response::{self, AnswerPlan, Wish},
};
use crate::{
    app::App,
    flow::{
        body::{self, Incoming},
        error::ApiError,
        prepare::{self, Ask, Prepared},
        warnings::Warnings,
    },
    models::Model,
};

/// What may be asked for, beside [`Settings`].
#[derive(Debug, Deserialize)]
pub(crate) struct NativeRequest {
    prompt: Value,
    model: Option<String>,
    stream: Option<bool>,
    return_tokens: Option<bool>,
    response_fields: Option<Vec<String>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Ask for NativeRequest {
    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// Goes on with a text.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let (answers, plan) = prepare::begin(&app, incoming, prepared).await?;
    response::respond(answers, plan).await
}

fn prepared(
    model: &Model,
    request: NativeRequest,
    warnings: &Warnings,
) -> Result<(Prepared, AnswerPlan), ApiError> {
    let NativeRequest {
        prompt,
        stream,
        return_tokens,
        response_fields,
        rest,
        ..
    } = request;
    let prompts = prompt::ids(model, &prompt)?;
    let settings: Settings = body::understand(Value::Object(rest), options::ACCEPTED, warnings)?;
    let wish = Wish {
        is_list: prompt::is_list(&prompt),
        is_stream: stream == Some(true),
        with_tokens: return_tokens == Some(true),
        fields: response_fields.unwrap_or_default(),
    };
    response::prepared(model, &prompts, settings.understand(model, warnings)?, wish)
}
