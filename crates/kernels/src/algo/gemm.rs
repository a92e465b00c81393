//! `acc[t][r] = w[r] · x[t]` for a strip of weight rows: the kernel under every matmul.
//!
//! ```text
//! for each weight row r, for up to TILE activation rows at once:
//!     for each block of 256 weights, in order:
//!         decode it once into integers (code − offset)·scale, i16
//!         for each activation row: isum = integers · codes of x, then the f32 rule of the family
//! ```
//! A decoded block serves all activation rows of the tile. Multiplying the scales into the codes is exact (the products
//! fit i16) and leaves one flat integer dot product per block, which compilers turn into `pmaddwd` and the like. The
//! order of operations of an output does not depend on how many rows there are. The f32 rules are in the crate's docs.

use super::lanes::{LANES, padded, total};
use crate::Matrix;
use crate::activations::{Activations, Quants};
use crate::format::{FloatFormat, Head, KQuant, Quant32};
use crate::isa::{Floats, Row};
use std::ops::Range;

/// Activation rows that share a decoded block.
const TILE: usize = 16;
/// Activation rows that share a widened float row; 2 × 16 lanes fill the registers of the smallest machines.
const FLOAT_TILE: usize = 2;

/// Calls `f(r, tile)` for every weight row and every run of at most `width` activation rows.
#[inline(always)]
fn for_each_tile(n_weight_rows: usize, rows: Range<usize>, width: usize, mut f: impl FnMut(usize, Range<usize>)) {
    for r in 0..n_weight_rows {
        for t in rows.clone().step_by(width) {
            f(r, t..rows.end.min(t + width));
        }
    }
}

/// A block of 256 weights as integers.
struct Decoded {
    w: [i16; 256],
    head: Head,
}

impl Decoded {
    const NOTHING: Self = Self { w: [0; 256], head: Head { scale: [0; 16], min: [0; 16], d: 0.0, dmin: 0.0 } };

    #[inline(always)]
    fn decode<I: Row, F: KQuant>(&mut self, isa: I, block: &F::Block) {
        self.head = F::head(block);
        for (g, out) in self.w.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            let scale = [self.head.scale[2 * g], self.head.scale[2 * g + 1]];
            isa.scaled(F::codes(isa, block, g), F::OFFSET, scale, out);
        }
    }
}

/// Strip of a K-quant. `rows` of `x`, `acc` is `[rows.len(), w.d_out()]`.
#[inline(always)]
pub(crate) fn k_quant<I: Row, F: KQuant>(isa: I, w: Matrix<'_>, x: &Activations, rows: Range<usize>, acc: &mut [f32]) {
    let (x, d_out, first) = (x.q8_256(), w.d_out(), rows.start);
    let mut decoded = Decoded::NOTHING;
    for_each_tile(d_out, rows, TILE, |r, tile| {
        let mut sums = [0f32; TILE];
        for (b, block) in F::blocks(w.row(r)).iter().enumerate() {
            decoded.decode::<I, F>(isa, block);
            for (sum, t) in sums.iter_mut().zip(tile.clone()) {
                *sum += k_quant_block::<I, F>(isa, &decoded, x, x.at(b, t));
            }
        }
        for (sum, t) in sums.iter().zip(tile) {
            acc[(t - first) * d_out + r] = *sum;
        }
    });
}

/// `dx·(d·isum − dmin·bias)`.
#[inline(always)]
fn k_quant_block<I: Row, F: KQuant>(isa: I, block: &Decoded, x: &Quants<f32, [i16; 16]>, at: usize) -> f32 {
    let head = &block.head;
    let mut v = head.d * isa.dot(&block.w, &x.codes[at].0) as f32;
    if F::MINS {
        v -= head.dmin * isa.dot16(&head.min, &x.sums[at]) as f32;
    }
    x.scales[at] * v
}

