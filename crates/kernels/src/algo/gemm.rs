//! The plain matmul of quantized weights, and the definition of the result of all others.
//!
//! ```text
//! for each weight row r, for up to TILE activation rows at once:
//!     for each block of 256 weights, in order:
//!         decode it once into integers (code − offset)·scale, i16
//!         for each activation row: isum = integers · codes of x, then the f32 rule of the family
//! ```
//! A decoded block serves all activation rows of the tile. Multiplying the scales into the codes is
//! exact (the products fit i16) and leaves one flat integer dot product per block, which compilers
//! turn into `pmaddwd` and the like. The order of operations of an output does not depend on how
//! many rows there are. The f32 rules are in the crate's docs.

use super::matmul::RowTile;
use crate::activations::{Quants, Sums};
use crate::format::float::widen_f16;
use crate::format::{KQuant, Quant32, Second};
use crate::isa::Flat;
use std::ops::Range;

/// Activation rows that share a decoded block.
const TILE: usize = 16;

/// Calls `f(r, tile)` for every weight row and every run of at most [`TILE`] activation rows.
#[inline(always)]
fn for_each_tile(n_weight_rows: usize, rows: Range<usize>, mut f: impl FnMut(usize, Range<usize>)) {
    for r in 0..n_weight_rows {
        for t in rows.clone().step_by(TILE) {
            f(r, t..rows.end.min(t + TILE));
        }
    }
}

/// A block of 256 weights as integers, and the factors of its f32 rule.
pub(crate) struct Decoded {
    pub(crate) w: [i16; 256],
    /// `d·K`.
    d: f32,
    dmin: f32,
    min: [u64; 2],
    /// Groups with a minimum; 0 if the format has none.
    n_minima: usize,
}

impl Decoded {
    pub(crate) const EMPTY: Self = Self {
        w: [0; 256],
        d: 0.0,
        dmin: 0.0,
        min: [0; 2],
        n_minima: 0,
    };

    #[inline(always)]
    pub(crate) fn decode<I: Flat, F: KQuant>(&mut self, isa: I, block: &F::Block) {
        let head = F::head(block);
        let signs = F::signs(isa, block);
        let scale = |i: usize| head.scale_of(i * F::GROUPS / 16);
        for (g, out) in self.w.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let codes = F::biased_codes(isa, block, signs.as_ref(), g);
            isa.scaled(codes, F::OFFSET, [scale(2 * g), scale(2 * g + 1)], out);
        }
        self.d = widen_f16(head.d) * F::K;
        if F::MINS {
            self.dmin = widen_f16(head.dmin);
            self.min = head.min;
            self.n_minima = F::GROUPS;
        }
    }

    /// `out += dx·(d·K·isum − dmin·bias)` with block `b` of the activation rows `tile`; a call
    /// where programs must stay small.
    #[cfg_attr(feature = "avx512", inline(always))]
    #[cfg_attr(not(feature = "avx512"), inline(never))]
    fn add<I: Flat>(
        &self,
        isa: I,
        x: &Quants<f32, Sums>,
        b: usize,
        tile: Range<usize>,
        out: &mut [f32; TILE],
    ) {
        for (out, t) in out.iter_mut().zip(tile) {
            let at = x.at(b, t);
            let mut v = self.d * isa.dot(&self.w, &x.codes[at].0) as f32;
            if self.n_minima > 0 {
                let sums = x.sums[at].of(self.n_minima);
                v -= self.dmin * isa.dot16(self.min, &sums.whole) as f32;
            }
            *out += x.scales[at] * v;
        }
    }
}

/// Multiplies a row tile of a K-quant.
#[inline(always)]
pub(crate) fn k_quant<I: Flat, F: KQuant>(isa: I, row_tile: RowTile<'_>) {
    #[cfg(test)]
    crate::testing::ran("gemm");
    let RowTile {
        w,
        x,
        rows,
        acc,
        width,
        ..
    } = row_tile;
    debug_assert_eq!(w.format(), F::FORMAT);
    let (x, first) = (x.q8_256(), rows.start);
    let mut decoded = Decoded::EMPTY;
    for_each_tile(w.d_out(), rows, |r, tile| {
        let mut sums = [0f32; TILE];
        let row = F::blocks(w.row(r));
        let tail = F::tail(w.row(r));
        for (b, block) in row.iter().chain(tail.as_ref()).enumerate() {
            decoded.decode::<I, F>(isa, block);
            decoded.add(isa, x, b, tile.clone(), &mut sums);
        }
        for (sum, t) in sums.iter().zip(tile) {
            acc[(t - first) * width + r] = *sum;
        }
    });
}

