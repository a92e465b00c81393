//! State spaces: Mamba, Falcon Mamba, Mamba 2, Jamba, Falcon-H1, Nemotron-H.

use atta_model::Role;

use super::{HALVES, LLAMA, QWEN_EXPERTS};
use crate::hf::{
    family::{Experts, Family, Recurrent},
    state_space,
};

/// The names of the tensors of state spaces behind a prefix, and others.
macro_rules! ssm_names {
    ($at:literal, $($other:expr,)*) => {
        [
            (Role::SsmIn, concat!($at, "in_proj.weight")),
            (Role::SsmConv, concat!($at, "conv1d.weight")),
            (Role::SsmConvBias, concat!($at, "conv1d.bias")),
            (Role::SsmDtBias, concat!($at, "dt_bias")),
            (Role::SsmA, concat!($at, "A_log")),
            (Role::SsmD, concat!($at, "D")),
            (Role::SsmNorm, concat!($at, "norm.weight")),
            (Role::SsmOut, concat!($at, "out_proj.weight")),
            $($other,)*
        ]
    };
}
pub(super) use ssm_names;

/// Mamba 2, whose classes have no attention and no MLPs.
const MAMBA2: Family = Family {
    classes: &["Mamba2ForCausalLM"],
    arch: "mamba2",
    defaults: r#"{"num_heads": 128, "head_dim": 64, "vocab_size": 32768, "hidden_size": 4096,
        "state_size": 128, "num_hidden_layers": 64, "expand": 2, "conv_kernel": 4, "n_groups": 8}"#,
    fixed: &[("use_bias", "false"), ("hidden_act", "\"silu\"")],
    recurrent: Recurrent::StateSpacesAlone,
    own_keys: Some(state_space::write_heads),
    is_rotated: false,
    prefix: "backbone.layers.{l}.",
    names: &ssm_names!(
        "mixer.",
        (Role::TokenEmbd, "backbone.embeddings.weight"),
        (Role::OutputNorm, "backbone.norm_f.weight"),
        (Role::AttnNorm, "norm.weight"),
    ),
    ..HALVES
};

/// The names of the tensors of state spaces of channels behind a prefix, and others.
macro_rules! channel_names {
    ($at:literal, $($other:expr,)*) => {
        [
            (Role::SsmIn, concat!($at, "in_proj.weight")),
            (Role::SsmConv, concat!($at, "conv1d.weight")),
            (Role::SsmConvBias, concat!($at, "conv1d.bias")),
            (Role::SsmX, concat!($at, "x_proj.weight")),
            (Role::SsmDt, concat!($at, "dt_proj.weight")),
            (Role::SsmDtBias, concat!($at, "dt_proj.bias")),
            (Role::SsmA, concat!($at, "A_log")),
            (Role::SsmD, concat!($at, "D")),
            (Role::SsmOut, concat!($at, "out_proj.weight")),
            $($other,)*
        ]
    };
}

/// Mamba, whose classes have no attention and no MLPs.
const MAMBA: Family = Family {
    classes: &["MambaForCausalLM"],
    arch: "mamba",
    defaults: r#"{"vocab_size": 50280, "hidden_size": 768, "state_size": 16,
        "num_hidden_layers": 32, "expand": 2, "conv_kernel": 4}"#,
    fixed: &[("use_bias", "false"), ("hidden_act", "\"silu\"")],
    recurrent: Recurrent::StateSpacesAlone,
    is_rotated: false,
    prefix: "backbone.layers.{l}.",
    names: &channel_names!(
        "mixer.",
        (Role::TokenEmbd, "backbone.embeddings.weight"),
        (Role::OutputNorm, "backbone.norm_f.weight"),
        (Role::AttnNorm, "norm.weight"),
    ),
    own_keys: Some(state_space::write_mamba),
    ..HALVES
};

const FALCON_MAMBA: Family = Family {
    classes: &["FalconMambaForCausalLM"],
    fixed: &[
        ("use_bias", "false"),
        ("hidden_act", "\"silu\""),
        ("mixer_rms_eps", "1e-6"),
    ],
    own_keys: Some(state_space::write_falcon_mamba),
    ..MAMBA
};

