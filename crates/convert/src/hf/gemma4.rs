//! What only Gemma 4 has: names of tensors, and keys of layers that differ.
//!
//! Source: llama.cpp's `conversion/gemma.py`, and `Gemma4TextConfig` of transformers.

use atta_model::Role;

use super::{config::Config, keys::Keys};
use crate::Error;

/// Tensors with names other than Llama's.
pub(super) const NAMES: &[(Role, &str)] = &[
    (Role::FfnNorm, "pre_feedforward_layernorm.weight"),
    (Role::FfnGateInp, "router.proj.weight"),
];

/// The name of the factors of experts' results, `[n_experts]`.
pub(super) const EXPERT_SCALE: &str = "router.per_expert_scale";

/// Writes the sizes of layers without a window, which are the ones that GGUF's usual keys mean, and
/// those of layers with one, where they differ.
pub(super) fn write_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    if let Some(all @ "all") = c.text_opt("use_bidirectional_attention")? {
        return Err(c.unsupported("use_bidirectional_attention", &all.into()));
    }
    let slides = slides(c)?;
    let d_head = c.count(&["head_dim"])?;
    let d_global = match of_global(c, &slides, "head_dim")? {
        Some(d) => d,
        None => c.count(&["global_head_dim"])?,
    };
    for (suffix, d) in [("", d_global), ("_swa", d_head)] {
        keys.count(&format!("attention.key_length{suffix}"), d);
        keys.count(&format!("attention.value_length{suffix}"), d);
        keys.count(&format!("rope.dimension_count{suffix}"), d);
    }
    kv_heads(c, &slides, keys)?;
    let n_shared = c.count(&["num_kv_shared_layers"])?;
    keys.count("attention.shared_kv_layers", n_shared);
    let d_embed = c.count_opt(&["hidden_size_per_layer_input"])?.unwrap_or(0);
    keys.count("embedding_length_per_layer_input", d_embed);
    let n_embed = c.count_opt(&["vocab_size_per_layer_input"])?;
    let n_vocab = c.count(&["vocab_size"])?;
    if let Some(n) = n_embed.filter(|&n| d_embed > 0 && n != n_vocab) {
        return Err(c.unsupported("vocab_size_per_layer_input", &n.into()));
    }
    if c.flag_opt("use_double_wide_mlp")? == Some(true) {
        let d_ff = c.count(&["intermediate_size"])?;
        let n_own = (slides.len() as u64).saturating_sub(n_shared);
        let width = |l| {
            if l < n_own {
                d_ff
            } else {
                d_ff.saturating_mul(2)
            }
        };
        let widths: Vec<u64> = (0..slides.len() as u64).map(width).collect();
        keys.counts("feed_forward_length", &widths);
    }
    Ok(())
}

/// Which layers have a window.
fn slides(c: &Config) -> Result<Vec<bool>, Error> {
    let n_layers = c
        .count(&["num_hidden_layers"])?
        .min(super::family::MAX_LAYERS);
    Ok(match c.list_opt("layer_types")? {
        Some(list) => list
            .iter()
            .map(|kind| kind == "sliding_attention")
            .collect(),
        // The last layer has none, whatever its number.
        None => (1..=n_layers)
            .map(|l| l % 6 != 0 && l != n_layers)
            .collect(),
    })
}

/// The key-value heads of each layer, if those without a window have another number.
fn kv_heads(c: &Config, slides: &[bool], keys: &mut Keys) -> Result<(), Error> {
    let is_alternative = c.flag_opt("attention_k_eq_v")? == Some(true);
    let declared = c.count_opt(&["num_global_key_value_heads"])?;
    let global = match of_global(c, slides, "num_key_value_heads")? {
        Some(n) => Some(n),
        None => declared.filter(|_| is_alternative),
    };
    let n = c.count(&["num_key_value_heads"])?;
    if let Some(global) = global {
        let of_layer = |&slides: &bool| if slides { n } else { global };
        let all: Vec<u64> = slides.iter().map(of_layer).collect();
        keys.counts("attention.head_count_kv", &all);
    }
    Ok(())
}

/// What transformers 5 writes of layers without a window: the first one's, since they are alike.
fn of_global(c: &Config, slides: &[bool], field: &str) -> Result<Option<u64>, Error> {
    let Some(layers) = c.object_opt("per_layer_config")? else {
        return Ok(None);
    };
    let globals = (0..slides.len()).filter(|&l| !slides[l]);
    let mut values = globals.filter_map(|l| layers.get(&l.to_string())?.get(field));
    let Some(first) = values.next() else {
        return Ok(None);
    };
    match (values.all(|other| other == first), first.as_u64()) {
        (true, Some(n)) => Ok(Some(n)),
        _ => Err(c.unsupported("per_layer_config", first)),
    }
}
