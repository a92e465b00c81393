//! Llama 1, 2 and 3.x, and all that share their layout: TinyLlama, SmolLM2, Mistral 7B.
//!
//! Source: Touvron et al. 2023; the Llama 3.1 model card for the rope factors, which GGUF files carry as a tensor.

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{ModelSpec, Pairing, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    llama_like(m)?
        .pairing(Pairing::Adjacent)
        .rope_factors(Presence::Optional)
        .qkv_bias(Presence::Optional)
        .out_bias(Presence::Optional)
        .mlp_bias(Presence::Optional)
        .build()
}
