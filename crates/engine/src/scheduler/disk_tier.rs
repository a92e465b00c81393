//! Disk tier of the prefix cache: evicted prefixes are saved to a prompt cache and restored for
//! later jobs.

use std::{io, sync::Arc};

use atta_model::{Executor, SeqId};

use crate::{
    Engine, Error, PromptCache,
    prompt_cache::{Key, Lookup, MIN_GAIN, SegmentPrefix, SequenceExport},
    speculation::StepCosts,
    text::TokenText,
};

/// A prompt cache directory, which other processes may use at the same time.
pub(super) struct DiskTier {
    engine: Engine,
    cache: Arc<PromptCache>,
    /// Key of the empty text without adapters.
    root: Key,
    /// Those of the executor.
    numerics: String,
    notes: Vec<String>,
}

impl DiskTier {
    pub(super) fn new(
        engine: &Engine,
        executor: &mut dyn Executor,
        cache: Arc<PromptCache>,
    ) -> Result<Self, Error> {
        if !cache.is_directory() {
            let source = io::Error::new(
                io::ErrorKind::NotADirectory,
                "many texts need a directory, and this is a file",
            );
            return Err(Error::Cache {
                path: cache.path().to_owned(),
                source,
            });
        }
        let seq = executor.new_seq()?;
        let root = Key::root(engine, executor, seq)?;
        executor.drop_seq(seq)?;
        cache.recall_experts(engine)?;
        Ok(Self {
            engine: engine.clone(),
            cache,
            root,
            numerics: executor.info().numerics.clone(),
            notes: Vec::new(),
        })
    }

    /// Tells `costs` the times of steps in earlier processes.
    pub(super) fn recall_costs(&self, costs: &mut StepCosts) -> Result<(), Error> {
        self.cache.recall_costs(&self.engine, &self.numerics, costs)
    }

    /// Finds a saved prefix of a text, without its last token. Empty if it would save little over
    /// `n` tokens.
    pub(super) fn find(&mut self, text: &TokenText<'_>, n: usize) -> Vec<SegmentPrefix> {
        let ids = &text.tokens[..text.tokens.len() - 1];
        let n_min = n + MIN_GAIN;
        if ids.len() < n_min {
            return Vec::new();
        }
        self.cache.look_up(
            &Lookup {
                root: self.root.with_adapters(&self.engine, text.adapters),
                ids,
                n_min,
            },
            &mut self.notes,
        )
    }

    /// Loads a saved prefix into an empty sequence; returns its number of tokens.
    pub(super) fn fill(
        &mut self,
        executor: &mut dyn Executor,
        seq: SeqId,
        found: Vec<SegmentPrefix>,
        text: &[u32],
    ) -> usize {
        self.cache
            .fill(executor, seq, found, text, &mut self.notes)
            .expect("the sequence is there")
            .unwrap_or(0)
    }

    /// Saves a sequence, and the times of steps so far; returns whether it was saved.
    pub(super) fn save(
        &mut self,
        executor: &dyn Executor,
        seq: SeqId,
        text: &TokenText<'_>,
        costs: &StepCosts,
    ) -> bool {
        let export = SequenceExport::new(&self.engine, executor, seq, text.tokens);
        let root = self.root.with_adapters(&self.engine, text.adapters);
        let saved = self.cache.try_to_save(|| {
            self.cache.save(&export, root)?;
            self.cache.save_costs(&self.engine, &self.numerics, costs)?;
            self.cache.save_experts(&self.engine)
        });
        saved.unwrap_or_else(|note| {
            self.notes.push(note);
            false
        })
    }

    /// Retries saving at once after a failure.
    pub(super) fn try_again(&self) {
        self.cache.end_pause();
    }

    /// Drains warnings about files.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}
