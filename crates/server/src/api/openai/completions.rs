//! `POST /v1/completions`: a text goes on.

use std::{collections::BTreeMap, sync::Arc};

use atta_engine::{Constraint, GenerateOptions, tools::Piece};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::{
    chat::StreamOptions,
    response::{Completion, Usage, done, logprob},
    tier::Tier,
};
use crate::{
    api::flavor::ApiFlavor,
    app::{self, App},
    flow::logprobs::TokenLogprobs,
    flow::{
        answer::{AnswerEvent, Answers},
        body::{Accepted, Incoming},
        error::ApiError,
        format::{self, OtherFormats, ResponseFormat, Structured},
        prepare::{self, Ask, Prepared},
        prompt::{Limits, Prompt},
        sampling::{OneOrMore, SamplingFields, n_answers},
        stream::{self, Event, EventWriter},
        warnings::Warnings,
    },
    models::Model,
};

/// Alternatives of a token that may be asked for.
const MAX_LOGPROBS: usize = 20;
/// Prompts of one request.
const PROMPTS: Limits = Limits {
    field: "prompt",
    max: 64,
};

/// What may be asked for, and is kept or refused.
#[derive(Debug, Deserialize)]
pub(crate) struct CompletionRequest {
    prompt: Prompt,
    model: Option<String>,
    stream: Option<bool>,
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    stream_options: Option<StreamOptions>,
    n: Option<usize>,
    #[serde(default, deserialize_with = "crate::flow::sampling::no_limit")]
    max_tokens: Option<usize>,
    /// What llama.cpp's server calls it.
    #[serde(default, deserialize_with = "crate::flow::sampling::no_limit")]
    n_predict: Option<usize>,
    stop: Option<OneOrMore>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    #[serde(default, deserialize_with = "crate::flow::sampling::top_k")]
    top_k: Option<usize>,
    min_p: Option<f32>,
    typical_p: Option<f32>,
    repeat_penalty: Option<f32>,
    /// What vLLM calls it.
    repetition_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    #[serde(default, deserialize_with = "crate::flow::sampling::logit_bias")]
    logit_bias: Option<BTreeMap<String, f32>>,
    seed: Option<i64>,
    logprobs: Option<usize>,
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    response_format: Option<ResponseFormat>,
    /// llama.cpp's server's.
    grammar: Option<String>,
    json_schema: Option<Value>,
    /// vLLM's.
    #[serde(default, deserialize_with = "crate::flow::body::object")]
    structured_outputs: Option<Structured>,
    guided_json: Option<Value>,
    guided_regex: Option<String>,
    guided_choice: Option<Vec<String>>,
    service_tier: Option<Tier>,
    echo: Option<bool>,
    best_of: Option<usize>,
    suffix: Option<String>,
}

impl Ask for CompletionRequest {
    const ACCEPTED: Accepted = &[
        ("user", "there are no accounts"),
        ("safety_identifier", "there are no accounts"),
        ("metadata", "this server stores nothing"),
        ("store", "this server stores nothing"),
        ("prompt_cache_key", "the beginnings of all prompts are kept"),
        ("cache_prompt", "the beginnings of all prompts are kept"),
        ("id_slot", "the server gives out its slots"),
        ("samplers", "samplers have one order"),
        (
            "add_special_tokens",
            "the model's file says which there are",
        ),
    ];

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// Tokens of an answer where nobody has said how many: what the interface has.
const DEFAULT_MAX_TOKENS: usize = 16;

/// Goes on with each prompt.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let (answers, how) = prepare::begin(&app, incoming, prepared).await?;
    let head = Head {
        id: app.id("cmpl-"),
        created: app::now(),
        model: Arc::clone(answers.model()),
    };
    if how.stream {
        let (held, offsets) = (vec![None; answers.len()], vec![0; answers.len()]);
        let (
            usage,
            How {
                include_usage,
                logprobs,
                ..
            },
        ) = (Usages::new(how.n), how);
        let writer = Chunks {
            head,
            usage,
            include_usage,
            logprobs,
            held,
            offsets,
        };
        return Ok(stream::events(answers, writer));
    }
    whole(&head, answers, how.n).await
}

/// How the answers are to be sent.
struct How {
    n: usize,
    stream: bool,
    include_usage: bool,
    logprobs: bool,
}

