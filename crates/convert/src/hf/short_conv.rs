//! Gated short convolutions (LFM2, LFM3): their keys, and the width of the MLPs beside them.

use serde_json::Value;

use super::{config::Config, family::MAX_LAYERS, keys::Keys};
use crate::Error;

/// Writes the length of the convolutions, which layers they are, and the width of MLPs.
///
/// Layers with convolutions have no key-value heads.
pub(super) fn write_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    keys.count("shortconv.l_cache", c.count(&["conv_L_cache"])?);
    let n_kv_heads = c.count(&["num_key_value_heads"])?;
    let n_kv_heads = i32::try_from(n_kv_heads)
        .map_err(|_| c.unsupported("num_key_value_heads", &n_kv_heads.into()))?;
    let heads: Vec<i32> = has_attention(c)?
        .into_iter()
        .map(|has| if has { n_kv_heads } else { 0 })
        .collect();
    keys.array("attention.head_count_kv", &heads);
    keys.count("feed_forward_length", d_ff(c)?);
    Ok(())
}

/// Checks that each layer's type is listed, which LFM3 has no other field for.
pub(super) fn check_layer_types(c: &Config, _: &mut Keys) -> Result<(), Error> {
    match c.list_opt("layer_types")? {
        Some(_) => Ok(()),
        None => Err(c.wrong("layer_types is missing")),
    }
}

/// Which layers have attention: by their types, or by a list of their numbers, or all.
fn has_attention(c: &Config) -> Result<Vec<bool>, Error> {
    let by_number = c.list_opt("full_attn_idxs")?;
    if let Some(listed) = c.list_opt("layer_types")? {
        let has = |(l, kind): (usize, &Value)| match kind.as_str() {
            Some("full_attention" | "sliding_attention") => Ok(true),
            Some("conv") => Ok(false),
            _ => Err(c.wrong(format!("layer_types does not say what layer {l} is"))),
        };
        return listed.iter().enumerate().map(has).collect();
    }
    let has = |l: u64| by_number.is_none_or(|listed| listed.contains(&l.into()));
    Ok((0..c.count(&["num_hidden_layers"])?.min(MAX_LAYERS))
        .map(has)
        .collect())
}

/// The width of an MLP, which some configurations write as it was before some arithmetic.
fn d_ff(c: &Config) -> Result<u64, Error> {
    let d_ff = c.count(&["block_ff_dim", "intermediate_size"])?;
    let is_adjusted = c.flag_opt("block_auto_adjust_ff_dim")?.unwrap_or(false);
    let factor = c.number_opt(&["block_ffn_dim_multiplier"])?;
    let multiple = c.count_opt(&["block_multiple_of"])?.unwrap_or(1).max(1);
    let adjusted = d_ff.saturating_mul(2) / 3;
    Ok(match factor {
        _ if !is_adjusted => d_ff,
        None => adjusted,
        Some(factor) => ((adjusted as f64 * factor) as u64)
            .div_ceil(multiple)
            .saturating_mul(multiple),
    })
}
