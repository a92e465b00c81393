//! EmbeddingGemma: Gemma 3 as an encoder, whose windows reach as far before a position as behind
//! it, and two dense modules behind the mean of a text, in files that have them.
//!
//! Source: Schechter Vera et al. 2025, section 2.

use super::{
    bert_like::{encoder, mlp, windowed},
    llama_like::no_experts,
    meta::Meta,
};
use crate::{
    Error,
    spec::{Activation, DenseHead, Ffn, ModelSpec, Norm, Outputs, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let norm = Norm::Rms {
        eps: m.positive("attention.layer_norm_rms_epsilon")?,
    };
    let base = m.positive_opt("rope.freq_base_swa")?.unwrap_or(10_000.0);
    let mlp = mlp(m, Activation::GeluTanh, Presence::Absent)?;
    no_experts(m)?;
    // The engine pools by it.
    m.count("pooling_type")?;
    let outputs = outputs(m)?;
    let builder = encoder(m, norm, Ffn::Gated(mlp))?
        .model(|model| model.head.outputs = outputs)
        .scale_embedding_by_width()
        .post_norms()
        .qk_norm_per_head();
    windowed(m, builder, &m.window_pattern(6)?, base)
}

/// The two dense modules, in files that have them.
fn outputs(m: &Meta<'_>) -> Result<Outputs, Error> {
    let Some(d_inner) = m.size_opt("dense_2_feat_out")? else {
        return match m.size_opt("dense_3_feat_out")? {
            Some(n) => Err(m.unsupported("dense_3_feat_out", n)),
            None => Ok(Outputs::Hidden),
        };
    };
    let d_model = m.size("embedding_length")?;
    for (key, d) in [("dense_2_feat_in", d_model), ("dense_3_feat_in", d_inner)] {
        match m.size(key)? {
            n if n == d => {}
            n => return Err(m.unsupported(key, n)),
        }
    }
    Ok(Outputs::Dense(DenseHead {
        d_inner,
        d_out: m.size("dense_3_feat_out")?,
    }))
}
