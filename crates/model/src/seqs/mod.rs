//! The state of sequences without its bytes: positions, and the blocks that hold their state.
//!
//! `SeqTable` does the bookkeeping of an executor, wherever the state itself lies. It knows no
//! bytes, layers or devices. Each *group* of attention layers with the same retention has one block
//! table per sequence: sliding-window layers free old blocks, global layers keep all. Blocks are
//! reference-counted: a fork shares them, and writing to a shared block copies it first
//! (copy-on-write). The copies are queued here as [`BlockCopy`]; the executor performs them in
//! order before it writes.
//!
//! All recurrent layers form one more group, whose blocks hold the state of one position each. A
//! sequence has some of its positions there (`states.rs`), and can only be truncated to these.

mod blocks;
mod group;
mod runs;
mod states;

use std::ops::Range;

use crate::{Error, Row, SeqId, spec::StateKind};
use group::{Group, Table};
use states::{StateGroup, States};

pub use runs::{StateRun, StateRuns};
pub use states::{CHECKPOINT_LEN, StateStep};

/// Positions per block. A sequence wastes half a block on average: below 1 % of a context of 2,048.
pub const BLOCK_LEN: usize = 32;

/// Upper bound of the initial capacity of the copy queue.
const MAX_RESERVED: usize = 1 << 16;

/// Capacity of a [`SeqTable`].
#[derive(Clone, Copy, Debug)]
pub struct SeqSize {
    /// Positions per sequence.
    pub n_ctx: usize,
    /// Sequences at once.
    pub n_seqs: usize,
    /// Positions appended by all batches in flight, at most.
    pub n_batch: usize,
    /// Batches in flight, at most.
    pub n_flights: usize,
    /// Positions kept behind an evicted range (context shift), at least; `None`: the context is
    /// never shifted.
    pub n_recent: Option<usize>,
    /// Pool size: positions of all sequences together; `None`: `n_ctx` for each.
    pub n_shared: Option<usize>,
    /// Recurrent states per sequence, besides those at the ends of its last batches.
    pub n_checkpoints: usize,
    /// Last rows of a batch that may be removed again, each with a recurrent state in front of it.
    pub n_draft: usize,
}

impl SeqSize {
    /// Blocks of a group of this kind.
    pub fn n_blocks(&self, kind: StateKind) -> usize {
        match kind {
            StateKind::Kv(retention) => Group::n_blocks(retention, self),
            StateKind::Recurrent => StateGroup::n_blocks(self),
        }
    }
}

/// A pending copy between two blocks of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// Group of both blocks.
    pub group: usize,
    /// Source block.
    pub from: u32,
    /// Destination block.
    pub to: u32,
    /// Copy from this position of the block to its end.
    pub first: usize,
}

/// The sequences of an executor and their block tables.
pub struct SeqTable {
    /// Groups of keys and values.
    groups: Vec<Group>,
    /// The group of recurrent layers, if there are any.
    state_group: Option<StateGroup>,
    slots: Vec<Slot>,
    n_ctx: usize,
    copies: Vec<BlockCopy>,
    /// The last row of a batch for each slot, while its steps are made.
    last_rows: Vec<Option<u32>>,
}

impl std::fmt::Debug for SeqTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeqTable")
            .field(
                "n_seqs",
                &self.slots.iter().filter(|slot| slot.seq.is_some()).count(),
            )
            .field("n_ctx", &self.n_ctx)
            .field("n_positions", &self.n_positions())
            .finish_non_exhaustive()
    }
}

/// A reusable slot for one sequence.
struct Slot {
    /// Number of sequences that used this slot before.
    generation: u32,
    seq: Option<Sequence>,
}

struct Sequence {
    len: usize,
    /// One per group.
    tables: Vec<Table>,
    /// Recurrent states; empty without a group of them.
    states: States,
    /// Admitted positions at the end whose states have no place yet.
    n_pending: usize,
}

