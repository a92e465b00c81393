//! Which positions every sequence has, and which blocks hold them: the ledger of an executor, wherever its bytes are.
//!
//! Knows no bytes, no layers and no device. One block table per *group* of layers that keep what they have for the same time:
//! layers with a window give blocks back while global layers keep theirs. Blocks are counted: a fork shares all of them, and
//! the first that writes into a shared one gets one of its own. What has to be copied then is noted, and done by whoever has the
//! bytes, in order, before anything is written into a block.

mod blocks;
mod group;

use std::ops::Range;

use crate::{Error, SeqId, spec::Retention};
use group::{Group, Table};

/// Positions per block. A prompt wastes half a block on average; 32 keeps that below 1 % of a context of 2,048.
pub const BLOCK_LEN: usize = 32;

/// What a ledger is made for.
#[derive(Clone, Copy, Debug)]
pub struct SeqSize {
    /// Positions of a sequence.
    pub n_ctx: usize,
    /// Sequences at once.
    pub n_seqs: usize,
    /// Positions that come at once, at most.
    pub n_batch: usize,
    /// Positions that stay behind a gap, at least; `None`: there are no gaps.
    pub n_recent: Option<usize>,
    /// Positions of all sequences together, at least; `None`: each has its own.
    pub n_shared: Option<usize>,
}

impl SeqSize {
    /// Blocks of all sequences in layers of that retention.
    pub fn n_blocks(&self, retention: Retention) -> usize {
        Group::n_blocks(retention, self)
    }
}

/// Bytes of a block that have to be copied to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// The group of both blocks.
    pub group: usize,
    /// The block that is read.
    pub from: u32,
    /// The block that is written.
    pub to: u32,
    /// The first position within the block that is copied; all behind it are, too.
    pub first: usize,
}

/// The sequences of an executor.
pub struct SeqTable {
    groups: Vec<Group>,
    slots: Vec<Slot>,
    n_ctx: usize,
    copies: Vec<BlockCopy>,
}

/// Room for one sequence, used again and again.
struct Slot {
    /// How many sequences were here before.
    generation: u32,
    seq: Option<Sequence>,
}

struct Sequence {
    len: usize,
    /// Of each group.
    tables: Vec<Table>,
}

impl SeqTable {
    /// Room for sequences of this size, in one group of layers for each retention.
    pub fn new(retentions: &[Retention], size: &SeqSize) -> Self {
        let groups = retentions.iter().enumerate().map(|(i, &retention)| Group::new(i, retention, size)).collect();
        let slots = (0..size.n_seqs).map(|_| Slot { generation: 0, seq: None }).collect();
        Self { groups, slots, n_ctx: size.n_ctx, copies: Vec::new() }
    }

    /// Positions that a sequence may have.
    pub fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    /// Positions that have blocks, shared ones once, in whole blocks; and how many there may be, of the layers that keep most.
    pub fn n_positions(&self) -> (usize, usize) {
        let free = self.groups.iter().map(Group::n_free).max_by_key(|&(_, n)| n);
        free.map_or((0, 0), |(n_free, n)| ((n - n_free) * BLOCK_LEN, n * BLOCK_LEN))
    }

