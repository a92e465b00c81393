//! StarCoder 2: a GPT with a rope, shared key-value heads and a window in all layers.
//!
//! llama.cpp's files do not say the window; `atta convert` writes it. Source: StarCoder 2 and The
//! Stack v2 (Lozhkov et al. 2024), section 5.

use super::{llama_like::gpt_like, meta::Meta};
use crate::{
    Error,
    spec::{Mask, ModelSpec, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    // A window of 0 positions is none.
    let window = match m.count("attention.sliding_window")? {
        0 => None,
        _ => m.size_opt("attention.sliding_window")?,
    };
    gpt_like(m)?
        .biases(Presence::Optional)
        .attention(|a| a.mask = window.map_or(a.mask, Mask::Window))
        .build()
}
