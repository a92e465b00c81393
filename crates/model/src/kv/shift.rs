//! Context shift: evicts positions from the middle of a sequence (StreamingLLM, Xiao et al. 2024).
//!
//! Later positions move down. The evicted range is whole blocks long, so that moving changes block
//! tables only, except for the block in which the range begins: it is merged from two. Values do
//! not change; keys are rotated to their new positions.

use std::ops::Range;

use super::{
    arena::{KvArena, StoredKeys},
    cache::KvCache,
    plan::Place,
};
use crate::{Error, KeyShift, SeqId};

impl<A: KvArena> KvCache<A> {
    /// Evicts positions of a sequence. `turns` turns keys back by their number.
    ///
    /// # Errors
    /// Those of [`SeqTable::evict`](crate::SeqTable::evict), and a device that is lost.
    pub fn shift(
        &mut self,
        id: SeqId,
        evicted: Range<usize>,
        turns: &KeyShift<'_>,
    ) -> Result<(), Error> {
        self.seqs.evict(id, &evicted)?;
        self.copy_blocks();
        let end = self.seqs.len(id)?;
        self.turn_keys(id, evicted.start..end, turns)
    }

    /// Turns the keys of all layers at these positions, as far as they are held; their blocks are
    /// not shared.
    pub(super) fn turn_keys(
        &mut self,
        id: SeqId,
        positions: Range<usize>,
        turns: &KeyShift<'_>,
    ) -> Result<(), Error> {
        for (l, layer) in (self.first_layer..).zip(&self.layers) {
            let place = layer.kv.map(|i| &self.places[i]);
            let (Some(Place::Kv(place)), Some(turn)) = (place, turns.turn(l)) else {
                continue;
            };
            let first = positions.start.max(self.seqs.first_held(id, place.group)?);
            let keys = StoredKeys {
                blocks: self.seqs.blocks(id, place.group),
                positions: first..positions.end,
                at: place.k.at,
                n_kv_heads: place.n_kv_heads,
                rows: place.k.rows,
            };
            self.arenas[place.group].turn_keys(&keys, &turn)?;
        }
        Ok(())
    }
}
