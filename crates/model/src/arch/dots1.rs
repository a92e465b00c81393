//! dots.llm1: Qwen3's layers, dense ones first and experts in the others, chosen by sigmoids with a
//! bias, and a shared one without a gate.
//!
//! Source: the dots.llm1 report (rednote-hilab 2025), section 2, and the model's code in Hugging
//! Face transformers (`dots1`).

use super::{
    experts::{expert_layers, gating, routed, shared},
    llama_like::backbone,
    meta::Meta,
};
use crate::{
    Error,
    spec::{Gating, ModelSpec, Moe, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let d_expert = m.size("expert_feed_forward_length")?;
    let moe = Moe {
        gating: gating(m, Gating::Sigmoid)?,
        selection_bias: Presence::Optional,
        shared: shared(m, d_expert)?,
        renormalize: m.flag_opt("expert_weights_norm")?.unwrap_or(false),
        ..routed(m, d_expert)?
    };
    backbone(m)?
        .qk_norm_per_head()
        .build_experts(&moe, &expert_layers(m)?)
}
