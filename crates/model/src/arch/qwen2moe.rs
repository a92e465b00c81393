//! Qwen1.5 MoE and Qwen2 MoE: a Qwen2 with experts, and a shared one behind a gate of its own.
//!
//! The weights of the chosen experts are not renormalized. Source: Qwen2 technical report (Yang et
//! al. 2024), section 2.2.2, and the checkpoints' `norm_topk_prob`.

use super::{
    experts::{experts, gated_shared, shared_out},
    llama_like::backbone,
    meta::Meta,
};
use crate::{
    Error,
    spec::{ModelSpec, Moe, Pairing, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let d_shared = match m.size_opt("expert_shared_feed_forward_length")? {
        Some(d) => d,
        None => m.size("feed_forward_length")?,
    };
    let renormalize = m.flag_opt("expert_weights_norm")?.unwrap_or(false);
    let moe = Moe {
        renormalize,
        shared: Some(gated_shared(d_shared)),
        ..experts(m, shared_out(m)?)?
    };
    backbone(m)?
        .pairing(Pairing::Halves)
        .qkv_bias(Presence::Required)
        .experts(moe)
        .build()
}
