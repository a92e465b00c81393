//! Matmul of float weights: the lanes of `lanes.rs` run along the rows, in register tiles of R
//! weight rows × T activation rows.
//!
//! ```text
//! for R weight rows, for T activation rows:
//!     for each 16 weights k: for each r, t: lanes[r][t] = w[r][k]·x[t][k] + lanes[r][t]
//!     out[r][t] = sum of the lanes
//! ```
//! Every weight that is loaded and widened serves T rows and every activation R. An output has its
//! own lanes, so its bits do not depend on the tile it falls into. A single activation row waits
//! for memory, where the row tile that comes next is prefetched as in `gemv.rs`; 512-bit vectors
//! take it from `fused/x86_512` instead.

use super::lanes::{LANES, padded, total};
use super::matmul::RowTile;
use super::unpack::NextTile;
use crate::format::FloatFormat;
use crate::isa::{Floats, Row};

/// Multiplies a row tile of a float format.
#[inline(always)]
pub(crate) fn float<F: FloatFormat, const R: usize, const T: usize>(
    isa: impl Floats + Row,
    mut row_tile: RowTile<'_>,
) {
    let n = row_tile.rows.len();
    let (whole, d_out) = (n / T * T, row_tile.w.d_out());
    // Activations outside, weights inside: a tile of activation rows stays in L1 while the row tile
    // passes.
    for t in (0..whole).step_by(T) {
        for r in (0..d_out).step_by(R) {
            tile::<_, F, R, T>(isa, &mut row_tile, r, t);
        }
    }
    for t in whole..n {
        for r in (0..d_out).step_by(R) {
            tile::<_, F, R, 1>(isa, &mut row_tile, r, t);
        }
    }
}

/// Weight rows from `r`, the last one repeated where there are none left; activation rows from `t`.
#[inline(always)]
fn tile<I: Floats + Row, F: FloatFormat, const R: usize, const T: usize>(
    isa: I,
    row_tile: &mut RowTile<'_>,
    r: usize,
    t: usize,
) {
    let (d_out, first) = (row_tile.w.d_out(), row_tile.rows.start);
    let w: [&[F::Weight]; R] =
        std::array::from_fn(|i| F::weights(row_tile.w.row((r + i).min(d_out - 1))));
    let x: [&[f32]; T] = std::array::from_fn(|j| row_tile.x.f32_row(first + t + j));
    // Not F32: a tenth slower with AVX-512, as long as that came here; not measured with AVX2.
    let asks = I::ASKS && T == 1 && row_tile.rows.len() == 1 && size_of::<F::Weight>() < 4;
    let next = asks.then(|| NextTile::new(row_tile, d_out).behind(r * row_tile.w.row(0).len()));
    let prefetch = |k: usize| {
        if let Some(next) = &next {
            next.block(isa, k, R * LANES * size_of::<F::Weight>());
        }
    };
    let sums = dots::<I, F, R, T>(isa, w, x, prefetch);
    for j in 0..T {
        let out = &mut row_tile.acc[(t + j) * row_tile.width..][r..d_out.min(r + R)];
        for (i, out) in out.iter_mut().enumerate() {
            *out = total(isa.to_array(sums[i][j]));
        }
    }
}

/// Lanes of `w[r] · x[t]`; `ask(k)` is called with every sixteen weights of the rows.
#[inline(always)]
pub(crate) fn dots<I: Floats, F: FloatFormat, const R: usize, const T: usize>(
    isa: I,
    w: [&[F::Weight]; R],
    x: [&[f32]; T],
    prefetch: impl Fn(usize),
) -> [[I::F; T]; R] {
    let mut lanes = [[isa.zeros(); T]; R];
    let n = w[0].len() / LANES;
    let (w, w_rest) = (
        w.map(|w| &w.as_chunks::<LANES>().0[..n]),
        w.map(|w| w.as_chunks::<LANES>().1),
    );
    let (x, x_rest) = (
        x.map(|x| &x.as_chunks::<LANES>().0[..n]),
        x.map(|x| x.as_chunks::<LANES>().1),
    );
    for k in 0..n {
        prefetch(k);
        // A loop: `map` would be a call.
        let mut vectors = [isa.zeros(); T];
        for t in 0..T {
            vectors[t] = isa.floats(&x[t][k]);
        }
        for r in 0..R {
            let wide = F::load(isa, &w[r][k]);
            for t in 0..T {
                lanes[r][t] = isa.mul_add(wide, vectors[t], lanes[r][t]);
            }
        }
    }
    if w_rest[0].is_empty() {
        return lanes;
    }
    for r in 0..R {
        let mut last = [0.0; LANES];
        last.iter_mut()
            .zip(w_rest[r])
            .for_each(|(last, weight)| *last = F::widen(weight));
        for t in 0..T {
            lanes[r][t] = isa.mul_add(
                isa.floats(&last),
                isa.floats(&padded(x_rest[t])),
                lanes[r][t],
            );
        }
    }
    lanes
}
