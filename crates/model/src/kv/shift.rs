//! Context shift: evicts positions from the middle of a sequence (StreamingLLM, Xiao et al. 2024).
//!
//! Later positions move down. The evicted range is whole blocks long, so that moving changes block
//! tables only, except for the block in which the range begins: it is merged from two. Values do
//! not change; keys are rotated to their new positions.

use std::ops::Range;

use atta_kernels::Kernels;

use super::{
    BLOCK_LEN,
    arena::Arena,
    cache::Cache,
    plan::{KvPlace, Place},
};
use crate::{Error, SeqId};

impl Cache {
    /// Evicts positions of a sequence. `rotate` rotates a key of a layer, `[d_head]`, back by their
    /// number.
    pub(crate) fn shift(
        &mut self,
        id: SeqId,
        evicted: Range<usize>,
        kernels: Kernels,
        mut rotate: impl FnMut(usize, &mut [f32]),
    ) -> Result<(), Error> {
        self.seqs.evict(id, &evicted)?;
        self.copy_blocks();
        for (l, layer) in self.layers.iter().enumerate() {
            let place = layer.kv.map(|i| &self.places[i]);
            let Some(Place::Kv(place)) = place else {
                continue;
            };
            let first = evicted.start.max(self.seqs.first_held(id, place.group)?);
            let blocks = self.seqs.blocks(id, place.group);
            let positions = first..self.seqs.len(id)?;
            let arena = &mut self.arenas[place.group];
            rotate_keys(arena, blocks, place, positions, kernels, |key| {
                rotate(self.first_layer + l, key)
            });
        }
        Ok(())
    }
}

/// Rotates the keys of a layer at these positions, whose blocks are not shared.
pub(super) fn rotate_keys(
    arena: &mut Arena,
    blocks: &[u32],
    place: &KvPlace,
    positions: Range<usize>,
    kernels: Kernels,
    mut rotate: impl FnMut(&mut [f32]),
) {
    let mut key = vec![0.0; place.d_head];
    for pos in positions {
        let block = arena.block_mut(blocks[pos / BLOCK_LEN]);
        for h in 0..place.n_kv_heads {
            let inside = pos % BLOCK_LEN;
            let rows = &mut block[place.k.head(h)];
            kernels.load_kv(place.k.rows, inside, rows, &mut key);
            rotate(&mut key);
            kernels.store_kv(&key, place.k.rows, inside, rows);
        }
    }
}
