//! Qwen3 (dense): no biases, and an RMS norm on every head of q and k.
//!
//! Source: Qwen3 technical report (Yang et al. 2025), section 2.

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{ModelSpec, Pairing},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    llama_like(m)?
        .pairing(Pairing::Halves)
        .qk_norm_per_head()
        .build()
}