impl SeqTable {
    /// Creates a table with one group per kind. Groups of keys and values are numbered in the order
    /// of `kinds`, which has the recurrent kind at most once.
    pub fn new(kinds: &[StateKind], size: &SeqSize) -> Self {
        let kv = kinds.iter().filter_map(|kind| match kind {
            StateKind::Kv(retention) => Some(*retention),
            StateKind::Recurrent => None,
        });
        let groups: Vec<Group> = kv
            .enumerate()
            .map(|(i, retention)| Group::new(i, retention, size))
            .collect();
        let is_recurrent = kinds.contains(&StateKind::Recurrent);
        let slots = (0..size.n_seqs)
            .map(|_| Slot {
                generation: 0,
                seq: None,
            })
            .collect();
        // A batch copies at most the last block of every sequence, in every group.
        let n_copies = size.n_seqs.saturating_mul(groups.len());
        Self {
            groups,
            state_group: is_recurrent.then(|| StateGroup::new(size)),
            slots,
            n_ctx: size.n_ctx,
            copies: Vec::with_capacity(n_copies.min(MAX_RESERVED)),
            last_rows: Vec::with_capacity(if is_recurrent { size.n_seqs } else { 0 }),
        }
    }

    /// Maximum positions of a sequence.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Positions in use (shared blocks count once) and in total, of the largest group of keys and
    /// values, in whole blocks. Recurrent states never run out; without any other group these are
    /// the positions of all sequences.
    pub fn n_positions(&self) -> (usize, usize) {
        match self.largest_group() {
            Some(i) => {
                let (n_free, n) = self.groups[i].n_free();
                ((n - n_free) * BLOCK_LEN, n * BLOCK_LEN)
            }
            None => {
                let seqs = self.slots.iter().filter_map(|slot| slot.seq.as_ref());
                let n_used = seqs.map(|seq| seq.len).sum();
                (n_used, self.slots.len().saturating_mul(self.n_ctx))
            }
        }
    }