/// Jamba; every second layer has experts, if there are some.
const JAMBA: Family = Family {
    classes: &["JambaForCausalLM"],
    arch: "jamba",
    defaults: r#"{"num_key_value_heads": 8, "rms_norm_eps": 1e-6, "num_experts": 16,
        "num_experts_per_tok": 2, "expert_layer_period": 2, "expert_layer_offset": 1,
        "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4,
        "mamba_expand": 2, "max_position_embeddings": 262144}"#,
    fixed: &[
        ("expert_layer_period", "2"),
        ("expert_layer_offset", "1"),
        ("mamba_proj_bias", "false"),
        ("hidden_act", "\"silu\""),
    ],
    is_rotated: false,
    names: &channel_names!(
        "mamba.",
        (Role::OutputNorm, "model.final_layernorm.weight"),
        (Role::FfnNorm, "pre_ff_layernorm.weight"),
        (Role::FfnGate, "feed_forward.gate_proj.weight"),
        (Role::FfnUp, "feed_forward.up_proj.weight"),
        (Role::FfnDown, "feed_forward.down_proj.weight"),
        (Role::FfnGateInp, "feed_forward.router.weight"),
    ),
    experts: Some(Experts {
        prefix: "feed_forward.experts.",
        widths: &[],
        ..QWEN_EXPERTS
    }),
    own_keys: Some(state_space::write_jamba),
    ..HALVES
};

/// What a Nemotron-H with experts is called here.
pub(in crate::hf) const NEMOTRON_EXPERTS: &str = "NemotronHForCausalLM with experts";

const NEMOTRON_H: Family = Family {
    classes: &["NemotronHForCausalLM"],
    arch: "nemotron_h",
    defaults: r#"{"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
            "intermediate_size": 21504, "max_position_embeddings": 4096, "ssm_state_size": 128,
            "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4,
            "layer_norm_epsilon": 1e-5}"#,
    fixed: &[
        ("mlp_hidden_act", "\"relu2\""),
        ("mamba_hidden_act", "\"silu\""),
        ("time_step_min", "0.001"),
        ("use_bias", "false"),
        ("mamba_proj_bias", "false"),
    ],
    is_rotated: false,
    prefix: "backbone.layers.{l}.",
    names: &ssm_names!(
        "mixer.",
        (Role::TokenEmbd, "backbone.embeddings.weight"),
        (Role::OutputNorm, "backbone.norm_f.weight"),
        (Role::AttnNorm, "norm.weight"),
        (Role::AttnQ, "mixer.q_proj.weight"),
        (Role::AttnQBias, "mixer.q_proj.bias"),
        (Role::AttnK, "mixer.k_proj.weight"),
        (Role::AttnKBias, "mixer.k_proj.bias"),
        (Role::AttnV, "mixer.v_proj.weight"),
        (Role::AttnVBias, "mixer.v_proj.bias"),
        (Role::AttnOutput, "mixer.o_proj.weight"),
        (Role::AttnOutputBias, "mixer.o_proj.bias"),
        (Role::FfnUp, "mixer.up_proj.weight"),
        (Role::FfnUpBias, "mixer.up_proj.bias"),
        (Role::FfnDown, "mixer.down_proj.weight"),
        (Role::FfnDownBias, "mixer.down_proj.bias"),
        (Role::FfnGateInp, "mixer.gate.weight"),
        (Role::ExpProbsBias, "mixer.gate.e_score_correction_bias"),
        (Role::FfnUpShexp, "mixer.shared_experts.up_proj.weight"),
        (Role::FfnDownShexp, "mixer.shared_experts.down_proj.weight"),
    ),
    own_keys: Some(state_space::write_single),
    ..LLAMA
};

pub(super) const ALL: &[Family] = &[
    MAMBA,
    FALCON_MAMBA,
    JAMBA,
    MAMBA2,
    Family {
        classes: &["FalconH1ForCausalLM"],
        arch: "falcon-h1",
        defaults: r#"{"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "mamba_d_ssm": 1024,
            "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4}"#,
        fixed: &[
            ("tie_word_embeddings", "false"),
            ("mamba_proj_bias", "false"),
            ("projectors_bias", "false"),
            ("attention_bias", "false"),
            ("mlp_bias", "false"),
        ],
        folds_multipliers: true,
        names: &ssm_names!(
            "mamba.",
            (Role::OutputNorm, "model.final_layernorm.weight"),
            (Role::FfnNorm, "pre_ff_layernorm.weight"),
            (Role::FfnGate, "feed_forward.gate_proj.weight"),
            (Role::FfnUp, "feed_forward.up_proj.weight"),
            (Role::FfnDown, "feed_forward.down_proj.weight"),
        ),
        otherwise_named: &[Role::FfnNorm],
        own_keys: Some(state_space::write_parallel),
        ..HALVES
    },
    NEMOTRON_H,
    Family {
        classes: &[NEMOTRON_EXPERTS],
        arch: "nemotron_h_moe",
        experts: Some(Experts {
            prefix: "mixer.experts.",
            parts: ["", "up_proj.weight", "down_proj.weight"],
            widths: &[
                ("moe_intermediate_size", "expert_feed_forward_length"),
                (
                    "moe_shared_expert_intermediate_size",
                    "expert_shared_feed_forward_length",
                ),
            ],
            ..QWEN_EXPERTS
        }),
        own_keys: Some(state_space::write_single_or_experts),
        ..NEMOTRON_H
    },
];
