//! Models with experts whose dense relatives are of other families.

use atta_model::Role;

use super::{HALVES, QWEN_EXPERTS};
use crate::hf::{
    experts,
    family::{Experts, Family, GateUpLayout, Window},
    llama4,
};

/// Shared experts of most classes, which are one MLP.
pub(super) const SHARED: [(Role, &str); 3] = [
    (Role::FfnGateShexp, "mlp.shared_experts.gate_proj.weight"),
    (Role::FfnUpShexp, "mlp.shared_experts.up_proj.weight"),
    (Role::FfnDownShexp, "mlp.shared_experts.down_proj.weight"),
];

/// Experts whose width is a field of its own.
const WIDE: Experts = Experts {
    widths: &[("moe_intermediate_size", "expert_feed_forward_length")],
    ..QWEN_EXPERTS
};

const GLM4_MOE: Family = Family {
    classes: &["Glm4MoeForCausalLM"],
    arch: "glm4moe",
    defaults: r#"{"num_key_value_heads": 8, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5,
        "num_experts_per_tok": 8, "n_routed_experts": 128, "moe_intermediate_size": 1408,
        "n_group": 1, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1,
        "routed_scaling_factor": 1.0, "norm_topk_prob": true}"#,
    names_d_rope: true,
    names: &SHARED,
    experts: Some(Experts {
        gating: Some(2),
        ..WIDE
    }),
    otherwise_named: &[Role::FfnNorm],
    ..HALVES
};

const ERNIE4_5_MOE: Family = Family {
    classes: &["Ernie4_5_MoeForCausalLM"],
    arch: "ernie4_5-moe",
    defaults: r#"{"tie_word_embeddings": true, "num_key_value_heads": 4, "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5, "moe_num_experts": 64, "moe_k": 6, "moe_intermediate_size": 1536,
        "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_end_index": -1,
        "moe_layer_interval": 1}"#,
    names: &[
        SHARED[0],
        SHARED[1],
        SHARED[2],
        (
            Role::ExpProbsBias,
            "mlp.moe_statics.e_score_correction_bias",
        ),
    ],
    experts: Some(WIDE),
    own_keys: Some(experts::write_ernie_keys),
    ..HALVES
};

const OLMOE: Family = Family {
    classes: &["OlmoeForCausalLM"],
    arch: "olmoe",
    defaults: r#"{"norm_topk_prob": false, "num_experts": 64, "num_experts_per_tok": 8}"#,
    fixed: &[("clip_qkv", "null")],
    experts: Some(Experts {
        widths: &[],
        ..QWEN_EXPERTS
    }),
    ..HALVES
};

/// Llama 4, whose checkpoints have experts as `[d_in, d_out]`.
const LLAMA4: Family = Family {
    classes: &["Llama4ForCausalLM", "Llama4ForConditionalGeneration"],
    arch: "llama4",
    defaults: r#"{"num_key_value_heads": 8, "head_dim": 128, "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
        "num_experts_per_tok": 1, "num_local_experts": 16, "interleave_moe_layer_step": 1,
        "use_qk_norm": true, "no_rope_layer_interval": 4, "attention_chunk_size": 8192,
        "floor_scale": 8192, "attn_scale": 0.1}"#,
    fixed: &[("no_rope_layer_interval", "4")],
    names_d_rope: true,
    names: &[
        (Role::FfnGate, "feed_forward.gate_proj.weight"),
        (Role::FfnUp, "feed_forward.up_proj.weight"),
        (Role::FfnDown, "feed_forward.down_proj.weight"),
        (Role::FfnGateInp, "feed_forward.router.weight"),
        (
            Role::FfnGateShexp,
            "feed_forward.shared_expert.gate_proj.weight",
        ),
        (
            Role::FfnUpShexp,
            "feed_forward.shared_expert.up_proj.weight",
        ),
        (
            Role::FfnDownShexp,
            "feed_forward.shared_expert.down_proj.weight",
        ),
    ],
    experts: Some(Experts {
        prefix: "feed_forward.experts.",
        gate_up: GateUpLayout::ColumnHalves,
        widths: &[("intermediate_size", "expert_feed_forward_length")],
        ..QWEN_EXPERTS
    }),
    own_keys: Some(llama4::write_keys),
    ..HALVES
};

const DOTS1: Family = Family {
    classes: &["Dots1ForCausalLM"],
    arch: "dots1",
    defaults: r#"{"num_key_value_heads": 32, "rms_norm_eps": 1e-6, "num_experts_per_tok": 6,
        "n_routed_experts": 128, "moe_intermediate_size": 1408, "first_k_dense_replace": 0,
        "routed_scaling_factor": 1.0, "norm_topk_prob": false}"#,
    fixed: &[
        ("n_group", "1"),
        ("topk_group", "1"),
        ("attention_bias", "false"),
    ],
    window: Window::Last,
    names: &SHARED,
    experts: Some(WIDE),
    ..HALVES
};

const EXAONE_MOE: Family = Family {
    classes: &["ExaoneMoeForCausalLM"],
    arch: "exaone-moe",
    defaults: r#"{"num_key_value_heads": 32, "rms_norm_eps": 1e-5, "num_experts_per_tok": 8,
        "num_experts": 64, "num_shared_experts": 1, "moe_intermediate_size": 1024, "n_group": 1,
        "topk_group": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5,
        "norm_topk_prob": true, "sliding_window": 4096}"#,
    fixed: &[("scoring_func", "\"sigmoid\"")],
    window: Window::Listed(4),
    names: &[
        SHARED[0],
        SHARED[1],
        SHARED[2],
        (Role::ExpProbsBias, "mlp.e_score_correction_bias"),
    ],
    experts: Some(Experts {
        gating: Some(2),
        ..WIDE
    }),
    own_keys: Some(experts::write_exaone_keys),
    ..HALVES
};

const HUNYUAN_MOE: Family = Family {
    classes: &["HunYuanMoEV1ForCausalLM"],
    arch: "hunyuan-moe",
    fixed: &[("use_qk_norm", "true"), ("use_cla", "false")],
    names: &[
        (Role::AttnQNorm, "self_attn.query_layernorm.weight"),
        (Role::AttnKNorm, "self_attn.key_layernorm.weight"),
        (Role::FfnGateInp, "mlp.gate.wg.weight"),
        (Role::FfnGateShexp, "mlp.shared_mlp.gate_proj.weight"),
        (Role::FfnUpShexp, "mlp.shared_mlp.up_proj.weight"),
        (Role::FfnDownShexp, "mlp.shared_mlp.down_proj.weight"),
    ],
    experts: Some(Experts {
        widths: &[],
        ..QWEN_EXPERTS
    }),
    own_keys: Some(experts::write_hunyuan_keys),
    ..HALVES
};

pub(super) const ALL: &[Family] = &[
    DOTS1,
    ERNIE4_5_MOE,
    EXAONE_MOE,
    GLM4_MOE,
    HUNYUAN_MOE,
    LLAMA4,
    OLMOE,
];
