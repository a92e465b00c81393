//! T2, T3 and T4: sixteen weight rows and up to four activation rows, two sub-blocks at a time.
//!
//! ```text
//! for each block b of 256 weights, in order:
//!     x = the activations in the order of symbols: 8 of each of two sub-blocks in a vector
//!     for 4 weight rows at once, for each two sub-blocks:
//!         32 bytes of symbols -> 4 vectors of labels -> levels, by one shuffle each
//!         isum[t] += scale·(4 products with x[t])
//!     out[t][4 rows] += dx·(d·K·isum)
//! ```
//! It refuses to know how bytes are multiplied ([`Dot`]). The one idea: symbols 4j + f of a
//! sub-block are its weights 8f + j, so that the labels of shifted bytes lie beside whole words of
//! activations. Shorter blocks at the ends of rows are widened first.

// Indices name rows and sub-blocks that several arrays share.
#![allow(clippy::needless_range_loop)]

use super::by_few_rows;
use crate::algo::matmul::RowTile;
use crate::algo::unpack::{NextTile, as_rows, rows_at, tails};
use crate::format::trellis::{BIAS, Leveled};
use crate::isa::memory::{load, load_at, store};
use crate::isa::neon::{Dot, Neon, proven};
use std::arch::aarch64::*;

/// Weight rows of a row tile.
const ROWS: usize = 16;
/// Where symbols begin in a block, behind `d` and the scales.
const SYMBOLS: usize = 6;
/// Where the bits above the nibbles begin.
const UPPER: usize = SYMBOLS + 64;

/// Multiplies a row tile.
#[inline(always)]
pub(crate) fn k_quant<F: Leveled<B>, D: Dot, const B: usize>(isa: Neon<D>, row_tile: RowTile<'_>) {
    #[cfg(test)]
    crate::testing::ran("arm_128::trellis");
    by_few_rows!(isa, row_tile, rows_of[F, D, B]);
}

/// Multiplies T activation rows.
#[inline(always)]
fn rows_of<F: Leveled<B>, D: Dot, const B: usize, const T: usize>(
    isa: Neon<D>,
    row_tile: RowTile<'_>,
) {
    let w = row_tile.w;
    let mut rows: [&[[u8; B]]; ROWS] = [F::blocks(w.row(0)); ROWS];
    for i in 1..ROWS {
        rows[i] = F::blocks(w.row(i.min(w.d_out() - 1)));
    }
    let ends = tails::<F, ROWS>(w, 0);
    let short = ends.as_ref().map_or(rows, as_rows);
    let next = NextTile::new(&row_tile, w.d_out());
    let mut out = [[isa.no_floats(); T]; ROWS / 4];
    for b in 0..rows[0].len() + usize::from(ends.is_some()) {
        let (rows, i_block) = rows_at::<F, ROWS>(&rows, &short, b);
        let inputs = OrderedInputs::<T>::new(isa, &row_tile, b);
        for i in 0..w.d_out().div_ceil(4) {
            let mut d = [0; 4];
            let mut sums = [[isa.no_sum(); T]; 4];
            for r in 0..4 {
                next.block(isa, 4 * (i + w.d_out().div_ceil(4) * b) + r, B);
                let block = &rows[4 * i + r][i_block];
                d[r] = u16::from_le_bytes([block[0], block[1]]);
                sums[r] = isa.block_sums::<F, B, T>(block, &inputs);
            }
            for t in 0..T {
                let sums = [sums[0][t], sums[1][t], sums[2][t], sums[3][t]];
                out[i][t] = isa.add_four(out[i][t], sums, &d, [F::K, inputs.scales[t]]);
            }
        }
    }
    for (t, acc) in row_tile.acc.chunks_exact_mut(row_tile.width).enumerate() {
        for (out, acc) in out.iter().zip(acc.as_chunks_mut::<4>().0) {
            store(out[t], acc);
        }
    }
}

/// Block `b` of T activation rows in the order of symbols, the last row in place of those that are
/// missing.
struct OrderedInputs<const T: usize> {
    /// Of each two sub-blocks.
    x: [[[int8x16_t; 4]; 4]; T],
    scales: [f32; T],
}

