//! Operations on rows of floats that models with several residual streams or sparse gates are made
//! of.

use crate::Kernels;

pub use crate::algo::streams::STREAMS_MAX;

impl Kernels {
    /// `Σ a·b`, both `[d]`, in one order of sums; products are rounded before they are added.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn dot_product(self, a: &[f32], b: &[f32]) -> f32 {
        assert_eq!(a.len(), b.len(), "product of rows of different lengths");
        let mut sum = 0.0;
        self.dot(a, b, &mut sum);
        sum
    }

    /// `out = (out + x) · factor`, both `[d]`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn scaled_sum(self, out: &mut [f32], x: &[f32], factor: f32) {
        assert_eq!(out.len(), x.len(), "sum of rows of different lengths");
        self.sum_scaled(out, x, factor);
    }

    /// `out += factor · x`, both `[d]`; products are rounded before they are added.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn add_multiple(self, out: &mut [f32], factor: f32, x: &[f32]) {
        assert_eq!(out.len(), x.len(), "sum of rows of different lengths");
        self.add_scaled(out, factor, x);
    }

    /// `s[i] += Σj c[i, j]·s[j]` of all streams as they were before: `streams` is `[n, d]`, `coefs`
    /// `[n, n]`.
    ///
    /// # Panics
    /// If the shapes are others, or there are more than [`STREAMS_MAX`] streams.
    pub fn mix_streams(self, streams: &mut [f32], coefs: &[f32]) {
        let n = coefs.len().isqrt();
        let fits = (1..=STREAMS_MAX).contains(&n) && n * n == coefs.len();
        assert!(
            fits && streams.len().is_multiple_of(n),
            "{} coefficients of streams of {}",
            coefs.len(),
            streams.len()
        );
        self.mix(streams, coefs, n);
    }

    /// `x = max(x − mean(x) − deviations · std(x), 0)`, `[d]`: elements that are large beside the
    /// rest. You et al. 2025, section 3.
    pub fn statistical_top_k(self, x: &mut [f32], deviations: f32) {
        self.keep_large(x, deviations);
    }
}
