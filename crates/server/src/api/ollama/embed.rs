//! `POST /api/embed` and the older `/api/embeddings`: texts as vectors.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use atta_engine::{Job, Pooling};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{keep_alive::KeepAliveField, options};
use crate::{
    app::App,
    flow::{
        answer::{AnswerEvent, AnswerParser, Answers},
        body::{self, Incoming},
        error::ApiError,
        prepare::{self, Ask, Prepared},
        sampling::OneOrMore,
        warnings::Warnings,
    },
    models::{KeepAlive, Model},
};

/// Texts of one request, as many as OpenAI's interface has.
const MAX_TEXTS: usize = 2048;
/// One text is waited for; lists are for later use.
const PRIORITIES: (u8, u8) = (1, 0);

/// What may be asked for by `/api/embed`.
#[derive(Debug, Deserialize)]
pub(crate) struct EmbedRequest {
    model: String,
    input: Option<OneOrMore>,
    truncate: Option<bool>,
    dimensions: Option<usize>,
    options: Option<Map<String, Value>>,
    keep_alive: Option<KeepAliveField>,
}

/// What may be asked for by `/api/embeddings`.
#[derive(Debug, Deserialize)]
pub(crate) struct EmbeddingsRequest {
    model: String,
    #[serde(default)]
    prompt: String,
    options: Option<Map<String, Value>>,
    keep_alive: Option<KeepAliveField>,
}

impl Ask for EmbedRequest {
    const TAKES_ANY_NAME: bool = false;

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }

    fn stay(&self) -> Option<KeepAlive> {
        self.keep_alive.map(|KeepAliveField(stay)| stay)
    }
}

impl Ask for EmbeddingsRequest {
    const TAKES_ANY_NAME: bool = false;

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }

    fn stay(&self) -> Option<KeepAlive> {
        self.keep_alive.map(|KeepAliveField(stay)| stay)
    }
}

/// A vector for each text.
pub(crate) async fn many(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let (start, default) = (Instant::now(), app.options.pooling);
    let make = move |model: &Model, request: EmbedRequest, warnings: &Warnings| {
        check_options(request.options, warnings)?;
        check_dimensions(model, request.dimensions)?;
        let cut = request.truncate.unwrap_or(true);
        let texts = request.input.map_or_else(Vec::new, OneOrMore::into_vec);
        Ok((
            prepared(
                model,
                &texts,
                &Wish {
                    pooling: default,
                    cut,
                },
                warnings,
            )?,
            (),
        ))
    };
    let (answers, ()) = prepare::begin(&app, incoming, make).await?;
    let (model, load_time) = (Arc::clone(answers.model()), answers.load_time());
    let Vectors {
        embeddings,
        n_prompt,
    } = vectors(answers).await?;
    let [total_duration, load_duration] = [start.elapsed(), load_time].map(nanoseconds);
    let list = List {
        model: &model.name,
        embeddings,
        total_duration,
        load_duration,
        prompt_eval_count: n_prompt,
    };
    Ok(Json(list).into_response())
}

/// The vector of a text; of none, an empty one: the model is loaded, and that is what such requests
/// are for.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let default = app.options.pooling;
    let make = move |model: &Model, request: EmbeddingsRequest, warnings: &Warnings| {
        check_options(request.options, warnings)?;
        let texts = Some(request.prompt).filter(|text| !text.is_empty());
        let texts: Vec<String> = texts.into_iter().collect();
        Ok((
            prepared(
                model,
                &texts,
                &Wish {
                    pooling: default,
                    cut: true,
                },
                warnings,
            )?,
            (),
        ))
    };
    let (answers, ()) = prepare::begin(&app, incoming, make).await?;
    let embedding = vectors(answers).await?.embeddings.pop().unwrap_or_default();
    Ok(Json(One { embedding }).into_response())
}

