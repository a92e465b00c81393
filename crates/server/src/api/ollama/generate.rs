//! `POST /api/generate`: an answer to a text, or what follows it.

use std::sync::Arc;

use atta_engine::chat::{ChatInput, Message};
use axum::{extract::State, response::Response};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    ForModel, PRIORITY,
    keep_alive::KeepAliveField,
    options::{ACCEPTED_FIELDS, Settings, THINK, Understood, reason_of_nothing},
    response::{Form, How, Read},
};
use crate::{
    api::llama::infill::{self, Gap},
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
pub(crate) struct GenerateRequest {
    model: String,
    #[serde(default)]
    prompt: String,
    #[serde(default)]
    system: String,
    #[serde(default)]
    context: Vec<u32>,
    #[serde(default)]
    raw: bool,
    #[serde(default)]
    suffix: String,
    #[serde(default)]
    template: String,
    #[serde(default)]
    images: Vec<Value>,
    options: Option<Map<String, Value>>,
    format: Option<Value>,
    stream: Option<bool>,
    think: Option<Value>,
    keep_alive: Option<KeepAliveField>,
    logprobs: Option<bool>,
    top_logprobs: Option<usize>,
}

impl Ask for GenerateRequest {
    const TAKES_ANY_NAME: bool = false;
    const ACCEPTED: Accepted = ACCEPTED_FIELDS;

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }

    fn stay(&self) -> Option<KeepAlive> {
        self.keep_alive.map(|KeepAliveField(stay)| stay)
    }
}

impl ForModel for GenerateRequest {
    fn farewell(&self) -> Option<How> {
        #[rustfmt::skip] // Every field, so that a new one cannot be forgotten here.
        let Self {
            model: _, prompt, system, context, raw: false, suffix, template, images, options: None, format: None, stream,
            think: None, keep_alive: _, logprobs: None, top_logprobs: None,
        } = self else { return None };
        let is_empty = [prompt, system, suffix, template]
            .into_iter()
            .all(String::is_empty);
        let is_bare = is_empty && context.is_empty() && images.is_empty();
        if is_bare {
            How::farewell(Form::Generate(None), *stream, self.stay())
        } else {
            None
        }
    }
}

/// Answers a text.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    super::answer(&app, incoming, prepared).await
}

fn prepared(
    model: &Model,
    request: GenerateRequest,
    warnings: &Warnings,
) -> Result<(Prepared, How), ApiError> {
    request.refuse_unsupported(model.engine.spec().n_vocab)?;
    let reason_of_nothing = reason_of_nothing(request.stay());
    let (asked, settings, is_stream) = request.divide();
    let understood = settings.understand(model.n_ctx, &model.defaults, warnings)?;
    let logprobs = understood.options.n_logprobs.is_some();
    let (prepared, form) = match asked {
        Asked { prompt, suffix, .. } if prompt.is_empty() && suffix.is_empty() => {
            (Prepared::default(), Form::Generate(None))
        }
        Asked { prompt, suffix, .. } if !suffix.is_empty() => {
            let gap = Gap {
                prefix: &prompt,
                suffix: &suffix,
                extra: &[],
            };
            let ids = infill::prompt(model, &gap)
                .map_err(|error| error.renamed("input_suffix", "suffix"))?;
            (
                prepare::texts(model, &[ids], &understood.options, 1)?,
                Form::Generate(None),
            )
        }
        Asked {
            prompt, raw: true, ..
        } => (raw(model, &prompt, &understood)?, Form::Generate(None)),
        asked => {
            let (prepared, read) = in_template(model, asked, &understood, warnings)?;
            (prepared, Form::Generate(Some(read)))
        }
    };
    Ok((
        prepared.with_priority(PRIORITY),
        How {
            form,
            is_stream,
            logprobs,
            reason_of_nothing,
        },
    ))
}

/// What a request is about.
struct Asked {
    prompt: String,
    system: String,
    context: Vec<u32>,
    raw: bool,
    /// What follows the gap that is to be filled.
    suffix: String,
}

impl GenerateRequest {
    fn refuse_unsupported(&self, n_vocab: usize) -> Result<(), ApiError> {
        let refuse = |name: &str, why: &str| {
            Err(ApiError::field(
                name,
                format!("{name} is not supported: {why}"),
            ))
        };
        let not_raw = |name: &str| {
            Err(ApiError::field(
                name,
                format!("{name} is of no use with raw: true"),
            ))
        };
        let no_gap = |name: &str| {
            Err(ApiError::field(
                name,
                format!("{name} is of no use with suffix"),
            ))
        };
        match self {
            Self { template, .. } if !template.is_empty() => refuse(
                "template",
                "a model is asked by the one in its file; raw: true leaves it away",
            ),
            Self { images, .. } if !images.is_empty() => {
                refuse("images", "this model sees text only")
            }
            Self {
                raw: true, system, ..
            } if !system.is_empty() => not_raw("system"),
            Self {
                raw: true, context, ..
            } if !context.is_empty() => not_raw("context"),
            Self {
                raw: true,
                think: Some(Value::Bool(true)),
                ..
            } => not_raw("think"),
            Self { suffix, system, .. } if !suffix.is_empty() && !system.is_empty() => {
                no_gap("system")
            }
            Self {
                suffix, context, ..
            } if !suffix.is_empty() && !context.is_empty() => no_gap("context"),
            Self { context, .. } => match context.iter().find(|&&id| id as usize >= n_vocab) {
                Some(id) => Err(ApiError::field(
                    "context",
                    format!("context has token {id}, of a model that has {n_vocab}"),
                )),
                None => Ok(()),
            },
        }
    }

    /// What it is about, how that is written, and whether it is sent at once.
    fn divide(self) -> (Asked, Settings, bool) {
        let settings = Settings {
            options: self.options,
            format: self.format,
            think: self.think,
            logprobs: self.logprobs,
            top_logprobs: self.top_logprobs,
        };
        let asked = Asked {
            prompt: self.prompt,
            system: self.system,
            context: self.context,
            raw: self.raw,
            suffix: self.suffix,
        };
        (asked, settings, self.stream.unwrap_or(true))
    }
}

/// The text goes on.
fn raw(model: &Model, prompt: &str, understood: &Understood) -> Result<Prepared, ApiError> {
    let ids = model.engine.prompt_ids(prompt.as_bytes());
    prepare::texts(model, &[ids], &understood.options, 1)
}

/// The text is what a user says.
fn in_template(
    model: &Model,
    asked: Asked,
    understood: &Understood,
    warnings: &Warnings,
) -> Result<(Prepared, Read), ApiError> {
    let (messages, extra) = ([Message::user(asked.prompt)], understood.extra());
    let system = Some(asked.system.as_str());
    let said = ChatInput {
        messages: &messages,
        system,
        extra: Some(&extra),
        ..ChatInput::default()
    };
    let (prepared, prompt) =
        prepare::answers_after(model, &asked.context, &said, &understood.options, 1)?;
    understood.check_thinking(model, &prompt.text, warnings)?;
    let is_thinking = prompt.text.trim_end().ends_with(THINK);
    Ok((
        prepared,
        Read {
            ids: prompt.ids,
            is_thinking,
        },
    ))
}
