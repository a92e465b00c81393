//! Vectors that a layer computes at every position and still needs at later ones.
//!
//! Those of positions in earlier batches are read from the state that this batch starts from: the
//! last `len` of them, oldest first, of zeros before the first position.

use std::ops::Range;

use atta_kernels::Strided;

use crate::{kv::Cache, seqs::StateStep};

/// The vectors of a layer: of this batch, and of the states.
pub(crate) struct History<'a> {
    pub(crate) layer: usize,
    /// Vectors in a state.
    pub(crate) len: usize,
    /// Width of a vector.
    pub(crate) d: usize,
    /// Where the first one begins in the state of the layer.
    pub(crate) at: usize,
    /// The vectors of the rows of this batch.
    pub(crate) inputs: Strided<'a>,
    pub(crate) steps: &'a [StateStep],
}

impl History<'_> {
    /// The vector `back` positions before that of a row, `[d]`; `None` before the first position
    /// of the batch's sequence.
    pub(crate) fn get<'c>(
        &'c self,
        cache: &'c Cache,
        row: usize,
        back: usize,
    ) -> Option<&'c [f32]> {
        match before(self.steps, row, back) {
            Place::Row(row) => Some(self.input(row)),
            Place::State { block, back } => Some(&cache.state(self.layer, block)[self.part(back)]),
            Place::Nowhere => None,
        }
    }

    /// Writes the states behind the rows that keep one.
    pub(crate) fn keep(&self, cache: &mut Cache) {
        let l = self.layer;
        for (row, step) in self.steps.iter().enumerate().filter(|(_, s)| s.is_kept) {
            for back in 0..self.len {
                let to = self.part(back + 1);
                match before(self.steps, row, back) {
                    Place::Row(row) => {
                        cache.state_mut(l, step.block)[to].copy_from_slice(self.input(row));
                    }
                    Place::State { block, back } => {
                        cache.copy_state(l, block, self.part(back).start, step.block, to);
                    }
                    Place::Nowhere => cache.state_mut(l, step.block)[to].fill(0.0),
                }
            }
        }
    }

    fn input(&self, row: usize) -> &[f32] {
        &self.inputs.data[self.inputs.at + row * self.inputs.stride..][..self.d]
    }

    /// The part of a state with the vector `back` positions before the one behind it.
    fn part(&self, back: usize) -> Range<usize> {
        let start = self.at + (self.len - back) * self.d;
        start..start + self.d
    }
}

/// Where the vector of a position is.
enum Place {
    /// In a row of this batch.
    Row(usize),
    /// In a state: the vector `back` positions before the one behind the state.
    State { block: u32, back: usize },
    /// Before the first position, where it is 0.
    Nowhere,
}

/// The place of the vector `back` positions before that of a row.
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
