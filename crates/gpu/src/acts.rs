//! How activations lie in the buffer that products read.
//!
//! It knows sizes and no arithmetic; the shaders `quantize` and `matmul_*` have the same numbers.
//! Rows lie one behind the other; a row has its codes first, four a word, then its scales, then,
//! with a scale for 256, its sums.

/// A layout of activations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ActLayout {
    /// f32, `[d]`; for matrices of floats.
    F32,
    /// int8 with one f32 scale for each 32: `[n_blocks, 64]` words of codes, `[n_blocks, 8]`
    /// scales.
    Q8_32,
    /// int8 with one f32 scale for each 256: `[n_blocks, 64]` words of codes, `[n_blocks]` scales,
    /// `[n_blocks, 8]` words with two sums of 16 codes each.
    Q8_256,
}

impl ActLayout {
    /// Words of a row of `d` elements.
    pub fn row_words(self, d: usize) -> usize {
        let n_blocks = d.div_ceil(256);
        match self {
            Self::F32 => d,
            Self::Q8_32 => 72 * n_blocks,
            Self::Q8_256 => 73 * n_blocks,
        }
    }
}
