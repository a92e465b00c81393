//! Trials that each load a model in part and run it on whole chunks: fewer experts, and layers of
//! models whose layers cannot be computed apart.

use atta_engine::{Engine, Reduction, SessionOptions};

use super::trials::{Comparison, Trials};
use crate::{Error, perplexity::Chunks};

/// The trials of a round.
pub(super) struct Whole<'a> {
    pub(super) chunks: &'a Chunks,
    pub(super) session: &'a SessionOptions,
    pub(super) open: &'a mut dyn FnMut(&Reduction) -> Result<Engine, atta_engine::Error>,
    pub(super) reductions: Vec<Reduction>,
}

impl Trials for Whole<'_> {
    /// One model after another, so that two are in memory at most.
    fn run(&mut self, i: usize, to: &mut Comparison<'_>) -> Result<(), Error> {
        for (trial, reduction) in self.reductions.iter().enumerate() {
            to.begin(trial)?;
            let mut session = (self.open)(reduction)?.session(self.session)?;
            let each = |logits: &[f32], token| to.push(logits, token);
            let _ = self.chunks.evaluate(i, &mut session, || true, each)?;
        }
        Ok(())
    }
}
