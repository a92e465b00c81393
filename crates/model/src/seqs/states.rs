//! Checkpoints of recurrent states: which positions of a sequence have one, and in which block.
//!
//! A recurrent state is overwritten by every position, so a sequence can only return to positions
//! whose state was kept. A batch never overwrites a state: it reads the block of the position it
//! starts from and writes another one, so that forks share blocks without copies and a batch that
//! fails is undone by dropping its blocks. Batches have to be computed in the order of
//! admission: a block that one wrote may be assigned to a later one.
//!
//! A sequence keeps the states at the ends of its last batches (one more than may be in flight),
//! those in front of the last rows of the last one if they may be a draft, and a limited number of
//! others: those at multiples of [`CHECKPOINT_LEN`], wherever batches end,
//! and those that rows ask for ([`Row::is_checkpoint`](crate::Row::is_checkpoint)). Beyond the
//! limit the checkpoint whose neighbours are closest to each other is dropped, so that the others
//! are spread over the text: first those that no row asked for, and of the others neither the first
//! (the end of a system prompt) nor the last.

use super::{SeqSize, blocks::Blocks};

/// Every state at a multiple of this position is a candidate for a checkpoint.
pub const CHECKPOINT_LEN: usize = 128;

/// A block number for entries that have no block yet.
const NO_BLOCK: u32 = u32::MAX;

/// The state behind the first `pos` positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Checkpoint {
    pos: usize,
    block: u32,
    /// Whether a batch ended here.
    is_end: bool,
    /// Whether a row asked for it.
    is_asked: bool,
    /// Whether a row that may be removed again follows, of the last batch.
    is_before_draft: bool,
}

/// The checkpoints of a sequence by position; the last one is its current state. Position 0 has
/// none: its state is zero.
pub(super) struct States {
    list: Vec<Checkpoint>,
}

/// The layers with recurrent states, and their blocks.
pub(super) struct StateGroup {
    pub(super) blocks: Blocks,
    /// Checkpoints per sequence besides the ends of recent batches.
    n_checkpoints: usize,
    /// Ends of batches that a sequence keeps: those of all batches in flight, and the one before.
    n_ends: usize,
    /// Last rows of a batch that may be removed again.
    n_draft: usize,
    /// Capacity of the list of a sequence.
    n_list: usize,
}

/// Blocks of a row's recurrent state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateStep {
    /// The row of the batch with the previous position of the sequence, if it is in this batch.
    pub previous: Option<u32>,
    /// The block with the state before the sequence's first row of this batch; `None`: the
    /// sequence starts with this batch, from a state of zeros.
    pub start: Option<u32>,
    /// The block that receives the state behind this row, or behind a later one of the sequence.
    pub block: u32,
    /// Whether `block` receives the state behind this row.
    pub is_kept: bool,
}

impl Checkpoint {
    fn new(pos: usize) -> Self {
        Self {
            pos,
            block: NO_BLOCK,
            is_end: false,
            is_asked: false,
            is_before_draft: false,
        }
    }

    /// Whether it is worth keeping when its batch is no recent one.
    fn is_lasting(&self) -> bool {
        self.is_asked || self.pos.is_multiple_of(CHECKPOINT_LEN)
    }
}

impl States {
    /// The states of a sequence without recurrent layers.
    pub(super) fn none() -> Self {
        Self { list: Vec::new() }
    }

    /// Whether the state behind `len` positions is there.
    pub(super) fn has(&self, len: usize) -> bool {
        self.nearest(len) == len
    }

    /// The last position up to `len` whose state is there.
    pub(super) fn nearest(&self, len: usize) -> usize {
        let before = self.list.iter().rev().find(|c| c.pos <= len);
        before.map_or(0, |c| c.pos)
    }

    /// The checkpoints behind `start`, up to `end`, that are worth exporting, with their blocks.
    pub(super) fn lasting(
        &self,
        start: usize,
        end: usize,
    ) -> impl Iterator<Item = (usize, u32)> + '_ {
        let inside = self
            .list
            .iter()
            .filter(move |c| start < c.pos && c.pos <= end);
        inside
            .filter(move |c| c.is_lasting() || c.pos == end)
            .map(|c| (c.pos, c.block))
    }

    /// The block of the state behind `pos` positions; `None` for position 0.
    fn block_at(&self, pos: usize) -> Option<u32> {
        self.list.iter().find(|c| c.pos == pos).map(|c| c.block)
    }

    /// Blocks of the row at `pos`; `previous` is its predecessor in the batch, with its step.
    pub(super) fn step(&self, pos: usize, previous: Option<(u32, StateStep)>) -> StateStep {
        let next = self.list.iter().find(|c| c.pos > pos);
        let next = next.expect("an admitted row has a state behind it");
        StateStep {
            previous: previous.map(|(row, _)| row),
            start: previous.map_or_else(|| self.block_at(pos), |(_, step)| step.start),
            block: next.block,
            is_kept: next.pos == pos + 1,
        }
    }
}

