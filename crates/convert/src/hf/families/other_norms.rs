//! Models whose norms are in other places than Llama's (GLM-4, EXAONE 4, Hunyuan, Apertus), and
//! GLM-4 and EXAONE before them.

use atta_model::Role;

use super::HALVES;
use crate::hf::{
    family::{Family, Window},
    keys,
};

const GLM: Family = Family {
    classes: &["GlmForCausalLM"],
    arch: "chatglm",
    defaults: r#"{"head_dim": 128, "num_key_value_heads": 2, "partial_rotary_factor": 0.5,
        "rms_norm_eps": 1.5625e-7}"#,
    names_d_rope: true,
    fused: &[("ffn_up.weight", "mlp.gate_up_proj.weight")],
    ..HALVES
};

pub(super) const ALL: &[Family] = &[
    GLM,
    Family {
        classes: &["Glm4ForCausalLM"],
        arch: "glm4",
        names: &[
            (Role::AttnPostNorm, "post_self_attn_layernorm.weight"),
            (Role::FfnPostNorm, "post_mlp_layernorm.weight"),
        ],
        ..GLM
    },
    Family {
        classes: &["ExaoneForCausalLM"],
        arch: "exaone",
        defaults: r#"{"tie_word_embeddings": false, "layer_norm_epsilon": 1e-5}"#,
        names_d_rope: true,
        prefix: "h.{l}.",
        names: &[
            (Role::TokenEmbd, "wte.weight"),
            (Role::OutputNorm, "ln_f.weight"),
            (Role::AttnNorm, "ln_1.weight"),
            (Role::AttnQ, "attn.attention.q_proj.weight"),
            (Role::AttnK, "attn.attention.k_proj.weight"),
            (Role::AttnV, "attn.attention.v_proj.weight"),
            (Role::AttnOutput, "attn.attention.out_proj.weight"),
            (Role::FfnNorm, "ln_2.weight"),
            (Role::FfnGate, "mlp.c_fc_0.weight"),
            (Role::FfnUp, "mlp.c_fc_1.weight"),
            (Role::FfnDown, "mlp.c_proj.weight"),
        ],
        own_keys: Some(keys::write_rms_epsilon),
        ..HALVES
    },
    Family {
        classes: &["Exaone4ForCausalLM"],
        arch: "exaone4",
        window: Window::Listed(4),
        ..HALVES
    },
    Family {
        classes: &["HunYuanDenseV1ForCausalLM"],
        arch: "hunyuan-dense",
        fixed: &[("use_qk_norm", "true"), ("use_cla", "false")],
        names: &[
            (Role::AttnQNorm, "self_attn.query_layernorm.weight"),
            (Role::AttnKNorm, "self_attn.key_layernorm.weight"),
        ],
        ..HALVES
    },
    Family {
        classes: &["ApertusForCausalLM"],
        arch: "apertus",
        defaults: r#"{"rope_theta": 12e6, "hidden_act": "xielu"}"#,
        names_d_rope: true,
        names: &[
            (Role::AttnNorm, "attention_layernorm.weight"),
            (Role::FfnNorm, "feedforward_layernorm.weight"),
        ],
        numbers: &[
            ("mlp.act_fn.alpha_n", "xielu.alpha_n"),
            ("mlp.act_fn.alpha_p", "xielu.alpha_p"),
            ("mlp.act_fn.beta", "xielu.beta"),
            ("mlp.act_fn.eps", "xielu.eps"),
        ],
        ..HALVES
    },
];