    /// Positions in use, as [`n_positions`](Self::n_positions) counts them, that dropping all of
    /// these sequences frees. Blocks that other sequences share stay in use.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn n_positions_freed_by(&self, ids: &[SeqId]) -> Result<usize, Error> {
        let seqs = ids
            .iter()
            .map(|&id| self.seq(id))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(match self.largest_group() {
            Some(i) => self.groups[i].n_freed_by(seqs.iter().map(|seq| &seq.tables[i])) * BLOCK_LEN,
            None => seqs.iter().map(|seq| seq.len).sum(),
        })
    }

    /// The group of keys and values with the most blocks.
    fn largest_group(&self) -> Option<usize> {
        let sizes = self.groups.iter().map(|group| group.n_free().1).enumerate();
        sizes.max_by_key(|&(_, n)| n).map(|(i, _)| i)
    }

    /// Number of positions of a sequence.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn len(&self, id: SeqId) -> Result<usize, Error> {
        Ok(self.seq(id)?.len)
    }

    /// Length that [`truncate`](Self::truncate) to `len` would leave: `len`, the nearest checkpoint
    /// before it where layers are recurrent, or 0 if a sliding window has freed positions that are
    /// needed there. The caller evaluates the rest again. Executors of several parts of a model may
    /// keep different lengths; their caller truncates all of them to the shortest.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn keeps(&self, id: SeqId, len: usize) -> Result<usize, Error> {
        let seq = self.seq(id)?;
        let len = seq.len.min(len);
        let len = match self.state_group {
            Some(_) => seq.states.nearest(len),
            None => len,
        };
        let has_windows = has_windows(&self.groups, seq, len);
        Ok(if has_windows { len } else { 0 })
    }

    /// Checkpoints of a sequence within the positions `range`, and the one at its end: how many
    /// positions each has behind it, and its block. Empty without recurrent layers.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn checkpoints(
        &self,
        id: SeqId,
        range: &Range<usize>,
    ) -> Result<impl Iterator<Item = (usize, u32)> + '_, Error> {
        Ok(self.seq(id)?.states.lasting(range.start, range.end))
    }

    /// Block table of a sequence in a group: entry `i` holds positions `32 i ..`. Entries before
    /// [`first_held`](Self::first_held) are stale.
    pub fn blocks(&self, id: SeqId, group: usize) -> &[u32] {
        self.seq(id).map_or(&[], |seq| seq.tables[group].blocks())
    }

    /// First position of a sequence that a group still holds.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn first_held(&self, id: SeqId, group: usize) -> Result<usize, Error> {
        Ok(self.seq(id)?.tables[group].from())
    }

    /// Last rows of a batch that may be removed again; all without recurrent states.
    pub fn max_draft(&self) -> usize {
        let group = self.state_group.as_ref();
        group.map_or(usize::MAX, StateGroup::n_draft)
    }

    /// Whether sequences have recurrent states, which not every position keeps.
    pub fn has_states(&self) -> bool {
        self.state_group.is_some()
    }

    /// Whether all groups hold the positions of a sequence from `first` on.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn holds_from(&self, id: SeqId, first: usize) -> Result<bool, Error> {
        let mut tables = self.seq(id)?.tables.iter();
        Ok(tables.all(|table| table.from() <= first))
    }

    /// Whether a copy of these positions of a sequence can be continued behind another text: each
    /// group has what the position behind them sees of them.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn may_move(&self, id: SeqId, positions: &Range<usize>) -> Result<bool, Error> {
        let seq = self.seq(id)?;
        let is_there = positions.start <= positions.end && positions.end <= seq.len;
        let mut groups = self.groups.iter().zip(&seq.tables);
        let has_windows = groups.all(|(group, table)| group.holds(table, positions));
        Ok(is_there && has_windows && self.state_group.is_none())
    }

    /// The sequence in a slot, if there is one.
    pub fn id_at(&self, index: u32) -> Option<SeqId> {
        let slot = self.slots.get(index as usize)?;
        let generation = slot.generation;
        let id = SeqId { index, generation };
        slot.seq.as_ref().map(|_| id)
    }

    /// Creates an empty sequence.
    ///
    /// # Errors
    /// [`Error::NoRoomForSequence`].
    pub fn new_seq(&mut self) -> Result<SeqId, Error> {
        let n_blocks = self.n_ctx.div_ceil(BLOCK_LEN);
        let n_slots = self.slots.len();
        let mut slots = self.slots.iter_mut().enumerate();
        let (index, slot) = slots
            .find(|(_, s)| s.seq.is_none())
            .ok_or(Error::NoRoomForSequence(n_slots))?;
        // The tables get their full capacity now, so that a step never allocates.
        let tables = self.groups.iter().map(|_| Table::new(n_blocks)).collect();
        let states = self.state_group.as_ref();
        slot.seq = Some(Sequence {
            len: 0,
            tables,
            states: states.map_or_else(States::none, StateGroup::new_states),
            n_pending: 0,
        });
        Ok(SeqId {
            index: index as u32,
            generation: slot.generation,
        })
    }

    /// Creates a copy of a sequence that shares its blocks.
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::NoRoomForSequence`].
    pub fn fork(&mut self, id: SeqId) -> Result<SeqId, Error> {
        self.seq(id)?;
        let fork = self.new_seq()?;
        self.fork_into(id, fork)?;
        Ok(fork)
    }

    /// Replaces the positions of a sequence by a copy of another one that shares its blocks.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn fork_into(&mut self, id: SeqId, to: SeqId) -> Result<(), Error> {
        self.seq(id)?;
        self.truncate(to, 0)?;
        let fork = self.forked(id)?;
        *self.parts(to)?.seq = fork;
        Ok(())
    }

    /// A copy of a sequence that shares its blocks.
    fn forked(&mut self, id: SeqId) -> Result<Sequence, Error> {
        let SeqParts {
            seq,
            groups,
            state_group,
            ..
        } = self.parts(id)?;
        let tables = groups
            .iter_mut()
            .zip(&seq.tables)
            .map(|(group, table)| group.fork(table))
            .collect();
        let states = state_group.map_or_else(States::none, |group| group.fork(&seq.states));
        Ok(Sequence {
            len: seq.len,
            tables,
            states,
            n_pending: 0,
        })
    }

    /// Removes positions from `len` on and returns the new length, that of
    /// [`keeps`](Self::keeps).
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn truncate(&mut self, id: SeqId, len: usize) -> Result<usize, Error> {
        let left = self.keeps(id, len)?;
        let SeqParts {
            seq,
            groups,
            state_group,
            ..
        } = self.parts(id)?;
        seq.len = left;
        seq.n_pending = 0;
        for (table, group) in seq.tables.iter_mut().zip(groups) {
            group.truncate(table, left);
        }
        if let Some(group) = state_group {
            group.truncate(&mut seq.states, left);
        }
        Ok(left)
    }

    /// Removes a sequence and frees its blocks.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn drop_seq(&mut self, id: SeqId) -> Result<(), Error> {
        self.truncate(id, 0)?;
        let slot = &mut self.slots[id.index as usize];
        slot.seq = None;
        slot.generation = slot.generation.wrapping_add(1);
        Ok(())
    }

    /// Appends all rows of a batch to their sequences, or none. `check` may refuse a row.
    ///
    /// # Errors
    /// [`Error::Position`] for a row that does not continue its sequence, what `check` returns, and
    /// those of `extend`.
    pub fn admit(
        &mut self,
        rows: &[Row],
        check: impl Fn(usize, &Row) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for (i, row) in rows.iter().enumerate() {
            let admitted = self
                .check_position(row)
                .and_then(|()| check(i, row))
                .and_then(|()| self.extend(row.seq));
            if admitted.is_err() {
                self.remove(&rows[..i]);
                return admitted;
            }
        }
        self.place_states(rows);
        Ok(())
    }

    /// Gives the states of admitted rows their blocks.
    fn place_states(&mut self, rows: &[Row]) {
        if self.state_group.is_none() {
            return;
        }
        for row in rows {
            let Ok(SeqParts {
                seq,
                state_group: Some(group),
                ..
            }) = self.parts(row.seq)
            else {
                continue;
            };
            // 0 for all rows of a sequence but its first.
            if seq.n_pending > 0 {
                let asked = rows.iter().filter(|r| r.seq == row.seq && r.is_checkpoint);
                let start = seq.len - seq.n_pending;
                group.advance(&mut seq.states, start, seq.len, asked.map(|r| r.pos + 1));
                seq.n_pending = 0;
            }
        }
    }

    /// The blocks of each row's recurrent state, to be read directly after
    /// [`admit`](Self::admit); nothing without recurrent layers.
    pub fn state_steps(&mut self, rows: &[Row], steps: &mut Vec<StateStep>) {
        steps.clear();
        if self.state_group.is_none() {
            return;
        }
        self.last_rows.clear();
        self.last_rows.resize(self.slots.len(), None);
        for (row, i) in rows.iter().zip(0..) {
            let slot = row.seq.index as usize;
            let Some(seq) = &self.slots[slot].seq else {
                continue;
            };
            let previous = self.last_rows[slot].map(|last| (last, steps[last as usize]));
            steps.push(seq.states.step(row.pos, previous));
            self.last_rows[slot] = Some(i);
        }
    }

    /// Removes the positions of admitted rows again.
    pub fn remove(&mut self, rows: &[Row]) {
        for row in rows.iter().rev() {
            // An admitted row has a sequence, and truncating cannot fail otherwise.
            let _ = self.truncate(row.seq, row.pos);
        }
    }

    fn check_position(&self, row: &Row) -> Result<(), Error> {
        match self.len(row.seq)? {
            len if len == row.pos => Ok(()),
            expected => Err(Error::Position {
                seq: row.seq,
                expected,
                got: row.pos,
            }),
        }
    }

    /// Appends one position. Windows must be complete, and the recurrent state must be there.
    /// Copies the last block if it is shared.
    fn extend(&mut self, id: SeqId) -> Result<(), Error> {
        let seq = self.seq(id)?;
        if !has_windows(&self.groups, seq, seq.len) {
            return Err(Error::State("a window of the sequence is not there"));
        }
        let has_state = seq.n_pending > 0 || seq.states.has(seq.len);
        let is_recurrent = self.state_group.is_some();
        if is_recurrent && !has_state {
            return Err(Error::State(
                "the recurrent state of the sequence is not there",
            ));
        }
        self.add_positions(id, 1)?;
        if is_recurrent {
            self.parts(id)?.seq.n_pending += 1;
        }
        Ok(())
    }

    /// Appends `n` positions whose keys and values the caller fills in, so that the window may be
    /// incomplete. Their recurrent states are missing until
    /// [`add_checkpoint`](Self::add_checkpoint).
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::ContextFull`], [`Error::OutOfBlocks`]; the sequence is as
    /// before then.
    pub fn add_positions(&mut self, id: SeqId, n: usize) -> Result<(), Error> {
        let n_ctx = self.n_ctx;
        let SeqParts {
            seq,
            groups,
            copies,
            ..
        } = self.parts(id)?;
        let len = seq.len;
        if n > n_ctx - len {
            return Err(Error::ContextFull { n_ctx });
        }
        // A full group is found before any group is changed.
        if !groups
            .iter()
            .zip(&seq.tables)
            .all(|(group, table)| group.has_room(table, len, n))
        {
            return Err(Error::OutOfBlocks);
        }
        for (table, group) in seq.tables.iter_mut().zip(groups) {
            (len..len + n).for_each(|len| group.extend(table, len, copies));
        }
        seq.len += n;
        Ok(())
    }

    /// Whether positions of a sequence can be appended to another one at the same positions by
    /// [`append_shared`](Self::append_shared): each keeps all of them.
    pub fn may_share(&self) -> bool {
        self.state_group.is_none() && self.groups.iter().all(Group::keeps_all)
    }

    /// Appends the positions of the sequence `from` up to `end` to the sequence `to`, whose length
    /// is a multiple of [`BLOCK_LEN`], so that they share the blocks.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn append_shared(&mut self, from: SeqId, end: usize, to: SeqId) -> Result<(), Error> {
        let first = self.seq(to)?.len / BLOCK_LEN;
        let end = end.min(self.seq(from)?.len);
        let blocks = |table: &Table| table.blocks()[first..end.div_ceil(BLOCK_LEN)].to_vec();
        let tables = self.seq(from)?.tables.iter().map(blocks);
        let tables: Vec<Vec<u32>> = tables.collect();
        let SeqParts { seq, groups, .. } = self.parts(to)?;
        for ((group, table), blocks) in groups.iter_mut().zip(&mut seq.tables).zip(&tables) {
            group.append_shared(table, blocks);
        }
        seq.len = end;
        Ok(())
    }

    /// Adds the recurrent state behind the first `pos` positions of a sequence, more than those of
    /// its last checkpoint. The caller writes it into the returned block; `None` without recurrent
    /// layers.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn add_checkpoint(&mut self, id: SeqId, pos: usize) -> Result<Option<u32>, Error> {
        let SeqParts {
            seq, state_group, ..
        } = self.parts(id)?;
        Ok(state_group.map(|group| group.insert(&mut seq.states, pos)))
    }

    /// Marks positions before `from` as absent in a group, after importing a state that lacks them.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn lacks_before(&mut self, id: SeqId, group: usize, from: usize) -> Result<(), Error> {
        self.parts(id)?.seq.tables[group].lacks_before(from);
        Ok(())
    }

    /// Evicts positions, a multiple of the block length; later positions move down
    /// (context shift).
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::State`] for an invalid range.
    pub fn evict(&mut self, id: SeqId, evicted: &Range<usize>) -> Result<(), Error> {
        let SeqParts {
            seq,
            groups,
            copies,
            state_group,
        } = self.parts(id)?;
        if state_group.is_some() {
            return Err(Error::State("a recurrent state cannot forget positions"));
        }
        if evicted.is_empty() || evicted.end > seq.len || !evicted.len().is_multiple_of(BLOCK_LEN) {
            return Err(Error::State(
                "an evicted range is whole blocks of the sequence",
            ));
        }
        for (group, table) in groups.iter_mut().zip(&mut seq.tables) {
            group.evict(table, evicted, copies);
        }
        seq.len -= evicted.len();
        Ok(())
    }

    /// Drains the queued block copies, oldest first. They must be performed after the writes of
    /// earlier batches in flight and before any later write.
    pub fn take_copies(&mut self) -> impl Iterator<Item = BlockCopy> + '_ {
        self.copies.drain(..)
    }

    fn seq(&self, id: SeqId) -> Result<&Sequence, Error> {
        let slot = self
            .slots
            .get(id.index as usize)
            .filter(|s| s.generation == id.generation);
        slot.and_then(|s| s.seq.as_ref())
            .ok_or(Error::NoSequence(id))
    }

    /// A sequence with everything that its changes affect.
    fn parts(&mut self, id: SeqId) -> Result<SeqParts<'_>, Error> {
        let slot = self
            .slots
            .get_mut(id.index as usize)
            .filter(|s| s.generation == id.generation);
        Ok(SeqParts {
            seq: slot
                .and_then(|s| s.seq.as_mut())
                .ok_or(Error::NoSequence(id))?,
            groups: &mut self.groups,
            state_group: self.state_group.as_mut(),
            copies: &mut self.copies,
        })
    }
}

/// A sequence, and what its changes affect.
struct SeqParts<'a> {
    seq: &'a mut Sequence,
    groups: &'a mut [Group],
    state_group: Option<&'a mut StateGroup>,
    copies: &'a mut Vec<BlockCopy>,
}

/// Whether every group has what position `len` of a sequence sees.
fn has_windows(groups: &[Group], seq: &Sequence, len: usize) -> bool {
    let mut tables = groups.iter().zip(&seq.tables);
    tables.all(|(group, table)| group.is_whole(table, len, seq.len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Retention;

    #[test]
    fn sequences_free_the_blocks_that_no_other_one_shares() {
        let size = SeqSize {
            n_ctx: 200,
            n_seqs: 4,
            n_batch: 8,
            n_flights: 1,
            n_recent: None,
            n_shared: None,
            n_checkpoints: 0,
            n_draft: 0,
        };
        let mut table = SeqTable::new(&[StateKind::Kv(Retention::All)], &size);
        let first = table.new_seq().unwrap();
        table.add_positions(first, 3 * BLOCK_LEN).unwrap();
        let fork = table.fork(first).unwrap();
        table.add_positions(fork, 10).unwrap();
        let other = table.new_seq().unwrap();
        table.add_positions(other, 40).unwrap();
        for (ids, n_blocks) in [
            (&[][..], 0),
            (&[first], 0),
            (&[fork], 1),
            (&[fork, first], 4),
            (&[first, other], 2),
            (&[other, first, fork], 6),
        ] {
            let n = table.n_positions_freed_by(ids).unwrap();
            assert_eq!(n, n_blocks * BLOCK_LEN, "{ids:?}");
        }
        let (n_before, _) = table.n_positions();
        let n_freed = table.n_positions_freed_by(&[first, fork]).unwrap();
        table.drop_seq(first).unwrap();
        table.drop_seq(fork).unwrap();
        assert_eq!(table.n_positions().0, n_before - n_freed);
        assert!(table.n_positions_freed_by(&[first]).is_err());
    }

    #[test]
    fn positions_are_added_together_or_not_at_all() {
        let size = SeqSize {
            n_ctx: 400,
            n_seqs: 4,
            n_batch: 8,
            n_flights: 1,
            n_recent: None,
            n_shared: Some(400),
            n_checkpoints: 0,
            n_draft: 0,
        };
        let kinds = [Retention::All, Retention::Window(90)].map(StateKind::Kv);
        let mut table = SeqTable::new(&kinds, &size);
        let mut seqs: Vec<SeqId> = (0..3).map(|_| table.new_seq().unwrap()).collect();
        let mut state = 1_u64;
        let mut random = |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        let blocks = |table: &SeqTable, id| [0, 1].map(|group| table.blocks(id, group).to_vec());
        let mut n_refused = 0;
        for _ in 0..5000 {
            let (i, n) = (random(3), random(150));
            let (id, len) = (seqs[i], table.len(seqs[i]).unwrap());
            let before = (blocks(&table, id), table.n_positions());
            match random(4) {
                0 => {
                    let fork = table.fork(id).unwrap();
                    table
                        .drop_seq(std::mem::replace(&mut seqs[random(3)], fork))
                        .unwrap();
                }
                1 => drop(table.truncate(id, len.saturating_sub(n)).unwrap()),
                _ => match table.add_positions(id, n) {
                    Ok(()) => {
                        let n_blocks = (len + n).div_ceil(BLOCK_LEN);
                        assert!(blocks(&table, id).iter().all(|b| b.len() == n_blocks));
                    }
                    Err(Error::OutOfBlocks) => {
                        n_refused += 1;
                        assert_eq!((blocks(&table, id), table.n_positions()), before);
                        assert_eq!(table.len(id).unwrap(), len);
                        // One by one, some of them are.
                        assert!((0..n).any(|_| table.add_positions(id, 1).is_err()));
                    }
                    Err(_) => assert!(len + n > 400),
                },
            }
            table.take_copies().for_each(drop);
        }
        assert!(n_refused > 100, "{n_refused}");
    }
}
