//! `POST /v1/embeddings`: texts as vectors.

use std::sync::Arc;

use atta_engine::{Error, Job, Pooling};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use super::tier::Tier;
use crate::{
    app::App,
    flow::{
        answer::{AnswerEvent, AnswerParser, Answers},
        body::{Accepted, Incoming},
        error::ApiError,
        prepare::{self, Ask, Prepared},
        prompt::{Limits, Prompt},
        warnings::Warnings,
    },
    models::Model,
};

/// As many as the interface has.
const INPUTS: Limits = Limits {
    field: "input",
    max: 2048,
};

/// What may be asked for, and is kept or refused.
#[derive(Debug, Deserialize)]
pub(crate) struct EmbeddingRequest {
    input: Prompt,
    model: Option<String>,
    encoding_format: Option<Encoding>,
    dimensions: Option<usize>,
    /// Of ours: how the hidden states of a text become one vector.
    pooling: Option<String>,
}

/// How numbers are written.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    /// As numbers.
    #[default]
    Float,
    /// As the bytes of f32, little-endian.
    Base64,
}

impl Ask for EmbeddingRequest {
    const ACCEPTED: Accepted = &[
        ("user", "there are no accounts"),
        ("input_type", "queries and documents are embedded alike"),
        (
            "truncate_prompt_tokens",
            "a text that is too long is refused",
        ),
    ];

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// A vector for each text.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let default = app.options.pooling;
    let make = move |model: &Model, request, _: &Warnings| prepared(model, request, default);
    let (answers, encoding) = prepare::begin(&app, incoming, make).await?;
    whole(answers, encoding).await
}

fn prepared(
    model: &Model,
    request: EmbeddingRequest,
    default: Option<Pooling>,
) -> Result<(Prepared, Encoding), ApiError> {
    let pooling = match (&request.pooling, default) {
        (Some(name), _) => Pooling::named(name).ok_or_else(|| {
            ApiError::field("pooling", format!("{name:?}, expected mean, last or cls"))
        })?,
        (None, Some(default)) => default,
        (None, None) => Pooling::of_model(&model.engine)?,
    };
    let d_model = model.engine.spec().d_model;
    if let Some(d) = request.dimensions.filter(|&d| d != d_model) {
        return Err(ApiError::field(
            "dimensions",
            format!("{d}, of a model whose vectors have {d_model}"),
        ));
    }
    if request.input.has_empty() {
        return Err(ApiError::field("input", "a text of nothing has no vector"));
    }
    // Who asks for one waits for it; lists are for later use.
    let tier = if request.input.len() == 1 {
        Tier::Default
    } else {
        Tier::Flex
    };
    let tokenizer = model.engine.tokenizer();
    let end = tokenizer.eos().filter(|_| tokenizer.add_eos());
    let prompts = request.input.into_ids(model, INPUTS, end)?;
    let jobs = prompts
        .into_iter()
        .map(|ids| job(model, ids, pooling))
        .collect::<Result<Vec<_>, _>>()?;
    let parsers = jobs
        .iter()
        .map(|_| AnswerParser::Vector(Vec::new()))
        .collect();
    let prepared = Prepared {
        jobs,
        parsers,
        n_left_out: 0,
    }
    .with_priority(tier.priority());
    Ok((prepared, request.encoding_format.unwrap_or_default()))
}

fn job(model: &Model, ids: Vec<u32>, pooling: Pooling) -> Result<Job, ApiError> {
    let (n_prompt, n_ctx) = (ids.len(), model.n_ctx);
    match n_prompt > n_ctx {
        true => Err(ApiError::from(Error::PromptTooLong { n_prompt, n_ctx }).about("input")),
        false => Ok(Job::embedding(ids, pooling)),
    }
}

/// The answer. It is written without a `Value`, which would be several times as large as the
/// vectors.
#[derive(Serialize)]
struct List<'a> {
    object: &'static str,
    data: Vec<Embedding>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct Embedding {
    object: &'static str,
    index: usize,
    embedding: Vector,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector {
    Float(Vec<f32>),
    Base64(String),
}

#[derive(Default, Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

/// All vectors, in the order of the texts.
async fn whole(mut answers: Answers, encoding: Encoding) -> Result<Response, ApiError> {
    let (mut data, mut n_prompt) = (Vec::new(), 0);
    while let Some(event) = answers.next().await {
        let (index, AnswerEvent::End(end)) = event? else {
            continue;
        };
        if end.vector.is_empty() {
            return Err(ApiError::out_of_time());
        }
        n_prompt += end.done.n_prompt;
        data.push(Embedding {
            object: "embedding",
            index,
            embedding: encoding.of(end.vector),
        });
    }
    data.sort_unstable_by_key(|one| one.index);
    let usage = Usage {
        prompt_tokens: n_prompt,
        total_tokens: n_prompt,
    };
    Ok(Json(List {
        object: "list",
        data,
        model: &answers.model().name,
        usage,
    })
    .into_response())
}

impl Encoding {
    fn of(self, vector: Vec<f32>) -> Vector {
        match self {
            Self::Float => Vector::Float(vector),
            Self::Base64 => {
                let bytes: Vec<u8> = vector.into_iter().flat_map(f32::to_le_bytes).collect();
                Vector::Base64(STANDARD.encode(bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_short_as_they_may_be_and_bytes_little_endian() {
        let text =
            |encoding: Encoding| serde_json::to_string(&encoding.of(vec![0.1, -1.0])).unwrap();
        assert_eq!(text(Encoding::Float), "[0.1,-1.0]");
        assert_eq!(text(Encoding::Base64), r#""zczMPQAAgL8=""#);
    }
}
