//! As `gemv.rs`, for 512-bit registers: one activation row times four weight rows, four blocks of
//! each at a time.
//!
//! ```text
//! for 4 weight rows at once:
//!     for 4 blocks at once:
//!         16 headers -> scales, minima, d; for each block, for each row: prefetch, dot product
//!         16 dot products -> one vector by a tree; lane 4·block + row: f32 rule up to the sum
//!         out[rows] += blocks 0, 1, 2, 3, in order
//! ```
//! There are two ways to choose the rows: [`Strided`], one of each quarter of the row tile, for
//! cores that read several streams that lie far apart faster than one, and [`Linear`], for those
//! that do not. The bits are the same. Float weights are four rows, too, each with the lanes of
//! `float.rs`. Blocks that are missing at the end of a row are left out, rows that are missing
//! repeat the last one. Formats without a kernel here go through `fused/x86_256` (of 256) or
//! `gemv.rs`. Blocks of 32 are so short that their kernels are given four of each row without
//! exception, the last ones from a padded copy: with a number of blocks that is known only at run
//! time they had branches and loops around the prefetches: Q8_0 from the cache 23 GB/s instead of
//! 41 (Sapphire Rapids).

// Indices name rows that several arrays share.
#![allow(clippy::needless_range_loop)]

pub(crate) mod blocks;
pub(crate) mod codebooks;
pub(crate) mod trellis;

use super::x86_256;
use crate::Matrix;
use crate::algo::lanes::{LANES, total};
use crate::algo::matmul::RowTile;
use crate::algo::{float, gemv};
use crate::format::{FloatFormat, KQuant, Quant32};
use crate::format::{IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q4_0, Q4_K};
use crate::format::{Q5_0, Q5_K, Q6_K, Q8_0, T2, T3, T4, TQ1_0};
use crate::isa::Floats;
use crate::isa::avx512::Avx512;
use crate::isa::memory::load;
use crate::registry::{Format, formats};
use blocks::{Four32, Inputs256, LINE, LinearPrefetch, NoPrefetch, Prefetch, StridedPrefetch};
use std::arch::x86_64::{__m128, __m512};

/// Up to how many activation rows are multiplied here, two at a time, not as a panel. Measured on
/// Zen 4, weights in memory: blocks are in the L1 for the second row, and a panel takes as long as
/// 1.5 to 2.6 rows however few it has.
pub(crate) const fn few(format: Format) -> usize {
    match format {
        Format::Q4_0 | Format::Q5_0 | Format::IQ4_NL => 2,
        Format::Q2_K | Format::Q4_K | Format::Q5_K | Format::Q6_K => 2,
        Format::IQ1_S | Format::IQ3_S | Format::TQ1_0 | Format::TQ2_0 => 2,
        Format::Q8_0 => 3,
        Format::T2 | Format::T3 | Format::T4 => 8,
        Format::IQ1_M => 9,
        _ => 1,
    }
}

/// Multiplies a row tile of a K-quant.
#[inline(always)]
pub(crate) fn k_quant<F: KQuant>(isa: Avx512, row_tile: RowTile<'_>) {
    k_quant_in::<F, Strided>(isa, row_tile)
}

/// Multiplies a row tile of a format with blocks of 32.
#[inline(always)]
pub(crate) fn quant_32<F: Quant32>(isa: Avx512, row_tile: RowTile<'_>) {
    quant_32_in::<F, Strided>(isa, row_tile)
}

/// A format with blocks of 256 that has a fused kernel, for N blocks of each row.
trait Block4x4Of256: KQuant {
    fn quad<const N: usize>(
        isa: Avx512,
        rows: [&[Self::Block; N]; 4],
        x: Inputs256<'_, N>,
        prefetch: impl Prefetch,
    ) -> __m512;
}

/// A format with blocks of 32 that has a fused kernel. A trait, as only its methods can be inlined
/// at two calls for sure.
trait Block4x4Of32: Quant32 {
    fn quad(
        isa: Avx512,
        rows: [&[Self::Block; 4]; 4],
        x: Four32<'_>,
        prefetch: impl Prefetch,
    ) -> __m512;
}

