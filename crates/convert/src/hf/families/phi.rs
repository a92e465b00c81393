//! Phi.

use atta_model::Role;

use super::{HALVES, QWEN_EXPERTS};
use crate::hf::family::{Experts, Family, LongRope, Window};

pub(super) const ALL: &[Family] = &[
    Family {
        classes: &["PhiForCausalLM"],
        arch: "phi2",
        defaults: r#"{"partial_rotary_factor": 0.5, "layer_norm_eps": 1e-5}"#,
        fixed: &[("qk_layernorm", "false")],
        names_d_rope: true,
        names: &[
            (Role::OutputNorm, "model.final_layernorm.weight"),
            (Role::OutputNormBias, "model.final_layernorm.bias"),
            (Role::AttnOutput, "self_attn.dense.weight"),
            (Role::AttnOutputBias, "self_attn.dense.bias"),
            (Role::FfnUp, "mlp.fc1.weight"),
            (Role::FfnUpBias, "mlp.fc1.bias"),
            (Role::FfnDown, "mlp.fc2.weight"),
            (Role::FfnDownBias, "mlp.fc2.bias"),
        ],
        ..HALVES
    },
    Family {
        classes: &["Phi3ForCausalLM"],
        arch: "phi3",
        defaults: r#"{"original_max_position_embeddings": 4096}"#,
        window: Window::All,
        names_d_rope: true,
        long: LongRope::AttnFactor,
        fused: &[
            ("attn_qkv.weight", "self_attn.qkv_proj.weight"),
            ("ffn_up.weight", "mlp.gate_up_proj.weight"),
        ],
        ..HALVES
    },
    Family {
        classes: &["PhimoeForCausalLM", "PhiMoEForCausalLM"],
        arch: "phimoe",
        defaults: r#"{"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "num_local_experts": 16,
            "num_experts_per_tok": 2, "router_jitter_noise": 0.01}"#,
        fixed: &[
            ("num_experts_per_tok", "2"),
            ("router_jitter_noise", "0.01"),
        ],
        window: Window::All,
        names_d_rope: true,
        long: LongRope::AttnFactor,
        names: &[(Role::FfnGateInp, "block_sparse_moe.gate.weight")],
        experts: Some(Experts {
            prefix: "block_sparse_moe.experts.",
            parts: ["w1.weight", "w3.weight", "w2.weight"],
            widths: &[],
            ..QWEN_EXPERTS
        }),
        ..HALVES
    },
];
