//! The keys of mixtures of experts.

use super::{config::Config, family::Family, keys::Keys};
use crate::Error;

/// Counts: GGUF's key, and the fields by their names in different classes.
const COUNTS: [(&str, &[&str]); 6] = [
    ("expert_group_count", &["n_group"]),
    ("expert_group_used_count", &["topk_group"]),
    (
        "expert_shared_count",
        &["n_shared_experts", "moe_num_shared_experts"],
    ),
    ("interleave_moe_layer_step", &["moe_layer_interval"]),
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
        &["num_experts_per_tok", "top_k_experts", "moe_k"],
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
