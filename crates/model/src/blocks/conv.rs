//! Causal convolutions over the last few positions, every channel by itself.
//!
//! ```text
//! y[pos] = bias + Σ_j taps[j] ⊙ input[pos - n_taps + 1 + j]        from the oldest position on
//! ```
//! Inputs of positions in earlier batches are read from the state that this batch starts from: the
//! last `n_taps - 1` inputs, oldest first. Those before the first position are 0.

use atta_kernels::{Kernels, Strided};

use crate::{kv::Cache, seqs::StateStep};

/// A convolution of a layer.
pub(crate) struct Conv<'a> {
    pub(crate) layer: usize,
    pub(crate) n_taps: usize,
    /// Channels.
    pub(crate) d: usize,
    /// `[d]`; `None`: zeros.
    pub(crate) bias: Option<&'a [f32]>,
    /// The inputs of the rows of this batch.
    pub(crate) inputs: Strided<'a>,
    pub(crate) steps: &'a [StateStep],
}

impl Conv<'_> {
    /// The result of a row, `[d]`; `taps` are `[n_taps, d]`.
    pub(crate) fn apply(
        &self,
        kernels: Kernels,
        cache: &Cache,
        taps: &[f32],
        row: usize,
        y: &mut [f32],
    ) {
        match self.bias {
            Some(bias) => y.copy_from_slice(bias),
            None => y.fill(0.0),
        }
        for (j, taps) in taps.chunks_exact(self.d).enumerate() {
            let x = match before(self.steps, row, self.n_taps - 1 - j) {
                Place::Row(row) => self.input(row),
                Place::State { block, back } => {
                    &cache.state(self.layer, block)[self.at(back)..][..self.d]
                }
                Place::Nowhere => continue,
            };
            kernels.add_products(y, x, taps);
        }
    }

    /// Writes the states behind the rows that keep one.
    pub(crate) fn keep_states(&self, cache: &mut Cache) {
        let d = self.d;
        let l = self.layer;
        for (row, step) in self.steps.iter().enumerate().filter(|(_, s)| s.is_kept) {
            for (i, back) in (0..self.n_taps - 1).rev().enumerate() {
                let to = i * d..(i + 1) * d;
                match before(self.steps, row, back) {
                    Place::Row(row) => {
                        cache.state_mut(l, step.block)[to].copy_from_slice(self.input(row));
                    }
                    Place::State { block, back } => {
                        cache.copy_state(l, block, self.at(back), step.block, to);
                    }
                    Place::Nowhere => cache.state_mut(l, step.block)[to].fill(0.0),
                }
            }
        }
    }

    fn input(&self, row: usize) -> &[f32] {
        &self.inputs.data[self.inputs.at + row * self.inputs.stride..][..self.d]
    }

    /// Where a state has the input `back` positions before the one behind it.
    fn at(&self, back: usize) -> usize {
        (self.n_taps - 1 - back) * self.d
    }
}

/// Where the input of a position is.
enum Place {
    /// In a row of this batch.
    Row(usize),
    /// In a state: the input `back` positions before the one behind the state.
    State { block: u32, back: usize },
    /// Before the first position, where it is 0.
    Nowhere,
}

/// The place of the input `back` positions before a row.
fn before(steps: &[StateStep], mut row: usize, mut back: usize) -> Place {
    while back > 0
        && let Some(previous) = steps[row].previous
    {
        row = previous as usize;
        back -= 1;
    }
    match steps[row].start {
        _ if back == 0 => Place::Row(row),
        Some(block) => Place::State { block, back },
        None => Place::Nowhere,
    }
}
