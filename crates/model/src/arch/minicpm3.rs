//! MiniCPM3: multi-head latent attention, multipliers of the embedding, of the results of sublayers
//! and of logits, and longrope.
//!
//! Files of llama.cpp have no keys of multipliers, which are those of MiniCPM3-4B then. Source:
//! the model's code in Hugging Face transformers (`minicpm3`).

use super::{
    latent::{Heads, latent_like},
    llama_like::no_experts,
    meta::Meta,
    rope::n_ctx_orig,
};
use crate::{
    Error,
    spec::{LatentUp, ModelSpec, Presence, RopeScaling},
};

/// The width of a model whose logits are not divided.
const D_MODEL_BASE: f32 = 256.0;

/// The embedding is multiplied by this.
const EMBED_SCALE: f32 = 12.0;

/// The results of sublayers are multiplied by this, divided by the root of the number of layers.
const DEPTH_SCALE: f64 = 1.4;

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    no_experts(m)?;
    let d_model = m.size("embedding_length")?;
    let embed_scale = m.positive_opt("embedding_scale")?.unwrap_or(EMBED_SCALE);
    let depth = (m.n_layers()? as f64).sqrt();
    let residual_scale = m.positive_opt("residual_scale")?;
    let residual_scale = residual_scale.unwrap_or((DEPTH_SCALE / depth) as f32);
    let divisor = m.positive_opt("logit_scale")?;
    let divisor = divisor.unwrap_or(d_model as f32 / D_MODEL_BASE);
    let long = RopeScaling::Long {
        n_ctx_orig: n_ctx_orig(m)?,
        factors: Presence::Optional,
    };
    latent_like(m, &heads(m, d_model)?)?
        .rope(|rope| rope.scaling = long)
        .layer(|layer| layer.residual_scale = residual_scale)
        .model(|model| model.embed_scale = embed_scale)
        .model(|model| model.head.logit_scale = 1.0 / divisor)
        .build()
}

/// The widths of heads; values are as wide as a head of the model's width, if no key says another.
fn heads(m: &Meta<'_>, d_model: usize) -> Result<Heads, Error> {
    let d_value = match m.size_opt("attention.value_length")? {
        Some(d) => d,
        None => (d_model / m.size("attention.head_count")?).max(1),
    };
    Ok(Heads {
        d_head: m.size("attention.key_length")?,
        d_value,
        up: LatentUp::Joint,
    })
}