fn prepared(
    model: &Model,
    mut request: CompletionRequest,
    warnings: &Warnings,
) -> Result<(Prepared, How), ApiError> {
    request.refuse_unsupported()?;
    let how = How {
        n: n_answers(request.n, model.n_jobs)?,
        stream: request.stream == Some(true),
        include_usage: request
            .stream_options
            .as_ref()
            .is_some_and(StreamOptions::includes_usage),
        logprobs: request.logprobs.is_some(),
    };
    let (constraint, tier) = (
        request.constraint(warnings)?,
        request.service_tier.unwrap_or_default(),
    );
    let (prompt, wanted) =
        request.into_sampling(model.defaults.n_predict.unwrap_or(DEFAULT_MAX_TOKENS));
    let options = GenerateOptions {
        constraint,
        ..wanted.into_options(&model.defaults)?
    };
    let prompts = prompt.into_ids(model, PROMPTS, None)?;
    let prepared = prepare::texts(model, &prompts, &options, how.n)
        .map_err(|error| error.renamed("messages", "prompt"))?;
    Ok((prepared.with_priority(tier.priority()), how))
}

impl CompletionRequest {
    fn refuse_unsupported(&self) -> Result<(), ApiError> {
        let refuse = |name: &str| Err(ApiError::field(name, format!("{name} is not supported")));
        if self.echo == Some(true) {
            return refuse("echo");
        }
        if self
            .suffix
            .as_ref()
            .is_some_and(|suffix| !suffix.is_empty())
        {
            return Err(ApiError::field(
                "suffix",
                "suffix is not supported; /infill fills gaps",
            ));
        }
        if self.best_of.is_some_and(|best| best != self.n.unwrap_or(1)) {
            return refuse("best_of");
        }
        if self.logprobs.is_some_and(|n| n > MAX_LOGPROBS) {
            return Err(ApiError::field(
                "logprobs",
                format!("expected at most {MAX_LOGPROBS}"),
            ));
        }
        Ok(())
    }

    /// What the text must look like.
    fn constraint(&mut self, warnings: &Warnings) -> Result<Option<Constraint>, ApiError> {
        let others = OtherFormats {
            grammar: self.grammar.take(),
            json_schema: self.json_schema.take(),
            structured_outputs: self.structured_outputs.take(),
            guided_json: self.guided_json.take(),
            guided_regex: self.guided_regex.take(),
            guided_choice: self.guided_choice.take(),
        };
        format::wanted(self.response_format.take(), others, warnings)
    }

    /// `default`: tokens of an answer if the request does not say.
    fn into_sampling(self, default: usize) -> (Prompt, SamplingFields) {
        let wanted = SamplingFields {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repeat_penalty: self.repeat_penalty.or(self.repetition_penalty),
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: self.logit_bias,
            seed: self.seed,
            stop: self.stop,
            max_tokens: Some(self.max_tokens.or(self.n_predict).unwrap_or(default)),
            n_logprobs: self.logprobs,
        };
        (self.prompt, wanted)
    }
}

/// What is the same in all parts of an answer.
struct Head {
    id: String,
    created: u64,
    model: Arc<Model>,
}

impl Head {
    /// All but the choices.
    fn object(&self) -> Value {
        json!({ "id": self.id, "object": "text_completion", "created": self.created, "model": self.model.name })
    }
}

/// Usage of prompts that have `n` answers each.
struct Usages {
    n: usize,
    prompts: Vec<Usage>,
}

impl Usages {
    fn new(n: usize) -> Self {
        Self {
            n,
            prompts: Vec::new(),
        }
    }

    fn add(&mut self, i: usize, done: &atta_engine::Done) {
        let at = i / self.n;
        self.prompts
            .resize(self.prompts.len().max(at + 1), Usage::default());
        self.prompts[at].add(done);
    }

    fn to_json(&self) -> Value {
        self.prompts
            .iter()
            .copied()
            .reduce(Usage::and)
            .unwrap_or_default()
            .to_json()
    }
}

/// All of them, when they are complete.
async fn whole(head: &Head, mut answers: Answers, n: usize) -> Result<Response, ApiError> {
    let mut choices = Vec::with_capacity(answers.len());
    let mut thoughts: Vec<Vec<TokenLogprobs>> = (0..answers.len()).map(|_| Vec::new()).collect();
    let mut usage = Usages::new(n);
    while let Some(event) = answers.next().await {
        match event? {
            (_, AnswerEvent::Piece(_)) => {}
            (i, AnswerEvent::Logprobs(one)) => thoughts[i].push(one),
            (index, AnswerEvent::End(end)) => {
                usage.add(index, &end.done);
                let thoughts = std::mem::take(&mut thoughts[index]);
                let logprobs =
                    (!thoughts.is_empty()).then(|| logprobs(&head.model, thoughts, &mut 0));
                let finish_reason = end.reason();
                choices.push(Choice {
                    text: end.outcome.text,
                    index,
                    logprobs,
                    finish_reason,
                });
            }
        }
    }
    choices.sort_by_key(|choice| choice.index);
    let mut object = head.object();
    object["usage"] = usage.to_json();
    Ok(Json(Completion { object, choices }).into_response())
}

