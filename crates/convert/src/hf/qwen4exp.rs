//! What only Qwen4Exp has: residual streams, indexers, and the gates of delta nets.
//!
//! Source: llama.cpp's `conversion/qwen4exp.py`, and `Qwen4ExpTextConfig` of transformers.

use serde_json::Value;

use super::{config::Config, family::MAX_LAYERS, keys::Keys};
use crate::Error;

/// Writes the sizes of residual streams and indexers, and refuses gates that are no sigmoids: GGUF
/// has no key for them.
pub(super) fn write_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    // Without this field it is the activation of experts.
    let gate = c.text_opt("output_gate_type")?.unwrap_or("silu");
    if gate != "sigmoid" {
        return Err(c.unsupported("output_gate_type", &gate.into()));
    }
    keys.count("hyper_connection.count", c.count(&["hc_count"])?);
    keys.count("hyper_connection.low_rank", c.count(&["hc_lowrank"])?);
    match c.count_opt(&["indexer_n_heads"])? {
        None => Ok(()),
        Some(n_heads) => write_indexer_keys(c, n_heads, keys),
    }
}

fn write_indexer_keys(c: &Config, n_heads: u64, keys: &mut Keys) -> Result<(), Error> {
    keys.count("attention.indexer.head_count", n_heads);
    for (key, field) in [
        ("attention.indexer.key_length", "indexer_head_dim"),
        ("attention.indexer.top_k", "indexer_budget"),
    ] {
        keys.count(key, c.count(&[field])?);
    }
    let ratio = c.count(&["indexer_compress_ratio"])?;
    let ratios = are_recurrent(c)?;
    let ratios: Vec<u64> = ratios.map(|skips| if skips { 0 } else { ratio }).collect();
    keys.counts("attention.compress_ratios", &ratios);
    Ok(())
}

/// Which layers are gated delta nets.
fn are_recurrent(c: &Config) -> Result<impl Iterator<Item = bool>, Error> {
    let n_layers = c.count(&["num_hidden_layers"])?.min(MAX_LAYERS);
    let interval = c.count(&["full_attention_interval"])?.max(1);
    let listed = c.list_opt("layer_types")?;
    Ok((0..n_layers).map(move |l| match listed {
        Some(listed) => listed.get(l as usize).and_then(Value::as_str) == Some("linear_attention"),
        None => !(l + 1).is_multiple_of(interval),
    }))
}
