//! Causal convolutions over the last few positions, every channel by itself.
//!
//! ```text
//! y[pos] = bias + Σ_j taps[j] ⊙ input[pos - (n_taps - 1 - j) dilation]    from the oldest on
//! ```
//! Earlier inputs are in the layer's [`History`]. Those before the first position are 0.

use atta_kernels::Kernels;

use super::history::History;
use crate::kv::Cache;

/// A convolution of a layer.
pub(crate) struct Conv<'a> {
    pub(crate) n_taps: usize,
    /// Positions from one tap to the next.
    pub(crate) dilation: usize,
    /// `[d]`; `None`: zeros.
    pub(crate) bias: Option<&'a [f32]>,
    /// Its inputs.
    pub(crate) past: History<'a>,
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
        for (j, taps) in taps.chunks_exact(self.past.d).enumerate() {
            let back = (self.n_taps - 1 - j) * self.dilation;
            if let Some(x) = self.past.get(cache, row, back) {
                kernels.add_products(y, x, taps);
            }
        }
    }

    /// Writes the states behind the rows that keep one.
    pub(crate) fn keep_states(&self, cache: &mut Cache) {
        self.past.keep(cache);
    }
}
