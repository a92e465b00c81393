//! GLM-4 (0414, dense): a llama with norms after the blocks beside those before; half of each head
//! rotates.
//!
//! Rows of queries and keys of GLM-4V are in the order of rotated halves. Source: the model's code
//! in Hugging Face transformers (`glm4`).

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{ModelSpec, Pairing, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let pairing = match m.has_rope_sections()? {
        true => Pairing::Halves,
        false => Pairing::Adjacent,
    };
    llama_like(m)?
        .pairing(pairing)
        .post_norms()
        .qkv_bias(Presence::Optional)
        .build()
}
