//! The supported model families: defaults of their configurations, names of their tensors, and what
//! llama.cpp's converter does to the tensors. One entry per model class of transformers; a new
//! architecture is a new entry.
//!
//! Sources: the configuration classes of transformers 5 (defaults), and llama.cpp's
//! `convert_hf_to_gguf.py` (transformations of tensors).

mod bitnet;
mod gemma;
mod gpt;
mod granite;
mod latent;
mod layer_norm;
mod lfm;
mod llama;
mod mamba;
mod minicpm;
mod moe;
mod other_norms;
mod phi;
mod qwen;

use super::{
    encoders::ENCODERS,
    family::{Experts, Family, GateUpLayout, LongRope, Recurrent, Window},
};

pub(super) use gemma::GEMMA3;
pub(super) use granite::GRANITE_MAMBA;
pub(super) use mamba::NEMOTRON_EXPERTS;

/// All of them.
pub(super) fn all() -> impl Iterator<Item = &'static Family> {
    [
        bitnet::ALL,
        gemma::ALL,
        gpt::ALL,
        granite::ALL,
        latent::ALL,
        layer_norm::ALL,
        lfm::ALL,
        llama::ALL,
        mamba::ALL,
        minicpm::ALL,
        moe::ALL,
        other_norms::ALL,
        phi::ALL,
        qwen::ALL,
        ENCODERS,
    ]
    .into_iter()
    .flatten()
}

/// Llama. The other families are described by their differences from it.
const LLAMA: Family = Family {
    classes: &["LlamaForCausalLM", "LLaMAForCausalLM"],
    arch: "llama",
    defaults: "{}",
    fixed: &[],
    multipliers: &[],
    folds_multipliers: false,
    window: Window::None,
    recurrent: Recurrent::None,
    is_rotated: true,
    names_d_rope: true,
    long: LongRope::Unsupported,
    sections: None,
    names_deepstack: false,
    prefix: "model.layers.{l}.",
    names: &[],
    fused: &[],
    is_qkv_by_head: false,
    numbers: &[],
    gate_up: None,
    experts: None,
    is_paired: true,
    is_transposed: false,
    otherwise_named: &[],
    norm_offset: 0.0,
    encoder: None,
    own_keys: None,
    ternary: None,
};

/// Llama with rope on halves of heads.
pub(super) const HALVES: Family = Family {
    names_d_rope: false,
    is_paired: false,
    ..LLAMA
};

const QWEN_EXPERTS: Experts = Experts {
    prefix: "mlp.experts.",
    parts: ["gate_proj.weight", "up_proj.weight", "down_proj.weight"],
    joined: ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
    gate_up: GateUpLayout::Halves,
    keeps_gate_up: false,
    widths: &[
        ("moe_intermediate_size", "expert_feed_forward_length"),
        (
            "shared_expert_intermediate_size",
            "expert_shared_feed_forward_length",
        ),
    ],
    gating: None,
};
