//! LFM2 and LFM3.

use atta_model::Role;

use super::{HALVES, QWEN_EXPERTS};
use crate::hf::{
    family::{Experts, Family, Recurrent, Window},
    short_conv,
};

/// LFM2: gated short convolutions, and attention in some layers.
const LFM2: Family = Family {
    classes: &["Lfm2ForCausalLM", "LFM2ForCausalLM"],
    arch: "lfm2",
    defaults: r#"{"tie_word_embeddings": true, "num_key_value_heads": 8, "rope_theta": 1e6,
        "norm_eps": 1e-5, "conv_L_cache": 3, "block_auto_adjust_ff_dim": true,
        "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256}"#,
    fixed: &[("conv_bias", "false")],
    recurrent: Recurrent::ShortConv,
    names: &[
        (Role::OutputNorm, "model.embedding_norm.weight"),
        (Role::AttnNorm, "operator_norm.weight"),
        (Role::AttnQNorm, "self_attn.q_layernorm.weight"),
        (Role::AttnKNorm, "self_attn.k_layernorm.weight"),
        (Role::AttnOutput, "self_attn.out_proj.weight"),
        (Role::FfnNorm, "ffn_norm.weight"),
        (Role::FfnGate, "feed_forward.w1.weight"),
        (Role::FfnUp, "feed_forward.w3.weight"),
        (Role::FfnDown, "feed_forward.w2.weight"),
        (Role::FfnGateInp, "feed_forward.gate.weight"),
        (Role::ExpProbsBias, "feed_forward.expert_bias"),
    ],
    otherwise_named: &[Role::OutputNorm],
    ..HALVES
};

pub(super) const ALL: &[Family] = &[
    LFM2,
    Family {
        classes: &["Lfm2MoeForCausalLM"],
        arch: "lfm2moe",
        defaults: r#"{"tie_word_embeddings": true, "num_key_value_heads": 8, "rope_theta": 1e6,
            "norm_eps": 1e-5, "conv_L_cache": 3, "num_dense_layers": 2,
            "moe_intermediate_size": 1792, "num_experts_per_tok": 4, "num_experts": 32,
            "norm_topk_prob": true}"#,
        fixed: &[("conv_bias", "false"), ("use_expert_bias", "true")],
        experts: Some(Experts {
            prefix: "feed_forward.experts.",
            parts: ["w1.weight", "w3.weight", "w2.weight"],
            gating: Some(2),
            ..QWEN_EXPERTS
        }),
        ..LFM2
    },
    Family {
        classes: &["Lfm3ForCausalLM"],
        arch: "lfm3",
        defaults: r#"{"tie_word_embeddings": true, "vocab_size": 128000, "hidden_size": 2048,
            "intermediate_size": 7680, "num_hidden_layers": 24, "num_attention_heads": 16,
            "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 128000,
            "norm_eps": 1e-5, "conv_L_cache": 7, "sliding_window": 256, "use_sandwich_norm": true,
            "use_attention_gate": true}"#,
        fixed: &[
            ("conv_bias", "false"),
            ("attention_bias", "false"),
            ("use_sandwich_norm", "true"),
            ("use_attention_gate", "true"),
        ],
        window: Window::Listed(4),
        names: &[
            (Role::OutputNorm, "model.embedding_norm.weight"),
            (Role::AttnNorm, "operator_norm.weight"),
            (Role::AttnPostNorm, "post_operator_norm.weight"),
            (Role::AttnGate, "self_attn.gate_proj.weight"),
            (Role::FfnNorm, "ffn_norm.weight"),
            (Role::FfnGate, "feed_forward.w1.weight"),
            (Role::FfnUp, "feed_forward.w3.weight"),
            (Role::FfnDown, "feed_forward.w2.weight"),
            (Role::FfnPostNorm, "post_ffn_norm.weight"),
        ],
        own_keys: Some(short_conv::check_layer_types),
        ..LFM2
    },
];
