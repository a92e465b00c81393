//! Blocks of 256 weights that are `d·K·scale·code`, with codes that are looked up or computed
//! rather than stored.
//!
//! Knows no format. The one idea: everything but `d` and a power of two is an integer that fits an
//! `i8`, so that a kernel can do the products in integers and a decoder loses nothing in any order
//! of multiplication.

use crate::f16::f16_to_f32;

/// A block of 256 weights: weight `i` is `d·K·scale(i·N_SCALES/256)·codes(i/32)[i % 32]`. All of
/// the product is exact in f32.
pub trait Signed: Copy {
    /// The power of two that makes weights of the products of integers.
    const K: f32;
    /// Sub-blocks with a scale of their own: 8 of 32 weights or 16 of 16.
    const N_SCALES: usize;

    /// The scale of the block, f16.
    fn d_bits(self) -> u16;

    /// The scale of sub-block `s` < [`N_SCALES`](Self::N_SCALES).
    fn scale(self, s: usize) -> i8;

    /// Writes the codes of weights `32·g` to `32·g + 31`, `g` < 8.
    fn codes(self, g: usize, out: &mut [i8; 32]);
}

/// Decodes a block. No product rounds, so their order is free.
pub(crate) fn signed<B: Signed>(b: B, y: &mut [f32; 256]) {
    let d = f16_to_f32(b.d_bits());
    let mut codes = [0; 32];
    for (g, y) in y.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        b.codes(g, &mut codes);
        for (j, (y, &code)) in y.iter_mut().zip(&codes).enumerate() {
            let scale = b.scale((32 * g + j) * B::N_SCALES / 256);
            *y = d * B::K * f32::from(scale) * f32::from(code);
        }
    }
}
