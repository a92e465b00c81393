//! Suspended sessions: the text stays, and the memory of its state is free for others.
//!
//! Knows no reason to suspend, such as an app that goes to the background. The one idea: the
//! executor of a suspended session has no memory and refuses all work; to resume is to open a new
//! one, and to read the state from a file or to evaluate the text again, which gives the same bits.

use std::{
    fs,
    io::Write,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use atta_model::{
    Batch, Error as ModelError, Executor, ExecutorInfo, ExecutorSize, Observer, Output, SeqId,
    SeqTable, Ticket, Want,
};

use super::Session;
use crate::Error;

/// What a suspended session knows of its state.
pub(super) struct Suspended {
    /// The file that has it; `None`: the text is evaluated again.
    file: Option<PathBuf>,
}

impl Session {
    /// Frees the KV cache and the buffers of the session until it is [resumed](Self::resume); all
    /// that evaluates or changes its text fails meanwhile, but for [`truncate`](Self::truncate).
    /// Tokens and logits stay. The state is written to `file`, which only its owner can read; a
    /// later process may [import](Self::import) it unless the context was shifted. Without a file,
    /// the text is evaluated again. Nothing happens to a session that is suspended already.
    ///
    /// # Errors
    /// [`Error::Forked`]; [`Error::Irreproducible`] without a file; [`Error::Cache`] for a file
    /// that cannot be written, or is of another kind. The session is as before then.
    pub fn suspend(&mut self, file: Option<&Path>) -> Result<(), Error> {
        if self.is_suspended() {
            return Ok(());
        }
        self.settle()?;
        if Arc::strong_count(&self.executor) > 1 {
            return Err(Error::Forked);
        }
        match file {
            Some(path) => self.write_state(path)?,
            None if self.is_reproducible() => {}
            None => return Err(Error::Irreproducible),
        }
        self.free_executor();
        let file = file.map(Path::to_owned);
        self.suspended = Some(Suspended { file });
        Ok(())
    }

    /// Takes memory for the state again and restores it; the text goes on with the same bits. The
    /// file is removed. One that is missing or damaged is no error if the text can be evaluated
    /// again. An [observer](Self::observe) is gone.
    ///
    /// # Errors
    /// An exceeded memory budget, a step that failed, or a file without which there is no state.
    /// The session is suspended as before then.
    pub fn resume(&mut self) -> Result<(), Error> {
        let Some(suspended) = self.suspended.take() else {
            return Ok(());
        };
        let file = suspended.file.as_deref();
        let opened = self.open_executor();
        if let Err(error) = opened.and_then(|()| self.restore_state(file)) {
            self.free_executor();
            self.suspended = Some(suspended);
            return Err(error);
        }
        if let Some(path) = file {
            // The state in it is that of a text that goes on.
            let _ = fs::remove_file(path);
        }
        Ok(())
    }

    /// Whether it is suspended.
    pub fn is_suspended(&self) -> bool {
        self.suspended.is_some()
    }

    /// Whether evaluating its tokens again gives its state.
    fn is_reproducible(&self) -> bool {
        self.n_evicted == 0 && self.n_filled == 0
    }

    /// Replaces the executor by one without memory.
    fn free_executor(&mut self) {
        let mut executor = self.executor();
        let info = executor.info().clone();
        *executor = Box::new(Vacant::new(info, &self.size));
        drop(executor);
        atta_store::give_back_memory();
    }

    fn open_executor(&mut self) -> Result<(), Error> {
        let engine = &self.engine;
        let model = engine.model().clone();
        let opened = engine.backend().open(model, &self.size, engine.budget());
        let mut executor = opened.map_err(|error| match error {
            ModelError::Store(error) => Error::Store(error),
            error => error.into(),
        })?;
        self.seq = executor.new_seq()?;
        *self.executor() = executor;
        Ok(())
    }

    fn restore_state(&mut self, file: Option<&Path>) -> Result<(), Error> {
        let read = match file {
            Some(path) => self.read_state(path),
            None => Err(Error::Irreproducible),
        };
        match read {
            Err(_) if self.is_reproducible() => self.evaluate_again(),
            read => read,
        }
    }

    /// Evaluates the tokens in an executor without any. The logits stay as they are.
    fn evaluate_again(&mut self) -> Result<(), Error> {
        let tokens = std::mem::take(&mut self.tokens);
        let out = std::mem::take(&mut self.out);
        let last = self.last;
        let rows = self.rows;
        let sink = self.sink.take();
        let mut chunks = tokens.chunks(self.n_batch);
        let done = chunks.try_for_each(|ids| self.step(ids, |_| Want::Nothing, None));
        self.tokens = tokens;
        self.out = out;
        self.last = last;
        self.rows = rows;
        self.sink = sink;
        done
    }

    /// Removes the tokens from `n` on of a suspended session. The file has more then and is
    /// removed.
    pub(super) fn truncate_suspended(&mut self, n: usize) -> Result<usize, Error> {
        if n < self.tokens.len() {
            if !self.is_reproducible() {
                return Err(ModelError::Suspended.into());
            }
            self.tokens.truncate(n);
            self.n_saved = self.n_saved.min(n);
            self.last = None;
            let suspended = self.suspended.as_mut();
            if let Some(path) = suspended.and_then(|suspended| suspended.file.take()) {
                let _ = fs::remove_file(path);
            }
        }
        Ok(self.tokens.len())
    }
}

/// The executor of a suspended session: without memory and sequences.
struct Vacant {
    info: ExecutorInfo,
    seqs: SeqTable,
}

impl Vacant {
    fn new(info: ExecutorInfo, size: &ExecutorSize) -> Self {
        let seqs = SeqTable::new(&[], &size.seqs());
        Self { info, seqs }
    }
}

impl Executor for Vacant {
    fn info(&self) -> &ExecutorInfo {
        &self.info
    }

    fn seqs(&self) -> &SeqTable {
        &self.seqs
    }

    fn submit(&mut self, _: &Batch) -> Result<Ticket, ModelError> {
        Err(ModelError::Suspended)
    }

    fn collect(&mut self, _: Ticket, _: &mut Output) -> Result<(), ModelError> {
        Err(ModelError::Suspended)
    }

    fn observe(&mut self, _: Box<dyn Observer>) {}

    fn new_seq(&mut self) -> Result<SeqId, ModelError> {
        Err(ModelError::Suspended)
    }

    fn fork(&mut self, _: SeqId) -> Result<SeqId, ModelError> {
        Err(ModelError::Suspended)
    }

    fn truncate(&mut self, _: SeqId, _: usize) -> Result<usize, ModelError> {
        Err(ModelError::Suspended)
    }

    fn shift(&mut self, _: SeqId, _: Range<usize>) -> Result<(), ModelError> {
        Err(ModelError::Suspended)
    }

    fn fill(&mut self, _: SeqId, _: usize) -> Result<(), ModelError> {
        Err(ModelError::Suspended)
    }

    fn drop_seq(&mut self, _: SeqId) -> Result<(), ModelError> {
        Ok(())
    }

    fn export(&self, _: SeqId, _: Range<usize>, _: &mut dyn Write) -> Result<(), ModelError> {
        Err(ModelError::Suspended)
    }

    fn append_state(&mut self, _: SeqId, _: &[u8], _: usize) -> Result<(), ModelError> {
        Err(ModelError::Suspended)
    }
}
