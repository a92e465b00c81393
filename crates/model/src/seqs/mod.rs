//! Block tables of the KV cache: the positions of every sequence and the blocks that hold them.
//!
//! `SeqTable` does the bookkeeping of an executor, wherever the cache itself lies. It knows no
//! bytes, layers or devices. Each *group* of layers with the same retention has one block table per
//! sequence: sliding-window layers free old blocks, global layers keep all. Blocks are
//! reference-counted: a fork shares them, and writing to a shared block copies it first
//! (copy-on-write). The copies are queued here as [`BlockCopy`]; the executor performs them in
//! order before it writes.

mod blocks;
mod group;

use std::ops::Range;

use crate::{Error, Row, SeqId, spec::Retention};
use group::{Group, Table};

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
    /// Positions appended per batch, at most.
    pub n_batch: usize,
    /// Positions kept behind an evicted range (context shift), at least; `None`: the context is
    /// never shifted.
    pub n_recent: Option<usize>,
    /// Pool size: positions of all sequences together; `None`: `n_ctx` for each.
    pub n_shared: Option<usize>,
}

impl SeqSize {
    /// Blocks of a group with this retention.
    pub fn n_blocks(&self, retention: Retention) -> usize {
        Group::n_blocks(retention, self)
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
    groups: Vec<Group>,
    slots: Vec<Slot>,
    n_ctx: usize,
    copies: Vec<BlockCopy>,
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
}

impl SeqTable {
    /// Creates a table with one group per retention.
    pub fn new(retentions: &[Retention], size: &SeqSize) -> Self {
        let groups = retentions
            .iter()
            .enumerate()
            .map(|(i, &retention)| Group::new(i, retention, size))
            .collect();
        let slots = (0..size.n_seqs)
            .map(|_| Slot {
                generation: 0,
                seq: None,
            })
            .collect();
        // A batch copies at most the last block of every sequence, in every group.
        let copies = Vec::with_capacity(
            size.n_seqs
                .saturating_mul(retentions.len())
                .min(MAX_RESERVED),
        );
        Self {
            groups,
            slots,
            n_ctx: size.n_ctx,
            copies,
        }
    }

    /// Maximum positions of a sequence.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Positions in use (shared blocks count once) and in total, of the largest group, in whole
    /// blocks.
    pub fn n_positions(&self) -> (usize, usize) {
        let free = self
            .groups
            .iter()
            .map(Group::n_free)
            .max_by_key(|&(_, n)| n);
        free.map_or((0, 0), |(n_free, n)| {
            ((n - n_free) * BLOCK_LEN, n * BLOCK_LEN)
        })
    }

    /// Number of positions of a sequence.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn len(&self, id: SeqId) -> Result<usize, Error> {
        Ok(self.seq(id)?.len)
    }

    /// Length that [`truncate`](Self::truncate) to `len` would leave.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn keeps(&self, id: SeqId, len: usize) -> Result<usize, Error> {
        let seq = self.seq(id)?;
        let len = seq.len.min(len);
        let is_whole = self
            .groups
            .iter()
            .zip(&seq.tables)
            .all(|(group, table)| group.is_whole(table, len));
        Ok(if is_whole { len } else { 0 })
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

    /// Creates an empty sequence.
    ///
    /// # Errors
    /// [`Error::NoRoomForSequence`].
    pub fn new_seq(&mut self) -> Result<SeqId, Error> {
        let (n_blocks, n_slots) = (self.n_ctx.div_ceil(BLOCK_LEN), self.slots.len());
        let mut slots = self.slots.iter_mut().enumerate();
        let (index, slot) = slots
            .find(|(_, s)| s.seq.is_none())
            .ok_or(Error::NoRoomForSequence(n_slots))?;
        // The tables get their full capacity now, so that a step never allocates.
        let tables = self.groups.iter().map(|_| Table::new(n_blocks)).collect();
        slot.seq = Some(Sequence { len: 0, tables });
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
        let (seq, groups, _) = self.seq_mut(id)?;
        let len = seq.len;
        let tables = groups
            .iter_mut()
            .zip(&seq.tables)
            .map(|(group, table)| group.fork(table))
            .collect();
        *self.seq_mut(fork)?.0 = Sequence { len, tables };
        Ok(fork)
    }

