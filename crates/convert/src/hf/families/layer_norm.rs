//! Models with LayerNorm: GPT-NeoX, StarCoder 2, StableLM, Nemotron, Jais 2 and those of Cohere.

use atta_model::Role;

use super::HALVES;
use crate::{
    Error,
    hf::{
        config::Config,
        family::{Family, Window},
        keys::Keys,
    },
};

const COHERE: Family = Family {
    classes: &["CohereForCausalLM"],
    arch: "command-r",
    defaults: r#"{"tie_word_embeddings": true, "rope_theta": 500000.0, "layer_norm_eps": 1e-5,
        "logit_scale": 0.0625, "use_qk_norm": false}"#,
    multipliers: &[("logit_scale", "logit_scale")],
    own_keys: Some(context),
    ..HALVES
};

pub(super) const ALL: &[Family] = &[
    Family {
        classes: &["GPTNeoXForCausalLM"],
        arch: "gptneox",
        defaults: r#"{"layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25,
            "use_parallel_residual": true, "tie_word_embeddings": false}"#,
        names_d_rope: true,
        prefix: "gpt_neox.layers.{l}.",
        names: &[
            (Role::TokenEmbd, "gpt_neox.embed_in.weight"),
            (Role::OutputNorm, "gpt_neox.final_layer_norm.weight"),
            (Role::OutputNormBias, "gpt_neox.final_layer_norm.bias"),
            (Role::Output, "embed_out.weight"),
            (Role::AttnOutput, "attention.dense.weight"),
            (Role::AttnOutputBias, "attention.dense.bias"),
            (Role::FfnUp, "mlp.dense_h_to_4h.weight"),
            (Role::FfnUpBias, "mlp.dense_h_to_4h.bias"),
            (Role::FfnDown, "mlp.dense_4h_to_h.weight"),
            (Role::FfnDownBias, "mlp.dense_4h_to_h.bias"),
        ],
        fused: &[
            ("attn_qkv.weight", "attention.query_key_value.weight"),
            ("attn_qkv.bias", "attention.query_key_value.bias"),
        ],
        is_qkv_by_head: true,
        own_keys: Some(wiring),
        ..HALVES
    },
    Family {
        classes: &["Starcoder2ForCausalLM"],
        arch: "starcoder2",
        defaults: r#"{"tie_word_embeddings": true, "norm_epsilon": 1e-5,
            "num_key_value_heads": 2}"#,
        window: Window::All,
        names: &[
            (Role::FfnUp, "mlp.c_fc.weight"),
            (Role::FfnUpBias, "mlp.c_fc.bias"),
            (Role::FfnDown, "mlp.c_proj.weight"),
            (Role::FfnDownBias, "mlp.c_proj.bias"),
        ],
        ..HALVES
    },
    Family {
        classes: &["StableLmForCausalLM"],
        arch: "stablelm",
        defaults: r#"{"layer_norm_eps": 1e-5, "partial_rotary_factor": 0.25,
            "use_parallel_residual": false, "qk_layernorm": false}"#,
        names_d_rope: true,
        names: &[
            (Role::AttnQNorm, "self_attn.q_layernorm.norms.{h}.weight"),
            (Role::AttnKNorm, "self_attn.k_layernorm.norms.{h}.weight"),
        ],
        own_keys: Some(wiring),
        ..HALVES
    },
    Family {
        classes: &["NemotronForCausalLM"],
        arch: "nemotron",
        defaults: r#"{"norm_eps": 1e-5, "partial_rotary_factor": 0.5}"#,
        names_d_rope: true,
        norm_offset: 1.0,
        ..HALVES
    },
    Family {
        classes: &["Jais2ForCausalLM"],
        arch: "jais2",
        defaults: r#"{"layer_norm_eps": 1e-5}"#,
        names_d_rope: true,
        ..HALVES
    },
    COHERE,
    Family {
        classes: &["Cohere2ForCausalLM"],
        arch: "cohere2",
        defaults: r#"{"tie_word_embeddings": true, "layer_norm_eps": 1e-5, "logit_scale": 0.0625,
            "sliding_window": 4096}"#,
        window: Window::Listed(4),
        names_d_rope: true,
        own_keys: None,
        ..COHERE
    },
];

/// Writes whether attention and MLP are parallel.
fn wiring(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    if let Some(is_parallel) = c.flag_opt("use_parallel_residual")? {
        keys.flag("use_parallel_residual", is_parallel);
    }
    Ok(())
}

/// Writes the context, for which `max_position_embeddings` is too small.
fn context(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    if let Some(n) = c.count_opt(&["model_max_length"])? {
        keys.count("context_length", n);
    }
    Ok(())
}
