//! State spaces: the keys of their sizes, and which layers they are.
//!
//! Sources: llama.cpp's `conversion/mamba.py`, `granite.py`, `falcon_h1.py` and `nemotron.py`.
//! Their context length is a large number where positions are not encoded.

use serde_json::Value;

use super::{config::Config, experts, family::MAX_LAYERS, keys::Keys, rope::Rope};
use crate::Error;

/// Positions of models that encode none.
pub(super) const N_POSITIONS: u64 = 1 << 20;

/// What a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LayerKind {
    StateSpace,
    Attention,
    Mlp,
    Experts,
}

/// Sizes: GGUF's key, and the fields by their names in different classes.
const SIZES: [(&str, &[&str]); 4] = [
    ("ssm.conv_kernel", &["conv_kernel", "mamba_d_conv"]),
    (
        "ssm.state_size",
        &["state_size", "mamba_d_state", "ssm_state_size"],
    ),
    ("ssm.group_count", &["n_groups", "mamba_n_groups"]),
    (
        "ssm.time_step_rank",
        &["num_heads", "mamba_n_heads", "mamba_num_heads"],
    ),
];

/// Writes the sizes of state spaces.
pub(super) fn write_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    for (key, fields) in SIZES {
        keys.count(key, c.count(fields)?);
    }
    let d_inner = match c.count_opt(&["mamba_d_ssm"])? {
        Some(d) => d,
        None => {
            let d_model = c.count(&["hidden_size"])?;
            let factor = c.count_opt(&["expand", "mamba_expand"])?.unwrap_or(2);
            of_heads(c)?.unwrap_or(factor.saturating_mul(d_model))
        }
    };
    keys.count("ssm.inner_size", d_inner);
    check_steps(c)
}

/// Writes the sizes of state spaces of channels.
fn write_channels(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    const RANK: [&str; 2] = ["time_step_rank", "mamba_dt_rank"];
    let d_model = c.count(&["hidden_size"])?;
    for (key, fields) in SIZES.iter().take(2) {
        keys.count(key, c.count(fields)?);
    }
    let rank = match c.any(&RANK) {
        Some((_, value)) if value != "auto" => c.count(&RANK)?,
        _ => d_model.div_ceil(16),
    };
    keys.count("ssm.time_step_rank", rank);
    let factor = c.count_opt(&["expand", "mamba_expand"])?.unwrap_or(2);
    keys.count("ssm.inner_size", factor.saturating_mul(d_model));
    Ok(())
}

/// Writes the number of channels, where a field says it.
fn write_inner(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    if let Some(d) = c.count_opt(&["intermediate_size"])? {
        keys.count("ssm.inner_size", d);
    }
    Ok(())
}

/// As [`write_channels`], of a Mamba without norms of what its states read.
pub(super) fn write_mamba(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    keys.flag("ssm.dt_b_c_rms", false);
    write_channels(c, keys)?;
    write_inner(c, keys)
}

/// As [`write_channels`], of a Falcon Mamba, which has such norms.
pub(super) fn write_falcon_mamba(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    keys.flag("ssm.dt_b_c_rms", true);
    write_channels(c, keys)?;
    write_inner(c, keys)
}

/// Writes the keys of a Jamba: attention in one layer of each period.
pub(super) fn write_jamba(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    let n_kv_heads = c.count(&["num_key_value_heads", "num_attention_heads"])?;
    let period = c.count(&["attn_layer_period"])?.max(1);
    let offset = c.count(&["attn_layer_offset"])?;
    let n_layers = c.count(&["num_hidden_layers"])?.min(MAX_LAYERS);
    let heads = |l: u64| if l % period == offset { n_kv_heads } else { 0 };
    let heads: Vec<u64> = (0..n_layers).map(heads).collect();
    keys.counts("attention.head_count_kv", &heads);
    write_channels(c, keys)
}

/// The width of all heads, if the configuration says that of one.
fn of_heads(c: &Config) -> Result<Option<u64>, Error> {
    let fields = ["mamba_d_head", "mamba_head_dim"];
    if c.any(&fields).is_some_and(|(_, value)| value == "auto") {
        return Ok(None);
    }
    let n_heads = c.count(SIZES[3].1)?;
    let d_head = c.count_opt(&fields)?;
    Ok(d_head.map(|d| d.saturating_mul(n_heads)))
}

/// Refuses limits of steps, for which GGUF has no key.
fn check_steps(c: &Config) -> Result<(), Error> {
    match c.list_opt("time_step_limit")? {
        None => Ok(()),
        // Infinity is null, or an object with its name.
        Some([low, Value::Null | Value::Object(_)]) if low.as_f64() == Some(0.0) => Ok(()),
        Some(other) => Err(c.unsupported("time_step_limit", &other.into())),
    }
}

/// Writes which layers have attention, and the sizes that a model without a rope has.
pub(super) fn write_hybrid(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    write_keys(c, keys)?;
    let n_kv_heads = c.count(&["num_key_value_heads", "num_attention_heads"])?;
    let heads = kinds(c)?.map(|kind| match kind? {
        LayerKind::Attention => Ok(n_kv_heads),
        LayerKind::StateSpace | LayerKind::Mlp | LayerKind::Experts => Ok(0),
    });
    keys.counts(
        "attention.head_count_kv",
        &heads.collect::<Result<Vec<_>, Error>>()?,
    );
    let n_heads = c.count(&["num_attention_heads"])?.max(1);
    keys.count("rope.dimension_count", c.count(&["hidden_size"])? / n_heads);
    keys.flag("rope.scaling.finetuned", false);
    keys.count("context_length", N_POSITIONS);
    Ok(())
}

