//! What an adapter changes in the weights, for programs that merge it into a model.

use atta_formats::decode_rows;

use super::{Adapter, Factor};
use crate::{Placement, Role};

/// `scale · alpha / rank · B A`, the change of a matrix, with both factors in f32; of experts, of
/// each.
pub struct MatrixChange {
    /// `[n_experts, rank, d_in]`; of the embedding `[n_vocab, rank]`.
    a: Vec<f32>,
    /// `[n_experts, d_out, rank]`; of the embedding `[d, rank]`.
    b: Vec<f32>,
    rank: usize,
    /// Rows of `B` of one expert.
    n_rows: usize,
    scale: f64,
    is_embedding: bool,
}

impl std::fmt::Debug for MatrixChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MatrixChange")
            .field("rank", &self.rank)
            .field("n_rows", &self.n_rows)
            .finish_non_exhaustive()
    }
}

impl MatrixChange {
    /// Adds the change of a row of an expert's matrix, or of the only one, to `out`, `[d_in]`.
    /// Products are summed in f64.
    ///
    /// # Panics
    /// If there is no such row, or `out` has another length.
    pub fn add_to_row(&self, expert: usize, row: usize, out: &mut [f32]) {
        let rank = self.rank;
        let d_in = out.len();
        let factors = |i: usize, j: usize| match self.is_embedding {
            true => [self.a[row * rank + j], self.b[i * rank + j]],
            false => [
                self.b[(expert * self.n_rows + row) * rank + j],
                self.a[(expert * rank + j) * d_in + i],
            ],
        };
        for (i, out) in out.iter_mut().enumerate() {
            let products = (0..rank).map(|j| factors(i, j).map(f64::from));
            let sum: f64 = products.map(|[x, y]| x * y).sum();
            *out = (f64::from(*out) + self.scale * sum) as f32;
        }
    }
}

impl Adapter {
    /// The matrices that it adds to, by role and layer.
    pub fn matrices(&self) -> impl Iterator<Item = (Role, Option<usize>)> + '_ {
        self.pairs.keys().copied()
    }

    /// What it changes in a matrix of a model with `n_experts` experts, at a scale; `None` if it
    /// does not add to it.
    pub fn change(
        &self,
        role: Role,
        layer: Option<usize>,
        n_experts: usize,
        scale: f32,
    ) -> Option<MatrixChange> {
        let pair = self.pair(role, layer)?;
        let is_of_experts = role.placement() == Placement::Experts;
        let n = if is_of_experts { n_experts } else { 1 };
        Some(MatrixChange {
            a: self.decoded(&pair.a, n),
            b: self.decoded(&pair.b, n),
            rank: pair.b.d_in,
            n_rows: pair.b.n_rows,
            scale: f64::from(scale) * f64::from(pair.scale),
            is_embedding: role == Role::TokenEmbd,
        })
    }

    /// A factor of `n` experts in f32, one after another.
    fn decoded(&self, factor: &Factor, n: usize) -> Vec<f32> {
        let mut all = vec![0.0; n * factor.n_rows * factor.d_in];
        let each = all.chunks_mut((factor.n_rows * factor.d_in).max(1));
        for (expert, out) in each.enumerate() {
            let bytes = factor.of(self, expert).bytes();
            decode_rows(factor.ty, factor.d_in, bytes, out)
                .expect("sizes were checked when it was bound");
        }
        all
    }
}
