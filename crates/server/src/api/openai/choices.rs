//! Requests for several choices and the responses that hold them, which are those of chat and
//! completions: the fields that both share, the usage, and the chunks of a stream.

use std::sync::Arc;

use atta_engine::GenerateOptions;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    response::{done, usage_json},
    sampling::{AnswerLimits, OpenAiSampling},
    tier::Tier,
};
use crate::{
    app::{self, App},
    flow::{
        answer::{AnswerEnd, AnswerEvent, Answers},
        body::BodyFields,
        error::ApiError,
        format::FormatFields,
        logprobs::{LogprobPairing, PairedEvent},
        request::SharedFields,
        sampling::{Defaults, n_answers},
        stream::StreamEvent,
        usage::Usage,
        warnings::Warnings,
    },
    models::Model,
};

/// The fields that both requests have.
pub(crate) struct ChoicesShared {
    pub(super) choices: ChoiceFields,
    sampling: OpenAiSampling,
    format: FormatFields,
}

/// The fields about the number of choices and the way in which they are sent.
#[derive(Debug, Deserialize)]
pub(crate) struct ChoiceFields {
    n: Option<usize>,
    stream: Option<bool>,
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    stream_options: Option<StreamOptions>,
    service_tier: Option<Tier>,
}

/// `stream_options`; its other fields have no effect.
#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

/// How the choices are sent.
#[derive(Clone, Copy)]
pub(super) struct ChoiceOptions {
    /// Choices per prompt.
    pub(super) n: usize,
    pub(super) stream: bool,
    /// Whether the last chunk of a stream has the usage.
    pub(super) include_usage: bool,
    pub(super) logprobs: bool,
    pub(super) tier: Tier,
}

impl SharedFields for ChoicesShared {
    fn take(fields: &mut BodyFields) -> Result<Self, ApiError> {
        Ok(Self {
            choices: fields.take()?,
            sampling: fields.take()?,
            format: fields.take()?,
        })
    }
}

impl ChoicesShared {
    pub(super) fn into_options(
        self,
        limits: AnswerLimits,
        defaults: &Defaults,
        warnings: &Warnings,
    ) -> Result<GenerateOptions, ApiError> {
        Ok(GenerateOptions {
            constraint: self.format.into_constraint(warnings)?,
            ..self.sampling.into_options(limits, defaults)?
        })
    }
}

impl ChoiceFields {
    /// `max` is the most choices that a request may ask for.
    pub(super) fn parsed(&self, max: usize, logprobs: bool) -> Result<ChoiceOptions, ApiError> {
        let stream_options = self.stream_options.as_ref();
        Ok(ChoiceOptions {
            n: n_answers(self.n, max)?,
            stream: self.stream == Some(true),
            include_usage: stream_options
                .is_some_and(|options| options.include_usage == Some(true)),
            logprobs,
            tier: self.service_tier.unwrap_or_default(),
        })
    }
}

/// The fields that a response and all of its chunks have.
pub(super) struct Envelope {
    id: String,
    created: u64,
    pub(super) model: Arc<Model>,
}

impl Envelope {
    pub(super) fn new(app: &App, id_prefix: &str, answers: &Answers) -> Self {
        Self {
            id: app.id(id_prefix),
            created: app::now(),
            model: Arc::clone(answers.model()),
        }
    }

    /// A response without its choices.
    pub(super) fn object(&self, kind: &str) -> Value {
        json!({
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model.name,
        })
    }
}

/// The usage of several prompts, each with `n` answers.
pub(super) struct UsagePerPrompt {
    n: usize,
    prompts: Vec<Usage>,
}

impl UsagePerPrompt {
    pub(super) fn new(n: usize) -> Self {
        Self {
            n,
            prompts: Vec::new(),
        }
    }

    /// Adds the `i`th answer.
    pub(super) fn add(&mut self, i: usize, end: &AnswerEnd) {
        let prompt = i / self.n;
        let n_prompts = self.prompts.len().max(prompt + 1);
        self.prompts.resize(n_prompts, Usage::default());
        self.prompts[prompt].add(&end.done);
    }

    pub(super) fn to_json(&self) -> Value {
        let sum = self.prompts.iter().copied().reduce(Usage::and);
        usage_json(sum.unwrap_or_default())
    }
}

/// The chunks of a streamed response.
pub(super) struct Chunks {
    /// A chunk without its choices.
    object: Value,
    include_usage: bool,
    pub(super) usage: UsagePerPrompt,
    /// One for each answer.
    pairings: Vec<LogprobPairing>,
}

impl Chunks {
    pub(super) fn new(object: Value, options: ChoiceOptions, n_answers: usize) -> Self {
        Self {
            object,
            include_usage: options.include_usage,
            usage: UsagePerPrompt::new(options.n),
            pairings: vec![LogprobPairing::new(options.logprobs); n_answers],
        }
    }

    /// Pairs the text of the `i`th answer with its log-probabilities.
    pub(super) fn paired(&mut self, i: usize, event: AnswerEvent) -> Vec<PairedEvent> {
        self.pairings[i].push(event)
    }

    /// The chunk of a choice.
    pub(super) fn chunk(&self, choice: impl Serialize) -> Value {
        let mut chunk = self.object.clone();
        chunk["choices"] = json!([choice]);
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// The events behind all choices. With the usage comes a chunk that has no choices, and the
    /// timings if there are any.
    pub(super) fn end(&self, timings: Option<Value>) -> Vec<StreamEvent> {
        if !self.include_usage {
            return vec![done()];
        }
        let mut last = self.object.clone();
        last["choices"] = json!([]);
        last["usage"] = self.usage.to_json();
        if let Some(timings) = timings {
            last["timings"] = timings;
        }
        vec![last.into(), done()]
    }
}
