//! Jais 2: a llama with LayerNorm, biases everywhere, and a squared ReLU without a gate.
//!
//! Source: the model's code in Hugging Face transformers (`jais2`).

use super::{llama_like::gpt_like, meta::Meta};
use crate::{
    Error,
    spec::{Activation, ModelSpec, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    gpt_like(m)?
        .activation(Activation::Relu2)
        .biases(Presence::Optional)
        .build()
}
