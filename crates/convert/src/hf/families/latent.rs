//! Models with multi-head latent attention.

use atta_model::Role;

use super::{HALVES, QWEN_EXPERTS, moe::SHARED};
use crate::hf::{
    family::{Experts, Family, LongRope},
    latent,
};

/// DeepSeek's experts.
const EXPERTS: Experts = Experts {
    widths: &[("moe_intermediate_size", "expert_feed_forward_length")],
    ..QWEN_EXPERTS
};

/// Experts behind sigmoids.
const SIGMOIDS: Experts = Experts {
    gating: Some(2),
    ..EXPERTS
};

const DEEPSEEK: Family = Family {
    arch: "deepseek2",
    names: &SHARED,
    own_keys: Some(latent::write_deepseek_keys),
    ..HALVES
};

const KIMI_NAMES: [(Role, &str); 9] = [
    (Role::SsmBeta, "self_attn.b_proj.weight"),
    (Role::SsmDtBias, "self_attn.dt_bias"),
    (Role::SsmA, "self_attn.A_log"),
    (Role::SsmNorm, "self_attn.o_norm.weight"),
    (Role::FfnGateInp, "block_sparse_moe.gate.weight"),
    (
        Role::ExpProbsBias,
        "block_sparse_moe.gate.e_score_correction_bias",
    ),
    (
        Role::FfnGateShexp,
        "block_sparse_moe.shared_experts.gate_proj.weight",
    ),
    (
        Role::FfnUpShexp,
        "block_sparse_moe.shared_experts.up_proj.weight",
    ),
    (
        Role::FfnDownShexp,
        "block_sparse_moe.shared_experts.down_proj.weight",
    ),
];

pub(super) const ALL: &[Family] = &[
    Family {
        classes: &["DeepseekV2ForCausalLM"],
        defaults: r#"{"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64, "v_head_dim": 128, "rms_norm_eps": 1e-6,
            "n_routed_experts": 64, "n_shared_experts": 2, "moe_intermediate_size": 1407,
            "first_k_dense_replace": 0, "topk_method": "greedy", "routed_scaling_factor": 1.0}"#,
        fixed: &[
            ("moe_layer_freq", "1"),
            ("norm_topk_prob", "false"),
            ("scoring_func", "\"softmax\""),
        ],
        experts: Some(Experts {
            gating: Some(1),
            ..EXPERTS
        }),
        ..DEEPSEEK
    },
    Family {
        classes: &["DeepseekV3ForCausalLM"],
        defaults: r#"{"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64, "v_head_dim": 128, "rms_norm_eps": 1e-6,
            "n_routed_experts": 256, "n_shared_experts": 1, "moe_intermediate_size": 2048,
            "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4, "first_k_dense_replace": 3,
            "norm_topk_prob": true, "routed_scaling_factor": 2.5}"#,
        fixed: &[
            ("moe_layer_freq", "1"),
            ("rope_interleave", "true"),
            ("scoring_func", "\"sigmoid\""),
            ("topk_method", "\"noaux_tc\""),
        ],
        experts: Some(SIGMOIDS),
        ..DEEPSEEK
    },
    Family {
        classes: &["Glm4MoeLiteForCausalLM"],
        defaults: r#"{"kv_lora_rank": 512, "q_lora_rank": 768, "qk_nope_head_dim": 192,
            "qk_rope_head_dim": 64, "v_head_dim": 256, "rms_norm_eps": 1e-5,
            "n_routed_experts": 64, "n_shared_experts": 1, "moe_intermediate_size": 1536,
            "num_experts_per_tok": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
            "norm_topk_prob": true, "routed_scaling_factor": 1.8}"#,
        fixed: &[
            ("rope_interleave", "true"),
            ("scoring_func", "\"sigmoid\""),
            ("topk_method", "\"noaux_tc\""),
        ],
        experts: Some(SIGMOIDS),
        ..DEEPSEEK
    },
    Family {
        classes: &["YoutuForCausalLM"],
        defaults: r#"{"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64, "v_head_dim": 128, "rms_norm_eps": 1e-6,
            "tie_word_embeddings": true}"#,
        fixed: &[("rope_interleave", "true")],
        ..DEEPSEEK
    },
    Family {
        classes: &["KimiLinearForCausalLM"],
        arch: "kimi-linear",
        defaults: r#"{"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "v_head_dim": 128, "rms_norm_eps": 1e-5, "num_experts": 256, "num_shared_experts": 1,
            "num_experts_per_token": 8, "num_expert_group": 1, "topk_group": 1,
            "moe_intermediate_size": 1024, "first_k_dense_replace": 1, "moe_renormalize": true,
            "routed_scaling_factor": 2.446, "linear_num_heads": 32, "linear_head_dim": 128,
            "linear_conv_kernel_dim": 4}"#,
        fixed: &[
            ("attention_bias", "false"),
            ("mla_use_nope", "true"),
            ("moe_layer_freq", "1"),
            ("moe_router_activation_func", "\"sigmoid\""),
            ("topk_method", "\"noaux_tc\""),
        ],
        is_rotated: false,
        names: &KIMI_NAMES,
        experts: Some(Experts {
            prefix: "block_sparse_moe.experts.",
            parts: ["w1.weight", "w3.weight", "w2.weight"],
            ..SIGMOIDS
        }),
        own_keys: Some(latent::write_kimi_keys),
        ..HALVES
    },
    Family {
        classes: &["MiniCPM3ForCausalLM"],
        arch: "minicpm3",
        defaults: r#"{"kv_lora_rank": 256, "q_lora_rank": 768, "qk_nope_head_dim": 64,
            "qk_rope_head_dim": 32, "rms_norm_eps": 1e-5, "scale_emb": 12, "scale_depth": 1.4,
            "dim_model_base": 256, "tie_word_embeddings": true}"#,
        multipliers: &[("scale_emb", "embedding_scale")],
        long: LongRope::AttnFactor,
        own_keys: Some(latent::write_minicpm3_keys),
        ..HALVES
    },
];
