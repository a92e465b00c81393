//! Vectors of texts, and scores of documents: the scheduler as a function.
//!
//! Knows no file and no line. Many texts are evaluated at a time, and the vector of each has the
//! same bits alone and beside others.

use std::{ops::ControlFlow, time::Duration};

use crate::{
    Batcher, BatcherOptions, Engine, Error, Job, JobId, Pooling, SessionOptions, Text, Update,
};

/// Texts evaluated at once.
const N_JOBS: usize = 16;

/// Size of the KV pool that they share, in contexts.
const N_CONTEXTS: usize = 2;

/// How texts become vectors.
#[derive(Clone, Debug, Default)]
pub struct EmbedOptions {
    /// The hidden states that make up a vector; `None`: those that the model file names.
    pub pooling: Option<Pooling>,
    /// Context length, batch size and KV types; the number of sequences is set here.
    pub session: SessionOptions,
}

impl EmbedOptions {
    /// The session for which to load a model, so that its memory is planned.
    pub fn planned_session(&self) -> SessionOptions {
        SessionOptions {
            n_forks: N_JOBS - 1,
            n_contexts: Some(N_CONTEXTS),
            ..self.session.clone()
        }
    }
}

/// Makes vectors of texts. It holds the memory for many texts at once.
#[derive(Debug)]
pub struct Embedder {
    batcher: Batcher,
    pooling: Pooling,
}

impl Embedder {
    /// Creates an embedder with an executor of its own.
    ///
    /// # Errors
    /// [`Error::Pooling`] for a model whose file says that it gives no vectors, unless the options
    /// have a pooling; an exceeded memory budget.
    pub fn new(engine: &Engine, options: &EmbedOptions) -> Result<Self, Error> {
        let pooling = match options.pooling {
            Some(Pooling::Rank) if !engine.is_reranker() => {
                return Err(atta_model::Error::NoScores.into());
            }
            Some(pooling) => pooling,
            None => Pooling::of_model(engine)?,
        };
        let options = BatcherOptions {
            session: options.planned_session(),
            n_jobs: N_JOBS,
            max_gap: Duration::MAX,
            cache: None,
        };
        let batcher = Batcher::new(engine, &options)?;
        Ok(Self { batcher, pooling })
    }

    /// Tokens that a text may have.
    pub fn n_ctx(&self) -> usize {
        self.batcher.n_ctx()
    }

    /// The vectors of texts, `[d_model]` each and of length 1; or, by [`Pooling::Rank`], their
    /// scores.
    ///
    /// # Errors
    /// A text that is empty or longer than the context; a step that failed.
    pub fn embed(&mut self, texts: impl IntoIterator<Item = Text>) -> Result<Vec<Vec<f32>>, Error> {
        let result = self.run(texts);
        if result.is_err() {
            self.cancel_all();
        }
        result
    }

    fn run(&mut self, texts: impl IntoIterator<Item = Text>) -> Result<Vec<Vec<f32>>, Error> {
        let jobs = texts
            .into_iter()
            .map(|text| self.batcher.submit(Job::embedding(text, self.pooling)));
        let ids = jobs.collect::<Result<Vec<JobId>, Error>>()?;
        let mut vectors = vec![Vec::new(); ids.len()];
        let mut failed = None;
        while !self.batcher.is_idle() && failed.is_none() {
            self.batcher.step(&mut |id, update| {
                match update {
                    Update::Embedding(vector) => {
                        let i = ids.binary_search(&id).expect("ids are in order");
                        vectors[i] = vector.to_vec();
                    }
                    Update::Failed(error) => failed = Some(error.to_string()),
                    Update::Event(_) | Update::Done(_) => {}
                }
                ControlFlow::Continue(())
            })?;
        }
        match failed {
            Some(why) => Err(Error::Embedding(why)),
            None => Ok(vectors),
        }
    }

    /// Cancels the other texts of a call that failed.
    fn cancel_all(&mut self) {
        self.batcher.cancel_all();
    }
}

impl Engine {
    /// The vectors of texts, `[d_model]` each and of length 1, by an [`Embedder`] for this call.
    ///
    /// # Errors
    /// Those of [`Embedder::new`] and [`Embedder::embed`].
    pub fn embed(&self, texts: &[&str], options: &EmbedOptions) -> Result<Vec<Vec<f32>>, Error> {
        let texts = texts.iter().map(|text| self.embedding_ids(text.as_bytes()));
        Embedder::new(self, options)?.embed(texts.map(Text::from))
    }

    /// The scores of documents for a query by a reranker: of each its first score.
    ///
    /// # Errors
    /// Those of [`Embedder::embed`]; a model that scores no texts.
    pub fn rerank(
        &self,
        query: &str,
        documents: &[&str],
        options: &EmbedOptions,
    ) -> Result<Vec<f32>, Error> {
        let options = EmbedOptions {
            pooling: Some(Pooling::Rank),
            ..options.clone()
        };
        let pairs = documents
            .iter()
            .map(|document| self.pair(query.as_bytes(), document.as_bytes()));
        let scores = Embedder::new(self, &options)?.embed(pairs)?;
        Ok(scores.iter().map(|scores| scores[0]).collect())
    }
}
