//! The error of a type in a tensor, by a sample of its rows.
//!
//! An error is relative: Σ q (w − w')² / Σ q w², q the importance of a column, over 64 rows spread
//! evenly over the tensor. Where a table has its mean row apart, w of the denominator is without
//! the mean for all types, so that errors of types with and without a mean can be compared.

use atta_formats::{TensorType, decode_rows};

use crate::{Checkpoint, Error, ImatrixEntry, ImportanceMatrix, Tensor, quantize::Quantizer};

/// Rows of a sample.
const N_ROWS: u64 = 64;

/// Where rows are read, and what weighs them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampler<'a> {
    /// The model as other types store it.
    pub(super) plain: &'a Checkpoint,
    /// The model with the mean rows of tables apart, as T2, T3 and T4 store it.
    pub(super) centred: &'a Checkpoint,
    pub(super) importance: Option<&'a ImportanceMatrix>,
}

/// Rows of one tensor.
pub(super) struct Sample {
    d: usize,
    /// `[n_rows, d]`.
    plain: Vec<f32>,
    /// `[n_rows, d]`.
    centred: Vec<f32>,
    importance: Option<RowImportance>,
}

/// The importance of the columns of each row.
struct RowImportance {
    /// For types of ggml, `[n_rows, d]`.
    plain: Vec<f32>,
    /// For T2, T3, T4 and for errors, `[n_rows, d]`: 1 where too few tokens say anything.
    reached: Vec<f32>,
}

impl Sampler<'_> {
    /// The sample of the tensor of this name, which both checkpoints have.
    pub(super) fn sample(&self, name: &str) -> Result<Sample, Error> {
        let plain = tensor(self.plain, name)?;
        let rows = sampled_rows(plain.n_rows());
        let entry = self
            .importance
            .and_then(|all| all.entry(name))
            .filter(|entry| entry.fits(&plain.dims));
        Ok(Sample {
            d: plain.d_row() as usize,
            plain: read(plain, &rows)?,
            centred: read(tensor(self.centred, name)?, &rows)?,
            importance: entry.map(|entry| RowImportance::new(entry, plain, &rows)),
        })
    }
}

fn tensor<'a>(checkpoint: &'a Checkpoint, name: &str) -> Result<&'a Tensor, Error> {
    let found = checkpoint.tensors.iter().find(|tensor| tensor.name == name);
    found.ok_or(Error::Missing)
}

/// At most 64 rows, evenly spread over `n`.
fn sampled_rows(n: u64) -> Vec<u64> {
    let n_rows = n.min(N_ROWS);
    (0..n_rows)
        .map(|i| ((2 * i + 1) as u128 * n as u128 / (2 * n_rows) as u128) as u64)
        .collect()
}

/// The weights of some rows, `[n_rows, d]`.
fn read(tensor: &Tensor, rows: &[u64]) -> Result<Vec<f32>, Error> {
    let d = tensor.d_row() as usize;
    let mut out = vec![0.0; rows.len() * d];
    for (&row, out) in rows.iter().zip(out.chunks_exact_mut(d.max(1))) {
        tensor.rows.read(row, out)?;
    }
    Ok(out)
}

impl RowImportance {
    fn new(entry: &ImatrixEntry, tensor: &Tensor, rows: &[u64]) -> Self {
        let d = tensor.d_row() as usize;
        let per_expert = tensor.dims.iter().rev().nth(1).copied().unwrap_or(1);
        let of_rows = |all: Vec<f32>| {
            let row = |row: &u64| all[(row / per_expert) as usize * d..][..d].to_vec();
            rows.iter().flat_map(row).collect()
        };
        Self {
            plain: of_rows(entry.weights()),
            reached: of_rows(entry.reached_weights()),
        }
    }
}

impl Sample {
    /// The error of a type. Not finite if a weight is too large for it.
    pub(super) fn error(&self, quantizer: &Quantizer, ty: TensorType) -> Result<f64, Error> {
        let row_bytes = ty.row_bytes(self.d).ok_or_else(|| Error::Shape {
            dims: vec![self.d as u64],
            ty,
        })?;
        let mut bytes = vec![0; row_bytes];
        let mut y = vec![0.0; self.d];
        let mut lost = 0.0;
        for (i, x) in self.rows(ty).chunks_exact(self.d).enumerate() {
            quantizer.rows(x, self.d, self.weights(i, ty), &mut bytes)?;
            decode_rows(ty, self.d, &bytes, &mut y)?;
            lost += self.energy(i, x.iter().zip(&y).map(|(x, y)| x - y));
        }
        let total = self.total();
        Ok(if total > 0.0 { lost / total } else { 0.0 })
    }

    /// The rows as a type stores them, `[n_rows, d]`.
    fn rows(&self, ty: TensorType) -> &[f32] {
        match ty.is_own() {
            true => &self.centred,
            false => &self.plain,
        }
    }

    /// Whether there is an importance matrix for these rows.
    pub(super) fn has_importance(&self) -> bool {
        self.importance.is_some()
    }

    /// The importance of row `i` for a type, `[d]`.
    fn weights(&self, i: usize, ty: TensorType) -> Option<&[f32]> {
        let importance = self.importance.as_ref().filter(|_| ty.block_len() > 1)?;
        let all = match ty.is_own() {
            true => &importance.reached,
            false => &importance.plain,
        };
        Some(&all[i * self.d..][..self.d])
    }

    /// Σ q x² of a row.
    fn energy(&self, i: usize, x: impl Iterator<Item = f32>) -> f64 {
        let squares = x.map(|x| f64::from(x) * f64::from(x));
        match &self.importance {
            None => squares.sum(),
            Some(importance) => {
                let q = &importance.reached[i * self.d..][..self.d];
                squares.zip(q).map(|(x, &q)| f64::from(q) * x).sum()
            }
        }
    }

    /// Σ q w² of all rows.
    fn total(&self) -> f64 {
        let rows = self.centred.chunks_exact(self.d).enumerate();
        rows.map(|(i, row)| self.energy(i, row.iter().copied()))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_spread_over_the_whole_tensor() {
        assert_eq!(sampled_rows(3), [0, 1, 2]);
        let rows = sampled_rows(1 << 40);
        assert_eq!((rows.len(), rows[0]), (64, 1 << 33));
        assert_eq!(rows[63], (1 << 40) - (1 << 33));
        assert!(sampled_rows(0).is_empty());
    }
}