macro_rules! kernel_256 {
    ($ty:ident codebook $isa:ident $rows:ident $x:ident $prefetch:ident) => {
        $isa.codebook::<$ty, _, N>($rows, $x, $prefetch)
    };
    ($ty:ident $kernel:ident $isa:ident $rows:ident $x:ident $prefetch:ident) => {
        $isa.$kernel($rows, $x, $prefetch)
    };
}

/// The kernel of a format, but for those that have a loop of their own.
macro_rules! impl_256 {
    ($k_quant:ident trellis) => {};
    ($k_quant:ident $k_kernel:ident) => {
        impl Block4x4Of256 for $k_quant {
            #[inline(always)]
            fn quad<const N: usize>(
                isa: Avx512,
                rows: [&[Self::Block; N]; 4],
                x: Inputs256<'_, N>,
                prefetch: impl Prefetch,
            ) -> __m512 {
                kernel_256!($k_quant $k_kernel isa rows x prefetch)
            }
        }
    };
}

macro_rules! call {
    (trellis $quads:ident $ty:ident $order:ident $isa:ident $row_tile:ident) => {
        trellis::k_quant::<$ty, _, $order>($isa, $row_tile)
    };
    ($kernel:ident $quads:ident $ty:ident $order:ident $isa:ident $row_tile:ident) => {
        $quads::<$ty, _, $order>($isa, $row_tile)
    };
}

macro_rules! fused {
    (
        float { $($float:ident;)* }
        quant_32 { $($quant:ident [$($q_kernel:ident $q_order:ident)?];)* }
        k_quant { $($k_quant:ident $k256:tt [$($k_kernel:ident $k_order:ident)?];)* }
    ) => {
        $($(impl Block4x4Of32 for $quant {
            #[inline(always)]
            fn quad(
                isa: Avx512,
                rows: [&[Self::Block; 4]; 4],
                x: Four32<'_>,
                prefetch: impl Prefetch,
            ) -> __m512 {
                isa.$q_kernel(rows, x, prefetch)
            }
        })?)*

        $($(impl_256!($k_quant $k_kernel);)?)*

        /// As [`quant_32`], in the order `O`.
        #[inline(always)]
        pub(crate) fn quant_32_in<F: Quant32, O: Order>(isa: Avx512, row_tile: RowTile<'_>) {
            match F::FORMAT {
                $($(Format::$quant => call!($q_kernel blocks_4x4_of_32 $quant O isa row_tile),)?)*
                _ => gemv::quant_32::<F>(isa, row_tile),
            }
        }

        /// As [`k_quant`], in the order `O`.
        #[inline(always)]
        pub(crate) fn k_quant_in<F: KQuant, O: Order>(isa: Avx512, row_tile: RowTile<'_>) {
            match F::FORMAT {
                $($(Format::$k_quant => call!($k_kernel blocks_4x4_of_256 $k_quant O isa row_tile),)?)*
                _ => x86_256::k_quant::<F>(isa, row_tile),
            }
        }
    };
}
formats!(fused);

#[inline(always)]
fn blocks_4x4_of_256<F: Block4x4Of256<Block = [u8; B]>, const B: usize, O: Order>(
    isa: Avx512,
    mut row_tile: RowTile<'_>,
) {
    while !row_tile.rows.is_empty() {
        if O::FEW && row_tile.rows.len() > 1 {
            few_of_256::<F, B, O, 2>(isa, row_tile.take_rows(2));
        } else {
            few_of_256::<F, B, O, 1>(isa, row_tile.take_rows(1));
        }
    }
}

