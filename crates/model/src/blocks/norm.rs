//! Norms: from the description to the kernel.

use atta_kernels::Kernels;

use crate::spec::Norm;

/// A norm with its weight at hand.
pub(crate) trait Normalize {
    /// `out = norm(x) * weight`, all [d].
    fn apply(self, kernels: Kernels, x: &[f32], weight: &[f32], out: &mut [f32]);
}

impl Normalize for Norm {
    fn apply(self, kernels: Kernels, x: &[f32], weight: &[f32], out: &mut [f32]) {
        match self {
            Norm::Rms { eps } => kernels.rms_norm(x, weight, eps, out),
        }
    }
}
