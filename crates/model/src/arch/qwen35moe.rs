//! Qwen3.5 with experts: a Qwen3.5 whose layers have experts, one of them shared behind a gate.
//!
//! The weights of the chosen experts are renormalized. Source: the model's code in Hugging Face
//! transformers (`qwen3_5_moe`).

use super::{
    experts::{experts, gated_shared, shared_out},
    llama_like::{Builder, backbone_of},
    meta::Meta,
    qwen35::hybrid,
};
use crate::{
    Error,
    spec::{GateRows, KeySharing, ModelSpec, Moe},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    hybrid(m, with_experts(m)?, KeySharing::InTurn, GateRows::Apart)
}

/// Layers with experts, and no key of a dense layer's width.
pub(super) fn with_experts(m: &Meta<'_>) -> Result<Builder, Error> {
    let d_ff = match m.size_opt("expert_feed_forward_length")? {
        Some(d) => d,
        None => shared_out(m)?,
    };
    let d_shared = match m.size_opt("expert_shared_feed_forward_length")? {
        Some(d) => d,
        None => m.size("feed_forward_length")?,
    };
    let moe = Moe {
        shared: Some(gated_shared(d_shared)),
        ..experts(m, d_ff)?
    };
    Ok(backbone_of(m, d_ff)?.experts(moe))
}
