//! Norms: from the description to the kernel.

use atta_kernels::Kernels;

use crate::spec::Norm;

/// Weight and bias of a norm, `[d]` each; RMS norms have no bias.
pub(crate) type Affine<'a> = (&'a [f32], Option<&'a [f32]>);

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
                kernels.layer_norm(x, weight, bias, eps, out);
            }
        }
    }
}