/// As [`write_hybrid`], with the widths of a Granite's MLPs: without experts, that of the shared
/// one.
pub(super) fn write_granite(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    write_hybrid(c, keys)?;
    experts::write_granite_keys(c, keys)?;
    let d_shared = c.count_opt(&["shared_intermediate_size"])?;
    let n_experts = c.count_opt(&["num_local_experts"])?.unwrap_or(0);
    if let Some(d_shared) = d_shared.filter(|_| n_experts == 0) {
        keys.count("feed_forward_length", d_shared);
    }
    keys.number("rope.freq_base", Rope::new(c)?.theta()?);
    Ok(())
}

/// As [`write_hybrid`], with the width of the MLP of each layer that is one.
pub(super) fn write_single(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    write_hybrid(c, keys)?;
    // No layer has experts, so that their fields say nothing.
    c.any(&[
        "moe_intermediate_size",
        "moe_latent_size",
        "moe_shared_expert_intermediate_size",
        "n_group",
        "n_routed_experts",
        "n_shared_experts",
        "routed_scaling_factor",
        "topk_group",
    ]);
    write_widths(c, keys, LayerKind::Mlp, c.count(&["intermediate_size"])?)
}

/// As [`write_hybrid`], with the width of the experts of each layer that has some.
pub(super) fn write_single_or_experts(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    write_hybrid(c, keys)?;
    if let Some(d) = c.count_opt(&["moe_latent_size"])?.filter(|d| *d > 0) {
        return Err(c.unsupported("moe_latent_size", &d.into()));
    }
    if kinds(c)?.any(|kind| matches!(kind, Ok(LayerKind::Mlp))) {
        return Err(c.wrong("layers of MLPs beside layers of experts"));
    }
    // Layers without experts have no MLPs. When a shared expert is computed changes nothing.
    c.any(&["intermediate_size", "moe_shared_expert_overlap"]);
    let d_expert = c.count(&["moe_intermediate_size"])?;
    write_widths(c, keys, LayerKind::Experts, d_expert)
}

/// Writes the width of the feed-forward block of each layer of a kind; 0 of others.
fn write_widths(c: &Config, keys: &mut Keys, with: LayerKind, d_ff: u64) -> Result<(), Error> {
    let widths = kinds(c)?.map(|kind| Ok(if kind? == with { d_ff } else { 0 }));
    let widths = widths.collect::<Result<Vec<_>, Error>>()?;
    keys.counts("feed_forward_length", &widths);
    Ok(())
}

/// Whether some layer of a Nemotron-H has experts.
pub(super) fn has_experts(c: &Config) -> Result<bool, Error> {
    let mut kinds = kinds(c)?;
    Ok(kinds.any(|kind| matches!(kind, Ok(LayerKind::Experts))))
}

/// What each layer is, by a list of their types or a pattern of letters.
fn kinds(c: &Config) -> Result<impl Iterator<Item = Result<LayerKind, Error>>, Error> {
    let listed = c.any(&[
        "hybrid_override_pattern",
        "layers_block_type",
        "layer_types",
    ]);
    let types: Vec<Option<&str>> = match listed {
        Some((_, Value::String(pattern))) => pattern
            .split("")
            .filter(|t| !t.is_empty())
            .map(Some)
            .collect(),
        Some((_, Value::Array(list))) => list.iter().map(Value::as_str).collect(),
        _ => return Err(c.wrong("layer_types is missing")),
    };
    if types.len() as u64 > MAX_LAYERS {
        return Err(c.wrong(format!("{} layers", types.len())));
    }
    let kind = |(l, ty)| match ty {
        Some("mamba" | "linear_attention" | "M") => Ok(LayerKind::StateSpace),
        Some("attention" | "full_attention" | "*") => Ok(LayerKind::Attention),
        Some("mlp" | "-") => Ok(LayerKind::Mlp),
        Some("moe" | "E") => Ok(LayerKind::Experts),
        _ => Err(c.wrong(format!(
            "layer {l} is none of mamba, attention, mlp and moe"
        ))),
    };
    Ok(types.into_iter().enumerate().map(kind))
}

/// Whether some layer is a state space.
pub(super) fn is_hybrid(c: &Config) -> Result<bool, Error> {
    let listed = c.list_opt("layer_types")?.unwrap_or_default();
    Ok(listed
        .iter()
        .any(|kind| matches!(kind.as_str(), Some("mamba" | "linear_attention"))))
}

/// Checks what no key of Falcon-H1 says: the order of the norm of results and their gate.
pub(super) fn write_parallel(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    let is_normed = c.flag_opt("mamba_rms_norm")?.unwrap_or(false);
    let is_first = c.flag_opt("mamba_norm_before_gate")?.unwrap_or(true);
    if is_normed && is_first {
        return Err(c.unsupported("mamba_norm_before_gate", &true.into()));
    }
    write_keys(c, keys)
}

/// Writes the keys of a model of state spaces alone.
pub(super) fn write_alone(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    let eps = c.number_opt(&["layer_norm_epsilon"])?;
    keys.number("attention.layer_norm_rms_epsilon", eps.unwrap_or(1e-5));
    Ok(())
}

/// Writes the sizes of a Mamba 2.
pub(super) fn write_heads(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    write_keys(c, keys)?;
    let d_inner = c.count(SIZES[3].1)?.saturating_mul(c.count(&["head_dim"])?);
    keys.count("ssm.inner_size", d_inner);
    Ok(())
}