#[derive(Serialize)]
struct Choice<'a> {
    text: String,
    index: usize,
    logprobs: Option<LogProbs<'a>>,
    finish_reason: &'static str,
}

/// Tokens with their log-probabilities, as this interface lists them; `offset`: characters of text
/// so far.
fn logprobs<'a>(
    model: &'a Model,
    thoughts: Vec<TokenLogprobs>,
    offset: &mut usize,
) -> LogProbs<'a> {
    let (mut tokens, mut token_logprobs, mut text_offset) = (Vec::new(), Vec::new(), Vec::new());
    for thought in &thoughts {
        let entry = logprob(model, thought.chosen);
        text_offset.push(*offset);
        *offset += entry["token"]
            .as_str()
            .map_or(0, |text| text.chars().count());
        tokens.push(entry["token"].clone());
        token_logprobs.push(entry["logprob"].clone());
    }
    LogProbs {
        tokens,
        token_logprobs,
        top_logprobs: Best { model, thoughts },
        text_offset,
    }
}

#[derive(Serialize)]
struct LogProbs<'a> {
    tokens: Vec<Value>,
    token_logprobs: Vec<Value>,
    top_logprobs: Best<'a>,
    text_offset: Vec<usize>,
}

/// The best tokens at each place, as [`Thoughts`](super::response::Thoughts) made when they are
/// written.
struct Best<'a> {
    model: &'a Model,
    thoughts: Vec<TokenLogprobs>,
}

impl Serialize for Best<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let named = |one: Value| {
            (
                one["token"].as_str().unwrap_or_default().to_owned(),
                one["logprob"].clone(),
            )
        };
        let best = |thought: &TokenLogprobs| -> Map<String, Value> {
            thought
                .top
                .iter()
                .map(|&token| named(logprob(self.model, token)))
                .collect()
        };
        serializer.collect_seq(self.thoughts.iter().map(best))
    }
}

/// Texts in parts.
struct Chunks {
    head: Head,
    usage: Usages,
    include_usage: bool,
    logprobs: bool,
    /// Text of each that waits for the log-probabilities that come with it.
    held: Vec<Option<String>>,
    /// Characters of each text that log-probabilities were told of.
    offsets: Vec<usize>,
}

impl Chunks {
    fn chunk(
        &self,
        i: usize,
        text: &str,
        logprobs: Option<LogProbs<'_>>,
        reason: Option<&str>,
    ) -> Value {
        let choice =
            json!({ "text": text, "index": i, "logprobs": logprobs, "finish_reason": reason });
        let mut chunk = self.head.object();
        chunk["choices"] = json!([choice]);
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }
}

impl EventWriter for Chunks {
    fn begin(&mut self) -> Vec<Event> {
        Vec::new()
    }

    fn write(&mut self, i: usize, event: AnswerEvent) -> Vec<Event> {
        if let AnswerEvent::Logprobs(one) = event {
            let logprobs = logprobs(&self.head.model, vec![one], &mut self.offsets[i]);
            let text = self.held[i].take().unwrap_or_default();
            return vec![self.chunk(i, &text, Some(logprobs), None).into()];
        }
        let held = self.held[i]
            .take()
            .map(|text| self.chunk(i, &text, None, None));
        let more = match event {
            AnswerEvent::Piece(Piece::Text(text)) if self.logprobs => {
                self.held[i] = Some(text);
                None
            }
            AnswerEvent::Piece(Piece::Text(text)) => Some(self.chunk(i, &text, None, None)),
            AnswerEvent::End(end) => {
                self.usage.add(i, &end.done);
                Some(self.chunk(i, "", None, Some(end.reason())))
            }
            AnswerEvent::Piece(_) | AnswerEvent::Logprobs(_) => None,
        };
        held.into_iter().chain(more).map(Event::from).collect()
    }

    fn end(&mut self) -> Vec<Event> {
        if !self.include_usage {
            return vec![done()];
        }
        let mut last = self.head.object();
        last["choices"] = json!([]);
        last["usage"] = self.usage.to_json();
        vec![last.into(), done()]
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        vec![ApiFlavor::OpenAi.error(error, None).into()]
    }
}
