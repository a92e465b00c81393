//! Granite.

use atta_model::Role;

use super::{LLAMA, QWEN_EXPERTS, mamba::ssm_names};
use crate::{
    Error,
    hf::{
        config::Config,
        experts,
        family::{Experts, Family, Window},
        keys::Keys,
        rope::Rope,
        state_space,
    },
};

/// What [`Family::of`] calls a `GraniteMoeHybridForCausalLM` with mamba layers.
pub(in crate::hf) const GRANITE_MAMBA: &str = "GraniteMoeHybridForCausalLM with mamba layers";

const GRANITE: Family = Family {
    classes: &["GraniteForCausalLM"],
    arch: "granite",
    defaults: r#"{"attention_multiplier": 1.0, "embedding_multiplier": 1.0,
        "residual_multiplier": 1.0, "logits_scaling": 1.0}"#,
    multipliers: &[
        ("attention_multiplier", "attention.scale"),
        ("embedding_multiplier", "embedding_scale"),
        ("residual_multiplier", "residual_scale"),
        ("logits_scaling", "logit_scale"),
    ],
    ..LLAMA
};

/// Granite with experts.
const GRANITE_MOE: Family = Family {
    classes: &["GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"],
    arch: "granitemoe",
    names: &[
        (Role::FfnGateInp, "block_sparse_moe.router.layer.weight"),
        (Role::FfnDownShexp, "shared_mlp.output_linear.weight"),
    ],
    gate_up: Some("shared_mlp.input_linear.weight"),
    experts: Some(Experts {
        joined: [
            "block_sparse_moe.input_linear.weight",
            "block_sparse_moe.output_linear.weight",
        ],
        widths: &[],
        ..QWEN_EXPERTS
    }),
    own_keys: Some(experts::write_granite_keys),
    ..GRANITE
};

pub(super) const ALL: &[Family] = &[
    GRANITE,
    GRANITE_MOE,
    Family {
        // Those without mamba layers and experts, such as Granite 4.0 micro.
        classes: &["GraniteMoeHybridForCausalLM"],
        defaults: r#"{"attention_multiplier": 1.0, "embedding_multiplier": 1.0,
            "residual_multiplier": 1.0, "logits_scaling": 1.0, "num_local_experts": 8,
            "position_embedding_type": "nope"}"#,
        fixed: &[
            ("num_local_experts", "0"),
            ("position_embedding_type", "\"rope\""),
        ],
        names: &[(Role::FfnDown, "shared_mlp.output_linear.weight")],
        gate_up: Some("shared_mlp.input_linear.weight"),
        ..GRANITE
    },
    Family {
        classes: &["GraniteSWAForCausalLM"],
        arch: "granite_swa",
        defaults: r#"{"attention_multiplier": 1.0, "embedding_multiplier": 1.0,
            "residual_multiplier": 1.0, "logits_scaling": 1.0, "sliding_window": 128,
            "num_key_value_heads": 4, "tie_word_embeddings": true}"#,
        window: Window::Listed(4),
        own_keys: Some(rotating_layers),
        ..GRANITE
    },
    Family {
        classes: &[GRANITE_MAMBA],
        arch: "granitehybrid",
        defaults: r#"{"attention_multiplier": 1.0, "embedding_multiplier": 1.0,
            "residual_multiplier": 1.0, "logits_scaling": 1.0, "num_local_experts": 8,
            "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4,
            "mamba_expand": 2}"#,
        fixed: &[
            ("position_embedding_type", "\"nope\""),
            ("mamba_proj_bias", "false"),
        ],
        is_rotated: false,
        names: &ssm_names!(
            "mamba.",
            (Role::FfnDown, "shared_mlp.output_linear.weight"),
            (Role::FfnDownShexp, "shared_mlp.output_linear.weight"),
            (Role::FfnGateInp, "block_sparse_moe.router.layer.weight"),
        ),
        own_keys: Some(state_space::write_granite),
        ..GRANITE_MOE
    },
];

/// Writes which layers rotate, if not all do. A base of 0 means that a layer does not.
fn rotating_layers(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    if c.list_opt("layer_types")?.is_none() {
        return Err(c.wrong("layer_types is missing"));
    }
    let Some(bases) = c.list_opt("layer_rope_theta")? else {
        return Ok(());
    };
    let theta = Rope::new(c)?.theta()?;
    let mut rotates = Vec::new();
    for base in bases {
        match base.as_f64() {
            Some(0.0) => rotates.push(false),
            Some(base) if base == theta => rotates.push(true),
            _ => return Err(c.unsupported("layer_rope_theta", base)),
        }
    }
    if rotates.contains(&false) {
        keys.flags("attention.rope_pattern", &rotates);
    }
    Ok(())
}
