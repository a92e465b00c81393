//! What encoders compute of a text whose residuals are pooled: scores by the head of a classifier,
//! or a vector by dense modules.
//!
//! Once per text, so f64 sums in the order of elements are fast enough, and every instruction set
//! computes the same.

use atta_kernels::{
    Kernels,
    math::{erf, tanh},
};

use crate::{
    Error, Model, Role,
    blocks::Normalize,
    spec::{Outputs, ScoreActivation},
};

impl Model {
    /// `W_out norm(act(W x + b)) + b_out`, `[n]`, of the pooled residual `x` of a text behind the
    /// output norm, `[d_model]`: that of its first token, or the mean
    /// ([`ScoreInput`](crate::spec::ScoreInput)).
    ///
    /// # Errors
    /// [`Error::NoScores`] for a model without such a head.
    pub fn scores(&self, kernels: Kernels, x: &[f32]) -> Result<Vec<f32>, Error> {
        let Outputs::Scores(head) = self.spec().head.outputs else {
            return Err(Error::NoScores);
        };
        let mut hidden = self.product(Role::Cls, Some(Role::ClsBias), x);
        let act: fn(f32) -> f32 = match head.activation {
            ScoreActivation::Tanh => tanh,
            ScoreActivation::Gelu => |x| 0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2)),
        };
        hidden.iter_mut().for_each(|x| *x = act(*x));
        if let Some(norm) = head.norm {
            let x = hidden.clone();
            let affine = self.globals().affine([Role::ClsNorm, Role::ClsNormBias]);
            norm.apply(kernels, &x, affine, &mut hidden);
        }
        Ok(self.product(Role::ClsOutput, Some(Role::ClsOutputBias), &hidden))
    }

    /// `W_3 W_2 x`, `[d_out]`, of the mean `x` of a text's residuals behind the output norm,
    /// `[d_model]`; `x` itself for a model without dense modules.
    pub fn dense(&self, x: &[f32]) -> Vec<f32> {
        match self.spec().head.outputs {
            Outputs::Dense(_) => {
                self.product(Role::Dense3, None, &self.product(Role::Dense2, None, x))
            }
            Outputs::Logits | Outputs::Hidden | Outputs::Scores(_) => x.to_vec(),
        }
    }

    /// `W x + b`, with the bias if there is one.
    fn product(&self, weight: Role, bias: Option<Role>, x: &[f32]) -> Vec<f32> {
        let t = self.globals();
        let bias = bias.and_then(|bias| t.vector_opt(bias));
        let dot = |w: &[f32]| -> f64 {
            let products = w.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x));
            products.sum()
        };
        let rows = t.vector(weight).chunks_exact(x.len()).enumerate();
        let bias = |i: usize| bias.map_or(0.0, |bias| f64::from(bias[i]));
        rows.map(|(i, w)| (dot(w) + bias(i)) as f32).collect()
    }
}
