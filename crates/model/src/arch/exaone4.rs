//! EXAONE 4: a llama with norms only after the blocks, and of queries and keys. In the 32B of four
//! layers three have a window and rotate, and the fourth does neither.
//!
//! Source: the EXAONE 4.0 report (LG AI Research 2025), section 2.1.

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{Mask, ModelSpec, Presence},
};

/// Layers of the 32B, whose first files do not say its window.
const N_LAYERS_OF_32B: usize = 64;
const WINDOW_OF_32B: usize = 4096;

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let window = match m.size_opt("attention.sliding_window")? {
        None if m.n_layers()? == N_LAYERS_OF_32B => Some(WINDOW_OF_32B),
        window => window,
    };
    let pattern = m.window_pattern(4)?;
    llama_like(m)?
        .rope_factors(Presence::Optional)
        .no_pre_norms()
        .post_norms()
        .qk_norm_per_head()
        .build_each(|l, layer| {
            let a = layer.attention_mut();
            match window {
                Some(window) if pattern[l] => a.mask = Mask::Window(window),
                Some(_) => a.rope = None,
                None => {}
            }
        })
}
