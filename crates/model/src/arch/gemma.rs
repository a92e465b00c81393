//! Gemma (1): a llama with a GELU gate and an embedding scaled by its width. Norm weights are
//! stored with their 1 added.
//!
//! Source: Gemma technical report (Gemma Team 2024), section 2.

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{Activation, ModelSpec},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    llama_like(m)?
        .activation(Activation::GeluTanh)
        .scale_embedding_by_width()
        .build()
}
