//! Command R, R+ and Aya 23: attention and a SiLU-gated MLP in parallel behind one LayerNorm
//! without a bias, and scaled logits; R+ has LayerNorms of queries and keys.
//!
//! Source: the model's code in Hugging Face transformers (`cohere`).

use super::{
    llama_like::{Builder, layer_normed},
    meta::Meta,
};
use crate::{
    Error,
    spec::{Ffn, ModelSpec, Norm, Pairing, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    parallel(m)?.qk_layer_norm().build()
}

/// The layers of Cohere's models.
pub(super) fn parallel(m: &Meta<'_>) -> Result<Builder, Error> {
    let scale = m.positive_opt("logit_scale")?.unwrap_or(1.0);
    let layers = layer_normed(m, |eps| Norm::LayerNoBias { eps }, Ffn::Gated)?;
    Ok(layers
        .parallel()
        .pairing(Pairing::Adjacent)
        .qkv_bias(Presence::Optional)
        .out_bias(Presence::Optional)
        .model(|model| model.head.logit_scale = scale))
}