    /// Removes positions from `len` on and returns the new length: `len`, or 0 if a sliding window
    /// has already freed positions that `len` needs.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn truncate(&mut self, id: SeqId, len: usize) -> Result<usize, Error> {
        let left = self.keeps(id, len)?;
        let (seq, groups, _) = self.seq_mut(id)?;
        seq.len = left;
        for (table, group) in seq.tables.iter_mut().zip(groups) {
            group.truncate(table, seq.len);
        }
        Ok(seq.len)
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
    /// those of [`extend`](Self::extend).
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
        Ok(())
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

    /// Appends one position. The window must be complete. Copies the last block if it is shared.
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::State`] if a window is not there, [`Error::ContextFull`],
    /// [`Error::OutOfBlocks`].
    pub fn extend(&mut self, id: SeqId) -> Result<(), Error> {
        let (seq, groups, _) = self.seq_mut(id)?;
        if !groups
            .iter()
            .zip(&seq.tables)
            .all(|(group, table)| group.is_whole(table, seq.len))
        {
            return Err(Error::State("a window of the sequence is not there"));
        }
        self.add_position(id)
    }

    /// Appends one position whose state the caller fills in, so that the window may be incomplete.
    ///
    /// # Errors
    /// As [`extend`](Self::extend), except for an incomplete window.
    pub fn add_position(&mut self, id: SeqId) -> Result<(), Error> {
        let n_ctx = self.n_ctx;
        let (seq, groups, copies) = self.seq_mut(id)?;
        let len = seq.len;
        if len == n_ctx {
            return Err(Error::ContextFull { n_ctx });
        }
        // A full group is found before any group is changed.
        if !groups
            .iter()
            .zip(&seq.tables)
            .all(|(group, table)| group.has_room(table, len))
        {
            return Err(Error::OutOfBlocks);
        }
        for (table, group) in seq.tables.iter_mut().zip(groups) {
            group.extend(table, len, copies);
        }
        seq.len += 1;
        Ok(())
    }

    /// Marks positions before `from` as absent in a group, after importing a state that lacks them.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn lacks_before(&mut self, id: SeqId, group: usize, from: usize) -> Result<(), Error> {
        self.seq_mut(id)?.0.tables[group].lacks_before(from);
        Ok(())
    }

    /// Evicts the positions `gap`, a multiple of the block length; later positions move down
    /// (context shift).
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::State`] for an invalid range.
    pub fn close(&mut self, id: SeqId, gap: &Range<usize>) -> Result<(), Error> {
        let (seq, groups, copies) = self.seq_mut(id)?;
        if gap.is_empty() || gap.end > seq.len || !gap.len().is_multiple_of(BLOCK_LEN) {
            return Err(Error::State("a gap is some whole blocks of what there is"));
        }
        for (group, table) in groups.iter_mut().zip(&mut seq.tables) {
            group.close(table, gap, copies);
        }
        seq.len -= gap.len();
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

    /// A sequence with the groups and the copy queue that its changes affect.
    fn seq_mut(
        &mut self,
        id: SeqId,
    ) -> Result<(&mut Sequence, &mut [Group], &mut Vec<BlockCopy>), Error> {
        let slot = self
            .slots
            .get_mut(id.index as usize)
            .filter(|s| s.generation == id.generation);
        let seq = slot
            .and_then(|s| s.seq.as_mut())
            .ok_or(Error::NoSequence(id))?;
        Ok((seq, &mut self.groups, &mut self.copies))
    }
}
