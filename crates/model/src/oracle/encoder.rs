//! What encoders have beside layers, naively.

use super::{Rows, map_rows, normalized, output_normed, residuals};
use crate::{
    Error, Model, Role,
    spec::{Outputs, ScoreActivation, ScoreInput},
};

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
    let Outputs::Scores(head) = model.spec().head.outputs else {
        return Err(Error::NoScores);
    };
    let t = model.globals();
    let x = output_normed(model, &residuals(model, tokens, first_of_second)?);
    let pooled = match head.reads {
        ScoreInput::First => x[0].iter().map(|&x| x.into()).collect(),
        ScoreInput::Mean => mean(&x),
    };
    let hidden = product(model, Role::Cls, Some(Role::ClsBias), &pooled);
    let act = |x: f64| match head.activation {
        ScoreActivation::Tanh => x.tanh(),
        ScoreActivation::Gelu => x / 2.0 * (1.0 + erf(x / std::f64::consts::SQRT_2)),
    };
    let mut hidden: Vec<f64> = hidden.into_iter().map(act).collect();
    if let Some(norm) = head.norm {
        let x: Vec<f32> = hidden.iter().map(|&x| x as f32).collect();
        let bias = t.vector_opt(Role::ClsNormBias);
        let normed = normalized(norm, &x, t.vector(Role::ClsNorm), bias);
        hidden = normed.into_iter().map(f64::from).collect();
    }
    let scores = product(model, Role::ClsOutput, Some(Role::ClsOutputBias), &hidden);
    Ok(scores.into_iter().map(|x| x as f32).collect())
}

/// The vector of a text by dense modules, before it is scaled.
///
/// # Errors
/// As [`logits`](super::logits).
pub fn dense(model: &Model, tokens: &[u32]) -> Result<Vec<f32>, Error> {
    let x = output_normed(model, &residuals(model, tokens, tokens.len())?);
    let inner = product(model, Role::Dense2, None, &mean(&x));
    let y = product(model, Role::Dense3, None, &inner);
    Ok(y.into_iter().map(|y| y as f32).collect())
}

/// The mean of all rows.
fn mean(x: &Rows) -> Vec<f64> {
    let of = |i: usize| x.iter().map(|x| f64::from(x[i])).sum::<f64>() / x.len() as f64;
    (0..x[0].len()).map(of).collect()
}

/// `W x + b`, with the bias if there is one.
fn product(model: &Model, weight: Role, bias: Option<Role>, x: &[f64]) -> Vec<f64> {
    let t = model.globals();
    let bias = bias.and_then(|bias| t.vector_opt(bias));
    let dot = |w: &[f32]| -> f64 { w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum() };
    let rows = t.vector(weight).chunks_exact(x.len()).enumerate();
    let bias = |i: usize| bias.map_or(0.0, |bias| f64::from(bias[i]));
    rows.map(|(i, w)| dot(w) + bias(i)).collect()
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
