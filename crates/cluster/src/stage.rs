//! A stage: an executor of some layers that follows the operations and rows of frames.

use std::{
    collections::HashMap,
    io::{self, Write},
    ops::Range,
};

use atta_model::{Batch, Error, Executor, Output, SeqId, Want};

use crate::{
    StatesFolder,
    core::Outcome,
    journal::{self, SavedState},
    states::{KeptState, KeptStates, StateStore},
    wire::{Frame, FrameKind, Header, Limits, Op, Run, StateKey, Status},
};

const OTHER: Error = Error::State("the sequences of a stage are not those of the ring");

/// Positions of a sequence whose state is saved or loaded.
pub(crate) struct SavedPositions {
    pub(crate) seq: u32,
    pub(crate) first: u32,
    pub(crate) n: u32,
}

impl SavedPositions {
    fn range(&self) -> Range<usize> {
        self.first as usize..(self.first + self.n) as usize
    }
}

/// An executor whose sequences have the numbers of the ring.
pub struct Stage {
    executor: Box<dyn Executor>,
    seqs: HashMap<u32, SeqId>,
    batch: Batch,
    out: Output,
    /// Numbers of a row.
    d_row: usize,
    /// States to load, by their names.
    kept: HashMap<u64, Vec<u8>>,
    /// States that were saved since they were last taken.
    saved: Vec<SavedState>,
    /// Numbers of one row while it is decoded, `[d_row]`.
    row: Vec<f32>,
    /// States on disk, if it keeps any.
    states: Option<KeptStates>,
    /// Whether a state was not there that it should have loaded.
    lacks_state: bool,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage")
            .field("part", &self.executor.info().part)
            .field("n_seqs", &self.seqs.len())
            .finish_non_exhaustive()
    }
}

impl Stage {
    /// A stage without sequences, of an executor that takes and gives rows of `d_row` numbers.
    pub fn new(executor: Box<dyn Executor>, d_row: usize) -> Self {
        Self {
            executor,
            seqs: HashMap::new(),
            batch: Batch::default(),
            out: Output::default(),
            d_row,
            kept: HashMap::new(),
            saved: Vec::new(),
            row: vec![0.0; d_row],
            states: None,
            lacks_state: false,
        }
    }

    /// Puts an executor around that of the stage, which watches or disturbs its computations.
    #[must_use]
    pub fn map_executor(self, around: impl FnOnce(Box<dyn Executor>) -> Box<dyn Executor>) -> Self {
        Self {
            executor: around(self.executor),
            ..self
        }
    }

    /// Keeps states on disk when the ring wants it.
    #[must_use]
    pub(crate) fn keep_states(self, store: Option<StateStore>) -> Self {
        let numerics = &self.executor.info().numerics;
        let states = store.map(|store| KeptStates::new(store, numerics));
        Self { states, ..self }
    }

    /// Keeps states of a model that has this id in a folder when the ring wants it.
    #[must_use]
    pub fn keep_states_in(self, folder: StatesFolder, model: [u8; 32]) -> Self {
        self.keep_states(Some(StateStore {
            folder,
            model,
            peers: None,
        }))
    }

    /// Its layers.
    pub(crate) fn layers(&self) -> std::ops::Range<usize> {
        self.executor.info().part.layers.clone()
    }

    /// Keeps a state for the operation that loads it.
    pub fn keep(&mut self, id: u64, bytes: Vec<u8>) {
        self.kept.insert(id, bytes);
    }

    /// The states that were saved since the last call.
    pub(crate) fn take_saved(&mut self) -> Vec<SavedState> {
        std::mem::take(&mut self.saved)
    }

    /// The frames of the states that the operations of a frame have saved.
    pub fn saved_frames(&mut self, limits: &Limits, frame: &Header) -> Vec<Frame> {
        let saved = self.take_saved();
        let frames = saved
            .iter()
            .map(|state| journal::split(state, limits, frame.epoch, frame.stage));
        frames.flatten().collect()
    }

