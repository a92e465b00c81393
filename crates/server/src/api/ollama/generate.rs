//! `POST /api/generate`: answers a prompt, continues it, or fills a gap behind it.

use atta_engine::chat::{ChatInput, Message};
use serde::Deserialize;
use serde_json::Value;

use super::{
    OllamaPath,
    options::{ACCEPTED_FIELDS, OllamaShared, ParsedFields},
    response::{PromptContext, ReplyShape},
    think::THINK_BEGIN,
};
use crate::{
    api::llama::infill::{self, Gap},
    flow::{
        body::Accepted,
        error::ApiError,
        prepare::{self, Prepared},
        request::PathFields,
        warnings::Warnings,
    },
    models::Model,
};

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

impl PathFields for GenerateFields {
    type Shared = OllamaShared;
    const ACCEPTED: Accepted = ACCEPTED_FIELDS;

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }
}

impl OllamaPath for GenerateFields {
    fn empty_shape(&self) -> Option<ReplyShape> {
        // Every field, so that a new one is not forgotten here.
        let Self {
            model: _,
            prompt,
            system,
            context,
            raw,
            suffix,
            template,
            images,
        } = self;
        let texts = [prompt, system, suffix, template];
        let is_empty = texts.into_iter().all(String::is_empty);
        let is_empty = is_empty && context.is_empty() && images.is_empty() && !raw;
        is_empty.then_some(ReplyShape::Generate(None))
    }

    fn check(&self, model: &Model, shared: &OllamaShared) -> Result<(), ApiError> {
        self.refuse_unsupported(model.engine.spec().n_vocab)?;
        match self.raw && shared.thinks() {
            true => Err(ApiError::field(
                "think",
                "think is of no use with raw: true",
            )),
            false => Ok(()),
        }
    }

    fn prepare(
        self,
        model: &Model,
        fields: &ParsedFields,
        warnings: &Warnings,
    ) -> Result<(Prepared, ReplyShape), ApiError> {
        let ids = if !self.suffix.is_empty() {
            self.infill_ids(model)?
        } else if self.prompt.is_empty() {
            return Ok((Prepared::default(), ReplyShape::Generate(None)));
        } else if self.raw {
            model.engine.prompt_ids(self.prompt.as_bytes())
        } else {
            let (prepared, context) = self.chat(model, fields, warnings)?;
            return Ok((prepared, ReplyShape::Generate(Some(context))));
        };
        let prepared = prepare::continuations(model, &[ids], &fields.options, 1)?;
        Ok((prepared, ReplyShape::Generate(None)))
    }
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
        self.check_context(n_vocab)
    }

    fn check_context(&self, n_vocab: usize) -> Result<(), ApiError> {
        match self.context.iter().find(|&&id| id as usize >= n_vocab) {
            Some(id) => Err(ApiError::field(
                "context",
                format!("context has token {id}, of a model that has {n_vocab}"),
            )),
            None => Ok(()),
        }
    }

    fn infill_ids(&self, model: &Model) -> Result<Vec<u32>, ApiError> {
        let gap = Gap {
            prefix: &self.prompt,
            suffix: &self.suffix,
            extra: &[],
        };
        infill::prompt(model, &gap).map_err(|error| error.renamed("input_suffix", "suffix"))
    }

    /// Prepares an answer to the prompt as a message of the user. Returns the tokens in front of
    /// the answer, too.
    fn chat(
        self,
        model: &Model,
        fields: &ParsedFields,
        warnings: &Warnings,
    ) -> Result<(Prepared, PromptContext), ApiError> {
        let input = ChatInput {
            messages: &[Message::user(self.prompt)],
            system: Some(self.system.as_str()),
            ..ChatInput::default()
        };
        let (prepared, prompt) = fields.answer_after(model, &self.context, &input, warnings)?;
        let context = PromptContext {
            is_thinking: prompt.text.trim_end().ends_with(THINK_BEGIN),
            ids: prompt.ids,
        };
        Ok((prepared, context))
    }
}
