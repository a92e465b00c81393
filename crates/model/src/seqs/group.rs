//! Block table of one sequence in one group of layers, and the group's allocation policy.

use std::ops::Range;

use super::{BLOCK_LEN, BlockCopy, SeqSize, blocks::Blocks};
use crate::spec::Retention;

/// The blocks of a sequence, in the order of positions.
#[derive(Clone)]
pub(super) struct Table {
    /// Block `i` holds positions `32 i..`. Entries before `n_gone` are stale: their blocks were
    /// released.
    blocks: Vec<u32>,
    n_gone: usize,
    /// The first position whose keys and values are present.
    from: usize,
}

/// Layers with the same retention, and their blocks.
pub(super) struct Group {
    /// Index of the group.
    index: usize,
    pub(super) blocks: Blocks,
    retention: Retention,
    /// Maximum number of blocks of a sequence.
    share: usize,
}

impl Table {
    pub(super) fn new(n_blocks_max: usize) -> Self {
        Self {
            blocks: Vec::with_capacity(n_blocks_max),
            n_gone: 0,
            from: 0,
        }
    }

    pub(super) fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// The first position whose keys and values are present.
    pub(super) fn from(&self) -> usize {
        self.from
    }

    /// Marks positions before `from` as missing.
    pub(super) fn lacks_before(&mut self, from: usize) {
        self.from = self.from.max(from);
    }

    fn held(&self) -> &[u32] {
        &self.blocks[self.n_gone..]
    }
}

impl Group {
    /// Maximum number of blocks of a sequence of up to `n_ctx` positions, to which a batch appends
    /// up to `n_batch`.
    ///
    /// A window needs the positions that the first row of a batch sees, and those of the batch,
    /// wherever blocks begin. Smaller batches leave room for a past to which the sequence can be
    /// truncated. If a context shift keeps fewer positions behind the evicted range than the window
    /// has, the window reaches in front of that range, and all positions have to stay.
    pub(super) fn share(retention: Retention, size: &SeqSize) -> usize {
        let SeqSize {
            n_ctx,
            n_batch,
            n_recent,
            ..
        } = *size;
        let all = n_ctx.div_ceil(BLOCK_LEN);
        match retention {
            Retention::All | Retention::Text => all,
            Retention::Window(n) if n_recent.is_some_and(|n_recent| n_recent < n) => all,
            Retention::Window(n) => all.min((n.saturating_add(n_batch)).div_ceil(BLOCK_LEN) + 1),
        }
    }

    /// Free blocks and all blocks.
    pub(super) fn n_free(&self) -> (usize, usize) {
        (self.blocks.n_free(), self.blocks.n_blocks())
    }