    /// Drops all sequences.
    pub fn reset(&mut self) {
        for (_, seq) in self.seqs.drain() {
            // It is in the map because the executor has it.
            let _ = self.executor.drop_seq(seq);
        }
    }

    /// Applies the operations of a frame and computes its rows. The last stage returns the wanted
    /// ones, and those that are not finite.
    pub fn compute(&mut self, frame: &Frame) -> Outcome {
        if frame.header.kind == FrameKind::CatchUp && frame.header.flags & Header::RESET != 0 {
            self.reset();
        }
        let is_last = frame.header.stage == frame.header.until;
        self.lacks_state = false;
        let done = self
            .apply(&frame.ops)
            .and_then(|()| self.step(frame, is_last));
        self.kept.clear();
        self.outcome_of(done, frame)
    }

    /// What the coordinator is told.
    fn outcome_of(&self, done: Result<Outcome, Error>, frame: &Frame) -> Outcome {
        match done {
            // No result tells what became of a catch-up.
            Ok(_) if self.lacks_state && frame.header.kind == FrameKind::CatchUp => {
                Outcome::Failed(Status::Refused)
            }
            Ok(outcome) if self.lacks_state => with_status(outcome, Status::NoState),
            Ok(outcome) => outcome,
            Err(Error::OutOfBlocks) => Outcome::Failed(Status::OutOfBlocks),
            Err(Error::Store(_)) => Outcome::Failed(Status::Io),
            Err(_) => Outcome::Failed(Status::Refused),
        }
    }

    /// Applies operations in order.
    ///
    /// # Errors
    /// An operation that the sequences here do not allow: they are not those of the ring.
    pub(crate) fn apply(&mut self, ops: &[Op]) -> Result<(), Error> {
        ops.iter().try_for_each(|op| self.apply_one(op))
    }

    fn apply_one(&mut self, op: &Op) -> Result<(), Error> {
        match *op {
            Op::New { seq } => {
                if self.seqs.contains_key(&seq) {
                    return Err(OTHER);
                }
                let id = self.executor.new_seq()?;
                self.seqs.insert(seq, id);
                Ok(())
            }
            Op::Fork { from, to } => {
                let from = self.seq(from)?;
                if let Some(old) = self.seqs.remove(&to) {
                    self.executor.drop_seq(old)?;
                }
                let fork = self.executor.fork(from)?;
                self.seqs.insert(to, fork);
                Ok(())
            }
            Op::Truncate { seq, len } => {
                let id = self.seq(seq)?;
                let had = self.executor.seqs().len(id)?;
                match self.executor.truncate(id, len as usize)? == had.min(len as usize) {
                    true => Ok(()),
                    false => Err(OTHER),
                }
            }
            Op::Shift { seq, from, len } => {
                let id = self.seq(seq)?;
                let from = from as usize;
                self.executor.shift(id, from..from + len as usize)
            }
            Op::Drop { seq } => {
                let id = self.seq(seq)?;
                self.seqs.remove(&seq);
                self.executor.drop_seq(id)
            }
            Op::Save { seq, first, n, key } => {
                let state = SavedPositions { seq, first, n };
                self.save(&state, &key)
            }
            Op::Load { seq, first, n, key } => {
                let state = SavedPositions { seq, first, n };
                self.lacks_state |= !self.load(&state, &key)?;
                Ok(())
            }
            Op::Export { seq, first, n, id } => {
                let state = SavedPositions { seq, first, n };
                self.export_for(&state, id);
                Ok(())
            }
            Op::Append { seq, n, id, .. } => self.append_kept(seq, n as usize, id),
        }
    }

    /// Writes a state to disk, if states are kept there. One that is not is computed again.
    ///
    /// # Errors
    /// A sequence that is not here.
    pub(crate) fn save(&self, at: &SavedPositions, key: &StateKey) -> Result<(), Error> {
        let id = self.seq(at.seq)?;
        if let Some(states) = &self.states {
            let mut export = |l: usize, out: &mut dyn Write| {
                let written = self.executor.export_layers(id, l..l + 1, at.range(), out);
                written.map_err(|error| io::Error::other(error.to_string()))
            };
            let _ = states.save(key, self.layers(), &mut export);
        }
        Ok(())
    }

