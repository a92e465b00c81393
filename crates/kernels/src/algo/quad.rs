//! As `gemv.rs`, for 512-bit registers: one activation row times four weight rows, four blocks of each at a time.
//!
//! ```text
//! for 4 weight rows at once, one of each quarter of the strip:
//!     for 4 blocks at once:
//!         16 headers -> scales, minima, d; for each block, for each row: prefetch, dot product
//!         16 dot products -> one vector by a tree; lane 4·block + row: f32 rule up to the sum
//!         out[rows] += blocks 0, 1, 2, 3, in order
//! ```
//! Rows of different quarters, because a core reads several streams that lie far apart faster than one. Float weights
//! are four rows, too, each with the lanes of `float.rs`.
//! Blocks that are missing at the end of a row are left out, rows that are missing repeat the last one. Formats
//! without a kernel here go through `gemv.rs`. Blocks of 32 are so short that their kernels are given four of each
//! row without exception, the last ones from a padded copy: with a number of blocks that is known only at run time
//! they had branches and loops around the prefetches: Q8_0 from the cache 23 GB/s instead of 41 (Sapphire Rapids).

use super::lanes::{LANES, total};
use super::matmul::Strip;
use super::{float, gemv};
use crate::Matrix;
use crate::format::{FloatFormat, Format, KQuant, Quant32};
use crate::format::{iq4_xs::IQ4XS, q2_k::Q2K, q4_k::Q4K, q5_k::Q5K, q6_k::Q6K};
use crate::format::{q4_0::Q4_0, q5_0::Q5_0, q8_0::Q8_0};
use crate::isa::Floats;
use crate::isa::avx512::Avx512;
use crate::isa::avx512_decode::{Four32, Four256};
use std::arch::x86_64::__m512;

/// Strip of a K-quant.
#[inline(always)]
pub(crate) fn k_quant<F: KQuant>(isa: Avx512, strip: Strip<'_>) {
    match F::FORMAT {
        Format::Q2K => quads_of_256::<Q2K>(isa, strip, Avx512::q2_k),
        Format::Q4K => quads_of_256::<Q4K>(isa, strip, Avx512::nibbles_k),
        Format::Q5K => quads_of_256::<Q5K>(isa, strip, Avx512::nibbles_k),
        Format::Q6K => quads_of_256::<Q6K>(isa, strip, Avx512::q6_k),
        Format::IQ4XS => quads_of_256::<IQ4XS>(isa, strip, Avx512::iq4_xs),
        _ => gemv::k_quant::<F>(isa, strip),
    }
}

/// Strip of a format with blocks of 32.
#[inline(always)]
pub(crate) fn quant_32<F: Quant32>(isa: Avx512, strip: Strip<'_>) {
    match F::FORMAT {
        Format::Q4_0 => quads_of_32::<Q4_0, _>(isa, strip),
        Format::Q5_0 => quads_of_32::<Q5_0, _>(isa, strip),
        Format::Q8_0 => quads_of_32::<Q8_0, _>(isa, strip),
        _ => gemv::quant_32::<F>(isa, strip),
    }
}

