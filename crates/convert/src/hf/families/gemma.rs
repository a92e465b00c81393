//! Gemma.

use atta_model::Role;

use super::{HALVES, QWEN_EXPERTS};
use crate::hf::{
    family::{Experts, Family, Window},
    gemma3n, gemma4,
};

const GEMMA_NORMS: &[(Role, &str)] = &[(Role::FfnNorm, "pre_feedforward_layernorm.weight")];

/// Gemma 3.
pub(in crate::hf) const GEMMA3: Family = Family {
    classes: &["Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"],
    arch: "gemma3",
    defaults: r#"{"tie_word_embeddings": true, "vocab_size": 262208, "hidden_size": 2304,
        "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 256,
        "sliding_window": 4096, "rope_theta": 1e6, "rope_local_base_freq": 1e4}"#,
    fixed: &[("use_bidirectional_attention", "false")],
    multipliers: &[("final_logit_softcapping", "final_logit_softcapping")],
    window: Window::Every(6),
    names: GEMMA_NORMS,
    norm_offset: 1.0,
    ..HALVES
};

pub(super) const ALL: &[Family] = &[
    Family {
        classes: &["GemmaForCausalLM"],
        arch: "gemma",
        defaults: r#"{"tie_word_embeddings": true, "head_dim": 256}"#,
        fixed: &[("use_bidirectional_attention", "false")],
        norm_offset: 1.0,
        ..HALVES
    },
    Family {
        classes: &["Gemma2ForCausalLM"],
        arch: "gemma2",
        defaults: r#"{"tie_word_embeddings": true, "head_dim": 256, "sliding_window": 4096,
            "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0}"#,
        fixed: &[("use_bidirectional_attention", "false")],
        multipliers: &[
            ("attn_logit_softcapping", "attn_logit_softcapping"),
            ("final_logit_softcapping", "final_logit_softcapping"),
        ],
        window: Window::Every(2),
        names: GEMMA_NORMS,
        norm_offset: 1.0,
        ..HALVES
    },
    GEMMA3,
    Family {
        classes: &["Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"],
        arch: "gemma3n",
        defaults: r#"{"tie_word_embeddings": true, "vocab_size": 262400, "hidden_size": 2048,
            "intermediate_size": 16384, "num_hidden_layers": 35, "num_attention_heads": 8,
            "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-6, "sliding_window": 512, "rope_theta": 1e6,
            "rope_local_base_freq": 1e4, "final_logit_softcapping": 30.0,
            "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 15, "laurel_rank": 64,
            "altup_active_idx": 0, "altup_num_inputs": 4}"#,
        fixed: &[("attention_bias", "false"), ("altup_correct_scale", "true")],
        multipliers: &[("final_logit_softcapping", "final_logit_softcapping")],
        window: Window::Listed(5),
        names: gemma3n::NAMES,
        own_keys: Some(gemma3n::write_keys),
        ..HALVES
    },
    Family {
        classes: &["Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"],
        arch: "gemma4",
        defaults: r#"{"tie_word_embeddings": true, "vocab_size": 262144, "hidden_size": 2304,
            "intermediate_size": 9216, "num_hidden_layers": 30, "num_attention_heads": 8,
            "num_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512,
            "max_position_embeddings": 131072, "rms_norm_eps": 1e-6, "sliding_window": 512,
            "hidden_size_per_layer_input": 256, "num_kv_shared_layers": 0,
            "enable_moe_block": false}"#,
        fixed: &[("attention_bias", "false")],
        multipliers: &[("final_logit_softcapping", "final_logit_softcapping")],
        window: Window::Listed(6),
        names: gemma4::NAMES,
        experts: Some(Experts {
            prefix: "experts.",
            keeps_gate_up: true,
            widths: &[("moe_intermediate_size", "expert_feed_forward_length")],
            ..QWEN_EXPERTS
        }),
        own_keys: Some(gemma4::write_keys),
        ..HALVES
    },
];
