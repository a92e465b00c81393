//! Q4_0, Q5_0, Q8_0 and IQ4_NL: eight weight rows and one activation row, or four weight rows and
//! up to four.
//!
//! ```text
//! for 8 weight rows at once, or 4, for each group of 32 weights, in order:
//!     for each of the rows: codes -> sums of their products with x[t]
//!     out[t][4 rows] += (d·dx)·(isum − offset·sum of x)
//! ```
//! It refuses to know where the fields of a block are (`format/`). The one idea: sums of four rows
//! are added across lanes together, where they still have 16 bits.

// Indices name rows that several arrays share.
#![allow(clippy::needless_range_loop)]

use super::{by_few_rows, store_columns};
use crate::algo::matmul::RowTile;
use crate::algo::unpack::NextTile;
use crate::format::{Quant32, ScaleKind, Second};
use crate::isa::memory::load_at;
use crate::isa::neon::{Dot, Neon, proven};
use std::arch::aarch64::*;

/// Groups of 32 weights in a block of activations.
const GROUPS: usize = 8;

/// Multiplies a row tile.
#[inline(always)]
pub(super) fn quant_32<F: Quant32, D: Dot>(isa: Neon<D>, row_tile: RowTile<'_>) {
    const {
        assert!(F::GROUPS == 1 && F::K == 1.0 && matches!(F::SECOND, Second::Nothing));
        assert!(matches!(F::D, ScaleKind::F16));
        assert!(if is_signed::<F>() {
            F::OFFSET == 128
        } else {
            F::LARGEST <= 31
        });
    }
    by_few_rows!(isa, row_tile, rows_of[F, D]);
}

/// Whether codes are made signed bytes.
const fn is_signed<F: Quant32>() -> bool {
    F::OFFSET > 64
}

/// Multiplies T activation rows. Four weight rows are too few products for one of them.
#[inline(always)]
fn rows_of<F: Quant32, D: Dot, const T: usize>(isa: Neon<D>, row_tile: RowTile<'_>) {
    if T == 1 {
        strips_of::<F, D, 2, T>(isa, row_tile)
    } else {
        strips_of::<F, D, 1, T>(isa, row_tile)
    }
}

/// Multiplies 4·N weight rows at once.
#[inline(always)]
fn strips_of<F: Quant32, D: Dot, const N: usize, const T: usize>(
    isa: Neon<D>,
    mut row_tile: RowTile<'_>,
) {
    let d_out = row_tile.w.d_out();
    let next = NextTile::new(&row_tile, d_out);
    for r in (0..d_out).step_by(4 * N) {
        let next = next.behind(r * row_tile.w.row(0).len());
        let out = strip::<F, D, N, T>(isa, &row_tile, r, next);
        store_columns(&mut row_tile, r, out[0]);
        if N == 2 {
            store_columns(&mut row_tile, r + 4, out[N - 1]);
        }
    }
}

/// Products of the rows from `r`, the last one repeated where there are none left.
#[inline(always)]
fn strip<F: Quant32, D: Dot, const N: usize, const T: usize>(
    isa: Neon<D>,
    row_tile: &RowTile<'_>,
    r: usize,
    next: NextTile<'_>,
) -> [[float32x4_t; T]; N] {
    let w = row_tile.w;
    let row = |i: usize| F::blocks(w.row((r + i).min(w.d_out() - 1)));
    let rows: [[&[F::Block]; 4]; N] =
        std::array::from_fn(|k| [row(4 * k), row(4 * k + 1), row(4 * k + 2), row(4 * k + 3)]);
    let n = rows[0][0].len();
    let mut out = [[isa.no_floats(); T]; N];
    for b in 0..n.div_ceil(GROUPS) {
        for i in 0..4 * N {
            next.block(isa, 4 * N * b + i, GROUPS * size_of::<F::Block>());
        }
        let groups = GROUPS * b..n.min(GROUPS * (b + 1));
        let parts = rows.map(|four| four.map(|row| &row[groups.clone()]));
        let x = GroupInputs::<T>::new(row_tile, b);
        for g in 0..groups.len().min(GROUPS) {
            out[0] = isa.add_group::<F, T>(out[0], &parts[0], &x, g);
            if N == 2 {
                out[N - 1] = isa.add_group::<F, T>(out[N - 1], &parts[N - 1], &x, g);
            }
        }
    }
    out
}

