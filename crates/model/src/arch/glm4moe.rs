//! GLM-4.5, 4.6 and 4.7, with Air: a llama that rotates half of each head, with dense layers first
//! and experts in the others, one of them shared without a gate.
//!
//! Experts are chosen by sigmoids with a bias. Some models have norms of queries and keys, which no
//! key says. Source: the model's code in Hugging Face transformers (`glm4_moe`).

use super::{
    experts::{expert_layers, gating, routed, shared},
    llama_like::backbone,
    meta::Meta,
};
use crate::{
    Error,
    spec::{Gating, ModelSpec, Moe, Pairing, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let d_expert = m.size("expert_feed_forward_length")?;
    let moe = Moe {
        gating: gating(m, Gating::Sigmoid)?,
        selection_bias: Presence::Optional,
        shared: shared(m, d_expert)?,
        ..routed(m, d_expert)?
    };
    backbone(m)?
        .pairing(Pairing::Halves)
        .qkv_bias(Presence::Optional)
        .qk_norm_per_head_if_there()
        .build_experts(&moe, &expert_layers(m)?)
}
