//! Mistral 3 and Ministral 3: a llama with YaRN, and queries that grow at far positions.
//!
//! Source: the model's code in Hugging Face transformers (`ministral3`).

use super::{llama_like::llama_like, meta::Meta, rope::n_ctx_orig};
use crate::{
    Error,
    spec::{ModelSpec, Pairing, Presence, Temperature},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let n_ctx_orig = n_ctx_orig(m)?;
    let slope = m
        .number_opt("attention.temperature_scale")?
        .filter(|slope| *slope != 0.0);
    let temperature = slope.map(|slope| Temperature {
        slope,
        n_ctx_orig,
        offset: 0,
    });
    llama_like(m)?
        .pairing(Pairing::Adjacent)
        .rope_factors(Presence::Optional)
        .out_bias(Presence::Optional)
        .mlp_bias(Presence::Optional)
        .attention(|a| a.temperature = temperature)
        .build()
}
