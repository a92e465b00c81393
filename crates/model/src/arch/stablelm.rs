//! StableLM (3B, 2 1.6B and 2 12B): a llama with LayerNorm; part of each head rotates. The 12B has
//! parallel layers and LayerNorms of queries and keys.
//!
//! Source: the StableLM 2 1.6B report (Bellagente et al. 2024), section 3.1, and the code of the
//! model in Hugging Face transformers (`stablelm`).

use super::{llama_like::layer_normed, meta::Meta};
use crate::{
    Error,
    spec::{Ffn, ModelSpec, Norm, Presence},
};

/// Layers of the 1.6B and of the 3B. Where their configuration does not say how their layers are
/// wired, llama.cpp's converter writes that they are parallel, which they are not.
const SEQUENTIAL: [usize; 2] = [24, 32];

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let is_parallel = m.flag_opt("use_parallel_residual")?.unwrap_or(false);
    let layers = layer_normed(m, |eps| Norm::Layer { eps }, Ffn::Gated)?
        .qkv_bias(Presence::Optional)
        .qk_layer_norm();
    match is_parallel && !SEQUENTIAL.contains(&m.n_layers()?) {
        true => layers.parallel().build(),
        false => layers.build(),
    }
}