    /// Number of blocks that only these tables hold.
    pub(super) fn n_freed_by<'a>(&self, tables: impl Iterator<Item = &'a Table>) -> usize {
        let mut held: Vec<u32> = tables.flat_map(Table::held).copied().collect();
        held.sort_unstable();
        let blocks = held.chunk_by(|a, b| a == b);
        blocks
            .filter(|refs| self.blocks.ref_count(refs[0]) as usize == refs.len())
            .count()
    }

    /// Blocks of all sequences. In a shared pool, each sequence may have a last block that is not
    /// full.
    pub(super) fn n_blocks(retention: Retention, size: &SeqSize) -> usize {
        let share = Self::share(retention, size);
        let all = share.saturating_mul(size.n_seqs);
        let shared = |n: usize| {
            n.div_ceil(BLOCK_LEN)
                .saturating_add(size.n_seqs)
                .max(share)
                .min(all)
        };
        size.n_shared.map_or(all, shared)
    }

    pub(super) fn new(index: usize, retention: Retention, size: &SeqSize) -> Self {
        let blocks = Blocks::new(Self::n_blocks(retention, size));
        Self {
            index,
            blocks,
            retention,
            share: Self::share(retention, size),
        }
    }

    /// The first position that position `len` sees.
    fn first_needed(&self, len: usize) -> usize {
        match self.retention {
            Retention::All | Retention::Text => 0,
            Retention::Window(n) => (len + 1).saturating_sub(n),
        }
    }

    /// Whether all positions that position `len` of a sequence of `n` sees are present, and are as
    /// they would be if the sequence ended before it.
    pub(super) fn is_whole(&self, table: &Table, len: usize, n: usize) -> bool {
        let is_whole_text = self.retention != Retention::Text || len == n;
        is_whole_text && table.from <= self.first_needed(len)
    }

    /// Whether the position behind `positions` sees none of them that is missing.
    pub(super) fn holds(&self, table: &Table, positions: &Range<usize>) -> bool {
        table.from <= positions.start.max(self.first_needed(positions.end))
    }

    /// Whether sequences keep all of their positions.
    pub(super) fn keeps_all(&self) -> bool {
        self.retention == Retention::All
    }

    /// Appends blocks of another sequence, which both share then.
    pub(super) fn append_shared(&mut self, table: &mut Table, blocks: &[u32]) {
        blocks.iter().for_each(|&block| self.blocks.share(block));
        table.blocks.extend_from_slice(blocks);
    }

    /// Whether [`extend`](Self::extend) has the blocks that it needs for `n` positions from `len`
    /// on.
    pub(super) fn has_room(&self, table: &Table, len: usize, n: usize) -> bool {
        let held = table.held();
        let is_shared = |block: &u32| self.blocks.is_shared(*block);
        // The last block is copied if it is shared.
        let is_copied =
            n > 0 && !len.is_multiple_of(BLOCK_LEN) && held.last().is_some_and(is_shared);
        let n_new = (len + n).div_ceil(BLOCK_LEN) - len.div_ceil(BLOCK_LEN);
        // Beyond the share each new block replaces the oldest one, which is free unless shared.
        let n_more = n_new.min(self.share - held.len());
        let n_uncopied = held.len() - usize::from(is_copied);
        let replaced = held[..n_uncopied].iter().take(n_new - n_more);
        let n_kept = replaced.filter(|&block| is_shared(block)).count();
        usize::from(is_copied) + n_more + n_kept <= self.blocks.n_free()
    }

    /// Adds or un-shares the block of position `len`; releases the oldest block of a sequence that
    /// has its maximum.
    pub(super) fn extend(&mut self, table: &mut Table, len: usize, copies: &mut Vec<BlockCopy>) {
        match table.blocks.last_mut() {
            Some(last) if !len.is_multiple_of(BLOCK_LEN) => {
                self.own(last, copies)
                    .expect("a free block was seen by `has_room`");
            }
            _ => {
                if table.held().len() == self.share {
                    self.blocks.release(table.blocks[table.n_gone]);
                    table.n_gone += 1;
                    table.from = table.from.max(table.n_gone * BLOCK_LEN);
                }
                table.blocks.extend(self.blocks.allocate());
            }
        }
    }

    /// Releases the blocks behind position `len`, which is 0 or whose window is complete.
    pub(super) fn truncate(&mut self, table: &mut Table, len: usize) {
        let keep = len.div_ceil(BLOCK_LEN);
        for &block in &table.blocks[keep.max(table.n_gone)..] {
            self.blocks.release(block);
        }
        table.blocks.truncate(keep);
        table.n_gone = table.n_gone.min(keep);
        table.from = table.from.min(len);
    }

    /// Evicts positions, a multiple of the block length. Blocks from where they begin are not
    /// shared afterwards. If they begin within a block, the positions behind them are copied into
    /// that block.
    pub(super) fn evict(
        &mut self,
        table: &mut Table,
        evicted: &Range<usize>,
        copies: &mut Vec<BlockCopy>,
    ) {
        let start = evicted.start / BLOCK_LEN;
        let n = evicted.len() / BLOCK_LEN;
        let mut first = start;
        if start >= table.n_gone && !evicted.start.is_multiple_of(BLOCK_LEN) {
            self.own_some(&mut table.blocks[start..start + 1], copies);
            // The evicted range may reach to the end.
            if let Some(&from) = table.blocks.get(start + n) {
                let to = table.blocks[start];
                let first = evicted.start % BLOCK_LEN;
                copies.push(BlockCopy {
                    group: self.index,
                    from,
                    to,
                    first,
                });
            }
            first += 1;
        }
        let removed = first..(first + n).min(table.blocks.len());
        let held = table.n_gone.clamp(removed.start, removed.end);
        table.blocks[held..removed.end]
            .iter()
            .for_each(|&block| self.blocks.release(block));
        table.n_gone -= held - removed.start;
        table.blocks.drain(removed);
        self.own_some(&mut table.blocks[start.max(table.n_gone)..], copies);
        table.from = match table.from {
            from if from <= evicted.start => from,
            from => from.saturating_sub(evicted.len()).max(evicted.start),
        };
    }

    fn own_some(&mut self, blocks: &mut [u32], copies: &mut Vec<BlockCopy>) {
        for block in blocks {
            self.own(block, copies)
                .expect("a sequence has its share of blocks");
        }
    }

    /// Makes a block exclusive to this sequence (copy-on-write).
    fn own(&mut self, block: &mut u32, copies: &mut Vec<BlockCopy>) -> Option<()> {
        let from = *block;
        let to = self.blocks.own(*block)?;
        if to != from {
            copies.push(BlockCopy {
                group: self.index,
                from,
                to,
                first: 0,
            });
        }
        *block = to;
        Some(())
    }

    /// Copies a table and adds a reference to each of its blocks.
    pub(super) fn fork(&mut self, table: &Table) -> Table {
        table
            .held()
            .iter()
            .for_each(|&block| self.blocks.share(block));
        let mut fork = Table::new(table.blocks.capacity());
        fork.blocks.extend_from_slice(&table.blocks);
        Table {
            n_gone: table.n_gone,
            from: table.from,
            ..fork
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sequences of one group; `None` for those that do not exist.
    struct Group8 {
        group: Group,
        seqs: [Option<(usize, Table)>; 8],
    }

    impl Group8 {
        fn new(retention: Retention) -> Self {
            let size = SeqSize {
                n_ctx: 1000,
                n_seqs: 8,
                n_batch: 8,
                n_flights: 1,
                n_recent: Some(500),
                n_shared: None,
                n_checkpoints: 0,
                n_draft: 0,
            };
            Self {
                group: Group::new(0, retention, &size),
                seqs: Default::default(),
            }
        }

        fn act(&mut self, [what, i, j, n]: [usize; 4]) {
            let group = &mut self.group;
            match (what, &mut self.seqs[i]) {
                (0, Some((len, table))) => {
                    *len = n.min(*len);
                    *len = if group.is_whole(table, *len, *len) {
                        *len
                    } else {
                        0
                    };
                    group.truncate(table, *len);
                }
                (1, Some((len, table))) if i != j => {
                    let fork = (*len, group.fork(table));
                    if let Some((_, mut old)) = self.seqs[j].replace(fork) {
                        group.truncate(&mut old, 0);
                    }
                }
                (2, Some((len, table))) => {
                    // Evicts at most half of the positions: a window needs the rest.
                    let evicted = i..i + (*len).saturating_sub(i) / 2 / BLOCK_LEN * BLOCK_LEN;
                    if *len == 1000 && !evicted.is_empty() {
                        let mut copies = Vec::new();
                        group.evict(table, &evicted, &mut copies);
                        assert!(copies.iter().all(|copy| copy.from != copy.to));
                        *len -= evicted.len();
                        assert!(group.is_whole(table, *len, *len));
                    }
                }
                (_, Some((len, table))) => {
                    let n = n.min(1000 - *len);
                    assert!(group.has_room(table, *len, n), "a sequence has its share");
                    for _ in 0..n {
                        group.extend(table, *len, &mut Vec::new());
                        *len += 1;
                        assert!(group.is_whole(table, *len, *len), "a window is there");
                    }
                }
                (_, empty) => *empty = Some((0, Table::new(32))),
            }
        }

        /// Checks that every block has as many references as tables list it.
        fn check(&self) {
            let mut expected = vec![0; self.group.blocks.ref_counts().len()];
            for (len, table) in self.seqs.iter().flatten() {
                assert_eq!(table.blocks.len(), len.div_ceil(BLOCK_LEN));
                assert!(table.held().len() <= self.group.share);
                table
                    .held()
                    .iter()
                    .for_each(|&block| expected[block as usize] += 1);
            }
            assert_eq!(self.group.blocks.ref_counts(), expected);
            assert_eq!(
                self.group.blocks.n_free(),
                expected.iter().filter(|&&n| n == 0).count()
            );
        }
    }

    #[test]
    fn no_block_is_lost_or_given_back_twice() {
        for retention in [Retention::All, Retention::Window(1), Retention::Window(100)] {
            let mut all = Group8::new(retention);
            let mut state = 1u64;
            let mut random = |n: usize| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % n
            };
            for _ in 0..3000 {
                all.act([random(5), random(8), random(8), random(150)]);
                all.check();
            }
            (0..8).for_each(|i| all.act([0, i, i, 0]));
            assert!(
                all.group.blocks.ref_counts().iter().all(|&n| n == 0),
                "{retention:?}"
            );
        }
    }
}
