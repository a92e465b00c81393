//! Llama, and models that differ from it by a detail.

use atta_model::Role;

use super::{HALVES, LLAMA, QWEN_EXPERTS};
use crate::hf::family::{Experts, Family, Window};

pub(super) const ALL: &[Family] = &[
    LLAMA,
    Family {
        classes: &["InternLM3ForCausalLM"],
        defaults: r#"{"head_dim": 128, "num_key_value_heads": 2}"#,
        ..LLAMA
    },
    Family {
        classes: &["MistralForCausalLM"],
        defaults: r#"{"num_key_value_heads": 8}"#,
        window: Window::Dropped,
        ..LLAMA
    },
    Family {
        classes: &["MixtralForCausalLM"],
        defaults: r#"{"rope_theta": 1e6, "num_local_experts": 8, "num_experts_per_tok": 2,
            "num_key_value_heads": 8}"#,
        window: Window::Dropped,
        names: &[(Role::FfnGateInp, "block_sparse_moe.gate.weight")],
        experts: Some(Experts {
            prefix: "block_sparse_moe.experts.",
            parts: ["w1.weight", "w3.weight", "w2.weight"],
            widths: &[],
            ..QWEN_EXPERTS
        }),
        ..LLAMA
    },
    Family {
        classes: &["Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"],
        arch: "mistral3",
        window: Window::Dropped,
        ..LLAMA
    },
    Family {
        classes: &["ArceeForCausalLM"],
        arch: "arcee",
        ..LLAMA
    },
    Family {
        classes: &["SmolLM3ForCausalLM"],
        arch: "smollm3",
        defaults: r#"{"rope_theta": 2e6, "tie_word_embeddings": true, "num_key_value_heads": 4}"#,
        fixed: &[("no_rope_layer_interval", "4")],
        window: Window::Last,
        ..LLAMA
    },
    Family {
        classes: &["Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"],
        arch: "ernie4_5",
        defaults: r#"{"tie_word_embeddings": true, "head_dim": 128, "rope_theta": 500000.0}"#,
        ..HALVES
    },
    Family {
        classes: &["SeedOssForCausalLM"],
        arch: "seed_oss",
        defaults: r#"{"head_dim": 128, "num_key_value_heads": 8}"#,
        otherwise_named: &[Role::FfnNorm],
        ..HALVES
    },
    Family {
        classes: &["Olmo2ForCausalLM", "Olmo3ForCausalLM"],
        arch: "olmo2",
        window: Window::Listed(4),
        ..HALVES
    },
];
