//! The matrices of adapters on a GPU: two for each matrix of the part that an adapter adds to.

use super::{GpuExperts, GpuMatrix, GpuWeights, MatrixKey, PlacedMatrices, RowChoice};
use crate::{ArenaPlan, Error, MatrixShape, WeightFormat};
use atta_model::{Adapter, AdapterMatrix, AdapterPair, Role, Share};
use std::collections::HashMap;

/// An adapter.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuAdapter {
    /// `A`, `[rank, d_in]`, and `B`, `[d_out, rank]`, of matrices and of those of experts.
    a: PlacedMatrices,
    b: PlacedMatrices,
    /// What multiplies the products of each, beside the scale of a row.
    scales: HashMap<MatrixKey, f32>,
}

/// What an adapter has for a matrix.
#[derive(Clone, Copy)]
pub(crate) struct GpuPair<'a> {
    pub(crate) a: &'a GpuMatrix,
    pub(crate) b: &'a GpuMatrix,
}

/// What an adapter has for the matrices of experts.
#[derive(Clone, Copy)]
pub(crate) struct GpuExpertPair<'a> {
    pub(crate) a: &'a GpuExperts,
    pub(crate) b: &'a GpuExperts,
}

impl GpuAdapter {
    /// Places the pairs of a part whose matrices are placed.
    pub(super) fn place(
        adapter: &Adapter,
        base: &PlacedMatrices,
        part: &Share,
        plan: &mut ArenaPlan,
    ) -> Result<Self, Error> {
        let mut this = Self::default();
        for pair in adapter.pairs() {
            let AdapterPair { role, layer, .. } = pair;
            let is_here = match layer {
                Some(l) => part.layers.contains(&l),
                None => part.head && role == Role::Output,
            };
            if !is_here {
                continue;
            }
            let n_before = this.scales.len();
            for (&key, matrix) in base
                .matrices
                .iter()
                .filter(|(key, m)| adds_to(&pair, key, m))
            {
                let rows = RowChoice::all(pair.a.n_rows);
                this.a.matrices.insert(key, matrix_of(&pair.a, rows, plan)?);
                let b = matrix_of(&pair.b, matrix.rows, plan)?;
                this.b.matrices.insert(key, b);
                this.scales.insert(key, pair.scale);
            }
            if let Some(experts) = base.experts.get(&(role, layer)) {
                let n = experts.n_experts;
                let [a, b] = [&pair.a, &pair.b].map(|factor| experts_of(factor, n, plan));
                this.a.experts.insert((role, layer), a?);
                this.b.experts.insert((role, layer), b?);
                this.scales.insert((role, layer), pair.scale);
            }
            if this.scales.len() == n_before {
                let what = format!("an adapter of {}", role.name());
                return Err(Error::Unsupported(what));
            }
        }
        Ok(this)
    }

    /// Both kinds of factors.
    pub(super) fn factors(&self) -> [&PlacedMatrices; 2] {
        [&self.a, &self.b]
    }

    /// What it has for a matrix.
    pub(crate) fn pair(&self, key: MatrixKey) -> Option<GpuPair<'_>> {
        let a = self.a.matrices.get(&key)?;
        let b = self.b.matrices.get(&key)?;
        Some(GpuPair { a, b })
    }

    /// What it has for the matrices of experts.
    pub(crate) fn expert_pair(&self, key: MatrixKey) -> Option<GpuExpertPair<'_>> {
        let a = self.a.experts.get(&key)?;
        let b = self.b.experts.get(&key)?;
        Some(GpuExpertPair { a, b })
    }

    /// The matrices that it adds to, and what multiplies the products of its own.
    pub(crate) fn scales(&self) -> impl Iterator<Item = (MatrixKey, f32)> {
        self.scales.iter().map(|(&key, &scale)| (key, scale))
    }
}

impl GpuWeights {
    /// Writes the matrices of an adapter.
    pub(super) fn write_adapter(&self, from: &Adapter, to: &GpuAdapter) -> Result<(), Error> {
        for pair in from.pairs() {
            let base = self.placed.matrices.iter();
            for (key, _) in base.filter(|(key, m)| adds_to(&pair, key, m)) {
                if let Some(GpuPair { a, b }) = to.pair(*key) {
                    self.write_matrix(a, 0, pair.a.rows(0))?;
                    self.write_matrix(b, 0, pair.b.rows(0))?;
                }
            }
            if let Some(GpuExpertPair { a, b }) = to.expert_pair((pair.role, pair.layer)) {
                for e in 0..a.n_experts {
                    self.write_expert(a, e, pair.a.rows(e))?;
                    self.write_expert(b, e, pair.b.rows(e))?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a pair is for the rows of a file that a matrix has, or some of them.
fn adds_to(pair: &AdapterPair<'_>, key: &MatrixKey, matrix: &GpuMatrix) -> bool {
    key.1 == pair.layer && matrix.from == pair.role
}

fn shape_of(factor: &AdapterMatrix<'_>) -> Result<MatrixShape, Error> {
    let format = WeightFormat::of(factor.ty);
    let what = || Error::Unsupported(format!("adapters of type {:?}", factor.ty));
    Ok(MatrixShape {
        format: format.ok_or_else(what)?,
        d_out: factor.n_rows,
        d_in: factor.d_in,
        has_bias: false,
    })
}

/// Places the rows of a factor that are chosen.
fn matrix_of(
    factor: &AdapterMatrix<'_>,
    rows: RowChoice,
    plan: &mut ArenaPlan,
) -> Result<GpuMatrix, Error> {
    let whole = shape_of(factor)?;
    let shape = MatrixShape {
        d_out: rows.n_of(whole.d_out),
        ..whole
    };
    Ok(GpuMatrix {
        format: shape.format,
        scale: 1.0,
        d_out: shape.d_out,
        d_in: shape.d_in,
        slices: plan.matrix(shape)?,
        // It is written by its adapter, not with rows of the model's file.
        from: Role::Output,
        bias: None,
        decoded: None,
        rows,
    })
}

/// Places the factors of all experts.
fn experts_of(
    factor: &AdapterMatrix<'_>,
    n_experts: usize,
    plan: &mut ArenaPlan,
) -> Result<GpuExperts, Error> {
    let shape = shape_of(factor)?;
    Ok(GpuExperts {
        format: shape.format,
        d_out: shape.d_out,
        d_in: shape.d_in,
        n_experts,
        slices: plan.experts(n_experts, shape)?,
        scales: Vec::new(),
        bias: None,
    })
}
