//! Granite with windows (dense): a Granite with an attention sink for each head; some layers have a
//! window, and some do not rotate.
//!
//! Source: the model's code in Hugging Face transformers (`granite_swa`).

use super::{granite::scaled, llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{Mask, ModelSpec, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let pattern = "attention.sliding_window_pattern";
    let window = m.size("attention.sliding_window")?;
    let slides = m.flags_opt(pattern)?.ok_or_else(|| m.missing(pattern))?;
    let rotates = m.flags_opt("attention.rope_pattern")?;
    scaled(m, llama_like(m)?)?
        .attention(|a| a.sinks = Presence::Required)
        .build_each(|l, layer| {
            let a = layer.attention_mut();
            if slides[l] {
                a.mask = Mask::Window(window);
            }
            if rotates.as_ref().is_some_and(|rotates| !rotates[l]) {
                a.rope = None;
            }
        })
}
