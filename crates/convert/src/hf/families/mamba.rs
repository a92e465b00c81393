//! State spaces: Mamba 2, Falcon-H1, Nemotron-H.

use atta_model::Role;

use super::{HALVES, LLAMA};
use crate::hf::{
    family::{Family, Recurrent},
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

pub(super) const ALL: &[Family] = &[
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
    Family {
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
        ),
        own_keys: Some(state_space::write_single),
        ..LLAMA
    },
];
