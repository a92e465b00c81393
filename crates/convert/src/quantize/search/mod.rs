//! Searches for scales and minima that make rounded weights as near as possible to what they were.
//!
//! Every search goes through candidates for the scale, rounds to codes, and takes for these codes
//! the scale that is best in the sense of least squares. They know no layout. The order of every
//! f32 operation is that of ggml's quantizers, so that files are the same, bit for bit.

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

/// A sub-block whose weights are all smaller than this is nothing but zeros.
const LEAST: f32 = 1e-15;

/// The number that is largest in magnitude, with its sign; the first of several.
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
