//! Taking positions out of the middle of a sequence, so that a full context can go on
//! (StreamingLLM, Xiao et al. 2024).
//!
//! What follows the gap moves up to where it began. A gap is whole blocks long, so that moving is a
//! matter of tables: only the block in which the gap begins is put together of two. Values are as
//! they were; keys are turned to their new positions.

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
    /// Takes the positions `gap` out of a sequence. `turn` turns a key of a layer, `[d_head]`, back
    /// by the length of the gap.
    pub(crate) fn shift(
        &mut self,
        id: SeqId,
        gap: Range<usize>,
        kernels: Kernels,
        mut turn: impl FnMut(usize, &mut [f32]),
    ) -> Result<(), Error> {
        self.seqs.close(id, &gap)?;
        self.copy_blocks();
        for (l, place) in self.places.iter().enumerate() {
            let Place::Kv(place) = place else { continue };
            let first = gap.start.max(self.seqs.first_held(id, place.group)?);
            let (blocks, positions) =
                (self.seqs.blocks(id, place.group), first..self.seqs.len(id)?);
            let arena = &mut self.arenas[place.group];
            turn_keys(arena, blocks, place, positions, kernels, |key| {
                turn(self.first_layer + l, key)
            });
        }
        Ok(())
    }
}

/// Turns the keys of a layer at these positions; their blocks are the sequence's own.
fn turn_keys(
    arena: &mut Arena,
    blocks: &[u32],
    place: &KvPlace,
    positions: Range<usize>,
    kernels: Kernels,
    mut turn: impl FnMut(&mut [f32]),
) {
    let mut key = vec![0.0; place.d_head];
    for pos in positions {
        let block = arena.block_mut(blocks[pos / BLOCK_LEN]);
        for h in 0..place.n_kv_heads {
            let inside = pos % BLOCK_LEN;
            let bytes = &mut block[place.k.rows(h, inside..inside + 1)];
            kernels.load_kv(bytes, place.k.elem, &mut key);
            turn(&mut key);
            kernels.store_kv(&key, place.k.elem, bytes);
        }
    }
}
