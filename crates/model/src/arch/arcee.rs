//! Arcee's AFM-4.5B: a llama whose MLP has no gate and a squared ReLU.
//!
//! Source: the model's code in Hugging Face transformers (`arcee`).

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{Activation, ModelSpec, Pairing, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    llama_like(m)?
        .pairing(Pairing::Adjacent)
        .rope_factors(Presence::Optional)
        .plain_mlp()
        .activation(Activation::Relu2)
        .biases(Presence::Optional)
        .build()
}