    /// Number of positions of a sequence.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn len(&self, id: SeqId) -> Result<usize, Error> {
        Ok(self.seq(id)?.len)
    }

    /// What [`truncate`](Self::truncate) to `len` would leave.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn keeps(&self, id: SeqId, len: usize) -> Result<usize, Error> {
        let seq = self.seq(id)?;
        let len = seq.len.min(len);
        let is_whole = self.groups.iter().zip(&seq.tables).all(|(group, table)| group.is_whole(table, len));
        Ok(if is_whole { len } else { 0 })
    }

    /// The blocks of a sequence in a group: block `i` holds the positions from `32 i` on, if they are held.
    pub fn blocks(&self, id: SeqId, group: usize) -> &[u32] {
        self.seq(id).map_or(&[], |seq| seq.tables[group].blocks())
    }

    /// The first position of a sequence that a group holds.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn first_held(&self, id: SeqId, group: usize) -> Result<usize, Error> {
        Ok(self.seq(id)?.tables[group].from())
    }

    /// A new, empty sequence.
    ///
    /// # Errors
    /// [`Error::NoRoomForSequence`].
    pub fn new_seq(&mut self) -> Result<SeqId, Error> {
        let (n_blocks, n_slots) = (self.n_ctx.div_ceil(BLOCK_LEN), self.slots.len());
        let mut slots = self.slots.iter_mut().enumerate();
        let (index, slot) = slots.find(|(_, s)| s.seq.is_none()).ok_or(Error::NoRoomForSequence(n_slots))?;
        // The tables get their full capacity now, so that a step never allocates.
        let tables = self.groups.iter().map(|_| Table::new(n_blocks)).collect();
        slot.seq = Some(Sequence { len: 0, tables });
        Ok(SeqId { index: index as u32, generation: slot.generation })
    }

    /// A sequence with the same past, whose blocks it shares.
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::NoRoomForSequence`].
    pub fn fork(&mut self, id: SeqId) -> Result<SeqId, Error> {
        self.seq(id)?;
        let fork = self.new_seq()?;
        let (seq, groups, _) = self.seq_mut(id)?;
        let len = seq.len;
        let tables = groups.iter_mut().zip(&seq.tables).map(|(group, table)| group.fork(table)).collect();
        *self.seq_mut(fork)?.0 = Sequence { len, tables };
        Ok(fork)
    }

    /// Forgets everything from position `len` on; all, if a window does not reach back that far any more. Returns what is left.
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

    /// Ends a sequence; its blocks are free again.
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

    /// Adds one position to a sequence, which must see all that it is made to see; its last block is its own afterwards.
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::State`] if a window is not there, [`Error::ContextFull`], [`Error::OutOfBlocks`].
    pub fn extend(&mut self, id: SeqId) -> Result<(), Error> {
        let (seq, groups, _) = self.seq_mut(id)?;
        if !groups.iter().zip(&seq.tables).all(|(group, table)| group.is_whole(table, seq.len)) {
            return Err(Error::State("a window of the sequence is not there"));
        }
        self.add_position(id)
    }

    /// The same for one whose state is going to be filled in.
    ///
    /// # Errors
    /// As [`extend`](Self::extend), but for a window that is not there.
    pub fn add_position(&mut self, id: SeqId) -> Result<(), Error> {
        let n_ctx = self.n_ctx;
        let (seq, groups, copies) = self.seq_mut(id)?;
        let len = seq.len;
        if len == n_ctx {
            return Err(Error::ContextFull { n_ctx });
        }
        // A full group is found before any group is changed.
        if !groups.iter().zip(&seq.tables).all(|(group, table)| group.has_room(table, len)) {
            return Err(Error::OutOfBlocks);
        }
        for (table, group) in seq.tables.iter_mut().zip(groups) {
            group.extend(table, len, copies);
        }
        seq.len += 1;
        Ok(())
    }

    /// Notes that a group has nothing of a sequence before a position: a written state lacked it.
    ///
    /// # Errors
    /// [`Error::NoSequence`].
    pub fn lacks_before(&mut self, id: SeqId, group: usize, from: usize) -> Result<(), Error> {
        self.seq_mut(id)?.0.tables[group].lacks_before(from);
        Ok(())
    }

    /// Takes the positions `gap`, whole blocks, out of a sequence; what follows moves up.
    ///
    /// # Errors
    /// [`Error::NoSequence`], [`Error::State`] for a gap that is none.
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

    /// What has to be copied now, oldest first; nothing is left of it when the iterator is dropped.
    pub fn take_copies(&mut self) -> impl Iterator<Item = BlockCopy> + '_ {
        self.copies.drain(..)
    }

    fn seq(&self, id: SeqId) -> Result<&Sequence, Error> {
        let slot = self.slots.get(id.index as usize).filter(|s| s.generation == id.generation);
        slot.and_then(|s| s.seq.as_ref()).ok_or(Error::NoSequence(id))
    }

    /// A sequence, the groups whose blocks it may take and give back, and what has to be copied.
    #[expect(clippy::type_complexity, reason = "three parts of one struct, borrowed at once")]
    fn seq_mut(&mut self, id: SeqId) -> Result<(&mut Sequence, &mut [Group], &mut Vec<BlockCopy>), Error> {
        let slot = self.slots.get_mut(id.index as usize).filter(|s| s.generation == id.generation);
        let seq = slot.and_then(|s| s.seq.as_mut()).ok_or(Error::NoSequence(id))?;
        Ok((seq, &mut self.groups, &mut self.copies))
    }
}