/// Strip of a format with blocks of 32. `rows` of `x`, `acc` is `[rows.len(), w.d_out()]`.
#[inline(always)]
pub(crate) fn quant_32<I: Row, F: Quant32>(
    isa: I,
    w: Matrix<'_>,
    x: &Activations,
    rows: Range<usize>,
    acc: &mut [f32],
) {
    let (x, d_out, first) = (x.q8_32(), w.d_out(), rows.start);
    let (mut decoded, mut d) = ([[0; 32]; 8], [0.0; 8]);
    for_each_tile(d_out, rows, TILE, |r, tile| {
        let mut sums = [0f32; TILE];
        for (b, blocks) in F::blocks(w.row(r)).chunks(8).enumerate() {
            for (j, block) in blocks.iter().enumerate() {
                isa.scaled(F::codes(isa, block), F::OFFSET, [1, 1], &mut decoded[j]);
                d[j] = F::d(block);
            }
            for (sum, t) in sums.iter_mut().zip(tile.clone()) {
                let (codes, dx) = (x.codes[x.at(b, t)].0.as_chunks::<32>().0, &x.scales[x.at(b, t)]);
                for j in 0..blocks.len() {
                    *sum += (d[j] * dx[j]) * isa.dot(&decoded[j], &codes[j]) as f32;
                }
            }
        }
        for (sum, t) in sums.iter().zip(tile) {
            acc[(t - first) * d_out + r] = *sum;
        }
    });
}

/// Strip of a float format. `rows` of `x`, `acc` is `[rows.len(), w.d_out()]`.
#[inline(always)]
pub(crate) fn float<I: Floats, F: FloatFormat>(
    isa: I,
    w: Matrix<'_>,
    x: &Activations,
    rows: Range<usize>,
    acc: &mut [f32],
) {
    let (d_out, first) = (w.d_out(), rows.start);
    for_each_tile(d_out, rows, FLOAT_TILE, |r, tile| {
        let weights = F::weights(w.row(r));
        let out = &mut acc[(tile.start - first) * d_out + r..];
        match tile.len() {
            FLOAT_TILE => {
                let x = [x.f32_row(tile.start), x.f32_row(tile.start + 1)];
                [out[0], out[d_out]] = float_dots::<I, F, FLOAT_TILE>(isa, weights, x);
            }
            _ => [out[0]] = float_dots::<I, F, 1>(isa, weights, [x.f32_row(tile.start)]),
        }
    });
}

/// `w · x` of one weight row with `T` activation rows.
#[inline(always)]
fn float_dots<I: Floats, F: FloatFormat, const T: usize>(isa: I, w: &[F::Weight], x: [&[f32]; T]) -> [f32; T] {
    let mut lanes = [isa.zeros(); T];
    let (chunks, rest) = w.as_chunks::<LANES>();
    let (x, x_rest) = (x.map(|x| x.as_chunks::<LANES>().0), x.map(|x| x.as_chunks::<LANES>().1));
    for (k, chunk) in chunks.iter().enumerate() {
        let wide = isa.floats(&widen::<F>(chunk));
        for t in 0..T {
            lanes[t] = isa.add(lanes[t], isa.mul(wide, isa.floats(&x[t][k])));
        }
    }
    if !rest.is_empty() {
        let mut last = [0.0; LANES];
        for (last, weight) in last.iter_mut().zip(rest) {
            *last = F::widen(weight);
        }
        for t in 0..T {
            lanes[t] = isa.add(lanes[t], isa.mul(isa.floats(&last), isa.floats(&padded(x_rest[t]))));
        }
    }
    lanes.map(|lanes| total(isa.to_array(lanes)))
}

/// 16 weights as f32.
#[inline(always)]
fn widen<F: FloatFormat>(weights: &[F::Weight; LANES]) -> [f32; LANES] {
    let mut wide = [0.0; LANES];
    for i in 0..LANES {
        wide[i] = F::widen(&weights[i]);
    }
    wide
}
