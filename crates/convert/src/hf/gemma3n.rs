//! What only Gemma 3n has: names of tensors, keys, and a table of embeddings that is shorter than
//! the vocabulary.
//!
//! Source: llama.cpp's `conversion/gemma.py`, and `Gemma3nTextConfig` of transformers.

use atta_model::{Role, TensorReq};
use serde_json::Value;

use super::{
    config::{Config, number},
    keys::Keys,
    source_tensor::SourceTensor,
    tensors::{shape_of, to_usize},
};
use crate::{Error, RowSource, Tensor};

/// Tensors with names other than Llama's.
pub(super) const NAMES: &[(Role, &str)] = &[(Role::FfnNorm, "pre_feedforward_layernorm.weight")];

/// The largest share of closed gates.
const MAX_CLOSED: f64 = 0.9999;

/// Writes the sizes of streams and embeddings, and how many gates are closed.
pub(super) fn write_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    keys.count("altup.active_idx", c.count(&["altup_active_idx"])?);
    keys.count("altup.num_inputs", c.count(&["altup_num_inputs"])?);
    // It limits weights while they are trained.
    c.number_opt(&["altup_coef_clip"])?;
    keys.count("laurel.rank", c.count(&["laurel_rank"])?);
    let d_head = c.count(&["head_dim"])?;
    keys.count("attention.key_length", d_head);
    keys.count("attention.value_length", d_head);
    let n_shared = c.count(&["num_kv_shared_layers"])?;
    keys.count("attention.shared_kv_layers", n_shared);
    let d_embed = c.count(&["hidden_size_per_layer_input"])?;
    keys.count("embedding_length_per_layer_input", d_embed);
    c.count_opt(&["vocab_size_per_layer_input"])?;
    if let Some(widths) = c.get("intermediate_size").and_then(Value::as_array) {
        let widths: Vec<u64> = widths.iter().map(|n| n.as_u64().unwrap_or(0)).collect();
        keys.counts("feed_forward_length", &widths);
    }
    keys.numbers("activation_sparsity_scale", &deviations(c)?);
    Ok(())
}

/// Standard deviations of gates between their mean and the smallest open one, for each layer; minus
/// infinity where all are open.
fn deviations(c: &Config) -> Result<Vec<f32>, Error> {
    const FIELD: &str = "activation_sparsity_pattern";
    let Some(closed) = c.list_opt(FIELD)? else {
        let n_layers = c
            .count(&["num_hidden_layers"])?
            .min(super::family::MAX_LAYERS);
        let of_layer = |l| if n_layers > 10 && l < 10 { 0.95 } else { 0.0 };
        return Ok((0..n_layers).map(|l| quantile(of_layer(l))).collect());
    };
    let of_layer = |closed: &Value| match number(closed) {
        Some(share) if (0.0..=MAX_CLOSED).contains(&share) => Ok(quantile(share)),
        _ => Err(c.unsupported(FIELD, closed)),
    };
    closed.iter().map(of_layer).collect()
}

/// What a share of a normal distribution lies below, with the roundings of torch.
fn quantile(share: f64) -> f32 {
    match share as f32 {
        0.0 => f32::NEG_INFINITY,
        share => erf_inv(f64::from(2.0 * share - 1.0)) as f32 * std::f32::consts::SQRT_2,
    }
}

/// The inverse of the error function, for numbers not too near to 1, by bisection.
fn erf_inv(y: f64) -> f64 {
    let mut low = -4.0;
    let mut high = 4.0;
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        match erf(middle) < y {
            true => low = middle,
            false => high = middle,
        }
    }
    (low + high) / 2.0
}

/// The error function, by its series around 0.
fn erf(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    for n in 1..200 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    std::f64::consts::FRAC_2_SQRT_PI * sum
}

/// The table of embeddings per layer. Tokens behind its end have the first row's, as in
/// transformers.
pub(super) fn table(req: &TensorReq, source: SourceTensor) -> Result<Tensor, Error> {
    let dims = shape_of(req);
    let n_rows = source.dims().first().copied().unwrap_or(0);
    source.expect(&[n_rows.clamp(1, dims[0]), dims[1]])?;
    let ty = source.float_type();
    let rows = TableRows {
        n_rows,
        d: to_usize(dims[1])?,
        source,
    };
    Ok(Tensor {
        name: req.name(),
        dims,
        ty,
        rows: Box::new(rows),
    })
}

/// Rows of a table, and the first one behind its end.
struct TableRows {
    source: SourceTensor,
    n_rows: u64,
    /// Elements of a row; above 0.
    d: usize,
}

impl RowSource for TableRows {
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        for (row, out) in (first..=u64::MAX).zip(out.chunks_mut(self.d)) {
            let row = if row < self.n_rows { row } else { 0 };
            self.source.floats(row.saturating_mul(self.d as u64), out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_torch() {
        for (share, expected) in [
            (0.95, 1.644_853_6),
            (0.6, 0.253_347_16),
            (0.3, -0.524_400_5),
            (0.0, f32::NEG_INFINITY),
        ] {
            assert_eq!(quantile(share), expected, "{share}");
        }
    }
}
