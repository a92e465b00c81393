//! LFM3 (dense): an LFM2 with norms after the blocks and a gate per head; some layers of attention
//! have a window and a rope of their own, the others turn a part of their pairs only.
//!
//! llama.cpp does not know it (October 2026). The keys are those of LFM2 beside the usual
//! `attention.sliding_window`, `attention.sliding_window_pattern` (a list) and
//! `rope.freq_base_swa`; tensors are named as LFM2's, norms after the blocks as Gemma's
//! (`post_attention_norm`, `post_ffw_norm`), gates `attn_gate`. As in files of Gemma 4,
//! `rope_freqs` slows the pairs down to nothing that do not turn. Source: the model's code in
//! Hugging Face transformers (`lfm3`).

use super::{lfm2::hybrid, llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{Attention, Mask, ModelSpec, OutputGate, Presence, RopeScaling},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let pattern = "attention.sliding_window_pattern";
    let window = m.size_opt("attention.sliding_window")?;
    let slides = match window {
        Some(_) => Some(m.flags_opt(pattern)?.ok_or_else(|| m.missing(pattern))?),
        None => None,
    };
    let base = m.positive_opt("rope.freq_base_swa")?.unwrap_or(10_000.0);
    let layers = llama_like(m)?
        .post_norms()
        .rope_factors(Presence::Optional)
        .attention(|a| a.gate = OutputGate::Heads);
    let has_attention = m.attention_layers()?;
    hybrid(m, layers, |l, layer| {
        let slides = slides.as_ref().is_some_and(|slides| slides[l]);
        if let Some(window) = window.filter(|_| slides && has_attention[l]) {
            slide(layer.attention_mut(), window, base);
        }
    })
}

/// Attention with a window, and with a rope that turns all pairs.
fn slide(a: &mut Attention, window: usize, base: f32) {
    a.mask = Mask::Window(window);
    if let Some(rope) = &mut a.rope {
        rope.base = base;
        rope.scaling = RopeScaling::None;
        rope.magnitude = 1.0;
        rope.factors = Presence::Absent;
    }
}
