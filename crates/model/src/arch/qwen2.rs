//! Qwen2 and Qwen2.5: a llama with biases on q, k and v.
//!
//! Source: Qwen2 technical report (Yang et al. 2024), section 2.2.1.

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{ModelSpec, Pairing, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    llama_like(m)?
        .pairing(Pairing::Halves)
        .qkv_bias(Presence::Required)
        .build()
}
