//! Nomic BERT with experts: BERT with a rope and biases, and in every `moe_every_n_layers`th layer
//! experts without gates, chosen by a softmax whose weights are not renormalized.
//!
//! Publishers' checkpoints have a bias behind the sum of a layer's experts, which llama.cpp's
//! converter leaves out; files with it have it as `ffn_down.bias` of the layer.
//!
//! Source: Nussbaum & Duderstadt 2025, section 3.

use super::{
    bert_like::{bert_or_experts, mlp},
    experts::routed,
    meta::Meta,
};
use crate::{
    Error,
    spec::{Activation, Ffn, Mlp, ModelSpec, Moe, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let mlp = mlp(m, Activation::Gelu, Presence::Optional)?;
    let moe = Moe {
        expert: Mlp {
            bias: Presence::Absent,
            ..mlp.clone()
        },
        has_gates: false,
        renormalize: false,
        sum_bias: Presence::Optional,
        ..routed(m, mlp.d_ff)?
    };
    let every = m.size_opt("moe_every_n_layers")?.unwrap_or(usize::MAX);
    let has_experts: Vec<bool> = (0..m.n_layers()?).map(|l| l % every == 1).collect();
    bert_or_experts(m, Ffn::Plain, mlp)?
        .qkv_bias(Presence::Optional)
        .out_bias(Presence::Optional)
        .build_experts(&moe, &has_experts)
}
