//! ChatGLM 3 and GLM-4 (of 2024): a llama with biases of q, k and v; half of each head rotates.
//!
//! Source: the model's code in Hugging Face transformers (`glm`).

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{ModelSpec, Pairing, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    llama_like(m)?
        .pairing(Pairing::Adjacent)
        .qkv_bias(Presence::Optional)
        .build()
}