impl StateGroup {
    pub(super) fn new(size: &SeqSize) -> Self {
        let n_ends = size.n_flights + 1;
        let per_seq = size.n_checkpoints.saturating_add(n_ends);
        let per_seq = per_seq.saturating_add(size.n_draft);
        // Each is added before another one is dropped.
        let n_list = per_seq.saturating_add(2);
        Self {
            blocks: Blocks::new(Self::n_blocks(size)),
            n_checkpoints: size.n_checkpoints,
            n_ends,
            n_draft: size.n_draft,
            n_list,
        }
    }

    /// Blocks of all sequences. Each has its share, so that there is always a free block.
    pub(super) fn n_blocks(size: &SeqSize) -> usize {
        let per_seq = size.n_checkpoints.saturating_add(size.n_flights + 1);
        let per_seq = per_seq.saturating_add(size.n_draft);
        per_seq.saturating_mul(size.n_seqs)
    }

    /// Last rows of a batch that may be removed again.
    pub(super) fn n_draft(&self) -> usize {
        self.n_draft
    }

    pub(super) fn new_states(&self) -> States {
        States {
            list: Vec::with_capacity(self.n_list),
        }
    }

    /// Adds the states of a batch that takes a sequence from `start` to `end`. `asked` are the
    /// positions whose states its rows ask for, in order.
    pub(super) fn advance(
        &mut self,
        states: &mut States,
        start: usize,
        end: usize,
        asked: impl Iterator<Item = usize>,
    ) {
        states
            .list
            .iter_mut()
            .for_each(|c| c.is_before_draft = false);
        let first_draft = end.saturating_sub(self.n_draft).max(start + 1);
        let mut asked = asked.peekable();
        let mut pos = start;
        while pos < end {
            let multiple = (pos / CHECKPOINT_LEN + 1) * CHECKPOINT_LEN;
            let before_draft = first_draft.max(pos + 1);
            let next = multiple.min(before_draft).min(end);
            pos = asked.peek().map_or(next, |&a| next.min(a));
            let is_asked = asked.next_if_eq(&pos).is_some();
            self.push(
                states,
                Checkpoint {
                    is_end: pos == end,
                    is_asked,
                    is_before_draft: (first_draft..end).contains(&pos),
                    ..Checkpoint::new(pos)
                },
            );
        }
        self.fill(states);
    }

    /// Adds the state behind `pos` positions, which the caller writes into the returned block.
    pub(super) fn insert(&mut self, states: &mut States, pos: usize) -> u32 {
        self.push(
            states,
            Checkpoint {
                is_end: true,
                is_asked: true,
                ..Checkpoint::new(pos)
            },
        );
        self.fill(states);
        states.list[states.list.len() - 1].block
    }

    fn push(&mut self, states: &mut States, checkpoint: Checkpoint) {
        states.list.push(checkpoint);
        while let Some(i) = self.surplus(states) {
            let block = states.list.remove(i).block;
            if block != NO_BLOCK {
                self.blocks.release(block);
            }
        }
    }

    /// Gives blocks to the checkpoints that have none yet.
    fn fill(&mut self, states: &mut States) {
        for checkpoint in states.list.iter_mut().filter(|c| c.block == NO_BLOCK) {
            checkpoint.block = self.blocks.allocate().expect("a sequence has its share");
        }
    }

    /// The checkpoint to drop next, if there are too many; never the last one.
    fn surplus(&self, states: &States) -> Option<usize> {
        let list = &states.list;
        let last = list.len() - 1;
        let ends = || (0..=last).rev().filter(|&i| list[i].is_end);
        let is_recent = |i: usize| ends().take(self.n_ends).any(|end| end == i);
        let others = || (0..last).filter(|&i| !list[i].is_before_draft && !is_recent(i));
        if let Some(i) = others().find(|&i| !list[i].is_lasting()) {
            return Some(i);
        }
        if others().count() <= self.n_checkpoints {
            return None;
        }
        let gap = |i: &usize| list[i + 1].pos - i.checked_sub(1).map_or(0, |i| list[i].pos);
        let asked = || others().filter(|&i| list[i].is_asked);
        let newest = asked().next_back().filter(|_| self.n_checkpoints > 0);
        let oldest = asked().next().filter(|_| self.n_checkpoints > 2);
        let spared = [oldest, newest];
        let multiples = others().filter(|&i| !list[i].is_asked);
        let asked = asked().filter(|&i| !spared.contains(&Some(i)));
        multiples.min_by_key(gap).or_else(|| asked.min_by_key(gap))
    }

    /// Drops the states behind `len` positions.
    pub(super) fn truncate(&mut self, states: &mut States, len: usize) {
        while let Some(c) = states.list.pop_if(|c| c.pos > len) {
            self.blocks.release(c.block);
        }
        // The next batch starts from here, and returns here if it fails.
        if let Some(current) = states.list.last_mut() {
            current.is_end = true;
        }
    }

