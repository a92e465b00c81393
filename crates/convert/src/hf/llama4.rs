//! The keys of Llama 4.
//!
//! llama.cpp's files have none for chunks and for the growth of queries, whose values are those of
//! all released models; others are written in keys that atta reads.

use serde_json::Value;

use super::{config::Config, family::MAX_LAYERS, keys::Keys};
use crate::Error;

/// Positions of a chunk, and those after which queries first grow, without a key.
const USUAL_CHUNK: u64 = 8192;

/// How fast queries grow, without a key.
const USUAL_SLOPE: f64 = 0.1;

/// Writes the widths of dense layers and of experts, and values that are not the usual ones.
pub(super) fn write_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    keys.count("feed_forward_length", c.count(&["intermediate_size_mlp"])?);
    let chunk = c.count(&["attention_chunk_size"])?;
    if chunk != USUAL_CHUNK {
        keys.count("attention.sliding_window", chunk);
    }
    let n_positions = c.count(&["floor_scale"])?;
    if n_positions != USUAL_CHUNK {
        keys.count("attention.temperature_length", n_positions);
    }
    let slope = c.number_opt(&["attn_scale"])?.unwrap_or(USUAL_SLOPE);
    let slope = if grows(c) { slope } else { 0.0 };
    if slope != USUAL_SLOPE {
        keys.number("attention.temperature_scale", slope);
    }
    check_layers(c)
}

/// Whether queries grow; some configurations have a number for the truth.
fn grows(c: &Config) -> bool {
    match c.get("attn_temperature_tuning") {
        Some(Value::Bool(grows)) => *grows,
        Some(Value::Number(n)) => n.as_f64() != Some(0.0),
        _ => true,
    }
}

/// Refuses other patterns of layers than those that the keys mean.
fn check_layers(c: &Config) -> Result<(), Error> {
    let n_layers = c.count(&["num_hidden_layers"])?.min(MAX_LAYERS);
    let step = c.count(&["interleave_moe_layer_step"])?.max(1);
    let kind = |l: u64| match (l + 1).is_multiple_of(4) {
        true => "full_attention",
        false => "chunked_attention",
    };
    let kinds: Vec<Value> = (0..n_layers).map(|l| kind(l).into()).collect();
    let has_experts = |l: &u64| (l + 1).is_multiple_of(step);
    let moe: Vec<Value> = (0..n_layers).filter(has_experts).map(Value::from).collect();
    for (field, meant) in [("layer_types", kinds), ("moe_layers", moe)] {
        if let Some(given) = c.list_opt(field)?.filter(|given| *given != meant) {
            return Err(c.unsupported(field, &given.into()));
        }
    }
    Ok(())
}
