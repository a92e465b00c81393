//! Positions with a content of no text, for measurements of speed behind a long context.

use std::ops::Range;

use atta_kernels::Kernels;

use super::{
    BLOCK_LEN,
    arena::{KvArena, StateBlocks},
    cache::{KvCache, kv_places},
    plan::{KvPlace, Place},
    state::floats_of,
};
use crate::{Error, SeqId};

/// A period of the noise, a prime: rows of different positions begin at different elements of it.
const NOISE_LEN: usize = 4093;

/// What rows are filled with, and what encodes them.
struct Filling<'a> {
    noise: &'a [f32],
    kernels: Kernels,
}

impl<A: KvArena> KvCache<A> {
    /// Appends `n` positions. Their keys and values are small numbers, a function of layer and
    /// position; the recurrent state behind them is zero.
    ///
    /// # Errors
    /// As [`SeqTable::add_positions`](crate::SeqTable::add_positions), and a device that is lost.
    pub fn fill(&mut self, id: SeqId, n: usize, kernels: Kernels) -> Result<(), Error> {
        let start = self.seqs.len(id)?;
        self.seqs.add_positions(id, n)?;
        self.copy_blocks();
        let widths = kv_places(&self.places).map(|place| place.n_kv_heads * place.d_head);
        let noise = noise(NOISE_LEN + widths.max().unwrap_or(0));
        let filling = Filling {
            noise: &noise,
            kernels,
        };
        for group in 0..self.arenas.len() {
            let first = self.seqs.first_held(id, group)?.max(start);
            for i in first / BLOCK_LEN..(start + n).div_ceil(BLOCK_LEN) {
                let end = (start + n).min((i + 1) * BLOCK_LEN);
                let block = self.seqs.blocks(id, group)[i];
                self.fill_block(group, block, first.max(i * BLOCK_LEN)..end, &filling)?;
            }
        }
        if n > 0
            && let Some(block) = self.seqs.add_checkpoint(id, start + n)?
        {
            for floats in floats_of(&self.places) {
                let zeros = vec![0; 4 * floats.len()];
                self.states.fill(block, floats.start, &zeros)?;
            }
        }
        Ok(())
    }

    /// Fills some positions of a block, whole if they are its first ones.
    fn fill_block(
        &mut self,
        group: usize,
        block: u32,
        positions: Range<usize>,
        filling: &Filling<'_>,
    ) -> Result<(), Error> {
        let mut bytes = vec![0; self.arenas[group].block_bytes()];
        let mut places = Vec::new();
        for (l, layer) in (self.first_layer..).zip(&self.layers) {
            match layer.kv.map(|i| &self.places[i]) {
                Some(Place::Kv(place)) if place.group == group => {
                    filling.encode(l, place, positions.clone(), &mut bytes);
                    places.push(*place);
                }
                _ => {}
            }
        }
        let arena = &mut self.arenas[group];
        if positions.start.is_multiple_of(BLOCK_LEN) {
            return arena.fill(block, 0, &bytes);
        }
        let n_before = positions.start % BLOCK_LEN;
        let inside = n_before..n_before + positions.len();
        for part in places.iter().flat_map(KvPlace::parts) {
            for array in (0..part.n_heads).flat_map(|h| part.arrays(h)) {
                let rows = array.rows(inside.clone());
                arena.fill(block, rows.start, &bytes[rows])?;
            }
        }
        Ok(())
    }
}

impl Filling<'_> {
    /// Encodes the rows of a layer at some positions of a block.
    fn encode(&self, l: usize, place: &KvPlace, positions: Range<usize>, block: &mut [u8]) {
        let d_kv = place.n_kv_heads * place.d_head;
        for pos in positions {
            for (nth, part) in place.keys_and_values().enumerate() {
                let row = &self.noise[(31 * pos + 7 * l + nth) % NOISE_LEN..][..d_kv];
                for (h, x) in row.chunks_exact(place.d_head).enumerate() {
                    let rows = &mut block[part.head(h)];
                    self.kernels.store_kv(x, part.rows, pos % BLOCK_LEN, rows);
                }
            }
        }
    }
}

/// Numbers of magnitude 1/4 to 1/2 and both signs, by a linear congruential generator (Knuth).
fn noise(n: usize) -> Vec<f32> {
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let magnitude = 0.25 + ((state >> 40) as f32) / (1 << 26) as f32;
        if state >> 63 == 0 {
            magnitude
        } else {
            -magnitude
        }
    };
    (0..n).map(|_| next()).collect()
}
