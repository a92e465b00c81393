//! EmbeddingGemma: Gemma 3 as an encoder, whose windows reach as far before a position as behind
//! it.
//!
//! Source: Schechter Vera et al. 2025, section 2.

use super::{
    bert_like::{encoder, mlp, windowed},
    meta::Meta,
};
use crate::{
    Error,
    spec::{Activation, Ffn, ModelSpec, Norm, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let norm = Norm::Rms {
        eps: m.positive("attention.layer_norm_rms_epsilon")?,
    };
    let base = m.positive_opt("rope.freq_base_swa")?.unwrap_or(10_000.0);
    let mlp = mlp(m, Activation::GeluTanh, Presence::Absent)?;
    let builder = encoder(m, norm, Ffn::Gated(mlp))?
        .scale_embedding_by_width()
        .post_norms()
        .qk_norm_per_head();
    windowed(m, builder, &m.window_pattern(6)?, base)
}
