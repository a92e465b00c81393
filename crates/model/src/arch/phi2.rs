//! Phi-2 (and 1, 1.5): attention and MLP in parallel behind one LayerNorm, part of each
//! head rotated.
//!
//! Source: the model card of microsoft/phi-2 and its code in Hugging Face transformers (`phi`).

use super::{llama_like::gpt_like, meta::Meta};
use crate::{
    Error,
    spec::{ModelSpec, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    gpt_like(m)?
        .parallel()
        .model(|model| model.head.bias = Presence::Required)
        .build()
}
