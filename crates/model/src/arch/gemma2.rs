//! Gemma 2: Gemma with norms after the blocks, soft caps, and a window in every second layer.
//!
//! Source: Gemma 2 technical report (Gemma Team 2024), section 2.

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{Activation, Mask, ModelSpec},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let window = m.size_opt("attention.sliding_window")?.unwrap_or(4096);
    let caps = [
        m.cap_opt("attn_logit_softcapping", Some(50.0))?,
        m.cap_opt("final_logit_softcapping", Some(30.0))?,
    ];
    let pattern = m.window_pattern(2)?;
    let gemma = llama_like(m)?
        .activation(Activation::GeluTanh)
        .scale_embedding_by_width()
        .post_norms()
        .attention(|a| a.softcap = caps[0])
        .model(|model| model.head.softcap = caps[1]);
    // The 27B model, and only it, has heads that are not as wide as its queries are scaled.
    let gemma = if m.n_layers()? == 46 {
        gemma.scale_scores_by_width_per_head()
    } else {
        gemma
    };
    gemma.build_each(|l, layer| {
        if pattern[l] {
            layer.attention_mut().mask = Mask::Window(window);
        }
    })
}