/// T activation rows.
#[inline(always)]
fn few_of_256<F: Block4x4Of256<Block = [u8; B]>, const B: usize, O: Order, const T: usize>(
    isa: Avx512,
    row_tile: RowTile<'_>,
) {
    let order = O::new(&row_tile);
    for i in 0..row_tile.w.d_out().div_ceil(4) {
        let (places, mut out) = (order.rows(i), [isa.no_quad(); T]);
        let rows = four_rows(row_tile.w, F::blocks, places);
        let n_fours = rows[0].len() / 4;
        let fours = rows.map(|row| &row.as_chunks::<4>().0[..n_fours]);
        for q in 0..n_fours {
            let prefetch = order.prefetch(&row_tile, i, 4 * q * B);
            let four = [&fours[0][q], &fours[1][q], &fours[2][q], &fours[3][q]];
            add_256::<F, B, 4, T>(isa, &row_tile, &mut out, (four, 4 * q), prefetch);
        }
        let rests = rows.map(|row| row.as_chunks::<4>().1);
        let prefetch = order.prefetch(&row_tile, i, 4 * n_fours * B);
        match rests[0].len() {
            0 => {}
            1 => rest_256::<F, B, 1, T>(isa, &row_tile, &mut out, (rests, 4 * n_fours), prefetch),
            2 => rest_256::<F, B, 2, T>(isa, &row_tile, &mut out, (rests, 4 * n_fours), prefetch),
            _ => rest_256::<F, B, 3, T>(isa, &row_tile, &mut out, (rests, 4 * n_fours), prefetch),
        }
        store_few(
            &out,
            places,
            row_tile.w.d_out(),
            row_tile.width,
            row_tile.acc,
        );
    }
}

/// Adds N blocks, from block `b` on, to `out` of each activation row; the first one prefetches.
#[inline(always)]
fn add_256<F: Block4x4Of256<Block = [u8; B]>, const B: usize, const N: usize, const T: usize>(
    isa: Avx512,
    row_tile: &RowTile<'_>,
    out: &mut [__m128; T],
    (rows, b): ([&[[u8; B]; N]; 4], usize),
    prefetch: impl Prefetch,
) {
    let first = row_tile.rows.start;
    let quad = F::quad::<N>(isa, rows, inputs_256(row_tile, first, b), prefetch);
    out[0] = isa.add_quad(out[0], quad, N);
    for t in 1..T {
        let quad = F::quad::<N>(isa, rows, inputs_256(row_tile, first + t, b), NoPrefetch);
        out[t] = isa.add_quad(out[t], quad, N);
    }
}

/// The last N blocks, from block `b` on.
#[inline(always)]
fn rest_256<F: Block4x4Of256<Block = [u8; B]>, const B: usize, const N: usize, const T: usize>(
    isa: Avx512,
    row_tile: &RowTile<'_>,
    out: &mut [__m128; T],
    (rests, b): ([&[[u8; B]]; 4], usize),
    prefetch: impl Prefetch,
) {
    let rows = rests.map(|row| row.first_chunk().expect("N blocks are left"));
    add_256::<F, B, N, T>(isa, row_tile, out, (rows, b), prefetch);
}

/// Stores four weight rows of each activation row; `acc` is `[rows, width]`.
#[inline(always)]
pub(crate) fn store_few(
    out: &[__m128],
    places: [usize; 4],
    d_out: usize,
    width: usize,
    acc: &mut [f32],
) {
    for (out, acc) in out.iter().zip(acc.chunks_exact_mut(width)) {
        store(load(out), places, &mut acc[..d_out]);
    }
}

/// Blocks of activation row `t`, from block `b` on.
#[inline(always)]
fn inputs_256<'a, const N: usize>(row_tile: &RowTile<'a>, t: usize, b: usize) -> Inputs256<'a, N> {
    let x = row_tile.x.q8_256();
    let at: [usize; 4] = std::array::from_fn(|c| x.at(b + c.min(N - 1), t));
    Inputs256 {
        codes: std::array::from_fn(|c| &x.codes[at[c]].0),
        sums: std::array::from_fn(|c| &x.sums[at[c]]),
        scales: std::array::from_fn(|c| x.scales[at[c]]),
    }
}

#[inline(always)]
fn blocks_4x4_of_32<F: Block4x4Of32<Block = [u8; B]>, const B: usize, O: Order>(
    isa: Avx512,
    mut row_tile: RowTile<'_>,
) {
    while !row_tile.rows.is_empty() {
        if O::FEW && row_tile.rows.len() > 1 {
            few_of_32::<F, B, O, 2>(isa, row_tile.take_rows(2));
        } else {
            few_of_32::<F, B, O, 1>(isa, row_tile.take_rows(1));
        }
    }
}

