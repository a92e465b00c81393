//! GPT-2: LayerNorm, biases, a plain MLP, and learned positions instead of a rotation.
//!
//! Source: Radford et al. 2019, section 2.3.

use super::{llama_like::gpt_like, meta::Meta};
use crate::{
    Error,
    spec::{ModelSpec, Positions},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    gpt_like(m)?
        .attention(|a| a.rope = None)
        .model(|model| model.positions = Positions::Learned(model.n_ctx_train))
        .build()
}
