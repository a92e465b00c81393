//! `POST /reranking`, also `/rerank` and `/v1/rerank`: scores of documents for a query by a
//! reranker, in the form of Jina's, Cohere's and llama.cpp's interfaces.

use std::sync::Arc;

use atta_engine::{
    Pooling,
    spec::{Outputs, ScoreHead},
};
use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};

use crate::{
    app::App,
    flow::{
        answer::Embeddings,
        body::{Accepted, BodyFields, Incoming},
        error::ApiError,
        prepare::{self, Prepared},
        request::{self, ApiRequest},
        warnings::Warnings,
    },
    models::Model,
};

/// As many documents as Jina takes.
const MAX_DOCUMENTS: usize = 2048;

/// The fields that are kept or refused.
#[derive(Debug, Deserialize)]
pub(crate) struct RerankRequest {
    query: String,
    documents: Vec<Document>,
    model: Option<String>,
    /// The number of best documents to return; without it, all.
    top_n: Option<usize>,
    /// Whether the documents are returned with their scores.
    return_documents: Option<bool>,
}

/// A document: a text, alone or as the field of an object.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Document {
    Text(String),
    Object { text: String },
}

impl Document {
    fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Object { text } => text,
        }
    }
}

impl ApiRequest for RerankRequest {
    const ACCEPTED: Accepted = &[("user", "there are no accounts")];

    fn read(fields: BodyFields, warnings: &Warnings) -> Result<Self, ApiError> {
        fields.rest(Self::ACCEPTED, warnings)
    }

    fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }
}

/// The fields of a request that shape its response.
struct Asked {
    /// The documents, if they are returned.
    documents: Option<Vec<String>>,
    top_n: usize,
}

/// Scores the documents, best first.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    incoming: Incoming,
) -> Result<Response, ApiError> {
    let prepare = |model: &Model, request: RerankRequest, _: &Warnings| prepared(model, request);
    let (mut answers, asked) = request::submit(&app, incoming, prepare).await?;
    let scores = Embeddings::collect(&mut answers).await?;
    let mut ranked: Vec<(usize, f32)> = scores
        .vectors
        .iter()
        .map(|scores| scores[0])
        .enumerate()
        .collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    ranked.truncate(asked.top_n);
    let results = ranked
        .into_iter()
        .map(|(index, relevance_score)| RankedDocument {
            index,
            relevance_score,
            document: asked
                .documents
                .as_ref()
                .map(|all| DocumentText { text: &all[index] }),
        });
    Ok(Json(Ranking {
        object: "list",
        model: &answers.model().name,
        usage: RankingUsage {
            prompt_tokens: scores.n_prompt,
            total_tokens: scores.n_prompt,
        },
        results: results.collect(),
    })
    .into_response())
}

fn prepared(model: &Model, request: RerankRequest) -> Result<(Prepared, Asked), ApiError> {
    let engine = &model.engine;
    match engine.spec().head.outputs {
        Outputs::Scores(ScoreHead { n: 1, .. }) => {}
        Outputs::Scores(ScoreHead { n, .. }) => {
            return Err(ApiError::not_implemented(format!(
                "this model gives a text {n} scores; ranking documents takes a model with one"
            )));
        }
        Outputs::Logits | Outputs::Hidden | Outputs::Dense(_) => {
            return Err(ApiError::not_implemented(
                "this model has no head that scores documents: ranking takes a reranker model",
            ));
        }
    }
    let n = request.documents.len();
    if !(1..=MAX_DOCUMENTS).contains(&n) {
        let message = format!("{n} documents, expected 1 to {MAX_DOCUMENTS}");
        return Err(ApiError::field("documents", message));
    }
    let pair = |document: &Document| {
        let pair = engine.pair(request.query.as_bytes(), document.text().as_bytes());
        prepare::check_length(model, pair.ids())
            .map_err(|error| ApiError::from(error).about("documents"))?;
        Ok(pair)
    };
    let pairs = request
        .documents
        .iter()
        .map(pair)
        .collect::<Result<Vec<_>, ApiError>>()?;
    let documents = request.return_documents == Some(true);
    let asked = Asked {
        documents: documents.then(|| {
            request
                .documents
                .iter()
                .map(|d| d.text().to_owned())
                .collect()
        }),
        top_n: request.top_n.unwrap_or(n),
    };
    Ok((prepare::embeddings(pairs, Pooling::Rank), asked))
}

#[derive(Serialize)]
struct Ranking<'a> {
    object: &'static str,
    model: &'a str,
    usage: RankingUsage,
    results: Vec<RankedDocument<'a>>,
}

#[derive(Serialize)]
struct RankedDocument<'a> {
    index: usize,
    relevance_score: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<DocumentText<'a>>,
}

#[derive(Serialize)]
struct DocumentText<'a> {
    text: &'a str,
}

#[derive(Serialize)]
struct RankingUsage {
    prompt_tokens: usize,
    total_tokens: usize,
}
