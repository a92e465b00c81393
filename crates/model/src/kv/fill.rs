//! Positions with a content of no text, for measurements of speed behind a long context.

use atta_kernels::Kernels;

use super::{Cache, cache::kv_places, plan::Place};
use crate::{AdapterSet, Error, Input, Row, SeqId, Want};

/// A period of the noise, a prime: rows of different positions begin at different elements of it.
const NOISE_LEN: usize = 4093;

impl Cache {
    /// Appends `n` positions. Their keys and values are small numbers, a function of layer and
    /// position; the recurrent state behind them is zero.
    ///
    /// # Errors
    /// As [`SeqTable::add_positions`](crate::SeqTable::add_positions).
    pub(crate) fn fill(&mut self, id: SeqId, n: usize, kernels: Kernels) -> Result<(), Error> {
        let start = self.seqs.len(id)?;
        self.seqs.add_positions(id, n)?;
        self.copy_blocks();
        let widths = kv_places(&self.places).map(|place| place.n_kv_heads * place.d_head);
        let noise = noise(NOISE_LEN + widths.max().unwrap_or(0));
        for i in 0..self.layers.len() {
            let Some(Place::Kv(place)) = self.layers[i].kv.map(|place| self.places[place]) else {
                continue;
            };
            let l = self.first_layer + i;
            let d_kv = place.n_kv_heads * place.d_head;
            let first = self.seqs.first_held(id, place.group)?.max(start);
            for pos in first..start + n {
                let row = |nth| &noise[(31 * pos + 7 * l + nth) % NOISE_LEN..][..d_kv];
                self.store(l, &bare_row(id, pos), kernels, [row(0), row(1)]);
            }
        }
        if n > 0
            && let Some(block) = self.seqs.add_checkpoint(id, start + n)?
        {
            self.states.block_mut(block).fill(0.0);
        }
        Ok(())
    }
}

/// The row of a position; its token does not count.
fn bare_row(seq: SeqId, pos: usize) -> Row {
    Row {
        seq,
        pos,
        input: Input::Token(0),
        want: Want::Nothing,
        is_checkpoint: false,
        adapters: AdapterSet::EMPTY,
        segment: 0,
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
