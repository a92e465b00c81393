//! Granite.

use atta_model::Role;

use super::{LLAMA, QWEN_EXPERTS};
use crate::hf::{
    experts,
    family::{Experts, Family},
};

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
];
