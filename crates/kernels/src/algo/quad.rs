//! As `gemv.rs`, for 512-bit registers: one activation row times four weight rows, four blocks of each at a time.
//!
//! ```text
//! for 4 weight rows at once:
//!     for 4 blocks at once:
//!         16 headers -> scales, minima, d; for each block, for each row: prefetch, dot product
//!         16 dot products -> one vector by a tree; lane 4·block + row: f32 rule up to the sum
//!         out[rows] += blocks 0, 1, 2, 3, in order
//! ```
//! Blocks that are missing at the end of a row are left out, rows that are missing repeat the last one. Formats
//! without a kernel here go through `gemv.rs`.

use super::gemv;
use super::matmul::Strip;
use crate::Matrix;
use crate::format::{Format, KQuant, Quant32};
use crate::format::{q4_0::Q4_0, q4_k::Q4K, q5_k::Q5K, q6_k::Q6K, q8_0::Q8_0};
use crate::isa::avx512::Avx512;
use crate::isa::avx512_decode::{Ahead, Four32, Four256};
use std::arch::x86_64::__m512;

/// Bytes between what is multiplied and what is asked for from the L2.
const NEAR: usize = 3 << 10;
/// Bytes between what is multiplied and what is asked for from memory. Two steps, because an L1 has few
/// requests under way. Measured on Sapphire Rapids, one thread, width 2048, shares of what a read loop gets, Q4_K, Q6_K and
/// Q8_0: one distance of 6 to 40 KB 61, 61 and 68 %; 1 and 4 KB 72, 74 and 77; 1.5 to 5 and 8 to 48 KB 75 to 78, 78 to 80
/// and 81 to 84.
const FAR: usize = 32 << 10;

/// Strip of a K-quant.
#[inline(always)]
pub(crate) fn k_quant<F: KQuant>(isa: Avx512, strip: Strip<'_>) {
    match F::FORMAT {
        Format::Q4K => quads_of_256::<Q4K>(isa, strip, Avx512::nibbles_k),
        Format::Q5K => quads_of_256::<Q5K>(isa, strip, Avx512::nibbles_k),
        Format::Q6K => quads_of_256::<Q6K>(isa, strip, Avx512::q6_k),
        _ => gemv::k_quant::<F>(isa, strip),
    }
}

/// Strip of a format with blocks of 32.
#[inline(always)]
pub(crate) fn quant_32<F: Quant32>(isa: Avx512, strip: Strip<'_>) {
    match F::FORMAT {
        Format::Q4_0 => quads_of_32::<Q4_0>(isa, strip, Avx512::q4_0),
        Format::Q8_0 => quads_of_32::<Q8_0>(isa, strip, Avx512::q8_0),
        _ => gemv::quant_32::<F>(isa, strip),
    }
}

#[inline(always)]
fn quads_of_256<F: KQuant>(
    isa: Avx512,
    strip: Strip<'_>,
    kernel: impl Fn(Avx512, [&[F::Block]; 4], Four256<'_>, Ahead<'_>) -> __m512,
) {
    let (x, t) = (strip.x.q8_256(), strip.rows.start);
    for r in (0..strip.w.d_out()).step_by(4) {
        let (rows, mut out) = (four_rows(strip.w, F::blocks, r), isa.no_quad());
        for b in (0..rows[0].len()).step_by(4) {
            let n = (rows[0].len() - b).min(4);
            let at: [usize; 4] = std::array::from_fn(|c| x.at(b + c.min(n - 1), t));
            let codes = std::array::from_fn(|c| &x.codes[at[c]].0);
            let sums = std::array::from_fn(|c| &x.sums[at[c]]);
            let inputs = Four256 { codes, sums, scales: std::array::from_fn(|c| x.scales[at[c]]) };
            let quad = kernel(isa, rows.map(|row| &row[b..b + n]), inputs, ahead::<F::Block>(strip.w, r, b));
            out = isa.add_quad(out, quad, n);
        }
        store(isa.four_floats(out), &mut strip.acc[r..strip.w.d_out()]);
    }
}

#[inline(always)]
fn quads_of_32<F: Quant32>(
    isa: Avx512,
    strip: Strip<'_>,
    kernel: impl Fn(Avx512, [&[F::Block]; 4], Four32<'_>, Ahead<'_>) -> __m512,
) {
    let (x, t) = (strip.x.q8_32(), strip.rows.start);
    for r in (0..strip.w.d_out()).step_by(4) {
        let (rows, mut out) = (four_rows(strip.w, F::blocks, r), isa.no_quad());
        for b in (0..rows[0].len()).step_by(4) {
            let n = (rows[0].len() - b).min(4);
            let (at, half) = (x.at(b / 8, t), b / 4 % 2);
            let codes = &x.codes[at].0.as_chunks().0[half];
            let (sums, scales) = (x.sums[at].as_chunks().0[half], x.scales[at].as_chunks().0[half]);
            let inputs = Four32 { codes, sums, scales };
            let quad = kernel(isa, rows.map(|row| &row[b..b + n]), inputs, ahead::<F::Block>(strip.w, r, b));
            out = isa.add_quad(out, quad, n);
        }
        store(isa.four_floats(out), &mut strip.acc[r..strip.w.d_out()]);
    }
}

/// The blocks of the rows from `r`, the last row repeated where there are none left.
#[inline(always)]
fn four_rows<'a, B>(w: Matrix<'a>, blocks: impl Fn(&'a [u8]) -> &'a [B], r: usize) -> [&'a [B]; 4] {
    std::array::from_fn(|i| blocks(w.row((r + i).min(w.d_out() - 1))))
}

/// What is to be asked for at block `b` of the rows from `r`.
#[inline(always)]
fn ahead<B>(w: Matrix<'_>, r: usize, b: usize) -> Ahead<'_> {
    let at = 4 * b * size_of::<B>();
    Ahead { bytes: w.row(r), near: at + NEAR, far: at + FAR }
}

/// The rows that there are of four.
#[inline(always)]
fn store(four: [f32; 4], out: &mut [f32]) {
    out.iter_mut().zip(four).for_each(|(out, y)| *out = y);
}