    /// Appends a state from disk; whether all layers have it there. Else the sequence is as before.
    ///
    /// # Errors
    /// A sequence that is not here, or ends elsewhere.
    pub(crate) fn load(&mut self, at: &SavedPositions, key: &StateKey) -> Result<bool, Error> {
        let id = self.seq(at.seq)?;
        if self.executor.seqs().len(id)? != at.first as usize {
            return Err(OTHER);
        }
        let layers = self.layers();
        let states = match layers.is_empty() {
            true => Some(Vec::new()),
            false => self
                .states
                .as_ref()
                .and_then(|states| states.load(key, layers)),
        };
        let Some(states) = states else {
            return Ok(false);
        };
        let states: Vec<&[u8]> = states.iter().map(KeptState::bytes).collect();
        let appended = self.executor.append_layers(id, &states, at.n as usize);
        Ok(appended.is_ok())
    }

    /// Keeps a state for the coordinator. Positions without one are computed again: never a reason
    /// to stop.
    fn export_for(&mut self, at: &SavedPositions, id: u64) {
        if let Ok(bytes) = self.export_layers(at.seq, at.range()) {
            let SavedPositions { seq, first, n } = *at;
            self.saved.push(SavedState {
                id,
                seq,
                first,
                n,
                bytes,
            });
        }
    }

    /// The state of some positions, layer by layer.
    fn export_layers(&self, seq: u32, positions: Range<usize>) -> Result<Vec<u8>, Error> {
        let seq = self.seq(seq)?;
        let state = |l: usize| {
            let mut bytes = Vec::new();
            self.executor
                .export_layers(seq, l..l + 1, positions.clone(), &mut bytes)?;
            Ok((l, bytes))
        };
        let states = self
            .layers()
            .map(state)
            .collect::<Result<Vec<_>, Error>>()?;
        let states = states.iter().map(|(l, bytes)| (*l, &bytes[..]));
        Ok(journal::join(states))
    }

    /// Appends a state that was kept.
    fn append_kept(&mut self, seq: u32, n: usize, id: u64) -> Result<(), Error> {
        const OTHER: Error = Error::State("a state that is loaded is not that of the ring");
        let seq = self.seq(seq)?;
        let bytes = self.kept.remove(&id).ok_or(OTHER)?;
        let states = journal::layers(&bytes).ok_or(OTHER)?;
        if !states.iter().map(|(l, _)| *l).eq(self.layers()) {
            return Err(OTHER);
        }
        let states: Vec<&[u8]> = states.into_iter().map(|(_, state)| state).collect();
        self.executor.append_layers(seq, &states, n)
    }

    /// The executor's id of a sequence of the ring.
    pub(crate) fn seq(&self, seq: u32) -> Result<SeqId, Error> {
        self.seqs
            .get(&seq)
            .copied()
            .ok_or(Error::State("a stage lacks a sequence"))
    }

    /// Computes rows that are prepared in a batch for its sequences; the residual of each row that
    /// wants it.
    pub(crate) fn step_local(&mut self, batch: &Batch) -> Result<&Output, Error> {
        self.executor.step(batch, &mut self.out)?;
        Ok(&self.out)
    }

    /// Computes the rows of a frame; the residual of each, `[n_rows, d_row]`.
    pub(crate) fn pass(&mut self, frame: &Frame) -> Result<Vec<u8>, Error> {
        match self.step(frame, false)? {
            Outcome::Computed { data, .. } => Ok(data),
            Outcome::Failed(_) => Err(Error::State("a stage gave no rows")),
        }
    }

