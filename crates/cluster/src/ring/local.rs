//! The layers that the coordinator runs itself, the embedding of tokens before them.
//!
//! The one idea: a chain of executors over ranges that follow each other, since a coordinator that
//! takes over layers keeps those that it has.

use std::{io::Write, ops::Range};

use atta_model::{Batch, Error, Executor, Want};

use crate::{
    Stage,
    journal::{LayerStates, SavedState},
    stage::write_row,
    wire::{Frame, FrameKind, Header, Op, Run},
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

    /// Executors.
    pub(super) fn n_executors(&self) -> usize {
        self.stages.len()
    }

    /// Writes the state of positions of a sequence in one executor.
    ///
    /// # Errors
    /// As [`Executor::export`].
    pub(super) fn export(
        &self,
        i: usize,
        seq: u32,
        positions: Range<usize>,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        self.stages[i].export(seq, positions, out)
    }

    /// Appends a state of each executor; whether all have it now.
    pub(super) fn append(&mut self, seq: u32, states: &[&[u8]], n: usize) -> bool {
        let mut pairs = self.stages.iter_mut().zip(states);
        pairs.len() == states.len() && pairs.all(|(stage, state)| stage.append_to(seq, state, n))
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
