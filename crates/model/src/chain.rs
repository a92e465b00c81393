//! A chain of executors: each runs some layers, and the hidden states of one are the input of the
//! next.
//!
//! It knows no device. The first layers may run on the CPU and the last ones on a GPU; a text has
//! the bits that one executor would give it if all compute the same bits. The one idea: the chain
//! has a [`SeqTable`] of all layers and tells every part the same changes, so that it answers as
//! one executor; a batch that fails in one part is taken back in all.

mod recovery;

use std::{io::Write, ops::Range, sync::Arc};

use atta_store::{Budget, Reservation};

use recovery::Recovery;
pub use recovery::Reopen;

use crate::{
    Batch, Error, Executor, ExecutorInfo, ExecutorSize, Input, Observer, Output, Row, SeqId,
    SeqTable, Share, StateCoverage, Ticket, Want,
    kv::{join, split},
    spec::ModelSpec,
};

/// Executors of layers that follow each other.
pub struct Chain {
    parts: Vec<Box<dyn Executor>>,
    info: ExecutorInfo,
    spec: Arc<ModelSpec>,
    size: ExecutorSize,
    seqs: SeqTable,
    /// The sequence of each part, by slots of `seqs`.
    ids: Vec<Vec<SeqId>>,
    /// What a part is asked for, and what it answers.
    batch: Batch,
    out: Output,
    /// The batch in flight.
    submitted: Batch,
    /// How the last part is replaced if it is lost.
    recovery: Option<Recovery>,
    /// The last part's batch in flight.
    flight: Option<Ticket>,
    n_submitted: u64,
    _memory: Reservation,
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chain")
            .field("info", &self.info)
            .field("n_parts", &self.parts.len())
            .finish_non_exhaustive()
    }
}

impl Chain {
    /// Chains executors of one size, which differ in their parts.
    ///
    /// # Errors
    /// No parts, parts that do not follow each other, a budget too small for the hidden states.
    pub fn new(
        spec: Arc<ModelSpec>,
        size: &ExecutorSize,
        parts: Vec<Box<dyn Executor>>,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let part = whole_of(&parts)?;
        let size = ExecutorSize {
            part: Some(part.clone()),
            ..size.clone()
        };
        let n_bytes = Self::bytes(&spec, &size);
        Ok(Self {
            info: ExecutorInfo {
                part,
                n_ctx: size.n_ctx,
                n_seqs: size.n_seqs,
                n_batch: size.n_batch,
                numerics: numerics(&parts),
            },
            seqs: size.cache(&spec).seq_table(),
            ids: vec![Vec::new(); size.n_seqs],
            batch: Batch::default(),
            out: Output::default(),
            submitted: Batch::default(),
            recovery: None,
            flight: None,
            n_submitted: 0,
            _memory: budget.reserve("activations between parts", n_bytes)?,
            parts,
            spec,
            size,
        })
    }

    /// Bytes of the hidden states between parts.
    pub fn bytes(spec: &ModelSpec, size: &ExecutorSize) -> u64 {
        8 * (spec.d_residual() as u64).saturating_mul(size.n_batch as u64)
    }

    /// Fails if a sequence has rows in flight.
    fn check_idle(&self, seq: SeqId) -> Result<(), Error> {
        let has = |row: &Row| row.seq == seq;
        match self.flight.is_some() && self.submitted.rows.iter().any(has) {
            true => Err(Error::Busy),
            false => Ok(()),
        }
    }

    /// The sequence of part `i`.
    fn id(&self, seq: SeqId, i: usize) -> Result<SeqId, Error> {
        let ids = self.ids.get(seq.index as usize);
        let id = ids.and_then(|ids| ids.get(i)).copied();
        self.seqs.len(seq)?;
        id.ok_or(Error::NoSequence(seq))
    }

    /// Makes a sequence in every part by `make`, or in none.
    fn make(
        &mut self,
        own: SeqId,
        make: impl Fn(&mut dyn Executor, usize) -> Result<SeqId, Error>,
    ) -> Result<SeqId, Error> {
        let mut ids = Vec::with_capacity(self.parts.len());
        for i in 0..self.parts.len() {
            match make(self.parts[i].as_mut(), i) {
                Ok(id) => ids.push(id),
                Err(error) => {
                    for (part, id) in self.parts.iter_mut().zip(ids) {
                        part.drop_seq(id)?;
                    }
                    self.seqs.drop_seq(own)?;
                    return Err(error);
                }
            }
        }
        self.ids[own.index as usize] = ids;
        Ok(own)
    }

    /// Calls `change` with every part and its sequence.
    fn each_part(
        &mut self,
        seq: SeqId,
        mut change: impl FnMut(&mut dyn Executor, SeqId) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for i in 0..self.parts.len() {
            let id = self.id(seq, i)?;
            change(self.parts[i].as_mut(), id)?;
        }
        Ok(())
    }

