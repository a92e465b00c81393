//! Copies positions of a sequence to the end of another one, where they stand elsewhere.
//!
//! Values are copied as they are, keys are rotated to their new positions, as a context shift does.
//! Both were computed behind another text, so the copy approximates the state of the new one.
//! Positions that stay where they were, behind a line that has kept its length, share their blocks.

use std::ops::Range;

use super::{
    BLOCK_LEN,
    arena::KvArena,
    cache::{KvCache, kv_places},
    plan::KvPlace,
};
use crate::{Error, KeyShift, SeqId};

/// Positions in a row within one block before and one block behind the move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    from: usize,
    to: usize,
    n: usize,
}

/// The block tables of both sequences in one group.
struct Tables<'a> {
    from: &'a [u32],
    to: &'a [u32],
}

impl<A: KvArena> KvCache<A> {
    /// Appends `positions` of the sequence `from` to the sequence `to`. `turns` turns keys by the
    /// distance of the move.
    ///
    /// # Errors
    /// As [`Executor::append_moved`](crate::Executor::append_moved), and a device that is lost.
    pub fn append_moved(
        &mut self,
        from: SeqId,
        positions: Range<usize>,
        to: SeqId,
        turns: &KeyShift<'_>,
    ) -> Result<(), Error> {
        if from == to || !self.seqs.may_move(from, &positions)? {
            return Err(Error::State("it does not have these positions"));
        }
        let start = self.seqs.len(to)?;
        if start == positions.start {
            return self.append_unmoved(from, positions, to);
        }
        self.append_copies(from, &positions, to)?;
        self.turn_keys(to, start..start + positions.len(), turns)
    }

    /// Appends positions that stay where they were: copies up to the end of a block, and shares the
    /// blocks behind it, where no window forgets some.
    fn append_unmoved(
        &mut self,
        from: SeqId,
        positions: Range<usize>,
        to: SeqId,
    ) -> Result<(), Error> {
        let Range { start, end } = positions;
        if !self.seqs.may_share() {
            return self.append_copies(from, &positions, to);
        }
        let border = start.next_multiple_of(BLOCK_LEN).min(end);
        self.append_copies(from, &(start..border), to)?;
        match border < end {
            true => self.seqs.append_shared(from, end, to),
            false => Ok(()),
        }
    }

    /// Appends the bytes of positions as they are.
    fn append_copies(
        &mut self,
        from: SeqId,
        positions: &Range<usize>,
        to: SeqId,
    ) -> Result<(), Error> {
        let start = self.seqs.len(to)?;
        self.seqs.add_positions(to, positions.len())?;
        self.copy_blocks();
        self.copy_moved(from, positions, to, start)
    }

    /// Copies the bytes of positions that were just added at `start`.
    fn copy_moved(
        &mut self,
        from: SeqId,
        positions: &Range<usize>,
        to: SeqId,
        start: usize,
    ) -> Result<(), Error> {
        for place in kv_places(&self.places) {
            let group = place.group;
            let n_missing = self.first_held(from, place, positions)? - positions.start;
            if n_missing > 0 {
                self.seqs.lacks_before(to, group, start + n_missing)?;
            }
            // Windows may have freed positions of the new sequence, too.
            let first = (start + n_missing).max(self.seqs.first_held(to, group)?);
            let skipped = (first - start).min(positions.len());
            let tables = Tables {
                from: self.seqs.blocks(from, group),
                to: self.seqs.blocks(to, group),
            };
            let moved = positions.start + skipped..positions.end;
            copy_rows(
                &mut self.arenas[group],
                &tables,
                place,
                moved,
                start + skipped,
            );
        }
        Ok(())
    }
}

/// Copies all that a layer holds of these positions to those from `to` on.
fn copy_rows(
    arena: &mut impl KvArena,
    tables: &Tables<'_>,
    place: &KvPlace,
    positions: Range<usize>,
    to: usize,
) {
    for Stretch { from, to, n } in runs(positions, to) {
        let [from_block, to_block] = [tables.from[from / BLOCK_LEN], tables.to[to / BLOCK_LEN]];
        let [from, to] = [from, to].map(|pos| pos % BLOCK_LEN);
        for part in place.parts() {
            for array in (0..part.n_heads).flat_map(|h| part.arrays(h)) {
                let rows = array.rows(from..from + n);
                let at = array.rows(to..to + n).start;
                arena.copy_to(from_block, rows, to_block, at);
            }
        }
    }
}

/// Divides a move of `positions` to those from `to` on where either meets the end of a block.
fn runs(positions: Range<usize>, to: usize) -> impl Iterator<Item = Stretch> {
    let mut from = positions.start;
    std::iter::from_fn(move || {
        let to = to + (from - positions.start);
        let left = |pos: usize| BLOCK_LEN - pos % BLOCK_LEN;
        let n = (positions.end - from).min(left(from)).min(left(to));
        let run = Stretch { from, to, n };
        from += n;
        (n > 0).then_some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_is_divided_at_the_ends_of_blocks_on_both_sides() {
        let all: Vec<[usize; 3]> = runs(30..70, 3).map(|r| [r.from, r.to, r.n]).collect();
        assert_eq!(all, [[30, 3, 2], [32, 5, 27], [59, 32, 5], [64, 37, 6]]);
        assert_eq!(runs(5..5, 9).count(), 0);
    }
}
