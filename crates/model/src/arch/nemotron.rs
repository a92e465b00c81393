//! Nemotron 3 and 4, Minitron: a llama with LayerNorm and a squared ReLU without a gate; half of
//! each head rotates.
//!
//! The norms multiply by 1 more than their weights, which is in the weights of files. Source:
//! Nemotron-4 15B (Parmar et al. 2024), section 2.

use super::{llama_like::layer_normed, meta::Meta};
use crate::{
    Error,
    spec::{Activation, Ffn, ModelSpec, Norm, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    layer_normed(m, |eps| Norm::Layer { eps }, Ffn::Plain)?
        .activation(Activation::Relu2)
        .biases(Presence::Optional)
        .build()
}
