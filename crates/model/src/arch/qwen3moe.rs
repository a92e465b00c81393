//! Qwen3 MoE: a Qwen3 with experts, none of them shared, the weights of the chosen ones
//! renormalized.
//!
//! Source: Qwen3 technical report (Yang et al. 2025), section 2.

use super::{
    experts::{experts, shared_out},
    llama_like::backbone,
    meta::Meta,
};
use crate::{
    Error,
    spec::{ModelSpec, Pairing},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let moe = experts(m, shared_out(m)?)?;
    backbone(m)?
        .pairing(Pairing::Halves)
        .qk_norm_per_head()
        .experts(moe)
        .build()
}
