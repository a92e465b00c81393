//! Several activation rows times a row tile of float weights, where registers are many: prefill,
//! bound by arithmetic.
//!
//! ```text
//! for a band of activation rows, for R weight rows, for a piece of their weights:
//!     wide = the piece of the R rows as f32 (32 KB, in L1 or near)
//!     for T rows of the band:
//!         for each 16 weights k: for each r, t: lanes[r][t] = wide[r][k]·x[t][k] + lanes[r][t]
//! out[r][t] = sum of the lanes
//! ```
//! The bits are those of `float.rs`: an output's lanes see the same products in the same order.
//! Widening F16 and BF16 takes as many instructions of the same ports as half of the products of
//! four rows; here it is done once for the whole band. 512 rows of width 2048 on a core of a Xeon,
//! GFMA/s: F16 50 to 61, BF16 54 to 59, F32 37 to 56.

use super::float;
use super::lanes::{LANES, padded};
use super::matmul::RowTile;
use crate::format::FloatFormat;
use crate::fused::x86_512;
use crate::isa::Floats;
use crate::isa::avx512::Avx512;
use crate::scratch;

/// With fewer activation rows memory is waited for, which is read best while weights are widened as
/// they are multiplied.
const MANY: usize = 16;
/// Vectors of a weight row that are widened at once.
const PIECE: usize = 64;
/// Tiles of a band at most, whose lanes are on the stack.
const TILES: usize = 32;

/// Sixteen floats.
type Lanes = [f32; LANES];

/// Pieces of R weight rows, `[PIECE, R, 16]`.
#[repr(align(64))]
struct Wide<const R: usize>([[Lanes; R]; PIECE]);

/// Multiplies a row tile of a float format, in tiles of R weight rows and T activation rows; of few
/// activation rows in those of `float.rs`, of one or two in `fused/x86_512`.
#[inline(always)]
pub(crate) fn float<F: FloatFormat, const R: usize, const T: usize>(
    isa: Avx512,
    mut row_tile: RowTile<'_>,
) {
    let n = row_tile.rows.len();
    match n {
        ..=x86_512::FEW_FLOATS => return x86_512::float::<F>(isa, row_tile),
        _ if n < MANY => return float::float::<F, 4, 4>(isa, row_tile),
        _ => {}
    }
    const { assert!(size_of::<Wide<R>>() + size_of::<[[[Lanes; T]; R]; TILES]>() <= scratch::PANEL) };
    let (mut wide, mut lanes) = (
        Wide([[[0.0; LANES]; R]; PIECE]),
        [[[isa.zeros(); T]; R]; TILES],
    );
    // Bands of one size, nearly.
    let n_rows = n.div_ceil(n.div_ceil(TILES * T)).next_multiple_of(T);
    for t in (0..n).step_by(n_rows) {
        for r in (0..row_tile.w.d_out()).step_by(R) {
            let n_tiles = (n - t).div_ceil(T).min(n_rows / T);
            band::<_, F, R, T>(isa, &mut row_tile, (r, t), &mut wide, &mut lanes[..n_tiles]);
        }
    }
}

