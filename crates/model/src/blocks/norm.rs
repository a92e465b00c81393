//! Norms: from the description to the kernel.

use atta_kernels::{Kernels, Pool};

use crate::spec::Norm;

/// Weight and bias of a norm, `[d]` each; RMS norms have no bias.
pub(crate) type Affine<'a> = (&'a [f32], Option<&'a [f32]>);

/// A norm of rows, with its weight and bias.
pub(crate) struct RowNorm<'a> {
    pub(crate) norm: Norm,
    pub(crate) affine: Affine<'a>,
}

impl RowNorm<'_> {
    /// `x = norm(x)` for rows of `[d]`; `sums` is room for as many.
    pub(crate) fn apply(&self, kernels: Kernels, pool: &Pool, x: &mut [f32], sums: &mut [f32]) {
        let d = self.affine.0.len();
        sums.copy_from_slice(x);
        let sums = &*sums;
        pool.for_each_row(x, d, |row, x| {
            let sum = &sums[row * d..(row + 1) * d];
            self.norm.apply(kernels, sum, self.affine, x);
        });
    }
}

/// A norm with its tensors at hand.
pub(crate) trait Normalize {
    /// `out = norm(x) * weight + bias`, all `[d]`.
    fn apply(self, kernels: Kernels, x: &[f32], affine: Affine<'_>, out: &mut [f32]);
}

impl Normalize for Norm {
    fn apply(self, kernels: Kernels, x: &[f32], (weight, bias): Affine<'_>, out: &mut [f32]) {
        match self {
            Norm::Rms { eps } => kernels.rms_norm(x, weight, eps, out),
            Norm::Layer { eps } => {
                let bias = bias.expect("a LayerNorm's bias was bound with its weight");
                kernels.layer_norm(x, (weight, Some(bias)), eps, out);
            }
            Norm::LayerNoBias { eps } => kernels.layer_norm(x, (weight, None), eps, out),
        }
    }
}
