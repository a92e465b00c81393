//! Models with experts whose dense relatives are of other families.

use atta_model::Role;

use super::{HALVES, QWEN_EXPERTS};
use crate::hf::family::{Experts, Family};

/// Shared experts of most classes, which are one MLP.
pub(super) const SHARED: [(Role, &str); 3] = [
    (Role::FfnGateShexp, "mlp.shared_experts.gate_proj.weight"),
    (Role::FfnUpShexp, "mlp.shared_experts.up_proj.weight"),
    (Role::FfnDownShexp, "mlp.shared_experts.down_proj.weight"),
];

pub(super) const ALL: &[Family] = &[Family {
    classes: &["Glm4MoeForCausalLM"],
    arch: "glm4moe",
    defaults: r#"{"num_key_value_heads": 8, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-5,
        "num_experts_per_tok": 8, "n_routed_experts": 128, "moe_intermediate_size": 1408,
        "n_group": 1, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1,
        "routed_scaling_factor": 1.0, "norm_topk_prob": true}"#,
    names_d_rope: true,
    names: &SHARED,
    experts: Some(Experts {
        widths: &[("moe_intermediate_size", "expert_feed_forward_length")],
        gating: Some(2),
        ..QWEN_EXPERTS
    }),
    otherwise_named: &[Role::FfnNorm],
    ..HALVES
}];
