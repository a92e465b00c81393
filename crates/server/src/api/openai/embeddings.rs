//! `POST /v1/embeddings`.

use std::sync::Arc;

use atta_engine::Pooling;
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use crate::{
    app::App,
    flow::{
        answer::Embeddings,
        body::{Accepted, BodyFields, Incoming},
        error::ApiError,
        prepare::{self, Prepared},
        prompt::{PromptLimits, Prompts},
        request::{self, ApiRequest},
        warnings::Warnings,
    },
    models::Model,
};

/// As many texts as OpenAI takes.
const INPUT_LIMITS: PromptLimits = PromptLimits {
    field: "input",
    max: 2048,
};

/// The fields that are kept or refused.
#[derive(Debug, Deserialize)]
pub(crate) struct EmbeddingRequest {
    input: Prompts,
    model: Option<String>,
    encoding_format: Option<Encoding>,
    dimensions: Option<usize>,
    /// An extension: how the hidden states of a text become one vector.
    pooling: Option<String>,
}

/// How the numbers of a vector are written.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    /// As a list of numbers.
    #[default]
    Float,
    /// The bytes of little-endian f32 in base64.
    Base64,
}

impl ApiRequest for EmbeddingRequest {
    const ACCEPTED: Accepted = &[
        ("user", "there are no accounts"),
        ("input_type", "queries and documents are embedded alike"),
        (
            "truncate_prompt_tokens",
            "a text that is too long is refused",
        ),
    ];

    fn read(fields: BodyFields, warnings: &Warnings) -> Result<Self, ApiError> {
        fields.rest(Self::ACCEPTED, warnings)
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// Computes a vector for each text.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let default = app.options.pooling;
    let prepare = move |model: &Model, request: EmbeddingRequest, _: &Warnings| {
        prepared(model, request, default)
    };
    let (mut answers, encoding) = request::submit(&app, incoming, prepare).await?;
    let embeddings = Embeddings::collect(&mut answers).await?;
    let data = embeddings.vectors.into_iter().enumerate();
    let data = data.map(|(index, vector)| Embedding {
        object: "embedding",
        index,
        embedding: encoding.encode(vector),
    });
    Ok(Json(EmbeddingList {
        object: "list",
        data: data.collect(),
        model: &answers.model().name,
        usage: EmbeddingUsage {
            prompt_tokens: embeddings.n_prompt,
            total_tokens: embeddings.n_prompt,
        },
    })
    .into_response())
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
    let d_vector = model.engine.d_vector();
    if let Some(d) = request.dimensions.filter(|&d| d != d_vector) {
        let message = format!("{d}, of a model whose vectors have {d_vector}");
        return Err(ApiError::field("dimensions", message));
    }
    if request.input.has_empty() {
        return Err(ApiError::field("input", "an empty text has no vector"));
    }
    let texts = request.input.into_embedding_ids(model, INPUT_LIMITS)?;
    for ids in &texts {
        prepare::check_length(model, ids).map_err(|error| ApiError::from(error).about("input"))?;
    }
    let encoding = request.encoding_format.unwrap_or_default();
    Ok((prepare::embeddings(texts, pooling), encoding))
}

/// The response. It is serialized without a `Value`, which would take several times the memory of
/// the vectors.
#[derive(Serialize)]
struct EmbeddingList<'a> {
    object: &'static str,
    data: Vec<Embedding>,
    model: &'a str,
    usage: EmbeddingUsage,
}

#[derive(Serialize)]
struct Embedding {
    object: &'static str,
    index: usize,
    embedding: EncodedVector,
}

#[derive(Serialize)]
#[serde(untagged)]
enum EncodedVector {
    Float(Vec<f32>),
    Base64(String),
}

#[derive(Serialize)]
struct EmbeddingUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}

impl Encoding {
    fn encode(self, vector: Vec<f32>) -> EncodedVector {
        match self {
            Self::Float => EncodedVector::Float(vector),
            Self::Base64 => {
                let bytes: Vec<u8> = vector.into_iter().flat_map(f32::to_le_bytes).collect();
                EncodedVector::Base64(STANDARD.encode(bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_bytes_little_endian() {
        let json = |encoding: Encoding| {
            let vector = encoding.encode(vec![0.1, -1.0]);
            serde_json::to_string(&vector).unwrap()
        };
        assert_eq!(json(Encoding::Float), "[0.1,-1.0]");
        assert_eq!(json(Encoding::Base64), r#""zczMPQAAgL8=""#);
    }
}
