//! Seed-OSS: a Qwen2 whose heads have a width of their own.

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{ModelSpec, Pairing, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    llama_like(m)?
        .pairing(Pairing::Halves)
        .qkv_bias(Presence::Optional)
        .out_bias(Presence::Optional)
        .mlp_bias(Presence::Optional)
        .build()
}
