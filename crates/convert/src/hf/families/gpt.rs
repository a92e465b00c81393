//! GPT-2 and gpt-oss.

use atta_model::Role;

use super::{HALVES, QWEN_EXPERTS};
use crate::hf::family::{Experts, Family, GateUpLayout, Window};

pub(super) const ALL: &[Family] = &[
    Family {
        classes: &["GPT2LMHeadModel"],
        arch: "gpt2",
        defaults: r#"{"tie_word_embeddings": true, "layer_norm_epsilon": 1e-5}"#,
        fixed: &[
            ("scale_attn_weights", "true"),
            ("scale_attn_by_inverse_layer_idx", "false"),
            ("add_cross_attention", "false"),
        ],
        is_rotated: false,
        prefix: "h.{l}.",
        names: &[
            (Role::TokenEmbd, "wte.weight"),
            (Role::PositionEmbd, "wpe.weight"),
            (Role::OutputNorm, "ln_f.weight"),
            (Role::OutputNormBias, "ln_f.bias"),
            (Role::AttnNorm, "ln_1.weight"),
            (Role::AttnNormBias, "ln_1.bias"),
            (Role::AttnOutput, "attn.c_proj.weight"),
            (Role::AttnOutputBias, "attn.c_proj.bias"),
            (Role::FfnNorm, "ln_2.weight"),
            (Role::FfnNormBias, "ln_2.bias"),
            (Role::FfnUp, "mlp.c_fc.weight"),
            (Role::FfnUpBias, "mlp.c_fc.bias"),
            (Role::FfnDown, "mlp.c_proj.weight"),
            (Role::FfnDownBias, "mlp.c_proj.bias"),
        ],
        fused: &[
            ("attn_qkv.weight", "attn.c_attn.weight"),
            ("attn_qkv.bias", "attn.c_attn.bias"),
        ],
        is_transposed: true,
        ..HALVES
    },
    Family {
        classes: &["GptOssForCausalLM"],
        arch: "gpt-oss",
        defaults: r#"{"rope_theta": 150000.0, "head_dim": 64, "sliding_window": 128,
            "num_local_experts": 128, "num_experts_per_tok": 4}"#,
        window: Window::Every(2),
        names: &[
            (Role::FfnGateInp, "mlp.router.weight"),
            (Role::FfnGateInpBias, "mlp.router.bias"),
            (Role::FfnGateExpsBias, "mlp.experts.gate_up_proj_bias"),
            (Role::FfnUpExpsBias, "mlp.experts.gate_up_proj_bias"),
            (Role::FfnDownExpsBias, "mlp.experts.down_proj_bias"),
        ],
        experts: Some(Experts {
            gate_up: GateUpLayout::Columns,
            widths: &[("intermediate_size", "expert_feed_forward_length")],
            ..QWEN_EXPERTS
        }),
        otherwise_named: &[Role::FfnNorm],
        ..HALVES
    },
];