/// T activation rows.
#[inline(always)]
fn few_of_32<F: Block4x4Of32<Block = [u8; B]>, const B: usize, O: Order, const T: usize>(
    isa: Avx512,
    row_tile: RowTile<'_>,
) {
    let order = O::new(&row_tile);
    for i in 0..row_tile.w.d_out().div_ceil(4) {
        let (places, mut out) = (order.rows(i), [isa.no_quad(); T]);
        let rows = four_rows(row_tile.w, F::blocks, places);
        let n_fours = rows[0].len() / 4;
        let fours = rows.map(|row| &row.as_chunks::<4>().0[..n_fours]);
        for q in 0..n_fours {
            let prefetch = order.prefetch(&row_tile, i, 4 * q * B);
            let four = [&fours[0][q], &fours[1][q], &fours[2][q], &fours[3][q]];
            add_32::<F, B, T>(isa, &row_tile, &mut out, (four, q, 4), prefetch);
        }
        let n_left = rows[0].len() - 4 * n_fours;
        if n_left > 0 {
            let rests = rows.map(|row| padded(row.as_chunks::<4>().1));
            let four = [&rests[0], &rests[1], &rests[2], &rests[3]];
            let prefetch = order.prefetch(&row_tile, i, 4 * n_fours * B);
            add_32::<F, B, T>(isa, &row_tile, &mut out, (four, n_fours, n_left), prefetch);
        }
        store_few(
            &out,
            places,
            row_tile.w.d_out(),
            row_tile.width,
            row_tile.acc,
        );
    }
}

/// Adds the first `n` of the `q`-th four blocks to `out` of each activation row; the first one
/// prefetches.
#[inline(always)]
fn add_32<F: Block4x4Of32<Block = [u8; B]>, const B: usize, const T: usize>(
    isa: Avx512,
    row_tile: &RowTile<'_>,
    out: &mut [__m128; T],
    (rows, q, n): ([&[[u8; B]; 4]; 4], usize, usize),
    prefetch: impl Prefetch,
) {
    let first = row_tile.rows.start;
    let quad = F::quad(isa, rows, input_32(row_tile, first, q), prefetch);
    out[0] = isa.add_quad(out[0], quad, n);
    for t in 1..T {
        let quad = F::quad(isa, rows, input_32(row_tile, first + t, q), NoPrefetch);
        out[t] = isa.add_quad(out[t], quad, n);
    }
}

/// The `q`-th four blocks of activation row `t`.
#[inline(always)]
fn input_32<'a>(row_tile: &RowTile<'a>, t: usize, q: usize) -> Four32<'a> {
    let x = row_tile.x.q8_32();
    let (at, half) = (x.at(q / 2, t), q % 2);
    Four32 {
        codes: &x.codes[at].0.as_chunks().0[half],
        sums: x.sums[at].as_chunks().0[half],
        scales: x.scales[at].as_chunks().0[half],
    }
}

/// Multiplies a row tile of a float format, in the lanes of `float.rs`, with the same bits.
#[inline(always)]
pub(crate) fn float<F: FloatFormat>(isa: Avx512, row_tile: RowTile<'_>) {
    float_in::<F, Strided>(isa, row_tile)
}

/// Up to how many activation rows [`float`] takes.
pub(crate) const FEW_FLOATS: usize = 2;

/// As [`float`], in the order `O`.
#[inline(always)]
pub(crate) fn float_in<F: FloatFormat, O: Order>(isa: Avx512, row_tile: RowTile<'_>) {
    if O::FEW && row_tile.rows.len() > 1 {
        floats_of::<F, O, FEW_FLOATS>(isa, row_tile);
    } else {
        floats_of::<F, O, 1>(isa, row_tile);
    }
}

