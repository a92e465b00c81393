//! The layers that the coordinator runs itself, the embedding of tokens before them.
//!
//! The one idea: a chain of executors over ranges that follow each other, since a coordinator that
//! takes over layers keeps those that it has.

use atta_model::{Batch, Error, Executor, Want};

use crate::{
    Stage,
    journal::{LayerStates, SavedState},
    stage::{SavedPositions, write_row},
    states::StateStore,
    wire::{Frame, FrameKind, Header, Op, Run, StateKey},
};

/// Executors of sequences with the numbers of the ring; none while a ring is formed.
pub(super) struct LocalLayers {
    stages: Vec<Stage>,
    batch: Batch,
}

impl LocalLayers {
    /// Layers without sequences; the first executor embeds tokens.
    pub(super) fn new(executors: Vec<Box<dyn Executor>>, d_row: usize) -> Self {
        let stages = executors.into_iter();
        Self {
            stages: stages.map(|executor| Stage::new(executor, d_row)).collect(),
            batch: Batch::default(),
        }
    }

    /// Drops all executors.
    pub(super) fn clear(&mut self) {
        self.stages.clear();
    }

    /// Drops all sequences.
    pub(super) fn reset(&mut self) {
        self.stages.iter_mut().for_each(Stage::reset);
    }

    /// Keeps states on disk from now on.
    pub(super) fn keep_states(&mut self, store: &StateStore) {
        let stages = std::mem::take(&mut self.stages).into_iter();
        let stages = stages.map(|stage| stage.keep_states(Some(store.clone())));
        self.stages = stages.collect();
    }

    /// Writes a state to disk, if states are kept there. One that is not is computed again.
    pub(super) fn save(&self, at: &SavedPositions, key: &StateKey) {
        for stage in &self.stages {
            let _ = stage.save(at, key);
        }
    }

    /// Appends a state from disk; whether all executors have it now.
    pub(super) fn load(&mut self, at: &SavedPositions, key: &StateKey) -> bool {
        let mut stages = self.stages.iter_mut();
        stages.all(|stage| stage.load(at, key).unwrap_or(false))
    }

    /// Applies operations in order.
    ///
    /// # Errors
    /// An operation that the sequences do not allow.
    pub(super) fn apply(&mut self, ops: &[Op]) -> Result<(), Error> {
        let mut stages = self.stages.iter_mut();
        stages.try_for_each(|stage| stage.apply(ops))
    }

    /// The states that were saved since the last call.
    pub(super) fn take_saved(&mut self) -> Vec<SavedState> {
        let stages = self.stages.iter_mut();
        stages.flat_map(Stage::take_saved).collect()
    }

    /// Keeps a state for the operation that loads it; `None`: it lacks layers.
    pub(super) fn keep(&mut self, id: u64, states: &LayerStates) -> Option<()> {
        for stage in &mut self.stages {
            stage.keep(id, states.of(stage.layers())?);
        }
        Some(())
    }

    /// The residual of each row behind these layers, `[n_rows, d_row]`. `runs` are the rows of the
    /// batch.
    ///
    /// # Errors
    /// What an executor returns; no sequence has changed then.
    pub(super) fn compute(&mut self, batch: &Batch, runs: &[Run]) -> Result<Vec<u8>, Error> {
        self.compute_each(batch, runs, &mut |_, _| {})
    }

    /// The same, and a call behind each executor with the number of those that are done and their
    /// rows.
    ///
    /// # Errors
    /// As [`compute`](Self::compute).
    pub(super) fn compute_each(
        &mut self,
        batch: &Batch,
        runs: &[Run],
        on: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<Vec<u8>, Error> {
        let data = self.embed(batch)?;
        on(1, &data);
        if self.stages.len() == 1 {
            return Ok(data);
        }
        let mut frame = Frame {
            runs: runs.to_vec(),
            data,
            ..Frame::bare(Header::new(FrameKind::Work))
        };
        for i in 1..self.stages.len() {
            match self.stages[i].pass(&frame) {
                Ok(data) => {
                    on(i + 1, &data);
                    frame.data = data;
                }
                Err(error) => {
                    self.remove(i, runs)?;
                    return Err(error);
                }
            }
        }
        Ok(frame.data)
    }

    /// The first executor's rows.
    fn embed(&mut self, batch: &Batch) -> Result<Vec<u8>, Error> {
        let first = self.stages.first_mut();
        let first = first.ok_or(Error::State("the ring is not formed"))?;
        let rows = &mut self.batch;
        rows.copy_from(batch);
        rows.rows.iter_mut().try_for_each(|row| {
            row.want = Want::Hidden;
            row.seq = first.seq(row.seq.index)?;
            Ok::<_, Error>(())
        })?;
        let out = first.step_local(rows)?;
        let mut data = Vec::new();
        (0..rows.rows.len()).for_each(|i| write_row(out.hidden(i), &mut data));
        Ok(data)
    }

    /// Removes rows from the first `n` executors.
    fn remove(&mut self, n: usize, runs: &[Run]) -> Result<(), Error> {
        for run in runs.iter().rev() {
            let seq = run.seq;
            let len = run.pos;
            let mut stages = self.stages.iter_mut().take(n);
            stages.try_for_each(|stage| stage.apply(&[Op::Truncate { seq, len }]))?;
        }
        Ok(())
    }
}
