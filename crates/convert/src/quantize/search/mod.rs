//! Searches for the scales and minima with the least weighted quantization error.
//!
//! Every search tries candidates for the scale, rounds to codes, and computes the least-squares
//! scale for these codes. Searches know no layout. The order of all f32 operations is that of
//! ggml's quantizers, so that files are equal bit for bit.

mod codebook;
mod lanes;
mod line;
mod nonlinear;
mod scale;
mod shared;

pub(super) use codebook::Codebook;
pub(super) use lanes::{
    LANES, Lanes, Tile, floor_byte, largest_magnitude, least_and_most, nearest, round_byte, tile,
};
pub(super) use line::{Candidates, ErrorNorm, Line, line, line_codes};
pub(super) use nonlinear::{index, nonlinear_scale};
pub(super) use scale::{descend, one_scale, scale};
pub(super) use shared::shared_scale;

/// A sub-block becomes zeros if all its weights are smaller than this (ggml's `GROUP_MAX_EPS`).
const LEAST: f32 = 1e-15;

/// The number with the largest magnitude, the first of several.
#[inline(always)]
fn extreme<const N: usize>(x: &Tile<N>) -> Lanes {
    let mut magnitude = Lanes::splat(0.0);
    let mut signed = Lanes::splat(0.0);
    for &x in x {
        let larger = x.abs().above(magnitude);
        magnitude = larger.choose(x.abs(), magnitude);
        signed = larger.choose(x, signed);
    }
    signed
}