    fn step(&mut self, frame: &Frame, is_last: bool) -> Result<Outcome, Error> {
        let mut batch = std::mem::take(&mut self.batch);
        let filled = self.fill(&mut batch, frame, is_last);
        let done = filled.and_then(|()| match batch.rows.is_empty() {
            true => Ok(()),
            false => self.executor.step(&batch, &mut self.out),
        });
        self.batch = batch;
        done?;
        Ok(self.outcome(frame, is_last))
    }

    /// Makes rows of hidden states from the data of a frame.
    fn fill(&mut self, batch: &mut Batch, frame: &Frame, is_last: bool) -> Result<(), Error> {
        batch.clear();
        let mut rows = frame.data.chunks_exact(4 * self.d_row);
        for run in &frame.runs {
            let seq = self.seq(run.seq)?;
            let want = match run.is_wanted || !is_last {
                true => Want::Hidden,
                false => Want::Nothing,
            };
            for i in 0..usize::from(run.n) {
                let bytes = rows.next().ok_or(Error::State("a row without data"))?;
                read_row(bytes, &mut self.row);
                batch.push_hidden(seq, run.pos as usize + i, &self.row, want);
            }
            if run.is_checkpoint {
                batch.mark_checkpoint();
            }
        }
        Ok(())
    }

    /// The rows to pass on.
    fn outcome(&self, frame: &Frame, is_last: bool) -> Outcome {
        let mut runs = RowRuns::default();
        let mut data = Vec::with_capacity(frame.data.len());
        let mut status = Status::Ok;
        let rows = frame
            .runs
            .iter()
            .flat_map(|run| (0..run.n).map(move |i| (run, run.pos + u32::from(i), i + 1 == run.n)));
        for (i, (run, pos, is_end)) in rows.enumerate() {
            let is_finite = self.out.first_not_finite(i..i + 1).is_none();
            if !is_finite {
                status = Status::NonFinite;
            }
            if run.is_wanted || !is_last {
                write_row(self.out.hidden(i), &mut data);
            } else if !is_finite {
                write_row(&vec![f32::NAN; self.d_row], &mut data);
            } else {
                continue;
            }
            runs.push(Run {
                pos,
                n: 1,
                is_checkpoint: run.is_checkpoint && is_end,
                ..*run
            });
        }
        let runs = runs.0;
        Outcome::Computed { runs, data, status }
    }
}

/// An outcome that was right, with another status.
fn with_status(outcome: Outcome, status: Status) -> Outcome {
    match outcome {
        Outcome::Computed { runs, data, .. } => Outcome::Computed { runs, data, status },
        failed @ Outcome::Failed(_) => failed,
    }
}

/// Runs that are put together from single rows.
#[derive(Debug, Default)]
pub(crate) struct RowRuns(pub(crate) Vec<Run>);

impl RowRuns {
    /// Adds a row, a run of one, to the last run if it continues that.
    pub(crate) fn push(&mut self, row: Run) {
        let last = self.0.last_mut().filter(|last| {
            let goes_on = last.pos + u32::from(last.n) == row.pos && last.n < u16::MAX;
            // A checkpoint is behind the last row of a run.
            let is_like = last.seq == row.seq
                && last.is_wanted == row.is_wanted
                && last.is_audited == row.is_audited;
            goes_on && is_like && !last.is_checkpoint && last.branch == row.branch
        });
        match last {
            Some(last) => {
                last.n += 1;
                last.is_checkpoint = row.is_checkpoint;
            }
            None => self.0.push(row),
        }
    }
}

/// Appends a row as little-endian f32.
pub(crate) fn write_row(row: &[f32], data: &mut Vec<u8>) {
    data.extend(row.iter().flat_map(|x| x.to_le_bytes()));
}

/// Reads a row of little-endian f32, as many as `row` has.
pub(crate) fn read_row(bytes: &[u8], row: &mut [f32]) {
    for (x, &bytes) in row.iter_mut().zip(bytes.as_chunks().0) {
        *x = f32::from_le_bytes(bytes);
    }
}
