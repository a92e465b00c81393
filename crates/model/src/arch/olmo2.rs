//! OLMo 2 (and 3): norms only after the blocks, and of all queries and all keys. In OLMo 3 of four
//! layers three have a window, and their rope is never stretched.
//!
//! Source: 2 OLMo 2 Furious (OLMo Team 2024), section 3.2.

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{Mask, ModelSpec, Rope, RopeScaling},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let window = m.size_opt("attention.sliding_window")?;
    let pattern = m.window_pattern(4)?;
    let base = m.positive_opt("rope.freq_base_swa")?;
    llama_like(m)?
        .qk_norm_whole()
        .post_norms()
        .no_pre_norms()
        .build_each(|l, layer| {
            if let Some(window) = window.filter(|_| pattern[l]) {
                let a = layer.attention_mut();
                a.mask = Mask::Window(window);
                let plain = |rope: Rope| Rope {
                    base: base.unwrap_or(rope.base),
                    scaling: RopeScaling::None,
                    magnitude: 1.0,
                    ..rope
                };
                a.rope = a.rope.take().map(plain);
            }
        })
}
