//! How well a model predicts a text: perplexity, and the divergence from the predictions of another
//! model.
//!
//! Knows a session and ids; no files, no tokenizer.
//!
//! The method is that of llama.cpp's `llama-perplexity`, so that figures can be compared. The text
//! is cut into chunks of `n_ctx` tokens, each evaluated from an empty context, and with
//! begin-of-sequence in place of its first token where the vocabulary wants that. Only the second
//! half of a chunk is scored, so that every token has at least `n_ctx / 2` before it. Perplexity is
//! e to the mean of −ln p of these tokens.

mod baseline;
mod score;
mod statistics;

use std::ops::ControlFlow;

pub use baseline::{Baseline, BaselineHeader, LogprobRow, write_row};
pub use score::{BaseScores, Scores};
pub use statistics::{DivergenceReport, Estimate, PerplexityReport};

use crate::Error;
use atta_engine::{Engine, Session};

/// The shortest chunk that leaves a token to score.
const MIN_CHUNK: usize = 4;

/// A text cut into chunks of equal length; the rest at the end is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks {
    ids: Vec<u32>,
    n_ctx: usize,
}

impl Chunks {
    /// Cuts `ids` into chunks of `n_ctx`, and keeps `max_chunks` of them at most.
    ///
    /// # Errors
    /// A chunk shorter than 4 tokens, a text shorter than a chunk.
    pub fn new(mut ids: Vec<u32>, n_ctx: usize, max_chunks: Option<usize>) -> Result<Self, Error> {
        if n_ctx < MIN_CHUNK {
            return Err(Error::ChunkTooShort {
                n_ctx,
                min: MIN_CHUNK,
            });
        }
        let n_chunks = (ids.len() / n_ctx).min(max_chunks.unwrap_or(usize::MAX));
        if n_chunks == 0 {
            return Err(Error::TextTooShort {
                n_ids: ids.len(),
                n_ctx,
            });
        }
        ids.truncate(n_chunks * n_ctx);
        Ok(Self { ids, n_ctx })
    }

    /// All ids, those of begin-of-sequence not among them.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Tokens of a chunk.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// How many chunks there are, at least one.
    pub fn len(&self) -> usize {
        self.ids.len() / self.n_ctx
    }

    /// There is always a chunk.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Tokens of a chunk that are scored, at least one.
    pub fn n_scored(&self) -> usize {
        n_scored(self.n_ctx)
    }

    fn chunk(&self, i: usize) -> &[u32] {
        &self.ids[i * self.n_ctx..][..self.n_ctx]
    }

    /// The tokens of chunk `i` that are scored.
    pub(crate) fn scored(&self, i: usize) -> &[u32] {
        &self.chunk(i)[self.n_ctx / 2 + 1..]
    }

    /// The tokens that the model reads of chunk `i`; the last ones are in front of the scored ones.
    pub(crate) fn inputs(&self, i: usize, engine: &Engine) -> Vec<u32> {
        let tokenizer = engine.tokenizer();
        let bos = tokenizer.bos().filter(|_| tokenizer.add_bos());
        let mut inputs = self.chunk(i)[..self.n_ctx - 1].to_vec();
        inputs[0] = bos.unwrap_or(inputs[0]);
        inputs
    }

    /// Evaluates chunk `i` from the beginning of the session. `each` hears the logits before every
    /// token that is scored, `[n_vocab]`, and the token; `go_on` is asked before every batch.
    /// Breaks where it said so, with the chunk half done.
    ///
    /// # Errors
    /// A step that failed, a session too short for a chunk.
    ///
    /// # Panics
    /// If there is no chunk `i`.
    pub fn evaluate(
        &self,
        i: usize,
        session: &mut Session,
        mut go_on: impl FnMut() -> bool,
        mut each: impl FnMut(&[f32], u32),
    ) -> Result<ControlFlow<()>, Error> {
        let chunk = self.chunk(i);
        let inputs = self.inputs(i, session.engine());
        let (unscored, scored) = inputs.split_at(self.n_ctx / 2);
        session.truncate(0)?;
        if session.append_with(unscored, |_| go_on())? < unscored.len() {
            return Ok(ControlFlow::Break(()));
        }
        for part in scored.chunks(session.n_batch()) {
            if !go_on() {
                return Ok(ControlFlow::Break(()));
            }
            session.append_each(part, |pos, logits| each(logits, chunk[pos + 1]))?;
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Tokens that are scored in a chunk of `n_ctx`.
fn n_scored(n_ctx: usize) -> usize {
    n_ctx - 1 - n_ctx / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fill_a_chunk_is_left_out() {
        let chunks = Chunks::new((0..26).collect(), 8, None).unwrap();
        assert_eq!(
            (chunks.len(), chunks.ids().len(), chunks.n_scored()),
            (3, 24, 3)
        );
        assert_eq!(Chunks::new((0..26).collect(), 8, Some(2)).unwrap().len(), 2);
        assert_eq!(
            Chunks::new((0..26).collect(), 5, None).unwrap().n_scored(),
            2
        );
    }

    #[test]
    fn what_leaves_nothing_to_score_is_refused() {
        assert!(matches!(
            Chunks::new(vec![1; 9], 3, None),
            Err(Error::ChunkTooShort { n_ctx: 3, .. })
        ));
        assert!(matches!(
            Chunks::new(vec![1; 7], 8, None),
            Err(Error::TextTooShort { n_ids: 7, n_ctx: 8 })
        ));
    }
}
