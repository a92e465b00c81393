//! LFM2 and LFM2.5 (dense): gated short convolutions, and in some layers attention with norms of
//! queries and keys.
//!
//! Layers without key-value heads are convolutions. Source: the model's code in Hugging Face
//! transformers (`lfm2`).

use super::{
    llama_like::{Builder, llama_like},
    meta::Meta,
};
use crate::{
    Error,
    spec::{LayerSpec, Mixer, ModelSpec, Pairing, ShortConv},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    no_window(m)?;
    hybrid(m, llama_like(m)?, |_, _| {})
}

/// Refuses a model with windows.
pub(super) fn no_window(m: &Meta<'_>) -> Result<(), Error> {
    match m.size_opt("attention.sliding_window")? {
        None => Ok(()),
        Some(n) => Err(m.unsupported("attention.sliding_window", n)),
    }
}

/// The model with convolutions in place of attention in the layers without key-value heads, after
/// `change` was called with the index and the spec of each layer.
pub(super) fn hybrid(
    m: &Meta<'_>,
    layers: Builder,
    mut change: impl FnMut(usize, &mut LayerSpec),
) -> Result<ModelSpec, Error> {
    let n_taps = m.size("shortconv.l_cache")?;
    let has_attention = m.attention_layers()?;
    layers
        .pairing(Pairing::Halves)
        .qk_norm_per_head()
        .build_each(|l, layer| {
            if !has_attention[l] {
                layer.mixer = Mixer::ShortConv(ShortConv { n_taps });
            }
            change(l, layer);
        })
}
