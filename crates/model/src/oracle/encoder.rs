//! What encoders have beside layers, naively.

use super::{Rows, map_rows, normalized, output_normed, residuals};
use crate::{Error, Model, Role, spec::Outputs};

/// Adds the embedding of the type of each token, and normalizes the sum.
pub(super) fn embed(model: &Model, first_of_second: usize, x: &mut Rows) {
    let t = model.globals();
    let n_types = model.spec().token_types.n_rows();
    if let Some(table) = t.vector_opt(Role::TokenTypes) {
        for (pos, x) in x.iter_mut().enumerate() {
            let row = usize::from(pos >= first_of_second).min(n_types - 1);
            let d = x.len();
            x.iter_mut()
                .zip(&table[row * d..(row + 1) * d])
                .for_each(|(x, e)| *x += e);
        }
    }
    if let Some(norm) = model.spec().embed_norm {
        let bias = t.vector_opt(Role::TokenEmbdNormBias);
        let weight = t.vector(Role::TokenEmbdNorm);
        *x = map_rows(x, |x| normalized(norm, x, weight, bias));
    }
}

/// The scores of a text of a model that computes some. Tokens from `first_of_second` on are of a
/// second text.
///
/// # Errors
/// As [`logits`](super::logits), and a model without scores.
pub fn scores(model: &Model, tokens: &[u32], first_of_second: usize) -> Result<Vec<f32>, Error> {
    let Outputs::Scores(n) = model.spec().head.outputs else {
        return Err(Error::NoScores);
    };
    let t = model.globals();
    let x = output_normed(model, &residuals(model, tokens, first_of_second)?);
    let product = |weight, bias, x: &[f64], n: usize| -> Vec<f64> {
        let rows = t.vector(weight).chunks_exact(x.len()).zip(t.vector(bias));
        let dot = |w: &[f32]| -> f64 { w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum() };
        rows.take(n).map(|(w, b)| dot(w) + f64::from(*b)).collect()
    };
    let first: Vec<f64> = x[0].iter().map(|&x| x.into()).collect();
    let hidden = product(Role::Cls, Role::ClsBias, &first, first.len());
    let hidden: Vec<f64> = hidden.into_iter().map(f64::tanh).collect();
    let scores = product(Role::ClsOutput, Role::ClsOutputBias, &hidden, n);
    Ok(scores.into_iter().map(|x| x as f32).collect())
}

/// The error function by its series, `2/sqrt(pi) sum (-1)^n x^(2n+1) / (n! (2n+1))`; from 4 on it
/// is 1 within 2e-8, and the terms of the series cancel.
pub(super) fn erf(x: f64) -> f64 {
    if x.abs() >= 4.0 {
        return x.signum();
    }
    let mut term = x;
    let mut sum = x;
    for n in 1..100 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}
