//! Gemma 3 (text): Gemma with norms after the blocks and of queries and keys; of six layers five
//! have a window and a rope of their own, which is never stretched.
//!
//! Source: Gemma 3 technical report (Gemma Team 2025), section 2.

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{Activation, Mask, ModelSpec, Rope, RopeScaling},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let window = m.size_opt("attention.sliding_window")?;
    let base = m.positive_opt("rope.freq_base_swa")?.unwrap_or(10_000.0);
    let cap = m.cap_opt("final_logit_softcapping", None)?;
    let pattern = m.window_pattern(6)?;
    let gemma = llama_like(m)?
        .activation(Activation::GeluTanh)
        .scale_embedding_by_width()
        .post_norms()
        .qk_norm_per_head()
        .model(|model| model.head.softcap = cap);
    // The 27B model, and only it, has heads that are not as wide as its queries are scaled.
    let gemma = if m.n_layers()? == 62 {
        gemma.scale_scores_by_width_per_head()
    } else {
        gemma
    };
    gemma.build_each(|l, layer| {
        if let Some(window) = window.filter(|_| pattern[l]) {
            let a = layer.attention_mut();
            a.mask = Mask::Window(window);
            a.rope = a.rope.take().map(|rope| Rope {
                base,
                scaling: RopeScaling::None,
                magnitude: 1.0,
                ..rope
            });
        }
    })
}
