//! Texts on disk: what has to make room in memory goes there, and comes back when somebody begins the same way.

use std::{io, sync::Arc};

use atta_model::{Executor, SeqId};

use crate::{
    Engine, Error, PromptCache,
    prompt_cache::{Key, Lookup, MIN_GAIN, Piece, Source},
};

/// A directory of a prompt cache, which others may use at the same time.
pub(super) struct Shelf {
    engine: Engine,
    cache: Arc<PromptCache>,
    /// That of an empty text.
    root: Key,
    notes: Vec<String>,
}

impl Shelf {
    pub(super) fn new(engine: &Engine, executor: &mut dyn Executor, cache: Arc<PromptCache>) -> Result<Self, Error> {
        if !cache.is_directory() {
            let source =
                io::Error::new(io::ErrorKind::NotADirectory, "many texts need a directory, and this is a file");
            return Err(Error::Cache { path: cache.path().to_owned(), source });
        }
        let seq = executor.new_seq()?;
        let root = Key::root(engine, executor, seq)?;
        executor.drop_seq(seq)?;
        Ok(Self { engine: engine.clone(), cache, root, notes: Vec::new() })
    }

    /// What there is of a text, but for its last token, whose logits are wanted; nothing if it is hardly more than `n` tokens.
    pub(super) fn find(&mut self, text: &[u32], n: usize) -> Vec<Piece> {
        let (ids, n_min) = (&text[..text.len() - 1], n + MIN_GAIN);
        if ids.len() < n_min {
            return Vec::new();
        }
        self.cache.look_up(&Lookup { root: self.root, ids, n_min }, &mut self.notes)
    }

    /// Brings into a sequence what was found of a text; how many tokens that is.
    pub(super) fn fill(&mut self, into: (&mut dyn Executor, SeqId), found: Vec<Piece>, text: &[u32]) -> usize {
        self.cache.fill(into, found, text, &mut self.notes).expect("the sequence is there")
    }

    /// Keeps what a sequence holds; whether it is kept.
    pub(super) fn save(&mut self, (executor, seq): (&dyn Executor, SeqId), tokens: &[u32]) -> bool {
        let source = Source::new(&self.engine, (executor, seq), tokens);
        let saved = self.cache.try_to_save(|| self.cache.save(&source, self.root));
        saved.unwrap_or_else(|note| {
            self.notes.push(note);
            false
        })
    }

    /// Lets the next text be kept if it can be, whatever has failed.
    pub(super) fn try_again(&self) {
        self.cache.end_pause();
    }

    /// What was wrong with files, since this was asked last.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}
