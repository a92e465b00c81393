//! Granite 3 (dense): a llama with four multipliers.
//!
//! Source: the Granite 3.0 report (Granite Team 2024), section 2; `logit_scale` of the file is a
//! divisor.

use super::{
    llama_like::{Builder, llama_like},
    meta::Meta,
};
use crate::{
    Error,
    spec::{ModelSpec, Pairing, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let layers = scaled(m, llama_like(m)?)?;
    layers.mlp_bias(Presence::Optional).build()
}

/// The model with Granite's multipliers.
pub(super) fn scaled(m: &Meta<'_>, layers: Builder) -> Result<Builder, Error> {
    let [embed, residual] = [
        m.positive_opt("embedding_scale")?,
        m.positive_opt("residual_scale")?,
    ];
    let divisor = m.positive("logit_scale")?;
    // The key says something else elsewhere; Granite's converter switches the rotation with it.
    let rotates = m.flag_opt("rope.scaling.finetuned")?.unwrap_or(true);
    Ok(layers
        .pairing(Pairing::Adjacent)
        .rope_factors(Presence::Optional)
        .out_bias(Presence::Optional)
        .attention(|a| a.rope = a.rope.take().filter(|_| rotates))
        .layer(|layer| layer.residual_scale = residual.unwrap_or(1.0))
        .model(|model| model.embed_scale = embed.unwrap_or(1.0))
        .model(|model| model.head.logit_scale = 1.0 / divisor))
}