/// T activation rows.
#[inline(always)]
fn floats_of<F: FloatFormat, O: Order, const T: usize>(isa: Avx512, row_tile: RowTile<'_>) {
    let order = O::new(&row_tile);
    let mut x = [row_tile.x.f32_row(row_tile.rows.start); T];
    for t in 1..T {
        x[t] = row_tile.x.f32_row(row_tile.rows.start + t);
    }
    // Sixteen weights of some of the rows are a line's share of all four.
    let n_lines = 4 * LANES * size_of::<F::Weight>() / LINE;
    for i in 0..row_tile.w.d_out().div_ceil(4) {
        let prefetch = |k: usize| {
            for line in k * n_lines..(k + 1) * n_lines {
                order.prefetch_line(isa, &row_tile, i, line);
            }
        };
        let rows = four_rows(row_tile.w, F::weights, order.rows(i));
        let lanes = float::dots::<_, F, 4, T>(isa, rows, x, prefetch);
        for t in 0..T {
            let mut four = [0.0; 4];
            for r in 0..4 {
                four[r] = total(isa.to_array(lanes[r][t]));
            }
            let acc = &mut row_tile.acc[t * row_tile.width..][..row_tile.w.d_out()];
            store(four, order.rows(i), acc);
        }
    }
}

/// The order in which rows of a row tile are computed, and the lines prefetched meanwhile.
pub(crate) trait Order: Copy {
    type Prefetch<'a>: Prefetch;
    /// Whether more than one activation row comes at once: kernels for that are compiled for one
    /// order only.
    const FEW: bool;

    fn new(row_tile: &RowTile<'_>) -> Self;

    /// The rows of four `i`; at the end some of them may not exist.
    fn rows(&self, i: usize) -> [usize; 4];

    /// The lines to prefetch while 4×4 blocks of four `i` are multiplied, which begin at byte `at`
    /// of each row.
    fn prefetch<'a>(&self, row_tile: &RowTile<'a>, i: usize, at: usize) -> Self::Prefetch<'a>;

    /// Prefetches one line, the `line`-th while four `i` is computed.
    fn prefetch_line(&self, isa: Avx512, row_tile: &RowTile<'_>, i: usize, line: usize);
}

/// One row of each quarter of the row tile. Prefetched is the row some rows behind it in
/// the same quarter, or, from the last rows of a quarter, in that of the row tile that the thread
/// computes next. A quarter is a few pages long; prefetched in the order of memory only, its
/// beginning would be waited for each time.
#[derive(Clone, Copy)]
pub(crate) struct Strided {
    /// Rows of a quarter.
    quarter: usize,
    /// Rows of a quarter whose prefetched row is in the same quarter.
    n_here: usize,
    row_bytes: usize,
    /// Bytes from a row to its prefetched row in the same quarter.
    here: usize,
    /// The same in the next row tile.
    next: usize,
}

impl Strided {
    /// Bytes, in whole rows; from memory into the L2.
    const DISTANCE: usize = 2 << 10;

    #[inline(always)]
    fn far(&self, i: usize) -> usize {
        if i < self.n_here {
            self.here
        } else {
            self.next
        }
    }
}

impl Order for Strided {
    type Prefetch<'a> = StridedPrefetch;
    const FEW: bool = true;

    #[inline(always)]
    fn new(row_tile: &RowTile<'_>) -> Self {
        let (quarter, row_bytes) = (row_tile.w.d_out().div_ceil(4), row_tile.w.row(0).len());
        let ahead = Self::DISTANCE.div_ceil(row_bytes.max(1)).min(quarter);
        let here = ahead * row_bytes;
        // Where no row tile comes next, a row of this one.
        let next = here
            + (row_tile.prefetch_distance * row_tile.w.d_out()).saturating_sub(quarter) * row_bytes;
        Self {
            quarter,
            n_here: quarter - ahead,
            row_bytes,
            here,
            next,
        }
    }

    #[inline(always)]
    fn rows(&self, i: usize) -> [usize; 4] {
        [
            i,
            i + self.quarter,
            i + 2 * self.quarter,
            i + 3 * self.quarter,
        ]
    }

