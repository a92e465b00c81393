//! What a ring does when stages have lost their state, and when they do not come back.

use std::{collections::BTreeMap, ops::Range};

use atta_model::{Batch, Error, SeqId};

use super::{Ring, StageStates, position, push_items};
use crate::{RebuildStep, core::Coordinator, wire::Op};

impl Ring {
    /// Computes every sequence again, then the batches in flight.
    ///
    /// # Errors
    /// A batch in flight of a sequence that is lost, local layers that cannot be computed.
    pub(super) fn rebuild(&mut self) -> Result<(), Error> {
        let rebuilt = self.try_rebuild();
        if rebuilt.is_err() {
            self.abandon();
            self.lose_unequal();
        }
        rebuilt
    }

    /// The stages have parts of a rebuild: the next batch begins another one.
    pub(super) fn abandon(&mut self) {
        self.coordinator.abandon();
        self.states = StageStates::Unknown;
    }

    /// Gives up sequences whose tables could not be rebuilt.
    fn lose_unequal(&mut self) {
        for (index, id) in self.live_seqs() {
            let flights = self.flights.iter().filter(|flight| flight.result.is_none());
            let rows = flights.flat_map(|flight| &flight.batch.rows);
            let n_away = rows.filter(|row| row.seq == id).count();
            let len = self.seqs.len(id).unwrap_or(0);
            let n_kept = self.history.items(index).len();
            if len != n_kept && len != n_kept + n_away {
                // An id of the table has a sequence.
                let _ = self.seqs.truncate(id, 0);
                self.cut_history(index, 0);
                self.lost.insert(id);
            }
        }
    }

    /// Ends early when stages lose their state again, or the coordinator gives up: both show in
    /// `states`.
    fn try_rebuild(&mut self) -> Result<(), Error> {
        self.states = StageStates::Kept;
        self.ops.clear();
        self.local.reset();
        self.forget_flights();
        let ids = self.live_seqs();
        self.rebuild_tables(&ids)?;
        for &seq in ids.keys() {
            self.operate(Op::New { seq })?;
        }
        for step in self.history.rebuild() {
            match step {
                RebuildStep::Fork { from, to } => self.operate(Op::Fork { from, to })?,
                RebuildStep::Append { seq, positions } => {
                    self.restore(&ids, seq, positions)?;
                }
            }
            if self.states != StageStates::Kept {
                self.restore_history();
                return Ok(());
            }
        }
        self.resend_flights()
    }

    /// Removes rows of batches without a result from the history; they are sent behind it.
    fn forget_flights(&mut self) {
        let waiting = self.flights.iter().filter(|flight| flight.result.is_none());
        for row in waiting.flat_map(|flight| &flight.batch.rows).rev() {
            self.history.truncate(row.seq.index, row.pos);
        }
    }

    /// Adds these rows to the history again.
    fn restore_history(&mut self) {
        let flights = std::mem::take(&mut self.flights);
        for flight in flights.iter().filter(|flight| flight.result.is_none()) {
            self.push_history(&flight.batch);
        }
        self.flights = flights;
    }

    /// The ids of all sequences.
    pub(super) fn live_seqs(&self) -> BTreeMap<u32, SeqId> {
        let seqs = self.history.seqs();
        seqs.filter_map(|index| Some((index, self.seqs.id_at(index)?)))
            .collect()
    }

    /// Brings the block tables to where the steps of a rebuild lead, rows in flight included:
    /// recurrent states and windows are where the rebuild puts them.
    fn rebuild_tables(&mut self, ids: &BTreeMap<u32, SeqId>) -> Result<(), Error> {
        for index in self.history.lost() {
            self.lost.extend(ids.get(&index));
        }
        for &id in ids.values() {
            self.seqs.truncate(id, 0)?;
        }
        for step in self.history.rebuild() {
            match step {
                RebuildStep::Fork { from, to } => self.seqs.fork_into(ids[&from], ids[&to])?,
                RebuildStep::Append { seq, positions } => {
                    for chunk in chunks(positions, self.info.n_batch) {
                        let batch = self.replay_batch(ids[&seq], seq, chunk);
                        self.seqs.admit(&batch.rows, |_, _| Ok(()))?;
                    }
                }
            }
        }
        for flight in self.flights.iter().filter(|flight| flight.result.is_none()) {
            let rows = &flight.batch.rows;
            if rows.iter().all(|row| !self.lost.contains(&row.seq)) {
                self.seqs.admit(rows, |_, _| Ok(()))?;
            }
        }
        self.seqs.take_copies().for_each(drop);
        Ok(())
    }

    /// Computes positions of a sequence again.
    pub(super) fn replay(
        &mut self,
        ids: &BTreeMap<u32, SeqId>,
        seq: u32,
        positions: Range<usize>,
    ) -> Result<(), Error> {
        self.forming.moved.n_computed += positions.len();
        for chunk in chunks(positions, self.info.n_batch) {
            let batch = self.replay_batch(ids[&seq], seq, chunk);
            self.compute_and_send(&batch)?;
            while self.states == StageStates::Kept && self.is_full() {
                self.wait();
            }
            if self.states != StageStates::Kept {
                break;
            }
        }
        Ok(())
    }

    /// Whether as many submissions wait as batches may be in flight.
    pub(super) fn is_full(&self) -> bool {
        Coordinator::n_pending(&self.coordinator) >= self.depth
    }

    /// Rows of the history that want nothing.
    fn replay_batch(&self, id: SeqId, seq: u32, positions: Range<usize>) -> Batch {
        let mut batch = Batch::default();
        let items = &self.history.items(seq)[positions.clone()];
        push_items(&mut batch, id, positions.start, items);
        batch
    }

    /// Sends the batches in flight that have no result.
    fn resend_flights(&mut self) -> Result<(), Error> {
        self.restore_history();
        for i in 0..self.flights.len() {
            if self.flights[i].result.is_some() || self.states != StageStates::Kept {
                continue;
            }
            let mut rows = self.flights[i].batch.rows.iter();
            rows.try_for_each(|row| self.check_kept(row.seq))?;
            // A submission may be answered only after it has its number.
            self.flights[i].serial = self.serial + 1;
            self.compute_flight(i)?;
        }
        Ok(())
    }

    /// Removes the rows of all batches in flight: there will be no result of them.
    pub(super) fn remove_flights(&mut self) {
        let flights = std::mem::take(&mut self.flights);
        let mut seqs = Vec::new();
        for row in flights.iter().flat_map(|flight| &flight.batch.rows).rev() {
            if !self.lost.contains(&row.seq) && self.seqs.truncate(row.seq, row.pos).is_ok() {
                self.cut_history(row.seq.index, row.pos);
                seqs.push(row.seq);
            }
        }
        seqs.sort_unstable();
        seqs.dedup();
        for seq in seqs {
            // Nothing while stages wait for a rebuild.
            let len = position(self.seqs.len(seq).unwrap_or(0));
            let seq = seq.index;
            if self.operate(Op::Truncate { seq, len }).is_err() {
                self.abandon();
            }
        }
    }
}

/// Ranges of at most `n` of these positions.
pub(crate) fn chunks(positions: Range<usize>, n: usize) -> impl Iterator<Item = Range<usize>> {
    let end = positions.end;
    positions
        .step_by(n.max(1))
        .map(move |start| start..end.min(start + n.max(1)))
}
