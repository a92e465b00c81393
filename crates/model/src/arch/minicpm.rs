//! MiniCPM (1B, 2B, 4 and 4.1): a llama with multipliers, with longrope in those of long context.
//!
//! The first files do not say the multipliers, which were the same in all models. Source: MiniCPM
//! (Hu et al. 2024), appendix A; `logit_scale` of the file is a divisor.

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{ModelSpec, Pairing, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let embed = m.positive_opt("embedding_scale")?.unwrap_or(12.0);
    let usual = 1.4 / (m.n_layers()? as f32).sqrt();
    let residual = m.positive_opt("residual_scale")?.unwrap_or(usual);
    let usual = m.size("embedding_length")? as f32 / 256.0;
    let divisor = m.positive_opt("logit_scale")?.unwrap_or(usual);
    llama_like(m)?
        .pairing(Pairing::Adjacent)
        .rope_factors(Presence::Optional)
        .biases(Presence::Optional)
        .layer(|layer| layer.residual_scale = residual)
        .model(|model| model.embed_scale = embed)
        .model(|model| model.head.logit_scale = 1.0 / divisor)
        .build()
}
