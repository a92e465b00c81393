//! Qwen, dense and with experts.

use atta_model::Role;

use super::{HALVES, QWEN_EXPERTS};
use crate::hf::{
    family::{Experts, Family, Recurrent, Window},
    qwen4exp,
};

/// Qwen3.5: gated delta nets, and attention with an output gate in every fourth layer.
const QWEN35: Family = Family {
    classes: &["Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"],
    arch: "qwen35",
    defaults: r#"{"head_dim": 256, "num_key_value_heads": 4, "partial_rotary_factor": 0.25,
        "rms_norm_eps": 1e-6, "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32}"#,
    fixed: &[("attn_output_gate", "true")],
    recurrent: Recurrent::DeltaNet,
    names_d_rope: true,
    sections: Some([11, 11, 10]),
    otherwise_named: &[Role::FfnNorm],
    norm_offset: 1.0,
    ..HALVES
};

pub(super) const ALL: &[Family] = &[
    Family {
        classes: &["Qwen2ForCausalLM"],
        arch: "qwen2",
        window: Window::Last,
        ..HALVES
    },
    Family {
        classes: &["Qwen3ForCausalLM"],
        arch: "qwen3",
        defaults: r#"{"head_dim": 128}"#,
        window: Window::Last,
        ..HALVES
    },
    Family {
        classes: &[
            "Qwen2VLForConditionalGeneration",
            "Qwen2_5_VLForConditionalGeneration",
        ],
        arch: "qwen2vl",
        sections: Some([16, 24, 24]),
        window: Window::Last,
        ..HALVES
    },
    Family {
        classes: &["Qwen3VLForConditionalGeneration"],
        arch: "qwen3vl",
        defaults: r#"{"head_dim": 128}"#,
        sections: Some([24, 20, 20]),
        names_deepstack: true,
        window: Window::Last,
        ..HALVES
    },
    Family {
        classes: &["Qwen2MoeForCausalLM"],
        arch: "qwen2moe",
        defaults: r#"{"norm_topk_prob": false}"#,
        fixed: &[("decoder_sparse_step", "1"), ("mlp_only_layers", "[]")],
        window: Window::Last,
        experts: Some(QWEN_EXPERTS),
        ..HALVES
    },
    Family {
        classes: &["Qwen3MoeForCausalLM"],
        arch: "qwen3moe",
        defaults: r#"{"norm_topk_prob": false, "head_dim": 128}"#,
        fixed: &[("decoder_sparse_step", "1"), ("mlp_only_layers", "[]")],
        window: Window::Last,
        experts: Some(Experts { ..QWEN_EXPERTS }),
        ..HALVES
    },
    QWEN35,
    Family {
        classes: &[
            "Qwen3_5MoeForCausalLM",
            "Qwen3_5MoeForConditionalGeneration",
        ],
        arch: "qwen35moe",
        experts: Some(Experts { ..QWEN_EXPERTS }),
        ..QWEN35
    },
    Family {
        classes: &["Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration"],
        arch: "qwen4exp",
        defaults: r#"{"head_dim": 256, "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
            "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
            "linear_num_value_heads": 32, "norm_topk_prob": true, "hc_count": 4,
            "hc_lowrank": 320, "ple_conv_kernel_size": 4, "ngram_size": 3,
            "heads_per_ngram": 8}"#,
        fixed: &[("indexer_kv_heads", "1")],
        experts: Some(Experts { ..QWEN_EXPERTS }),
        own_keys: Some(qwen4exp::write_keys),
        ..QWEN35
    },
    Family {
        classes: &["Qwen3NextForCausalLM"],
        arch: "qwen3next",
        defaults: r#"{"head_dim": 256, "num_key_value_heads": 2, "partial_rotary_factor": 0.25,
            "rms_norm_eps": 1e-6, "full_attention_interval": 4, "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
            "linear_num_value_heads": 32, "norm_topk_prob": true}"#,
        fixed: &[("decoder_sparse_step", "1"), ("mlp_only_layers", "[]")],
        sections: None,
        experts: Some(Experts { ..QWEN_EXPERTS }),
        ..QWEN35
    },
];
