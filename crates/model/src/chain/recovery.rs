//! The last part of a chain, made anew after it was lost with its device.
//!
//! It knows tokens and no device. The one idea: a text's bits are a function of its tokens, so a
//! new part that evaluates them again continues where the old one was. Sequences whose tokens are
//! not all known, since a part of their state came as bytes or was shifted, stay lost, and so do
//! those whose rows had different adapters.

use super::Chain;
use crate::{AdapterSet, Batch, Error, Executor, Input, Output, Row, SeqId, Ticket, Want};

/// Makes the last part anew, after it was lost for a reason.
pub type Reopen = Box<dyn FnMut(&Error) -> Result<Box<dyn Executor>, Error> + Send>;

/// Times that a part is made anew without a batch that succeeds between them.
const MAX_ATTEMPTS: usize = 2;

/// The means to make the last part anew.
pub(super) struct Recovery {
    reopen: Reopen,
    /// The tokens of each sequence, by slots; `None`: not all are known.
    tokens: Vec<Option<Vec<u32>>>,
    /// The adapters of these tokens.
    adapters: Vec<AdapterSet>,
    /// Whether a sequence has lost its state, by slots.
    is_lost: Vec<bool>,
    n_attempts: usize,
}

impl Chain {
    /// Makes the last part anew by `reopen` when it is lost, and evaluates all texts again: a loss
    /// is a pause then.
    #[must_use]
    pub fn recovering(mut self, reopen: Reopen) -> Self {
        self.recovery = Some(Recovery {
            reopen,
            tokens: vec![None; self.info.n_seqs],
            adapters: vec![AdapterSet::EMPTY; self.info.n_seqs],
            is_lost: vec![false; self.info.n_seqs],
            n_attempts: 0,
        });
        self
    }

    /// Starts a batch, with a new last part if the old one is lost.
    pub(super) fn start_or_recover(&mut self, batch: &Batch) -> Result<Ticket, Error> {
        loop {
            self.check_found(&batch.rows)?;
            match self.start(batch) {
                Err(error @ Error::Lost(_)) => self.recover(&batch.rows, error)?,
                started => return started,
            }
        }
    }

    /// Collects the batch in flight, or computes it again with a new last part.
    pub(super) fn finish(
        &mut self,
        ticket: Ticket,
        batch: &Batch,
        out: &mut Output,
    ) -> Result<(), Error> {
        let mut ticket = ticket;
        loop {
            let last = self.parts.len() - 1;
            match self.parts[last].collect(ticket, out) {
                Err(error @ Error::Lost(_)) => self.recover(&batch.rows, error)?,
                done => return done,
            }
            ticket = self.start_or_recover(batch)?;
        }
    }

    /// Fails for rows of sequences that have lost their state.
    fn check_found(&self, rows: &[Row]) -> Result<(), Error> {
        let Some(recovery) = &self.recovery else {
            return Ok(());
        };
        let is_lost = |row: &&Row| recovery.is_lost[row.seq.index as usize];
        match rows.iter().find(is_lost) {
            Some(row) => Err(Error::Lost(format!(
                "the state of sequence {} was lost with a device",
                row.seq
            ))),
            None => Ok(()),
        }
    }

    /// Makes the last part anew and evaluates all sequences as they were before `rows`; a new part
    /// that is lost, too, is replaced in its turn.
    fn recover(&mut self, rows: &[Row], error: Error) -> Result<(), Error> {
        let Some(mut recovery) = self.recovery.take() else {
            return Err(error);
        };
        let mut recovered = Err(error);
        while let Err(error @ Error::Lost(_)) = &recovered {
            if recovery.n_attempts == MAX_ATTEMPTS {
                break;
            }
            recovery.n_attempts += 1;
            recovered = self.recover_by(&mut recovery, rows, error);
        }
        self.recovery = Some(recovery);
        recovered
    }

    fn recover_by(
        &mut self,
        recovery: &mut Recovery,
        rows: &[Row],
        error: &Error,
    ) -> Result<(), Error> {
        let last = self.parts.len() - 1;
        for row in rows.iter().rev() {
            for i in 0..last {
                let id = self.id(row.seq, i)?;
                self.parts[i].truncate(id, row.pos)?;
            }
        }
        self.parts[last] = (recovery.reopen)(error)?;
        for index in 0..self.info.n_seqs as u32 {
            let Some(seq) = self.seqs.id_at(index) else {
                continue;
            };
            self.ids[index as usize][last] = self.parts[last].new_seq()?;
            match &recovery.tokens[index as usize] {
                Some(tokens) => {
                    self.evaluate(seq, tokens, recovery.adapters[index as usize])?;
                }
                None => recovery.is_lost[index as usize] = true,
            }
        }
        Ok(())
    }

    /// Evaluates tokens from the beginning of a sequence whose positions the table has already.
    fn evaluate(&mut self, seq: SeqId, tokens: &[u32], adapters: AdapterSet) -> Result<(), Error> {
        let last = self.parts.len() - 1;
        for i in 0..last {
            let id = self.id(seq, i)?;
            self.parts[i].truncate(id, 0)?;
        }
        let mut batch = Batch::default();
        let mut out = Output::default();
        let mut pos = 0;
        for chunk in tokens.chunks(self.info.n_batch) {
            batch.clear();
            for &token in chunk {
                batch.push_token(seq, pos, token, Want::Nothing);
                batch.set_adapters(adapters);
                pos += 1;
            }
            let ticket = self.start(&batch)?;
            self.parts[last].collect(ticket, &mut out)?;
        }
        Ok(())
    }

    /// Notes the tokens of rows that were computed.
    pub(super) fn remember(&mut self, rows: &[Row]) {
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        recovery.n_attempts = 0;
        for row in rows {
            let slot = row.seq.index as usize;
            let tokens = &mut recovery.tokens[slot];
            let adapters = &mut recovery.adapters[slot];
            if tokens.as_ref().is_some_and(Vec::is_empty) {
                *adapters = row.adapters;
            }
            match (row.input, tokens.as_mut()) {
                (Input::Token(token), Some(tokens)) if *adapters == row.adapters => {
                    tokens.push(token);
                }
                _ => *tokens = None,
            }
        }
    }

    /// Notes that a sequence has its first `n` tokens only.
    pub(super) fn remember_first(&mut self, seq: SeqId, n: usize) {
        let Some(recovery) = &mut self.recovery else {
            return;
        };
        let slot = seq.index as usize;
        match (&mut recovery.tokens[slot], n) {
            (tokens, 0) => {
                *tokens = Some(Vec::new());
                recovery.is_lost[slot] = false;
            }
            (Some(tokens), n) => tokens.truncate(n),
            (None, _) => {}
        }
    }

    /// Notes that a sequence is a copy of another one.
    pub(super) fn remember_fork(&mut self, seq: SeqId, fork: SeqId) {
        if let Some(recovery) = &mut self.recovery {
            let [from, to] = [seq, fork].map(|seq| seq.index as usize);
            recovery.tokens[to] = recovery.tokens[from].clone();
            recovery.adapters[to] = recovery.adapters[from];
            recovery.is_lost[to] = recovery.is_lost[from];
        }
    }

    /// Notes that the state of a sequence is not that of its tokens.
    pub(super) fn forget(&mut self, seq: SeqId) {
        if let Some(recovery) = &mut self.recovery {
            recovery.tokens[seq.index as usize] = None;
        }
    }
}