    /// Computes the rows of a batch up to the last part, and starts that.
    fn start(&mut self, batch: &Batch) -> Result<Ticket, Error> {
        let last = self.parts.len() - 1;
        for i in 0..last {
            self.ask(i, batch)?;
            self.parts[i].step(&self.batch, &mut self.out)?;
        }
        self.ask(last, batch)?;
        self.parts[last].submit(&self.batch)
    }

    /// Makes the batch of part `i` from the results of the part before.
    fn ask(&mut self, i: usize, batch: &Batch) -> Result<(), Error> {
        self.batch.clear();
        match i {
            0 => self.batch.hidden.extend_from_slice(&batch.hidden),
            _ => (0..batch.rows.len())
                .for_each(|row| self.batch.hidden.extend_from_slice(self.out.hidden(row))),
        }
        if i + 1 == self.parts.len() {
            self.batch.taps.extend_from_slice(&batch.taps);
        }
        for (n, row) in batch.rows.iter().enumerate() {
            let seq = self.id(row.seq, i)?;
            let input = if i == 0 { row.input } else { Input::Hidden(n) };
            let is_last = i + 1 == self.parts.len();
            let want = if is_last { row.want } else { Want::Hidden };
            self.batch.rows.push(Row {
                seq,
                input,
                want,
                ..*row
            });
        }
        Ok(())
    }

    /// Takes rows back in every part, as far as a part has them.
    fn undo(&mut self, rows: &[Row]) {
        for row in rows.iter().rev() {
            // The error that rows are taken back for is the one to tell.
            let _ = self.each_part(row.seq, |part, id| part.truncate(id, row.pos).map(|_| ()));
        }
        self.seqs.remove(rows);
    }

    fn check_positions(&self, seq: SeqId, positions: &Range<usize>) -> Result<(), Error> {
        match positions.start <= positions.end && positions.end <= self.seqs.len(seq)? {
            true => Ok(()),
            false => Err(Error::State("it does not have these positions")),
        }
    }

    /// Brings the length of a sequence in the table to that in the parts.
    fn follow(&mut self, seq: SeqId, n: usize) -> Result<(), Error> {
        self.seqs.add_positions(seq, n)?;
        self.seqs.take_copies().for_each(drop);
        Ok(())
    }

    /// Adds the checkpoints of a state within the positions of a sequence that it was appended to.
    fn follow_checkpoints(&mut self, seq: SeqId, state: &[u8]) -> Result<(), Error> {
        let coverage = StateCoverage::parse(state);
        let coverage = coverage.ok_or(Error::State("it is cut short"))?;
        let len = self.seqs.len(seq)?;
        for &pos in coverage.checkpoints().iter().filter(|pos| **pos <= len) {
            if self.seqs.add_checkpoint(seq, pos)?.is_none() {
                break;
            }
        }
        Ok(())
    }
}

/// All layers of parts that follow each other.
fn whole_of(parts: &[Box<dyn Executor>]) -> Result<Share, Error> {
    let shares: Vec<&Share> = parts.iter().map(|part| &part.info().part).collect();
    let follows = |pair: &[&Share]| {
        let [before, after] = [pair[0], pair[1]];
        before.layers.end == after.layers.start && !before.head && !after.embed
    };
    match &shares[..] {
        [first, .., last] if shares.windows(2).all(follows) => Ok(Share {
            layers: first.layers.start..last.layers.end,
            embed: first.embed,
            head: last.head,
        }),
        [only] => Ok((*only).clone()),
        _ => Err(Error::Options(format!("parts {shares:?} of a chain"))),
    }
}

/// The common numerics id, or all of them.
fn numerics(parts: &[Box<dyn Executor>]) -> String {
    let mut all: Vec<&str> = parts.iter().map(|p| p.info().numerics.as_str()).collect();
    all.dedup();
    all.join("+")
}

impl Executor for Chain {
    fn info(&self) -> &ExecutorInfo {
        &self.info
    }

    fn seqs(&self) -> &SeqTable {
        &self.seqs
    }

    fn n_chunk(&self) -> usize {
        let chunks = self.parts.iter().map(|part| part.n_chunk());
        chunks.min().unwrap_or(self.info.n_batch)
    }

    fn submit(&mut self, batch: &Batch) -> Result<Ticket, Error> {
        if self.flight.is_some() {
            return Err(Error::Busy);
        }
        if !batch.taps.is_empty() {
            return Err(Error::Options(format!(
                "several parts with {:?}",
                batch.taps
            )));
        }
        let admitted = self.seqs.admit(&batch.rows, |_, _| Ok(()));
        self.seqs.take_copies().for_each(drop);
        admitted?;
        match self.start_or_recover(batch) {
            Ok(ticket) => {
                self.flight = Some(ticket);
                self.submitted.copy_from(batch);
                self.n_submitted += 1;
                Ok(Ticket(self.n_submitted))
            }
            Err(error) => {
                self.undo(&batch.rows);
                Err(error)
            }
        }
    }

    fn collect(&mut self, Ticket(n): Ticket, out: &mut Output) -> Result<(), Error> {
        let is_oldest = n == self.n_submitted;
        let ticket = self.flight.take_if(|_| is_oldest).ok_or(Error::Ticket(n))?;
        let batch = std::mem::take(&mut self.submitted);
        let done = self.finish(ticket, &batch, out);
        match &done {
            Ok(()) => self.remember(&batch.rows),
            Err(_) => self.undo(&batch.rows),
        }
        self.submitted = batch;
        done
    }

