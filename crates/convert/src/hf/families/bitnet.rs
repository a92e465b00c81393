//! BitNet.

use atta_model::Role;

use super::HALVES;
use crate::hf::family::Family;

pub(super) const ALL: &[Family] = &[
    Family {
        classes: &["BitNetForCausalLM"],
        arch: "bitnet",
        defaults: r#"{"rope_theta": 500000.0, "num_key_value_heads": 5}"#,
        ..HALVES
    },
    Family {
        // Models of 1bitLLM, which have their own code instead of a class in transformers.
        classes: &["BitnetForCausalLM"],
        arch: "bitnet",
        names: &[
            (Role::AttnSubNorm, "self_attn.inner_attn_ln.weight"),
            (Role::FfnSubNorm, "mlp.ffn_layernorm.weight"),
        ],
        ternary: Some(("weight_bits", 1)),
        ..HALVES
    },
];