/// Options do not matter to a vector, but those that make no sense are refused all the same.
fn check_options(options: Option<Map<String, Value>>, warnings: &Warnings) -> Result<(), ApiError> {
    let _: options::Options = body::understand(
        Value::Object(options.unwrap_or_default()),
        options::ACCEPTED,
        warnings,
    )?;
    Ok(())
}

fn check_dimensions(model: &Model, wanted: Option<usize>) -> Result<(), ApiError> {
    let d_model = model.engine.spec().d_model;
    match wanted.filter(|&d| d != 0 && d != d_model) {
        Some(d) => Err(ApiError::field(
            "dimensions",
            format!("dimensions is {d}, but vectors of this model have {d_model}"),
        )),
        None => Ok(()),
    }
}

/// How texts become vectors.
struct Wish {
    pooling: Option<Pooling>,
    /// Whether texts that are too long are cut.
    cut: bool,
}

fn prepared(
    model: &Model,
    texts: &[String],
    wish: &Wish,
    warnings: &Warnings,
) -> Result<Prepared, ApiError> {
    if texts.len() > MAX_TEXTS {
        return Err(ApiError::field(
            "input",
            format!(
                "input has {} texts, expected at most {MAX_TEXTS}",
                texts.len()
            ),
        ));
    }
    if texts.iter().any(String::is_empty) {
        return Err(ApiError::field(
            "input",
            "input has an empty text, which has no vector",
        ));
    }
    let pooling = match wish.pooling {
        Some(pooling) => pooling,
        None => Pooling::of_model(&model.engine)?,
    };
    let job = |text: &String| {
        Ok(Job::embedding(
            ids(model, text, wish.cut, warnings)?,
            pooling,
        ))
    };
    let jobs = texts
        .iter()
        .map(job)
        .collect::<Result<Vec<_>, ApiError>>()?;
    let parsers = jobs
        .iter()
        .map(|_| AnswerParser::Vector(Vec::new()))
        .collect();
    let priority = if jobs.len() == 1 {
        PRIORITIES.0
    } else {
        PRIORITIES.1
    };
    Ok(Prepared {
        jobs,
        parsers,
        n_left_out: 0,
    }
    .with_priority(priority))
}

/// The tokens of a text, at most as many as the context holds.
fn ids(model: &Model, text: &str, cut: bool, warnings: &Warnings) -> Result<Vec<u32>, ApiError> {
    let mut ids = model.engine.embedding_ids(text.as_bytes());
    let (n_prompt, n_ctx) = (ids.len(), model.n_ctx);
    if n_prompt > n_ctx && !cut {
        return Err(
            ApiError::from(atta_engine::Error::PromptTooLong { n_prompt, n_ctx }).about("input"),
        );
    }
    if n_prompt > n_ctx {
        warnings
            .add(format!("a text of {n_prompt} tokens was cut to the {n_ctx} that the context of this server holds"));
        ids.truncate(n_ctx);
    }
    Ok(ids)
}

struct Vectors {
    embeddings: Vec<Vec<f32>>,
    n_prompt: usize,
}

/// All of them, in the order of the texts.
async fn vectors(mut answers: Answers) -> Result<Vectors, ApiError> {
    let (mut found, mut n_prompt) = (Vec::new(), 0);
    while let Some(event) = answers.next().await {
        let (i, AnswerEvent::End(end)) = event? else {
            continue;
        };
        if end.vector.is_empty() {
            return Err(ApiError::out_of_time());
        }
        n_prompt += end.done.n_prompt;
        found.push((i, end.vector));
    }
    found.sort_unstable_by_key(|(i, _)| *i);
    Ok(Vectors {
        embeddings: found.into_iter().map(|(_, vector)| vector).collect(),
        n_prompt,
    })
}

#[derive(Serialize)]
struct List<'a> {
    model: &'a str,
    embeddings: Vec<Vec<f32>>,
    total_duration: u64,
    load_duration: u64,
    prompt_eval_count: usize,
}

#[derive(Serialize)]
struct One {
    embedding: Vec<f32>,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