/// As many tiles as there are `lanes`: weight rows from `r`, activation rows from `t`; where there
/// are none left, the last one is repeated.
#[inline(always)]
fn band<I: Floats, F: FloatFormat, const R: usize, const T: usize>(
    isa: I,
    row_tile: &mut RowTile<'_>,
    (r, t): (usize, usize),
    wide: &mut Wide<R>,
    lanes: &mut [[[I::F; T]; R]],
) {
    let (d_in, d_out, n) = (row_tile.x.d(), row_tile.w.d_out(), row_tile.rows.len());
    let w: [&[F::Weight]; R] =
        std::array::from_fn(|i| F::weights(row_tile.w.row((r + i).min(d_out - 1))));
    for start in (0..d_in).step_by(PIECE * LANES) {
        let piece = start..d_in.min(start + PIECE * LANES);
        for (i, w) in w.iter().enumerate() {
            widen::<I, F, R>(isa, &w[piece.clone()], i, wide);
        }
        for (tile, lanes) in lanes.iter_mut().enumerate() {
            let row = |j: usize| {
                row_tile
                    .x
                    .f32_row(row_tile.rows.start + (t + tile * T + j).min(n - 1))
            };
            let x: [&[f32]; T] = std::array::from_fn(|j| &row(j)[piece.clone()]);
            let before = if start == 0 {
                [[isa.zeros(); T]; R]
            } else {
                *lanes
            };
            *lanes = products(isa, wide, x, before);
        }
    }
    for (tile, lanes) in lanes.iter().enumerate() {
        let (sums, t) = (totals::<I, R, T>(isa, lanes), t + tile * T);
        for j in 0..T.min(n - t) {
            let out = &mut row_tile.acc[(t + j) * row_tile.width..][r..d_out.min(r + R)];
            out.iter_mut()
                .zip(&sums)
                .for_each(|(out, sums)| *out = sums[j]);
        }
    }
}

/// Up to a piece of weights into row `i` of `wide`, padded with zeros to whole vectors.
#[inline(always)]
fn widen<I: Floats, F: FloatFormat, const R: usize>(
    isa: I,
    weights: &[F::Weight],
    i: usize,
    wide: &mut Wide<R>,
) {
    let (vectors, rest) = weights.as_chunks::<LANES>();
    for (wide, weights) in wide.0.iter_mut().zip(vectors) {
        wide[i] = isa.to_array(F::load(isa, weights));
    }
    if !rest.is_empty() {
        let mut last = [0.0; LANES];
        last.iter_mut()
            .zip(rest)
            .for_each(|(last, weight)| *last = F::widen(weight));
        wide.0[vectors.len()][i] = last;
    }
}

/// `lanes + w[r]·x[t]`, over as many weights as `x` has.
#[inline(always)]
fn products<I: Floats, const R: usize, const T: usize>(
    isa: I,
    w: &Wide<R>,
    x: [&[f32]; T],
    mut lanes: [[I::F; T]; R],
) -> [[I::F; T]; R] {
    let n = (x[0].len() / LANES).min(PIECE);
    let (x, rest) = (
        x.map(|x| &x.as_chunks::<LANES>().0[..n]),
        x.map(|x| x.as_chunks::<LANES>().1),
    );
    for k in 0..n {
        // A loop: `map` would be a call.
        let mut vectors = [isa.zeros(); T];
        for t in 0..T {
            vectors[t] = isa.floats(&x[t][k]);
        }
        for r in 0..R {
            let w = isa.floats(&w.0[k][r]);
            for t in 0..T {
                lanes[r][t] = isa.mul_add(w, vectors[t], lanes[r][t]);
            }
        }
    }
    if !rest[0].is_empty() {
        for t in 0..T {
            let x = isa.floats(&padded(rest[t]));
            for r in 0..R {
                lanes[r][t] = isa.mul_add(isa.floats(&w.0[n][r]), x, lanes[r][t]);
            }
        }
    }
    lanes
}

/// The sums of the lanes, sixteen at a time.
#[inline(always)]
fn totals<I: Floats, const R: usize, const T: usize>(
    isa: I,
    lanes: &[[I::F; T]; R],
) -> [[f32; T]; R] {
    let mut sums = [[0.0; T]; R];
    for (lanes, sums) in lanes
        .as_flattened()
        .chunks(LANES)
        .zip(sums.as_flattened_mut().chunks_mut(LANES))
    {
        let mut vectors = [isa.zeros(); LANES];
        vectors[..lanes.len()].copy_from_slice(lanes);
        sums.copy_from_slice(&isa.to_array(isa.totals_of_16(vectors))[..sums.len()]);
    }
    sums
}