    /// The first part shows its phases.
    fn observe(&mut self, observer: Box<dyn Observer>) {
        self.parts[0].observe(observer);
    }

    fn refresh(&mut self) -> Result<(), Error> {
        self.parts.iter_mut().try_for_each(|part| part.refresh())
    }

    fn new_seq(&mut self) -> Result<SeqId, Error> {
        let own = self.seqs.new_seq()?;
        let seq = self.make(own, |part, _| part.new_seq())?;
        self.remember_first(seq, 0);
        Ok(seq)
    }

    fn fork(&mut self, seq: SeqId) -> Result<SeqId, Error> {
        let ids = (0..self.parts.len()).map(|i| self.id(seq, i));
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        let own = self.seqs.fork(seq)?;
        let fork = self.make(own, |part, i| part.fork(ids[i]))?;
        self.remember_fork(seq, fork);
        Ok(fork)
    }

    fn truncate(&mut self, seq: SeqId, n: usize) -> Result<usize, Error> {
        self.check_idle(seq)?;
        let mut left = self.seqs.keeps(seq, n)?;
        // A part may keep less than the others.
        loop {
            let mut least = left;
            self.each_part(seq, |part, id| {
                least = least.min(part.truncate(id, left)?);
                Ok(())
            })?;
            if least == left {
                break;
            }
            left = least;
        }
        self.remember_first(seq, left);
        self.seqs.truncate(seq, left)
    }

    fn shift(&mut self, seq: SeqId, evicted: Range<usize>) -> Result<(), Error> {
        self.check_idle(seq)?;
        self.forget(seq);
        self.each_part(seq, |part, id| part.shift(id, evicted.clone()))?;
        self.seqs.evict(seq, &evicted)?;
        self.seqs.take_copies().for_each(drop);
        Ok(())
    }

    fn check_moving(&self) -> Result<(), Error> {
        self.parts.iter().try_for_each(|part| part.check_moving())
    }

    fn append_moved(
        &mut self,
        from: SeqId,
        positions: Range<usize>,
        to: SeqId,
    ) -> Result<(), Error> {
        self.check_idle(from)?;
        self.check_idle(to)?;
        self.check_positions(from, &positions)?;
        self.forget(to);
        let len = self.seqs.len(to)?;
        let ids = (0..self.parts.len()).map(|i| self.id(from, i));
        let mut ids = ids.collect::<Result<Vec<_>, _>>()?.into_iter();
        let moved = self.each_part(to, |part, id| {
            let from = ids.next().ok_or(Error::NoSequence(id))?;
            part.append_moved(from, positions.clone(), id)
        });
        match moved.and_then(|()| self.follow(to, positions.len())) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.each_part(to, |part, id| part.truncate(id, len).map(|_| ()))?;
                Err(error)
            }
        }
    }

    fn fill(&mut self, seq: SeqId, n: usize) -> Result<(), Error> {
        self.check_idle(seq)?;
        let len = self.seqs.len(seq)?;
        self.forget(seq);
        let filled = self.each_part(seq, |part, id| part.fill(id, n));
        match filled.and_then(|()| self.follow(seq, n)) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.each_part(seq, |part, id| part.truncate(id, len).map(|_| ()))?;
                Err(error)
            }
        }
    }

    fn drop_seq(&mut self, seq: SeqId) -> Result<(), Error> {
        self.check_idle(seq)?;
        self.each_part(seq, |part, id| part.drop_seq(id))?;
        self.ids[seq.index as usize].clear();
        self.seqs.drop_seq(seq)
    }

    fn export(
        &self,
        seq: SeqId,
        positions: Range<usize>,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        self.check_idle(seq)?;
        let mut states = Vec::with_capacity(self.parts.len());
        for (i, part) in self.parts.iter().enumerate() {
            let mut state = Vec::new();
            part.export(self.id(seq, i)?, positions.clone(), &mut state)?;
            states.push(state);
        }
        out.write_all(&join(&states)?).map_err(Error::Export)
    }

    fn append_state(&mut self, seq: SeqId, state: &[u8], n: usize) -> Result<(), Error> {
        self.check_idle(seq)?;
        let len = self.seqs.len(seq)?;
        let ranges = self
            .parts
            .iter()
            .map(|part| part.info().part.layers.clone());
        let states = split(&self.size.cache(&self.spec), ranges, state)?;
        let mut states = states.iter();
        self.forget(seq);
        let appended = self.each_part(seq, |part, id| {
            let state = states.next().map_or(&[][..], Vec::as_slice);
            part.append_state(id, state, n)
        });
        let followed = appended.and_then(|()| self.follow(seq, n));
        match followed.and_then(|()| self.follow_checkpoints(seq, state)) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.each_part(seq, |part, id| part.truncate(id, len).map(|_| ()))?;
                Err(error)
            }
        }
    }
}
