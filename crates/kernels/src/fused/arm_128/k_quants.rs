//! K-quants, IQ4_XS and the ternary types: four weight rows and up to four activation rows, two
//! groups at a time.
//!
//! ```text
//! for 4 weight rows at once, for each block b, in order:
//!     for each two groups, for each of the rows:
//!         codes of both -> sums of their products with x[t], of 16 bits where they fit
//!         isum[t] += both sums times their scales
//!     out[t][4 rows] += dx·(d·K·isum − dmin·bias)
//! ```
//! It refuses to know where the fields of a block are (`format/`). The one idea: 16 bits hold the
//! sums of two groups added in pairs (31·127·8, or 63·127·4 in groups of 16), so that a scale
//! multiplies half as many vectors. Codes of IQ4_XS are larger; their sums have 32 bits.

// Indices name rows that several arrays share.
#![allow(clippy::needless_range_loop)]

use super::{by_few_rows, store_columns};
use crate::activations::{GroupSums, Sums};
use crate::algo::matmul::RowTile;
use crate::algo::unpack::NextTile;
use crate::format::{BlockHeader, KQuant};
use crate::isa::Wide;
use crate::isa::memory::load_at;
use crate::isa::neon::{Dot, Neon, proven, splat_lane};
use std::arch::aarch64::*;
use std::arch::asm;

/// Multiplies a row tile.
#[inline(always)]
pub(super) fn k_quant<F: KQuant, D: Dot>(isa: Neon<D>, row_tile: RowTile<'_>) {
    #[cfg(test)]
    crate::testing::ran("arm_128::k_quants");
    const {
        assert!(is_signed::<F>() || F::LARGEST <= if F::GROUPS == 8 { 31 } else { 63 });
        assert!(!is_signed::<F>() || F::OFFSET == 128 && F::GROUPS == 8);
    }
    by_few_rows!(isa, row_tile, rows_of[F, D]);
}

/// Whether codes are made signed bytes.
const fn is_signed<F: KQuant>() -> bool {
    F::OFFSET > 64
}

/// Multiplies T activation rows.
#[inline(always)]
fn rows_of<F: KQuant, D: Dot, const T: usize>(isa: Neon<D>, mut row_tile: RowTile<'_>) {
    let d_out = row_tile.w.d_out();
    let next = NextTile::new(&row_tile, d_out);
    for r in (0..d_out).step_by(4) {
        let next = next.behind(r * row_tile.w.row(0).len());
        let out = four_rows::<F, D, T>(isa, &row_tile, r, next);
        store_columns(&mut row_tile, r, out);
    }
}

/// Products of the rows from `r`, the last one repeated where there are none left.
#[inline(always)]
fn four_rows<F: KQuant, D: Dot, const T: usize>(
    isa: Neon<D>,
    row_tile: &RowTile<'_>,
    r: usize,
    next: NextTile<'_>,
) -> [float32x4_t; T] {
    let w = row_tile.w;
    let row = |i: usize| F::blocks(w.row((r + i).min(w.d_out() - 1)));
    let rows = [row(0), row(1), row(2), row(3)];
    let n = rows[0].len();
    let rows = rows.map(|row| &row[..n]);
    let mut out = [isa.no_floats(); T];
    for b in 0..n {
        for i in 0..4 {
            next.block(isa, 4 * b + i, size_of::<F::Block>());
        }
        let blocks = [&rows[0][b], &rows[1][b], &rows[2][b], &rows[3][b]];
        let four = FourBlocks::<F, D>::new(isa, blocks);
        out = isa.add_blocks(out, &four, &BlockInputs::new(row_tile, b));
    }
    out
}

