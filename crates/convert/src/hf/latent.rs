//! What only multi-head latent attention has: its keys, and the projections of keys and values
//! from a latent vector, one tensor in checkpoints.
//!
//! Source: llama.cpp's `conversion/deepseek.py` and `conversion/minicpm.py`.

use atta_model::{
    Role,
    spec::{Attention, Latent},
};

use super::{
    config::Config,
    keys::Keys,
    rope::{Rope, RopeType},
    rows::{Change, GatheredRows, RowMap, TransposedRows},
    source_tensor::SourceTensor,
};
use crate::{Error, RowSource};

/// Writes the keys of MiniCPM3. Those of multipliers and of the width of values are our own:
/// llama.cpp takes those of MiniCPM3-4B.
pub(super) fn write_minicpm3_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    let d_head = write_ranks(c, keys)?;
    let d_model = c.count(&["hidden_size"])?;
    let d_value = d_model / c.count(&["num_attention_heads"])?.max(1);
    let d_value = c.count_opt(&["v_head_dim"])?.unwrap_or(d_value);
    keys.count("attention.key_length", d_head);
    keys.count("attention.value_length", d_value);
    let n_layers = c.count(&["num_hidden_layers"])? as f64;
    let depth = c.number_opt(&["scale_depth"])?;
    keys.number("residual_scale", depth.map_or(1.0, |d| d / n_layers.sqrt()));
    let base = c.number_opt(&["dim_model_base"])?;
    keys.number(
        "logit_scale",
        base.map_or(1.0, |base| d_model as f64 / base),
    );
    Ok(())
}

/// Writes the keys of DeepSeek's models and of those like them, and for models without experts the
/// keys that say so.
pub(super) fn write_deepseek_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    let d_head = write_ranks(c, keys)?;
    let d_latent = c.count(&["kv_lora_rank"])?;
    let d_rope = c.count(&["qk_rope_head_dim"])?;
    keys.count("attention.head_count_kv", 1);
    keys.count("attention.key_length", d_latent.saturating_add(d_rope));
    keys.count("attention.value_length", d_latent);
    keys.count("attention.key_length_mla", d_head);
    keys.count("attention.value_length_mla", c.count(&["v_head_dim"])?);
    write_yarn(c, keys)?;
    check_groups(c)?;
    check_dense_layers(c)?;
    if c.count_opt(&["n_routed_experts"])?.is_none() {
        keys.count(
            "leading_dense_block_count",
            c.count(&["num_hidden_layers"])?,
        );
        keys.count(
            "expert_feed_forward_length",
            c.count(&["intermediate_size"])?,
        );
        keys.count("expert_shared_count", 0);
    }
    Ok(())
}

/// Refuses groups of experts that are not used: GGUF cannot say so.
fn check_groups(c: &Config) -> Result<(), Error> {
    match (c.text_opt("topk_method")?, c.count_opt(&["n_group"])?) {
        (Some("greedy"), Some(n @ 2..)) => Err(c.unsupported("n_group", &n.into())),
        _ => Ok(()),
    }
}

/// Writes the ranks of latent vectors and the number of rotated elements; returns the width of a
/// head's key.
fn write_ranks(c: &Config, keys: &mut Keys) -> Result<u64, Error> {
    let d_rope = c.count(&["qk_rope_head_dim"])?;
    if let Some(rank) = c.count_opt(&["q_lora_rank"])? {
        keys.count("attention.q_lora_rank", rank);
    }
    keys.count("attention.kv_lora_rank", c.count(&["kv_lora_rank"])?);
    keys.count("rope.dimension_count", d_rope);
    Ok(c.count(&["qk_nope_head_dim"])?.saturating_add(d_rope))
}

/// Writes what YaRN multiplies scores by, a tenth of it for historical reasons, and what it
/// multiplies rotated elements by, where that is not 1.
fn write_yarn(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    let rope = Rope::new(c)?;
    let (RopeType::Yarn, Some(all)) = (rope.kind()?, rope.mscale_all_dim()?) else {
        return Ok(());
    };
    keys.number("rope.scaling.yarn_log_multiplier", 0.1 * all);
    let magnitude = rope.magnitude()?;
    if magnitude != 1.0 {
        keys.number("rope.scaling.yarn_attn_factor", magnitude);
    }
    Ok(())
}

/// Checks that a list of layers says the same as the number of dense ones.
fn check_dense_layers(c: &Config) -> Result<(), Error> {
    let Some(list) = c.list_opt("mlp_layer_types")? else {
        return Ok(());
    };
    let n_dense = c.count_opt(&["first_k_dense_replace"])?.unwrap_or(1);
    let is_as_said = |(l, kind): (usize, &serde_json::Value)| {
        kind == if (l as u64) < n_dense {
            "dense"
        } else {
            "sparse"
        }
    };
    match list.iter().enumerate().all(is_as_said) {
        true => Ok(()),
        false => Err(c.wrong("mlp_layer_types are not those of first_k_dense_replace")),
    }
}

/// Whether a tensor is a part of the projections that are one tensor in the checkpoint.
pub(super) fn is_part(role: Role) -> bool {
    matches!(role, Role::AttnKB | Role::AttnVB)
}

/// The rows of the projection of keys, transposed for each head, or of values.
pub(super) fn part(
    source: SourceTensor,
    role: Role,
    a: &Attention,
) -> Result<Box<dyn RowSource>, Error> {
    let latent = a.latent().ok_or_else(|| Error::Missing.of(source.name()))?;
    let n_rows = (a.n_heads as u64).saturating_mul(latent.d_up() as u64);
    source.expect(&[n_rows, latent.d_latent as u64])?;
    Ok(match role {
        Role::AttnKB => Box::new(keys(source, latent)),
        _ => Box::new(values(source, latent, a.n_heads)),
    })
}

fn keys(source: SourceTensor, latent: &Latent) -> TransposedRows {
    let d_latent = latent.d_latent as u64;
    TransposedRows {
        source,
        d_row: latent.d_key,
        n_rows: latent.d_up() as u64,
        n_columns: d_latent,
        n_each: d_latent,
        order: RowMap::Same,
    }
}

fn values(source: SourceTensor, latent: &Latent, n_heads: usize) -> GatheredRows {
    let take = latent.d_value as u64;
    let ty = source.tensor_type();
    GatheredRows {
        parts: vec![source],
        n_each: (n_heads as u64).saturating_mul(take),
        width: latent.d_latent,
        d_row: latent.d_latent,
        order: RowMap::Part {
            take,
            of: latent.d_up() as u64,
            first: latent.d_key as u64,
            step: 1,
        },
        change: Change::None,
        ty,
    }
}
