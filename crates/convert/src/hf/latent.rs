//! What only multi-head latent attention has: its keys, and the projections of keys and values
//! from a latent vector, one tensor in checkpoints.
//!
//! Source: llama.cpp's `conversion/deepseek.py` and `conversion/minicpm.py`.

use atta_model::{
    Role,
    spec::{Attention, Latent},
};

use serde_json::Value;

use super::{
    config::Config,
    family::MAX_LAYERS,
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

/// Writes the keys of Kimi Linear, whose checkpoints have the sizes of delta nets in an object of
/// their own; transformers saves them beside the others.
pub(super) fn write_kimi_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    let d_head = write_ranks(c, keys)?;
    let d_rope = c.count(&["qk_rope_head_dim"])?;
    let d_latent = c.count(&["kv_lora_rank"])?;
    keys.count("attention.key_length", d_latent.saturating_add(d_rope));
    keys.count("attention.key_length_mla", d_head);
    keys.count("attention.value_length_mla", c.count(&["v_head_dim"])?);
    let net = KimiNets::read(c)?;
    let n_heads = c.count(&["num_attention_heads"])?;
    if net.n_heads != n_heads {
        return Err(c.wrong(format!(
            "{} heads of delta nets, which are {n_heads} in GGUF",
            net.n_heads
        )));
    }
    keys.count("kda.head_dim", net.d_head);
    keys.count("ssm.conv_kernel", net.n_taps);
    let n_kv_heads: Vec<u64> = net.has_attention.iter().map(|&has| has.into()).collect();
    keys.counts("attention.head_count_kv", &n_kv_heads);
    check_dense_layers(c)?;
    match c.count_opt(&["num_expert_group"])? {
        None | Some(0 | 1) => {}
        Some(n) => keys.count("expert_group_count", n),
    }
    if c.flag_opt("moe_renormalize")? == Some(false) {
        keys.flag("expert_weights_norm", false);
    }
    Ok(())
}

/// The delta nets of Kimi Linear.
struct KimiNets {
    n_heads: u64,
    d_head: u64,
    n_taps: u64,
    /// Which layers have attention in their place.
    has_attention: Vec<bool>,
}

impl KimiNets {
    fn read(c: &Config) -> Result<Self, Error> {
        let Some(given) = c.object_opt("linear_attn_config")? else {
            return Ok(Self {
                n_heads: c.count(&["linear_num_heads"])?,
                d_head: c.count(&["linear_head_dim"])?,
                n_taps: c.count(&["linear_conv_kernel_dim"])?,
                has_attention: listed(c)?,
            });
        };
        let wrong = |field| c.wrong(format!("linear_attn_config does not say {field}"));
        let count = |field| given.get(field).and_then(Value::as_u64);
        let count = |field| count(field).ok_or_else(|| wrong(field));
        let layers = |field| {
            let all = given.get(field).and_then(Value::as_array);
            let all = all.ok_or_else(|| wrong(field))?.iter();
            let all: Option<Vec<u64>> = all.map(Value::as_u64).collect();
            all.ok_or_else(|| wrong(field))
        };
        // Layers are counted from 1.
        let [attention, nets] = [layers("full_attn_layers")?, layers("kda_layers")?];
        let n_layers = c.count(&["num_hidden_layers"])?.min(MAX_LAYERS);
        let has_attention = (1..=n_layers).map(|l| {
            let found = [attention.contains(&l), nets.contains(&l)];
            let one = matches!(found, [true, false] | [false, true]);
            one.then_some(found[0])
                .ok_or_else(|| wrong("what each layer is"))
        });
        let has_attention: Vec<bool> = has_attention.collect::<Result<_, _>>()?;
        if c.get("layer_types").is_some() && listed(c)? != has_attention {
            return Err(c.wrong("layer_types are not those of linear_attn_config"));
        }
        Ok(Self {
            n_heads: count("num_heads")?,
            d_head: count("head_dim")?,
            n_taps: count("short_conv_kernel_size")?,
            has_attention,
        })
    }
}

/// Which layers of a list of layer types have attention.
fn listed(c: &Config) -> Result<Vec<bool>, Error> {
    let all = c.list_opt("layer_types")?.unwrap_or_default();
    let has_attention = |(l, kind): (usize, &Value)| match kind.as_str() {
        Some("full_attention") => Ok(true),
        Some("linear_attention") => Ok(false),
        _ => Err(c.wrong(format!("layer_types does not say what layer {l} is"))),
    };
    all.iter().enumerate().map(has_attention).collect()
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
pub(super) fn check_dense_layers(c: &Config) -> Result<(), Error> {
    let Some(list) = c.list_opt("mlp_layer_types")? else {
        return Ok(());
    };
    let n_dense = c.count_opt(&["first_k_dense_replace"])?.unwrap_or(1);
    let is_as_said = |(l, kind): (usize, &Value)| {
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
