//! The keys of mixtures of experts.

use serde_json::Value;

use super::{config::Config, family::Family, keys::Keys, latent};
use crate::Error;

/// Counts: GGUF's key, and the fields by their names in different classes.
const COUNTS: [(&str, &[&str]); 6] = [
    ("expert_group_count", &["n_group"]),
    ("expert_group_used_count", &["topk_group"]),
    (
        "expert_shared_count",
        &[
            "n_shared_experts",
            "moe_num_shared_experts",
            "num_shared_experts",
        ],
    ),
    (
        "interleave_moe_layer_step",
        &["moe_layer_interval", "interleave_moe_layer_step"],
    ),
    (
        "leading_dense_block_count",
        &[
            "num_dense_layers",
            "first_k_dense_replace",
            "moe_layer_start_index",
        ],
    ),
    (
        "expert_used_count",
        &[
            "num_experts_per_tok",
            "num_experts_per_token",
            "top_k_experts",
            "moe_k",
        ],
    ),
];

/// Writes how many experts there are, in which layers, and how they are chosen.
pub(super) fn write_keys(c: &Config, family: &Family, keys: &mut Keys) -> Result<(), Error> {
    let Some(experts) = &family.experts else {
        return Ok(());
    };
    if c.flag_opt("enable_moe_block")? == Some(false) {
        // The fields of experts say nothing then.
        c.any(&["num_experts", "top_k_experts", "moe_intermediate_size"]);
        return Ok(());
    }
    let n_experts = [
        "num_local_experts",
        "num_experts",
        "n_routed_experts",
        "moe_num_experts",
    ];
    keys.count("expert_count", c.count(&n_experts)?);
    let widths = experts
        .widths
        .iter()
        .map(|(field, key)| (key, vec![*field]));
    let counts = COUNTS.iter().map(|(key, fields)| (key, fields.to_vec()));
    for (key, fields) in widths.chain(counts) {
        if let Some(n) = c.count_opt(&fields)? {
            keys.count(key, n);
        }
    }
    if let Some(gating) = experts.gating {
        keys.count("expert_gating_func", gating);
    }
    if let Some(scale) = c.number_opt(&["routed_scaling_factor"])? {
        keys.number("expert_weights_scale", scale);
    }
    if let Some(are_renormalized) = c.flag_opt("norm_topk_prob")? {
        keys.flag("expert_weights_norm", are_renormalized);
    }
    Ok(())
}

/// Writes the width of ERNIE's shared experts together, and refuses dense layers at the end.
pub(super) fn write_ernie_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    let n_layers = c.count(&["num_hidden_layers"])?;
    let last = c.number_opt(&["moe_layer_end_index"])?.unwrap_or(-1.0);
    if last >= 0.0 && last + 1.0 != n_layers as f64 {
        return Err(c.unsupported("moe_layer_end_index", &last.into()));
    }
    let n_shared = c.count_opt(&["moe_num_shared_experts"])?.unwrap_or(0);
    if n_shared > 0 {
        let d_expert = c.count(&["moe_intermediate_size"])?;
        let d_shared = n_shared.saturating_mul(d_expert);
        keys.count("expert_shared_feed_forward_length", d_shared);
    }
    Ok(())
}

/// Writes the width of EXAONE's shared experts together, and that no further tokens are predicted:
/// tensors for that are left out.
pub(super) fn write_exaone_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    let d_expert = c.count(&["moe_intermediate_size"])?;
    let d_shared = c.count(&["num_shared_experts"])?.saturating_mul(d_expert);
    keys.count("expert_shared_feed_forward_length", d_shared);
    keys.count("nextn_predict_layers", 0);
    latent::check_dense_layers(c)
}

/// Writes the keys of Hunyuan's experts, whose fields may be lists of all layers.
pub(super) fn write_hunyuan_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    let d_ff = c.count(&["intermediate_size"])?;
    let d_expert = in_all_layers(c, "moe_intermediate_size")?.unwrap_or(d_ff);
    keys.count("expert_feed_forward_length", d_expert);
    keys.count("expert_shared_feed_forward_length", d_ff);
    let n_shared = in_all_layers(c, "num_shared_expert")?.unwrap_or(1);
    keys.count("expert_shared_count", n_shared);
    let n_used = in_all_layers(c, "moe_topk")?.unwrap_or(1);
    keys.count("expert_used_count", n_used);
    Ok(())
}

/// A count that is a number, or a list of the same number for every layer.
fn in_all_layers(c: &Config, field: &str) -> Result<Option<u64>, Error> {
    let Some(value) = c.get(field) else {
        return Ok(None);
    };
    let first = match value {
        Value::Array(list) if list.iter().all(|n| Some(n) == list.first()) => list.first(),
        other => Some(other),
    };
    let n = first.and_then(Value::as_u64);
    n.map(Some).ok_or_else(|| c.unsupported(field, value))
}

/// Writes the widths of Granite's experts; that of the shared one is a field of its own.
pub(super) fn write_granite_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    keys.count("feed_forward_length", c.count(&["intermediate_size"])?);
    match c.count_opt(&["shared_intermediate_size"])? {
        None | Some(0) => {}
        Some(d_shared) => keys.count("expert_shared_feed_forward_length", d_shared),
    }
    Ok(())
}