    /// Shares all states with another sequence.
    pub(super) fn fork(&mut self, states: &States) -> States {
        let mut fork = self.new_states();
        fork.list.extend_from_slice(&states.list);
        fork.list.iter().for_each(|c| self.blocks.share(c.block));
        fork
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: SeqSize = SeqSize {
        n_ctx: 2000,
        n_seqs: 8,
        n_batch: 300,
        n_flights: 2,
        n_recent: None,
        n_shared: None,
        n_checkpoints: 3,
        n_draft: 2,
    };

    /// Sequences of one group; those that do not exist are `None`.
    struct States8 {
        group: StateGroup,
        seqs: [Option<(usize, States)>; 8],
    }

    impl States8 {
        fn act(&mut self, [what, i, j, n]: [usize; 4]) {
            let group = &mut self.group;
            match (what, &mut self.seqs[i]) {
                (0, Some((len, states))) => {
                    *len = states.nearest(n.min(*len));
                    group.truncate(states, *len);
                }
                (1, Some((len, states))) if i != j => {
                    let fork = (*len, group.fork(states));
                    if let Some((_, mut old)) = self.seqs[j].replace(fork) {
                        group.truncate(&mut old, 0);
                    }
                }
                (_, Some((len, states))) if *len + n < SIZE.n_ctx => {
                    let start = *len;
                    let end = *len + n;
                    let asked = (n > 3).then(|| end - 2);
                    group.advance(states, start, end, asked.into_iter());
                    *len = end;
                    assert!(
                        states.has(start) && states.has(end),
                        "a batch can be undone"
                    );
                    let draft = end.saturating_sub(SIZE.n_draft).max(start)..end;
                    assert!(draft.into_iter().all(|pos| states.has(pos)));
                }
                (_, seq) => {
                    if let Some((_, mut old)) = seq.replace((0, group.new_states())) {
                        group.truncate(&mut old, 0);
                    }
                }
            }
        }

        /// Checks that every block has as many references as lists name it.
        fn check(&self) {
            let mut expected = vec![0; self.group.blocks.ref_counts().len()];
            for (len, states) in self.seqs.iter().flatten() {
                assert!(states.has(*len) && states.list.is_sorted_by_key(|c| c.pos));
                let most = SIZE.n_checkpoints + SIZE.n_flights + 1 + SIZE.n_draft;
                assert!(states.list.len() <= most);
                let blocks = states.list.iter().map(|c| c.block as usize);
                blocks.for_each(|block| expected[block] += 1);
            }
            assert_eq!(self.group.blocks.ref_counts(), expected);
        }
    }

    #[test]
    fn no_block_is_lost_or_freed_twice() {
        let mut all = States8 {
            group: StateGroup::new(&SIZE),
            seqs: Default::default(),
        };
        let mut state = 1u64;
        let mut random = |n: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        };
        for _ in 0..3000 {
            all.act([random(6), random(8), random(8), 1 + random(300)]);
            all.check();
        }
    }

    #[test]
    fn the_first_and_the_last_state_that_were_asked_for_outlive_others() {
        let mut group = StateGroup::new(&SIZE);
        let mut states = group.new_states();
        group.advance(&mut states, 0, 700, [99, 698].into_iter());
        (700..900).for_each(|pos| group.advance(&mut states, pos, pos + 1, [].into_iter()));
        assert_eq!(states.nearest(698), 698);
        let kept: Vec<usize> = states.list.iter().map(|c| c.pos).collect();
        assert_eq!(kept, [99, 512, 698, 898, 899, 900]);
    }

    #[test]
    fn each_row_of_a_draft_can_be_removed_until_the_next_batch() {
        let size = SeqSize {
            n_draft: 3,
            n_flights: 1,
            ..SIZE
        };
        let mut group = StateGroup::new(&size);
        let mut states = group.new_states();
        group.advance(&mut states, 0, 50, [48].into_iter());
        for start in [50, 52, 54] {
            group.advance(&mut states, start, start + 4, [].into_iter());
            assert!((start + 1..=start + 4).all(|pos| states.has(pos)));
            group.truncate(&mut states, start + 2);
        }
        let kept: Vec<usize> = states.list.iter().map(|c| c.pos).collect();
        assert_eq!(kept, [48, 54, 55, 56]);
    }

    #[test]
    fn without_checkpoints_the_last_batches_can_be_undone() {
        let size = SeqSize {
            n_checkpoints: 0,
            n_flights: 1,
            n_draft: 0,
            ..SIZE
        };
        let mut group = StateGroup::new(&size);
        let mut states = group.new_states();
        for start in (0..1000).step_by(200) {
            group.advance(&mut states, start, start + 200, [start + 7].into_iter());
        }
        let kept: Vec<usize> = states.list.iter().map(|c| c.pos).collect();
        assert_eq!(kept, [800, 1000]);
    }
}
