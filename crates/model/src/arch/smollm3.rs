//! SmolLM3: a llama in which every fourth layer does not rotate.
//!
//! Source: the SmolLM3 report (Hugging Face 2025), "NoPE"; Yang et al. 2025 for the idea.

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{ModelSpec, Pairing},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    llama_like(m)?
        .pairing(Pairing::Adjacent)
        .build_each(|l, layer| {
            if (l + 1).is_multiple_of(4) {
                layer.attention_mut().rope = None;
            }
        })
}