/// Multiplies a row tile of a format with blocks of 32.
#[inline(always)]
pub(crate) fn quant_32<I: Flat, F: Quant32>(isa: I, row_tile: RowTile<'_>) {
    let RowTile {
        w,
        x,
        rows,
        acc,
        width,
        ..
    } = row_tile;
    debug_assert_eq!(w.format(), F::FORMAT);
    let (x, first) = (x.q8_32(), rows.start);
    let mut groups = [const { Group::EMPTY }; 8];
    for_each_tile(w.d_out(), rows, |r, tile| {
        let (mut sums, row) = ([0f32; TILE], F::blocks(w.row(r)));
        let n_groups = row.len() * F::GROUPS;
        for b in 0..n_groups.div_ceil(8) {
            let groups = &mut groups[..(n_groups - 8 * b).min(8)];
            for (j, group) in groups.iter_mut().enumerate() {
                group.decode::<I, F>(isa, row, 8 * b + j);
            }
            for (sum, t) in sums.iter_mut().zip(tile.clone()) {
                *sum = add_groups(isa, groups, x, x.at(b, t), *sum);
            }
        }
        for (sum, t) in sums.iter().zip(tile) {
            acc[(t - first) * width + r] = *sum;
        }
    });
}

/// A group of 32 weights as integers.
pub(crate) struct Group {
    pub(crate) w: [i16; 32],
    d: f32,
    second: f32,
    kind: Second,
}

impl Group {
    pub(crate) const EMPTY: Self = Self {
        w: [0; 32],
        d: 0.0,
        second: 0.0,
        kind: Second::Nothing,
    };

    #[inline(always)]
    fn decode<I: Flat, F: Quant32>(&mut self, isa: I, row: &[F::Block], g: usize) {
        let (block, g) = F::group(row, g);
        self.decode_codes::<I, F>(isa, block, g);
        self.d = F::D.widen(F::d(block, g)) * F::K;
        self.second = widen_f16(F::second(block, g));
        self.kind = F::SECOND;
    }

    /// The integers alone.
    #[inline(always)]
    pub(crate) fn decode_codes<I: Flat, F: Quant32>(&mut self, isa: I, block: &F::Block, g: usize) {
        isa.scaled(F::codes(isa, block, g), F::OFFSET, [1, 1], &mut self.w);
    }
}

/// `out` plus the products of up to eight groups and the activations `at`, by the f32 rule:
/// `out = out + (d·dx)·isum`, and what the second factor adds. A call where programs must stay
/// small.
#[cfg_attr(feature = "avx512", inline(always))]
#[cfg_attr(not(feature = "avx512"), inline(never))]
fn add_groups<I: Flat>(
    isa: I,
    groups: &[Group],
    x: &Quants<[f32; 8], [i16; 8]>,
    at: usize,
    mut out: f32,
) -> f32 {
    let codes = x.codes[at].0.as_chunks::<32>().0;
    for (j, group) in groups.iter().enumerate() {
        let dx = x.scales[at][j];
        if group.kind == Second::Scale {
            let w = group.w.as_chunks::<16>().0;
            let codes = codes[j].as_chunks::<16>().0;
            out += (group.d * dx) * isa.dot(&w[0], &codes[0]) as f32;
            out += (group.second * dx) * isa.dot(&w[1], &codes[1]) as f32;
            continue;
        }
        out += (group.d * dx) * isa.dot(&group.w, &codes[j]) as f32;
        if group.kind == Second::Minimum {
            out += (group.second * dx) * f32::from(x.sums[at][j]);
        }
    }
    out
}