/// Block `b` of T activation rows, the last row in place of those that are missing.
struct GroupInputs<'a, const T: usize> {
    codes: [&'a [i8; 256]; T],
    scales: [&'a [f32; GROUPS]; T],
    sums: [&'a [i16; GROUPS]; T],
}

impl<'a, const T: usize> GroupInputs<'a, T> {
    #[inline(always)]
    fn new(row_tile: &RowTile<'a>, b: usize) -> Self {
        let x = row_tile.x.q8_32();
        let first = x.at(b, row_tile.rows.start);
        let mut inputs = Self {
            codes: [&x.codes[first].0; T],
            scales: [&x.scales[first]; T],
            sums: [&x.sums[first]; T],
        };
        for t in 1..T {
            let at = first + t.min(row_tile.rows.len() - 1);
            inputs.codes[t] = &x.codes[at].0;
            inputs.scales[t] = &x.scales[at];
            inputs.sums[t] = &x.sums[at];
        }
        inputs
    }
}

impl<D: Dot> Neon<D> {
    /// `out` and the products of group `g` of four rows with T activation rows.
    #[inline(always)]
    fn add_group<F: Quant32, const T: usize>(
        self,
        mut out: [float32x4_t; T],
        rows: &[&[F::Block]; 4],
        x: &GroupInputs<'_, T>,
        g: usize,
    ) -> [float32x4_t; T] {
        let blocks = [&rows[0][g], &rows[1][g], &rows[2][g], &rows[3][g]];
        let d = self.four_halves(blocks.map(|block| F::d(block, 0)));
        let codes = [
            self.group_codes::<F>(blocks[0]),
            self.group_codes::<F>(blocks[1]),
            self.group_codes::<F>(blocks[2]),
            self.group_codes::<F>(blocks[3]),
        ];
        for t in 0..T {
            let sums = self.group_sums::<F>(&codes, load_at(x.codes[t], 32 * g));
            let offset = if is_signed::<F>() {
                0
            } else {
                i32::from(F::OFFSET)
            };
            let isum = self.less(sums, offset * i32::from(x.sums[t][g]));
            out[t] = self.add_scaled_sums(out[t], d, isum, x.scales[t][g]);
        }
        out
    }

    #[inline(always)]
    fn group_codes<F: Quant32>(self, block: &F::Block) -> [uint8x16_t; 2] {
        if is_signed::<F>() {
            F::signed_codes(self, block, 0)
        } else {
            F::codes(self, block, 0)
        }
    }

    /// `Σ code·x` of each row.
    #[inline(always)]
    fn group_sums<F: Quant32>(self, codes: &[[uint8x16_t; 2]; 4], x: [int8x16_t; 2]) -> int32x4_t {
        if is_signed::<F>() {
            return self.four_sums([
                self.0.dot_32(codes[0], x),
                self.0.dot_32(codes[1], x),
                self.0.dot_32(codes[2], x),
                self.0.dot_32(codes[3], x),
            ]);
        }
        self.0.group_totals([
            self.0.group_of_32(codes[0], x),
            self.0.group_of_32(codes[1], x),
            self.0.group_of_32(codes[2], x),
            self.0.group_of_32(codes[3], x),
        ])
    }

    proven! {
        fn less(self, sums: int32x4_t, n: i32) -> int32x4_t { vsubq_s32(sums, vdupq_n_s32(n)) }
        /// `out + (d·dx)·isum`.
        fn add_scaled_sums(
            self,
            out: float32x4_t,
            d: float32x4_t,
            isum: int32x4_t,
            dx: f32
        ) -> float32x4_t {
            vaddq_f32(out, vmulq_f32(vmulq_n_f32(d, dx), vcvtq_f32_s32(isum)))
        }
    }
}
