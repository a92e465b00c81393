//! Q4_0, Q4_1, Q5_0 and Q5_1 with importance. Four blocks of 32 are searched at once.

use super::{
    pack::{fifth_bits, nibbles, put_f16},
    search::{Candidates, ErrorNorm, LANES, Lanes, Tile, line, scale, tile},
};

/// Four blocks; blocks beyond the end of a row are zeros.
type FourBlocks = [[f32; 32]; LANES];

pub(super) fn q4_0(x: &[f32], importance: &[f32], out: &mut [u8]) {
    four_by_four(x, importance, out, |x, weights, blocks: &mut [[u8; 18]]| {
        let found = scale(&tile(x), weights, 8.0);
        for (k, block) in blocks.iter_mut().enumerate() {
            put_f16(block, 0, found.scale.0[k]);
            block[2..].copy_from_slice(&nibbles(&found.codes(k, &x[k], 8.0)));
        }
    });
}

pub(super) fn q5_0(x: &[f32], importance: &[f32], out: &mut [u8]) {
    four_by_four(x, importance, out, |x, weights, blocks: &mut [[u8; 22]]| {
        let found = scale(&tile(x), weights, 16.0);
        for (k, block) in blocks.iter_mut().enumerate() {
            let codes = found.codes(k, &x[k], 16.0);
            put_f16(block, 0, found.scale.0[k]);
            block[2..6].copy_from_slice(&fifth_bits(&codes));
            block[6..].copy_from_slice(&nibbles(&codes));
        }
    });
}

pub(super) fn q4_1(x: &[f32], importance: &[f32], out: &mut [u8]) {
    let tried = Candidates {
        largest: 15.0,
        first: -0.9,
        step: 0.05,
        n: 37,
        error: ErrorNorm::Square,
    };
    four_by_four(x, importance, out, |x, weights, blocks: &mut [[u8; 20]]| {
        let found = line(&tile(x), weights, tried);
        for (k, block) in blocks.iter_mut().enumerate() {
            put_f16(block, 0, found.scale.0[k]);
            put_f16(block, 2, -found.min.0[k]);
            block[4..].copy_from_slice(&nibbles(&found.codes(k, &x[k], 15)));
        }
    });
}

pub(super) fn q5_1(x: &[f32], importance: &[f32], out: &mut [u8]) {
    let tried = Candidates {
        largest: 31.0,
        first: -0.9,
        step: 0.05,
        n: 37,
        error: ErrorNorm::Square,
    };
    four_by_four(x, importance, out, |x, weights, blocks: &mut [[u8; 24]]| {
        let found = line(&tile(x), weights, tried);
        for (k, block) in blocks.iter_mut().enumerate() {
            let codes = found.codes(k, &x[k], 31);
            put_f16(block, 0, found.scale.0[k]);
            put_f16(block, 2, -found.min.0[k]);
            block[4..8].copy_from_slice(&fifth_bits(&codes));
            block[8..].copy_from_slice(&nibbles(&codes));
        }
    });
}

/// Passes groups of four blocks to `encode`, with their error weights: the importance times the
/// root of the squared weight plus the mean square of the row.
#[inline(always)]
fn four_by_four<const BYTES: usize>(
    x: &[f32],
    importance: &[f32],
    out: &mut [u8],
    encode: impl Fn(&FourBlocks, &Tile<32>, &mut [[u8; BYTES]]),
) {
    let mean_square = sum_of_squares(x) / x.len() as f32;
    let parts = x.chunks(32 * LANES).zip(importance.chunks(32 * LANES));
    for ((x, importance), out) in parts.zip(out.chunks_mut(BYTES * LANES)) {
        let x = four(x);
        let importance = four(importance);
        encode(
            &x,
            &by_importance(&tile(&x), &tile(&importance), mean_square),
            out.as_chunks_mut().0,
        );
    }
}

/// `Σ x²`, summed in order.
#[inline(always)]
pub(super) fn sum_of_squares(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |sum, x| sum + x * x)
}

/// Error weights: `importance · √(mean square + x²)`.
#[inline(always)]
pub(super) fn by_importance<const N: usize>(
    x: &Tile<N>,
    importance: &Tile<N>,
    mean_square: f32,
) -> Tile<N> {
    std::array::from_fn(|i| importance[i] * (Lanes::splat(mean_square) + x[i] * x[i]).sqrt())
}

/// Up to four blocks, padded with zeros.
#[inline(always)]
pub(super) fn four(x: &[f32]) -> FourBlocks {
    let mut four = [[0.0; 32]; LANES];
    four.as_flattened_mut()[..x.len()].copy_from_slice(x);
    four
}