/// Block `b` of T activation rows, the last row in place of those that are missing.
struct BlockInputs<'a, const T: usize> {
    codes: [&'a [i8; 256]; T],
    scales: [f32; T],
    sums: [&'a Sums; T],
}

impl<'a, const T: usize> BlockInputs<'a, T> {
    #[inline(always)]
    fn new(row_tile: &RowTile<'a>, b: usize) -> Self {
        let x = row_tile.x.q8_256();
        let first = x.at(b, row_tile.rows.start);
        let mut inputs = Self {
            codes: [&x.codes[first].0; T],
            scales: [x.scales[first]; T],
            sums: [&x.sums[first]; T],
        };
        for t in 1..T {
            let at = first + t.min(row_tile.rows.len() - 1);
            inputs.codes[t] = &x.codes[at].0;
            inputs.scales[t] = x.scales[at];
            inputs.sums[t] = &x.sums[at];
        }
        inputs
    }

    /// Codes 32·g to 32·g + 31 of row `t`.
    #[inline(always)]
    fn codes(&self, t: usize, g: usize) -> [int8x16_t; 2] {
        load_at(self.codes[t], 32 * g)
    }
}

/// A block of each of four weight rows.
struct FourBlocks<'a, F: KQuant, D: Dot> {
    blocks: [&'a F::Block; 4],
    heads: [BlockHeader; 4],
    scales: [D::S; 4],
}

impl<'a, F: KQuant, D: Dot> FourBlocks<'a, F, D> {
    #[inline(always)]
    fn new(isa: Neon<D>, blocks: [&'a F::Block; 4]) -> Self {
        let head = |i: usize| F::head(blocks[i]);
        let heads = [head(0), head(1), head(2), head(3)];
        let scales = [
            isa.0.group_scales(heads[0].scale),
            isa.0.group_scales(heads[1].scale),
            isa.0.group_scales(heads[2].scale),
            isa.0.group_scales(heads[3].scale),
        ];
        Self {
            blocks,
            heads,
            scales,
        }
    }

    /// `d·K` of the rows.
    #[inline(always)]
    fn d(&self, isa: Neon<D>) -> float32x4_t {
        let d = isa.four_halves(self.heads.map(|head| head.d));
        isa.times_k(d, F::K)
    }
}

impl<D: Dot> Neon<D> {
    /// `out` and the products of four blocks with T activation rows.
    #[inline(always)]
    fn add_blocks<F: KQuant, const T: usize>(
        self,
        mut out: [float32x4_t; T],
        four: &FourBlocks<'_, F, D>,
        x: &BlockInputs<'_, T>,
    ) -> [float32x4_t; T] {
        let sums = if T == 1 {
            self.sums_in_turn(four, x)
        } else {
            self.sums_of_each(four, x)
        };
        let d = four.d(self);
        let dmin = self.four_halves(four.heads.map(|head| head.dmin));
        for t in 0..T {
            let isum = [sums[0][t], sums[1][t], sums[2][t], sums[3][t]];
            let mut v = self.scaled(d, self.four_sums(isum));
            if F::MINS {
                let bias = self.four_biases(four, x.sums[t].of(F::GROUPS));
                v = self.minus(v, self.scaled(dmin, bias));
            }
            out[t] = self.add_times(out[t], v, x.scales[t]);
        }
        out
    }

    /// `bias` of the rows.
    #[inline(always)]
    fn four_biases<F: KQuant>(self, four: &FourBlocks<'_, F, D>, x: &GroupSums) -> int32x4_t {
        self.four_sums([
            self.dot_sums(four.heads[0].min, &x.whole, 1),
            self.dot_sums(four.heads[1].min, &x.whole, 1),
            self.dot_sums(four.heads[2].min, &x.whole, 1),
            self.dot_sums(four.heads[3].min, &x.whole, 1),
        ])
    }

    /// `isum` of each row in four parts, for each activation row: two groups of one row after those
    /// of the other. Written out: a loop over groups or rows would not be unrolled for all formats.
    #[inline(always)]
    fn sums_in_turn<F: KQuant, const T: usize>(
        self,
        four: &FourBlocks<'_, F, D>,
        x: &BlockInputs<'_, T>,
    ) -> [[int32x4_t; T]; 4] {
        let sums = [
            self.first_sums(0, four, x),
            self.first_sums(1, four, x),
            self.first_sums(2, four, x),
            self.first_sums(3, four, x),
        ];
        let sums = self.add_groups_of_four::<F, T, 0>(sums, four, x);
        let sums = self.add_groups_of_four::<F, T, 1>(sums, four, x);
        let sums = self.add_groups_of_four::<F, T, 2>(sums, four, x);
        let sums = self.add_groups_of_four::<F, T, 3>(sums, four, x);
        if F::GROUPS == 8 {
            return sums;
        }
        let sums = self.add_groups_of_four::<F, T, 4>(sums, four, x);
        let sums = self.add_groups_of_four::<F, T, 5>(sums, four, x);
        let sums = self.add_groups_of_four::<F, T, 6>(sums, four, x);
        self.add_groups_of_four::<F, T, 7>(sums, four, x)
    }

    /// The same row by row: the activation rows are products enough that do not wait.
    #[inline(always)]
    fn sums_of_each<F: KQuant, const T: usize>(
        self,
        four: &FourBlocks<'_, F, D>,
        x: &BlockInputs<'_, T>,
    ) -> [[int32x4_t; T]; 4] {
        let mut sums = [[self.no_sum(); T]; 4];
        for i in 0..4 {
            self.fence();
            let mut of_row = self.first_sums(i, four, x);
            of_row = self.add_groups_of::<F, T, 0>(of_row, i, four, x);
            of_row = self.add_groups_of::<F, T, 1>(of_row, i, four, x);
            of_row = self.add_groups_of::<F, T, 2>(of_row, i, four, x);
            of_row = self.add_groups_of::<F, T, 3>(of_row, i, four, x);
            if F::GROUPS == 16 {
                of_row = self.add_groups_of::<F, T, 4>(of_row, i, four, x);
                of_row = self.add_groups_of::<F, T, 5>(of_row, i, four, x);
                of_row = self.add_groups_of::<F, T, 6>(of_row, i, four, x);
                of_row = self.add_groups_of::<F, T, 7>(of_row, i, four, x);
            }
            sums[i] = of_row;
        }
        sums
    }

    /// What the offset of the codes makes of the sums of row `i`.
    #[inline(always)]
    fn first_sums<F: KQuant, const T: usize>(
        self,
        i: usize,
        four: &FourBlocks<'_, F, D>,
        x: &BlockInputs<'_, T>,
    ) -> [int32x4_t; T] {
        let mut sums = [self.no_sum(); T];
        if F::OFFSET != 0 && !is_signed::<F>() {
            for t in 0..T {
                let whole = &x.sums[t].of(F::GROUPS).whole;
                sums[t] = self.dot_sums(four.heads[i].scale, whole, -i32::from(F::OFFSET));
            }
        }
        sums
    }

    /// Adds groups 2·P and 2·P + 1 of all rows.
    #[inline(always)]
    fn add_groups_of_four<F: KQuant, const T: usize, const P: usize>(
        self,
        sums: [[int32x4_t; T]; 4],
        four: &FourBlocks<'_, F, D>,
        x: &BlockInputs<'_, T>,
    ) -> [[int32x4_t; T]; 4] {
        [
            self.add_groups_of::<F, T, P>(sums[0], 0, four, x),
            self.add_groups_of::<F, T, P>(sums[1], 1, four, x),
            self.add_groups_of::<F, T, P>(sums[2], 2, four, x),
            self.add_groups_of::<F, T, P>(sums[3], 3, four, x),
        ]
    }

    /// Adds those of row `i`.
    #[inline(always)]
    fn add_groups_of<F: KQuant, const T: usize, const P: usize>(
        self,
        mut sums: [int32x4_t; T],
        i: usize,
        four: &FourBlocks<'_, F, D>,
        x: &BlockInputs<'_, T>,
    ) -> [int32x4_t; T] {
        let block = four.blocks[i];
        if is_signed::<F>() {
            return self.add_signed_pair::<F, T, P>(sums, i, four, x);
        }
        if F::GROUPS == 16 {
            let codes = self.codes::<F>(block, P);
            for t in 0..T {
                let x = x.codes(t, P);
                let first = self.0.group_of_16(codes[0], x[0]);
                let groups = [first, self.0.group_of_16(codes[1], x[1])];
                let sum = self.0.add_groups(sums[t], groups, four.scales[i], P);
                sums[t] = self.so_far(sum);
            }
            return sums;
        }
        let first = self.codes::<F>(block, 2 * P);
        let second = self.codes::<F>(block, 2 * P + 1);
        for t in 0..T {
            let groups = [
                self.0.group_of_32(first, x.codes(t, 2 * P)),
                self.0.group_of_32(second, x.codes(t, 2 * P + 1)),
            ];
            let sum = self.0.add_groups(sums[t], groups, four.scales[i], P);
            sums[t] = self.so_far(sum);
        }
        sums
    }

    /// Adds those of row `i`, whose codes are signed bytes.
    #[inline(always)]
    fn add_signed_pair<F: KQuant, const T: usize, const P: usize>(
        self,
        mut sums: [int32x4_t; T],
        i: usize,
        four: &FourBlocks<'_, F, D>,
        x: &BlockInputs<'_, T>,
    ) -> [int32x4_t; T] {
        let first = F::signed_codes(self, four.blocks[i], 2 * P);
        let second = F::signed_codes(self, four.blocks[i], 2 * P + 1);
        let scales = self.four_scales(four.heads[i].scale[0], P / 2);
        for t in 0..T {
            let dot = self.0.dot_32(first, x.codes(t, 2 * P));
            let sum = self.add_product(sums[t], dot, scales, P % 2 * 2);
            let dot = self.0.dot_32(second, x.codes(t, 2 * P + 1));
            let sum = self.add_product(sum, dot, scales, P % 2 * 2 + 1);
            sums[t] = self.so_far(sum);
        }
        sums
    }

    /// Keeps loads behind it: activations are the same for all rows, and the compiler would widen
    /// them once, more than the registers hold.
    #[inline(always)]
    fn fence(self) {
        // SAFETY: no instruction.
        unsafe { asm!("", options(nostack, preserves_flags)) }
    }

    /// `sum`, hidden from the compiler: it would add all products of a block at its end, and spill
    /// them until then.
    #[inline(always)]
    fn so_far(self, sum: int32x4_t) -> int32x4_t {
        let mut out = sum;
        // SAFETY: no instruction.
        unsafe { asm!("// {out:v}", out = inout(vreg) out, options(pure, nomem, nostack)) }
        out
    }

    proven! {
        /// The first four bytes of `scales`, or the last.
        fn four_scales(self, scales: u64, half: usize) -> int32x4_t {
            let wide = vmovl_s8(vcreate_s8(scales));
            if half == 0 { vmovl_s16(vget_low_s16(wide)) } else { vmovl_high_s16(wide) }
        }
        /// `acc` and number `i` of `scales` times `sums`.
        fn add_product(
            self,
            acc: int32x4_t,
            sums: int32x4_t,
            scales: int32x4_t,
            i: usize
        ) -> int32x4_t {
            vmlaq_s32(acc, sums, splat_lane(scales, i))
        }
    }
}
