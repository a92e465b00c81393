//! `POST /api/embed`, and the older `/api/embeddings`.

use std::{sync::Arc, time::Instant};

use atta_engine::Pooling;
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{keep_alive::KeepAliveField, options::parse_options, response::nanoseconds};
use crate::{
    app::App,
    flow::{
        answer::Embeddings,
        body::{BodyFields, Incoming},
        error::ApiError,
        prepare::{self, Prepared},
        request::{self, ApiRequest},
        sampling::OneOrMore,
        warnings::Warnings,
    },
    models::{KeepAlive, Model},
};

/// Texts of one request, at most.
const MAX_TEXTS: usize = 2048;

/// The fields of `/api/embed` that are kept.
#[derive(Debug, Deserialize)]
pub(crate) struct EmbedRequest {
    model: String,
    input: Option<OneOrMore>,
    truncate: Option<bool>,
    dimensions: Option<usize>,
    options: Option<Map<String, Value>>,
    keep_alive: Option<KeepAliveField>,
}

/// The fields of `/api/embeddings` that are kept.
#[derive(Debug, Deserialize)]
pub(crate) struct EmbeddingsRequest {
    model: String,
    #[serde(default)]
    prompt: String,
    options: Option<Map<String, Value>>,
    keep_alive: Option<KeepAliveField>,
}

impl ApiRequest for EmbedRequest {
    const TAKES_ANY_NAME: bool = false;

    fn read(fields: BodyFields, warnings: &Warnings) -> Result<Self, ApiError> {
        fields.rest(Self::ACCEPTED, warnings)
    }

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }

    fn keep_alive(&self) -> Option<KeepAlive> {
        self.keep_alive.map(|KeepAliveField(keep_alive)| keep_alive)
    }
}

impl ApiRequest for EmbeddingsRequest {
    const TAKES_ANY_NAME: bool = false;

    fn read(fields: BodyFields, warnings: &Warnings) -> Result<Self, ApiError> {
        fields.rest(Self::ACCEPTED, warnings)
    }

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }

    fn keep_alive(&self) -> Option<KeepAlive> {
        self.keep_alive.map(|KeepAliveField(keep_alive)| keep_alive)
    }
}

/// Computes a vector for each text.
pub(crate) async fn many(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let start = Instant::now();
    let pooling = app.options.pooling;
    let prepare = move |model: &Model, request: EmbedRequest, warnings: &Warnings| {
        // Options have no effect on a vector; invalid ones are refused all the same.
        parse_options(request.options, warnings)?;
        check_dimensions(model, request.dimensions)?;
        let texts = request.input.map_or_else(Vec::new, OneOrMore::into_vec);
        let texts = EmbedTexts {
            texts,
            truncate: request.truncate.unwrap_or(true),
        };
        Ok((texts.prepare(model, pooling, warnings)?, ()))
    };
    let (mut answers, ()) = request::submit(&app, incoming, prepare).await?;
    let load_duration = nanoseconds(answers.load_time());
    let embeddings = Embeddings::collect(&mut answers).await?;
    let list = EmbedList {
        model: &answers.model().name,
        embeddings: embeddings.vectors,
        total_duration: nanoseconds(start.elapsed()),
        load_duration,
        prompt_eval_count: embeddings.n_prompt,
    };
    Ok(Json(list).into_response())
}

/// Computes the vector of a text. A request without a text loads the model and gets an empty
/// vector.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let pooling = app.options.pooling;
    let prepare = move |model: &Model, request: EmbeddingsRequest, warnings: &Warnings| {
        parse_options(request.options, warnings)?;
        let text = Some(request.prompt).filter(|text| !text.is_empty());
        let texts = EmbedTexts {
            texts: text.into_iter().collect(),
            truncate: true,
        };
        Ok((texts.prepare(model, pooling, warnings)?, ()))
    };
    let (mut answers, ()) = request::submit(&app, incoming, prepare).await?;
    let embeddings = Embeddings::collect(&mut answers).await?;
    let embedding = embeddings.vectors.into_iter().next().unwrap_or_default();
    Ok(Json(OneEmbedding { embedding }).into_response())
}

fn check_dimensions(model: &Model, wanted: Option<usize>) -> Result<(), ApiError> {
    let d_vector = model.engine.d_vector();
    match wanted.filter(|&d| d != 0 && d != d_vector) {
        Some(d) => Err(ApiError::field(
            "dimensions",
            format!("dimensions is {d}, but vectors of this model have {d_vector}"),
        )),
        None => Ok(()),
    }
}

/// The texts of a request.
struct EmbedTexts {
    texts: Vec<String>,
    /// Whether texts that are too long are cut.
    truncate: bool,
}

impl EmbedTexts {
    fn prepare(
        self,
        model: &Model,
        pooling: Option<Pooling>,
        warnings: &Warnings,
    ) -> Result<Prepared, ApiError> {
        let error = |message: String| Err(ApiError::field("input", message));
        let n_texts = self.texts.len();
        if n_texts > MAX_TEXTS {
            return error(format!(
                "input has {n_texts} texts, expected at most {MAX_TEXTS}"
            ));
        }
        if self.texts.iter().any(String::is_empty) {
            return error("input has an empty text, which has no vector".to_owned());
        }
        let pooling = match pooling {
            Some(pooling) => pooling,
            None => Pooling::of_model(&model.engine)?,
        };
        let ids = |text: &String| self.ids(model, text, warnings);
        let ids: Result<Vec<Vec<u32>>, ApiError> = self.texts.iter().map(ids).collect();
        Ok(prepare::embeddings(ids?, pooling))
    }

    /// The tokens of a text, at most as many as the context holds.
    fn ids(&self, model: &Model, text: &str, warnings: &Warnings) -> Result<Vec<u32>, ApiError> {
        let mut ids = model.engine.embedding_ids(text.as_bytes());
        if let Err(error) = prepare::check_length(model, &ids) {
            if !self.truncate {
                return Err(ApiError::from(error).about("input"));
            }
            let n_prompt = ids.len();
            let n_ctx = model.n_ctx;
            warnings.add(format!(
                "a text of {n_prompt} tokens was cut to the {n_ctx} that the context of this \
                 server holds"
            ));
            ids.truncate(n_ctx);
        }
        Ok(ids)
    }
}

#[derive(Serialize)]
struct EmbedList<'a> {
    model: &'a str,
    embeddings: Vec<Vec<f32>>,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: usize,
}

#[derive(Serialize)]
struct OneEmbedding {
    embedding: Vec<f32>,
}
