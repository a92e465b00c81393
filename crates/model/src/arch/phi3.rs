//! Phi-3, 3.5 and 4: a llama whose projections are stored as one, with longrope in the models of
//! long context.
//!
//! Source: Phi-3 technical report (Abdin et al. 2024), section 2; Ding et al. 2024 for longrope.

use super::{
    llama_like::{Builder, llama_like},
    meta::Meta,
    rope::n_ctx_orig,
};
use crate::{
    Error,
    spec::{Mask, ModelSpec, Presence, RopeScaling},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    of_long_context(m, llama_like(m)?)?.build()
}

/// The model with longrope and a window, where the file has them.
pub(super) fn of_long_context(m: &Meta<'_>, layers: Builder) -> Result<Builder, Error> {
    // Files say longrope by its attention factor alone, and no window by one of 0 positions.
    let long = m
        .positive_opt("rope.scaling.attn_factor")?
        .map(|_| n_ctx_orig(m))
        .transpose()?;
    let window = m.count("attention.sliding_window")?;
    Ok(layers
        .rope(|rope| {
            if let Some(n_ctx_orig) = long {
                rope.scaling = RopeScaling::Long {
                    n_ctx_orig,
                    factors: Presence::Required,
                };
            }
        })
        .attention(|a| {
            if window > 0 {
                a.mask = Mask::Window(usize::try_from(window).unwrap_or(usize::MAX));
            }
        }))
}
