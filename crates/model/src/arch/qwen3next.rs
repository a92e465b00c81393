//! Qwen3-Next: as Qwen3.5 with experts, but for the order of heads, and decays and gains from one
//! projection.
//!
//! Source: the model's code in Hugging Face transformers (`qwen3_next`).

use super::{meta::Meta, qwen35::hybrid, qwen35moe::with_experts};
use crate::{
    Error,
    spec::{GateRows, KeySharing, ModelSpec},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let sharing = KeySharing::Neighbours;
    hybrid(m, with_experts(m)?, sharing, GateRows::ByKeyHead)
}