    #[inline(always)]
    fn prefetch<'a>(&self, _: &RowTile<'a>, i: usize, _: usize) -> StridedPrefetch {
        StridedPrefetch(self.far(i))
    }

    #[inline(always)]
    fn prefetch_line(&self, isa: Avx512, row_tile: &RowTile<'_>, i: usize, line: usize) {
        let at = line % 4 * self.quarter * self.row_bytes + line / 4 * LINE;
        isa.prefetch_l2(row_tile.w.row(i), at + self.far(i));
    }
}

/// Rows as they lie in memory. Prefetched lines are in the order of memory, too, some fours
/// further on, and from the last fours of the row tile in the one that the thread computes next.
/// Whole fours, because the rows of one are read side by side: what lies a few KB behind the first
/// of them is about to be read of the third.
#[derive(Clone, Copy)]
pub(crate) struct Linear {
    /// Bytes of four rows.
    four: usize,
    /// Fours of rows whose prefetched lines are in the same row tile.
    n_here: usize,
    /// Bytes from a four to its prefetched lines in the same row tile.
    here: usize,
    /// The same in the next row tile.
    next: usize,
}

impl Linear {
    /// Bytes, in whole fours; from memory into the L1.
    const DISTANCE: usize = 9 << 10;

    #[inline(always)]
    fn ahead(&self, i: usize, at: usize) -> usize {
        i * self.four
            + at
            + if i < self.n_here {
                self.here
            } else {
                self.next
            }
    }
}

impl Order for Linear {
    type Prefetch<'a> = LinearPrefetch<'a>;
    const FEW: bool = false;

    #[inline(always)]
    fn new(row_tile: &RowTile<'_>) -> Self {
        let (d_out, row_bytes) = (row_tile.w.d_out(), row_tile.w.row(0).len());
        let (four, n_fours) = (4 * row_bytes, d_out.div_ceil(4));
        let ahead = Self::DISTANCE.div_ceil(four.max(1)).min(n_fours);
        // Where no row tile comes next, the current lines.
        let next = row_tile
            .prefetch_distance
            .checked_sub(1)
            .map_or(0, |skipped| ahead * four + skipped * d_out * row_bytes);
        Self {
            four,
            n_here: n_fours - ahead,
            here: ahead * four,
            next,
        }
    }

    #[inline(always)]
    fn rows(&self, i: usize) -> [usize; 4] {
        [4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3]
    }

    #[inline(always)]
    fn prefetch<'a>(&self, row_tile: &RowTile<'a>, i: usize, at: usize) -> LinearPrefetch<'a> {
        LinearPrefetch {
            bytes: row_tile.w.row(0),
            at: self.ahead(i, 4 * at),
        }
    }

    #[inline(always)]
    fn prefetch_line(&self, isa: Avx512, row_tile: &RowTile<'_>, i: usize, line: usize) {
        isa.prefetch_l1(row_tile.w.row(0), self.ahead(i, line * LINE));
    }
}

/// Fewer than four blocks, then zeros.
#[inline(never)]
fn padded<const B: usize>(blocks: &[[u8; B]]) -> [[u8; B]; 4] {
    let mut padded = [[0; B]; 4];
    padded[..blocks.len()].copy_from_slice(blocks);
    padded
}

/// Four rows, the last row of the row tile in place of those behind it. By name, as `from_fn` would
/// be a call.
#[inline(always)]
pub(crate) fn four_rows<'a, B>(
    w: Matrix<'a>,
    blocks: fn(&'a [u8]) -> &'a [B],
    [a, b, c, d]: [usize; 4],
) -> [&'a [B]; 4] {
    let last = w.d_out() - 1;
    [
        blocks(w.row(a.min(last))),
        blocks(w.row(b.min(last))),
        blocks(w.row(c.min(last))),
        blocks(w.row(d.min(last))),
    ]
}

/// Of the rows that there are.
#[inline(always)]
pub(crate) fn store(four: [f32; 4], places: [usize; 4], out: &mut [f32]) {
    for i in 0..4 {
        if let Some(out) = out.get_mut(places[i]) {
            *out = four[i];
        }
    }
}
