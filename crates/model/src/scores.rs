//! Scores of a text by the head of a classifier, from the residual of the text's first token.
//!
//! Once per text, so f64 sums in the order of elements are fast enough, and every instruction set
//! computes the same.

use atta_kernels::{Kernels, math::tanh};

use crate::{Error, Model, Role, spec::Outputs};

impl Model {
    /// `W_out tanh(W norm(x) + b) + b_out`, `[n_scores]`, of the residual `x` of a text's first
    /// token after the last layer, `[d_model]`.
    ///
    /// # Errors
    /// [`Error::NoScores`] for a model without such a head.
    pub fn scores(&self, kernels: Kernels, x: &[f32]) -> Result<Vec<f32>, Error> {
        let Outputs::Scores(_) = self.spec().head.outputs else {
            return Err(Error::NoScores);
        };
        let mut normed = vec![0.0; x.len()];
        self.output_norm(kernels, x, &mut normed);
        let mut hidden = self.product([Role::Cls, Role::ClsBias], &normed);
        hidden.iter_mut().for_each(|x| *x = tanh(*x));
        Ok(self.product([Role::ClsOutput, Role::ClsOutputBias], &hidden))
    }

    /// `W x + b`.
    fn product(&self, [weight, bias]: [Role; 2], x: &[f32]) -> Vec<f32> {
        let t = self.globals();
        let rows = t.vector(weight).chunks_exact(x.len());
        let dot = |w: &[f32]| -> f64 {
            let products = w.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x));
            products.sum()
        };
        let rows = rows.zip(t.vector(bias));
        rows.map(|(w, &b)| (dot(w) + f64::from(b)) as f32).collect()
    }
}