#[inline(always)]
fn quads_of_256<F: KQuant>(
    isa: Avx512,
    strip: Strip<'_>,
    kernel: impl Fn(Avx512, [&[F::Block]; 4], Four256<'_>, usize) -> __m512,
) {
    let (x, t) = (strip.x.q8_256(), strip.rows.start);
    let quarter = strip.w.d_out().div_ceil(4);
    let further = Further::new(&strip, quarter);
    for r in 0..quarter {
        let far = further.of_row(r);
        let (rows, mut out) = (four_rows(strip.w, F::blocks, r, quarter), isa.no_quad());
        for b in (0..rows[0].len()).step_by(4) {
            let n = (rows[0].len() - b).min(4);
            let at: [usize; 4] = std::array::from_fn(|c| x.at(b + c.min(n - 1), t));
            let codes = std::array::from_fn(|c| &x.codes[at[c]].0);
            let sums = std::array::from_fn(|c| &x.sums[at[c]]);
            let inputs = Four256 { codes, sums, scales: std::array::from_fn(|c| x.scales[at[c]]) };
            let quad = kernel(isa, rows.map(|row| &row[b..b + n]), inputs, far);
            out = isa.add_quad(out, quad, n);
        }
        store(isa.four_floats(out), (r, quarter), &mut strip.acc[..strip.w.d_out()]);
    }
}

/// A format with blocks of 32 that has a kernel here. A trait, as only its methods can be inlined at two calls for sure.
trait Quad32<const B: usize>: Quant32<Block = [u8; B]> {
    fn quad(isa: Avx512, rows: [&[[u8; B]; 4]; 4], x: Four32<'_>, far: usize) -> __m512;
}

impl Quad32<18> for Q4_0 {
    #[inline(always)]
    fn quad(isa: Avx512, rows: [&[[u8; 18]; 4]; 4], x: Four32<'_>, far: usize) -> __m512 {
        isa.q4_0(rows, x, far)
    }
}

impl Quad32<22> for Q5_0 {
    #[inline(always)]
    fn quad(isa: Avx512, rows: [&[[u8; 22]; 4]; 4], x: Four32<'_>, far: usize) -> __m512 {
        isa.q5_0(rows, x, far)
    }
}

impl Quad32<34> for Q8_0 {
    #[inline(always)]
    fn quad(isa: Avx512, rows: [&[[u8; 34]; 4]; 4], x: Four32<'_>, far: usize) -> __m512 {
        isa.q8_0(rows, x, far)
    }
}

#[inline(always)]
fn quads_of_32<F: Quad32<B>, const B: usize>(isa: Avx512, strip: Strip<'_>) {
    let (x, t) = (strip.x.q8_32(), strip.rows.start);
    let quarter = strip.w.d_out().div_ceil(4);
    let input = |q: usize| {
        let (at, half) = (x.at(q / 2, t), q % 2);
        let (sums, scales) = (x.sums[at].as_chunks().0[half], x.scales[at].as_chunks().0[half]);
        Four32 { codes: &x.codes[at].0.as_chunks().0[half], sums, scales }
    };
    let further = Further::new(&strip, quarter);
    for r in 0..quarter {
        let far = further.of_row(r);
        let (rows, mut out) = (four_rows(strip.w, F::blocks, r, quarter), isa.no_quad());
        let n = rows[0].len() / 4;
        let fours = rows.map(|row| &row.as_chunks::<4>().0[..n]);
        for q in 0..n {
            out = isa.add_quad(out, F::quad(isa, fours.map(|row| &row[q]), input(q), far), 4);
        }
        if rows[0].len() > 4 * n {
            let rests = rows.map(|row| padded(row.as_chunks::<4>().1));
            out = isa.add_quad(out, F::quad(isa, rests.each_ref(), input(n), far), rows[0].len() - 4 * n);
        }
        store(isa.four_floats(out), (r, quarter), &mut strip.acc[..strip.w.d_out()]);
    }
}

/// Strip of a float format: the lanes of `float.rs`, and their bits.
#[inline(always)]
pub(crate) fn float<F: FloatFormat>(isa: Avx512, strip: Strip<'_>) {
    const LINE: usize = 64;
    let (x, quarter) = (strip.x.f32_row(strip.rows.start), strip.w.d_out().div_ceil(4));
    let further = Further::new(&strip, quarter);
    let quarter_bytes = quarter * strip.w.row(0).len();
    // Sixteen weights of some of the rows are a line's share of all four.
    let n_asked = 4 * LANES * size_of::<F::Weight>() / LINE;
    for r in 0..quarter {
        let (far, row) = (further.of_row(r), strip.w.row(r));
        let ask = |k: usize| {
            for i in 0..n_asked {
                let line = k * n_asked + i;
                isa.ask_far(row, far + line % 4 * quarter_bytes + line / 4 * LINE);
            }
        };
        let lanes = float::dots::<_, F, 4, 1>(isa, four_rows(strip.w, F::weights, r, quarter), [x], ask);
        let mut four = [0.0; 4];
        for i in 0..4 {
            four[i] = total(isa.to_array(lanes[i][0]));
        }
        store(four, (r, quarter), &mut strip.acc[..strip.w.d_out()]);
    }
}

/// What is asked for while a row is read: the row some rows behind it in the same quarter, or, from the last rows of a
/// quarter, in that of the strip that the thread computes next. A quarter is a few pages long; asked for in the order of
/// memory only, its beginning would be waited for each time.
struct Further {
    quarter: usize,
    n_rows: usize,
    /// Bytes to the row of the same quarter.
    here: usize,
    /// Bytes to the row of the next strip.
    next: usize,
}

impl Further {
    /// Bytes, in whole rows; from memory into the L2.
    const DISTANCE: usize = 2 << 10;

    #[inline(always)]
    fn new(strip: &Strip<'_>, quarter: usize) -> Self {
        let row = strip.w.row(0).len();
        let n_rows = Self::DISTANCE.div_ceil(row.max(1)).min(quarter);
        let here = n_rows * row;
        // Where no strip comes next, that is a row of this one.
        let next = here + (strip.skip * strip.w.d_out()).saturating_sub(quarter) * row;
        Self { quarter, n_rows, here, next }
    }

    #[inline(always)]
    fn of_row(&self, r: usize) -> usize {
        if r + self.n_rows < self.quarter { self.here } else { self.next }
    }
}

/// Fewer than four blocks, then zeros.
#[inline(never)]
fn padded<const B: usize>(blocks: &[[u8; B]]) -> [[u8; B]; 4] {
    let mut padded = [[0; B]; 4];
    padded[..blocks.len()].copy_from_slice(blocks);
    padded
}

/// The blocks of row `r` of each quarter of the rows, the last row repeated where there are none left.
#[inline(always)]
fn four_rows<'a, B>(w: Matrix<'a>, blocks: impl Fn(&'a [u8]) -> &'a [B], r: usize, quarter: usize) -> [&'a [B]; 4] {
    std::array::from_fn(|i| blocks(w.row((i * quarter + r).min(w.d_out() - 1))))
}

/// Of the rows that there are.
#[inline(always)]
fn store(four: [f32; 4], (r, quarter): (usize, usize), out: &mut [f32]) {
    for (out, y) in out.iter_mut().skip(r).step_by(quarter).zip(four) {
        *out = y;
    }
}
