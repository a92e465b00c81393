//! Products of rows with the transposes of matrices, in one region: rows of a matrix are decoded to
//! f32 and added in order.
//!
//! ```text
//! for each row w of W[g], in order:  y += x[i] · w      for the rows of a tile that are in group g
//! ```
//! A row of weights is decoded once for a tile of rows of the input, so that a prompt does it
//! seldom.

use super::Groups;
use crate::tiles::{self, Grid, Strip};
use crate::{Activations, Kernels, Matrix, Pool};
use std::ops::Range;

/// Widest row of a transposed matrix; a decoded one is on the stack.
pub const D_TRANSPOSED_MAX: usize = 1024;

/// The most rows of the input that share a decoded row of weights.
const TILE: usize = 64;

impl Kernels {
    /// Products of groups of rows of `x`, in any layout, with the transpose of a matrix for each
    /// group, in one region: `y = W[g]ᵀ x` with `W[g]` of `[d, d_out]`, at most
    /// [`D_TRANSPOSED_MAX`] wide, and no bias.
    ///
    /// # Panics
    /// If shapes do not agree or the bounds are not in order.
    pub fn matmul_transposed_groups(self, pool: &Pool, x: &Activations, job: Groups<'_>) {
        let Groups { bounds, w, out } = job;
        let n = x.n_rows();
        let d_out = width_of(out.len(), n, bounds);
        let tile = (n / (4 * pool.n_threads())).clamp(1, TILE);
        let mut parts = Grid::new(out, n, tile, d_out);
        tiles::deal(pool, &mut parts, |i, mut out| {
            let rows = i * tile..n.min((i + 1) * tile);
            for (g, group) in bounds.windows(2).enumerate() {
                let first = rows.start.max(group[0] - bounds[0]);
                let end = rows.end.min(group[1] - bounds[0]);
                if first < end {
                    let mut out = out.rows_from(first - rows.start);
                    self.add_transposed(w(g).0, x, first..end, &mut out);
                }
            }
        });
    }

    /// `y = Wᵀ x` for some rows of `x`; the result of the first is row 0 of `out`.
    fn add_transposed(self, w: Matrix<'_>, x: &Activations, rows: Range<usize>, out: &mut Strip) {
        let d_out = out.columns().len();
        assert_eq!([w.d_in(), w.d_out()], [d_out, x.d()], "a transpose");
        let mut decoded = [0.0; D_TRANSPOSED_MAX];
        let decoded = &mut decoded[..d_out];
        (0..rows.len()).for_each(|t| out.row(t).fill(0.0));
        for i in 0..w.d_out() {
            self.decode_row(w, i, decoded);
            for (t, row) in rows.clone().enumerate() {
                self.add_scaled(out.row(t), x.f32_row(row)[i], decoded);
            }
        }
    }
}

/// The width of `n_out` results of `n_rows` rows in groups.
fn width_of(n_out: usize, n_rows: usize, bounds: &[usize]) -> usize {
    let n_bound = bounds[bounds.len() - 1] - bounds[0];
    assert_eq!(n_bound, n_rows, "groups hold every row of the input");
    assert!(n_out.is_multiple_of(n_rows), "results are [n_rows, d_out]");
    let d_out = n_out / n_rows;
    assert!(d_out <= D_TRANSPOSED_MAX, "a transpose of {d_out} rows");
    d_out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::TYPES;
    use crate::testing::{Random, bits, pool};

    const SHAPE: [usize; 2] = [70, 256];
    /// Of four groups one without rows and one of many; offsets as in the middle of a longer list.
    const BOUNDS: [usize; 5] = [9, 10, 10, 16, 158];

    fn filled(k: Kernels, x: &[f32], d: usize) -> Activations {
        let n = x.len() / d;
        let mut a = Activations::new(n, d);
        a.fill(k, &pool(1), (n, d), crate::Layouts::EMPTY, |t, row| {
            row.copy_from_slice(&x[t * d..(t + 1) * d])
        });
        a
    }

    #[test]
    fn a_transposed_product_is_a_sum_of_rows_in_order() {
        let [d_in, d_out] = SHAPE;
        let mut random = Random(5);
        for ty in TYPES {
            let bytes: Vec<Vec<u8>> = (0..4)
                .map(|_| random.weights(ty, d_in, d_out, 0.1))
                .collect();
            let w = |g: usize| Matrix::new(ty, d_in, d_out, &bytes[g]).unwrap();
            let x = random.floats((BOUNDS[4] - BOUNDS[0]) * d_in);
            let mut expected = vec![0.0; x.len() / d_in * d_out];
            let rows = x.chunks(d_in).zip(expected.chunks_mut(d_out)).enumerate();
            for (t, (x, y)) in rows {
                let g = (0..4).find(|&g| t + BOUNDS[0] < BOUNDS[g + 1]).unwrap();
                let mut row = vec![0.0; d_out];
                for (i, x) in x.iter().enumerate() {
                    Kernels::detect().decode_row(w(g), i, &mut row);
                    y.iter_mut().zip(&row).for_each(|(y, w)| *y += x * w);
                }
            }
            for isa in Kernels::available() {
                let k = Kernels::named(isa).unwrap();
                let mut out = vec![f32::NAN; expected.len()];
                let job = Groups {
                    bounds: &BOUNDS,
                    w: &|g| (w(g), None),
                    out: &mut out,
                };
                k.matmul_transposed_groups(&pool(3), &filled(k, &x, d_in), job);
                assert!(bits(&out) == bits(&expected), "{k:?} {ty}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "every row of the input")]
    fn groups_that_leave_rows_out_are_refused() {
        let bytes = vec![0; 8 * 4];
        let k = Kernels::detect();
        let w = Matrix::new(atta_formats::TensorType::F32, 2, 4, &bytes).unwrap();
        let job = Groups {
            bounds: &[0, 1, 2],
            w: &|_| (w, None),
            out: &mut [0.0; 12],
        };
        k.matmul_transposed_groups(&pool(1), &filled(k, &[0.0; 6], 2), job);
    }
}