impl<const T: usize> OrderedInputs<T> {
    #[inline(always)]
    fn new<D: Dot>(isa: Neon<D>, row_tile: &RowTile<'_>, b: usize) -> Self {
        let x = row_tile.x.q8_256();
        let rows = &row_tile.rows;
        let first = x.at(b, rows.start);
        let mut inputs = Self {
            x: [isa.ordered(&x.codes[first].0); T],
            scales: [x.scales[first]; T],
        };
        for t in 1..T {
            let at = first + t.min(rows.len() - 1);
            inputs.x[t] = isa.ordered(&x.codes[at].0);
            inputs.scales[t] = x.scales[at];
        }
        inputs
    }
}

/// Indices for a shuffle that put scales 2·j and 2·j + 1 into two words each.
const fn words_of(j: u8) -> [u8; 16] {
    let mut index = [0xff; 16];
    let mut lane = 0;
    while lane < 4 {
        index[4 * lane] = 2 * j + lane as u8 / 2;
        lane += 1;
    }
    index
}

static SCALES_OF_PAIRS: [[u8; 16]; 4] = [words_of(0), words_of(1), words_of(2), words_of(3)];

impl<D: Dot> Neon<D> {
    proven! {
        /// Word f of two sub-blocks in vector f, for each two.
        fn ordered(self, codes: &[i8; 256]) -> [[int8x16_t; 4]; 4] {
            let mut out = [[vdupq_n_s8(0); 4]; 4];
            for j in 0..4 {
                let at = |i: usize| vreinterpretq_s64_s8(load_at(codes, 64 * j + 16 * i));
                let [first, second] = [[at(0), at(1)], [at(2), at(3)]];
                for i in 0..2 {
                    out[j][2 * i] = vreinterpretq_s8_s64(vtrn1q_s64(first[i], second[i]));
                    out[j][2 * i + 1] = vreinterpretq_s8_s64(vtrn2q_s64(first[i], second[i]));
                }
            }
            out
        }
        /// The scales of each two sub-blocks: one more than the nibbles.
        fn scales_of_pairs(self, nibbles: [u8; 4]) -> [int32x4_t; 4] {
            let nibbles = vcreate_u8(u64::from(u32::from_le_bytes(nibbles)));
            let scales = vzip1_u8(vand_u8(nibbles, vdup_n_u8(15)), vshr_n_u8::<4>(nibbles));
            let scales = vadd_u8(scales, vdup_n_u8(1));
            let scales = vcombine_u8(scales, scales);
            let words = |j: usize| vqtbl1q_u8(scales, load(&SCALES_OF_PAIRS[j]));
            [
                vreinterpretq_s32_u8(words(0)),
                vreinterpretq_s32_u8(words(1)),
                vreinterpretq_s32_u8(words(2)),
                vreinterpretq_s32_u8(words(3)),
            ]
        }
        /// The low four bits of the labels of symbols 4j + f in vector f.
        fn nibbles_of_symbols(self, x: uint8x16_t) -> [uint8x16_t; 4] {
            let low = vdupq_n_u8(0x33);
            let nibble = vdupq_n_u8(0x0f);
            let words = vreinterpretq_u64_u8(x);
            let once = vsriq_n_u64::<1>(vshlq_n_u64::<63>(words), words);
            let four = vsriq_n_u64::<4>(vshlq_n_u64::<60>(words), words);
            let z = veorq_u8(x, vreinterpretq_u8_u64(veorq_u64(once, four)));
            let p = vbslq_u8(low, x, vshlq_n_u8::<2>(z));
            let q = vbslq_u8(low, vshrq_n_u8::<2>(x), z);
            [vandq_u8(p, nibble), vandq_u8(q, nibble), vshrq_n_u8::<4>(p), vshrq_n_u8::<4>(q)]
        }
        /// `low` with the bits of `mask` of `upper`, shifted to the left.
        fn with_upper(self, low: uint8x16_t, upper: uint8x16_t, left: i8, mask: u8) -> uint8x16_t {
            vbslq_u8(vdupq_n_u8(mask), vshlq_u8(upper, vdupq_n_s8(left)), low)
        }
        /// Table i of the levels.
        fn table(self, codes: &[u8; 64], i: usize) -> uint8x16_t {
            vsubq_u8(load_at(codes, 16 * i), vdupq_n_u8(BIAS as u8))
        }
        /// Levels by their labels, of `N_UPPER` bits above the nibbles.
        fn levels<const N_UPPER: usize>(self, codes: &[u8; 64], labels: uint8x16_t) -> int8x16_t {
            let table = |i: usize| self.table(codes, i);
            vreinterpretq_s8_u8(match N_UPPER {
                0 => vqtbl1q_u8(table(0), labels),
                1 => vqtbl2q_u8(uint8x16x2_t(table(0), table(1)), labels),
                _ => vqtbl4q_u8(uint8x16x4_t(table(0), table(1), table(2), table(3)), labels),
            })
        }
        fn add_scaled(self, sum: int32x4_t, x: int32x4_t, scales: int32x4_t) -> int32x4_t {
            vmlaq_s32(sum, x, scales)
        }
        /// `out + dx·(d·K·isum)` of four rows.
        fn add_four(
            self,
            out: float32x4_t,
            sums: [int32x4_t; 4],
            d: &[u16; 4],
            factors: [f32; 2]
        ) -> float32x4_t {
            let isum = vpaddq_s32(vpaddq_s32(sums[0], sums[1]), vpaddq_s32(sums[2], sums[3]));
            let d = vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(load(d))), factors[0]);
            vaddq_f32(out, vmulq_n_f32(vmulq_f32(d, vcvtq_f32_s32(isum)), factors[1]))
        }
    }

    /// `isum` of a block in four parts, for each activation row. Written out: a loop over pairs of
    /// sub-blocks would not be unrolled for all formats.
    #[inline(always)]
    fn block_sums<F: Leveled<B>, const B: usize, const T: usize>(
        self,
        block: &[u8; B],
        inputs: &OrderedInputs<T>,
    ) -> [int32x4_t; T] {
        let scales = self.scales_of_pairs(load_at(block, 2));
        let sums = [self.no_sum(); T];
        let sums = self.add_pair::<F, B, T, 0>(sums, block, inputs, scales[0]);
        let sums = self.add_pair::<F, B, T, 1>(sums, block, inputs, scales[1]);
        let sums = self.add_pair::<F, B, T, 2>(sums, block, inputs, scales[2]);
        self.add_pair::<F, B, T, 3>(sums, block, inputs, scales[3])
    }

    /// Adds sub-blocks 2·J and 2·J + 1.
    #[inline(always)]
    fn add_pair<F: Leveled<B>, const B: usize, const T: usize, const J: usize>(
        self,
        mut sums: [int32x4_t; T],
        block: &[u8; B],
        inputs: &OrderedInputs<T>,
        scales: int32x4_t,
    ) -> [int32x4_t; T] {
        let codes = const { &F::CODES };
        let labels = self.labels::<F, B, J>(block);
        let level = |f: usize| match F::N_UPPER {
            0 => self.levels::<0>(codes, labels[f]),
            1 => self.levels::<1>(codes, labels[f]),
            _ => self.levels::<2>(codes, labels[f]),
        };
        let levels = [level(0), level(1), level(2), level(3)];
        for t in 0..T {
            let products = self.0.dot_halves(levels, &inputs.x[t][J]);
            sums[t] = self.add_scaled(sums[t], products, scales);
        }
        sums
    }

    /// Labels of symbols 4j + f of those sub-blocks in vector f.
    #[inline(always)]
    fn labels<F: Leveled<B>, const B: usize, const J: usize>(
        self,
        block: &[u8; B],
    ) -> [uint8x16_t; 4] {
        let mut labels = self.nibbles_of_symbols(load_at(block, SYMBOLS + 16 * J));
        for f in 0..4 {
            labels[f] = match F::N_UPPER {
                0 => labels[f],
                // Sub-blocks 4 to 7 have the upper nibbles of the bytes of 0 to 3.
                1 => {
                    let upper = load_at(block, UPPER + 16 * (J % 2));
                    self.with_upper(labels[f], upper, 4 - (f + J / 2 * 4) as i8, 0x10)
                }
                _ => {
                    let upper = load_at(block, UPPER + 16 * J);
                    self.with_upper(labels[f], upper, 4 - 2 * f as i8, 0x30)
                }
            };
        }
        labels
    }
}
