//! `POST /api/generate`: answers a prompt, continues it, or fills a gap behind it.

use std::sync::Arc;

use atta_engine::chat::{ChatInput, Message};
use axum::{extract::State, response::Response};
use serde::Deserialize;
use serde_json::Value;

use super::{
    OllamaRequest,
    options::{ACCEPTED_FIELDS, ParsedFields, SharedFields},
    response::{OllamaReply, PromptContext, ReplyShape},
    think::{THINK_BEGIN, Think},
};
use crate::{
    api::llama::infill::{self, Gap},
    app::App,
    flow::{
        body::{Accepted, BodyFields, Incoming},
        error::ApiError,
        prepare::{self, Prepared},
        request::ApiRequest,
        warnings::Warnings,
    },
    models::{KeepAlive, Model},
};

/// The fields that are kept or refused, in the parts that read them.
pub(crate) struct GenerateRequest {
    shared: SharedFields,
    generate: GenerateFields,
}

/// The fields of `/api/generate` alone.
#[derive(Debug, Deserialize)]
pub(crate) struct GenerateFields {
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
}

impl ApiRequest for GenerateRequest {
    const TAKES_ANY_NAME: bool = false;
    const ACCEPTED: Accepted = ACCEPTED_FIELDS;

    fn read(mut fields: BodyFields, warnings: &Warnings) -> Result<Self, ApiError> {
        Ok(Self {
            shared: fields.take()?,
            generate: fields.rest(Self::ACCEPTED, warnings)?,
        })
    }

    fn model(&self) -> Option<&str> {
        Some(&self.generate.model)
    }

    fn keep_alive(&self) -> Option<KeepAlive> {
        self.shared.keep_alive()
    }
}

impl OllamaRequest for GenerateRequest {
    fn unload_reply(&self) -> Option<OllamaReply> {
        // Every field, so that a new one is not forgotten here.
        let GenerateFields {
            model: _,
            prompt,
            system,
            context,
            raw: false,
            suffix,
            template,
            images,
        } = &self.generate
        else {
            return None;
        };
        let texts = [prompt, system, suffix, template];
        let is_empty = texts.into_iter().all(String::is_empty);
        match is_empty && context.is_empty() && images.is_empty() {
            true => OllamaReply::unload(ReplyShape::Generate(None), &self.shared),
            false => None,
        }
    }
}

/// Answers a prompt.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    super::answer(&app, incoming, prepare).await
}

fn prepare(
    model: &Model,
    request: GenerateRequest,
    warnings: &Warnings,
) -> Result<(Prepared, OllamaReply), ApiError> {
    let generate = request.generate;
    generate.refuse_unsupported(model.engine.spec().n_vocab)?;
    if generate.raw && request.shared.thinks() {
        return Err(ApiError::field(
            "think",
            "think is of no use with raw: true",
        ));
    }
    let fields = request
        .shared
        .parsed(model.n_ctx, &model.defaults, warnings)?;
    let (prepared, context) = generate.prepare(model, &fields, warnings)?;
    let reply = OllamaReply::new(ReplyShape::Generate(context), &fields);
    Ok((prepared, reply))
}

impl GenerateFields {
    fn refuse_unsupported(&self, n_vocab: usize) -> Result<(), ApiError> {
        let error = |name: &str, why: &str| Err(ApiError::field(name, format!("{name} is {why}")));
        let has_system = !self.system.is_empty();
        let has_context = !self.context.is_empty();
        let has_suffix = !self.suffix.is_empty();
        if !self.template.is_empty() {
            return error(
                "template",
                "not supported: a model is asked by the one in its file; raw: true leaves it away",
            );
        }
        if !self.images.is_empty() {
            return error("images", "not supported: this model sees text only");
        }
        for (name, is_given) in [("system", has_system), ("context", has_context)] {
            if is_given && self.raw {
                return error(name, "of no use with raw: true");
            }
            if is_given && has_suffix {
                return error(name, "of no use with suffix");
            }
        }
        match self.context.iter().find(|&&id| id as usize >= n_vocab) {
            Some(id) => Err(ApiError::field(
                "context",
                format!("context has token {id}, of a model that has {n_vocab}"),
            )),
            None => Ok(()),
        }
    }

    /// Returns the job and, for an answer in the chat template, the tokens in front of it.
    fn prepare(
        self,
        model: &Model,
        fields: &ParsedFields,
        warnings: &Warnings,
    ) -> Result<(Prepared, Option<PromptContext>), ApiError> {
        if !self.suffix.is_empty() {
            let ids = self.infill_ids(model)?;
            let prepared = prepare::continuations(model, &[ids], &fields.options, 1)?;
            return Ok((prepared, None));
        }
        if self.prompt.is_empty() {
            return Ok((Prepared::default(), None));
        }
        if self.raw {
            let ids = model.engine.prompt_ids(self.prompt.as_bytes());
            let prepared = prepare::continuations(model, &[ids], &fields.options, 1)?;
            return Ok((prepared, None));
        }
        let (prepared, context) = self.chat(model, fields, warnings)?;
        Ok((prepared, Some(context)))
    }

    fn infill_ids(&self, model: &Model) -> Result<Vec<u32>, ApiError> {
        let gap = Gap {
            prefix: &self.prompt,
            suffix: &self.suffix,
            extra: &[],
        };
        infill::prompt(model, &gap).map_err(|error| error.renamed("input_suffix", "suffix"))
    }

    /// The prompt as a message of the user.
    fn chat(
        self,
        model: &Model,
        fields: &ParsedFields,
        warnings: &Warnings,
    ) -> Result<(Prepared, PromptContext), ApiError> {
        let think = fields.think.as_ref();
        let input = ChatInput {
            messages: &[Message::user(self.prompt)],
            system: Some(self.system.as_str()),
            extra: Some(&Think::variables(think)),
            ..ChatInput::default()
        };
        let (prepared, prompt) =
            prepare::answer_after(model, &self.context, &input, &fields.options, warnings)?;
        if let Some(think) = think {
            think.check(model, &prompt.text, warnings)?;
        }
        let context = PromptContext {
            is_thinking: prompt.text.trim_end().ends_with(THINK_BEGIN),
            ids: prompt.ids,
        };
        Ok((prepared, context))
    }
}
