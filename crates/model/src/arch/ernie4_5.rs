//! ERNIE 4.5 (dense): a llama that may have biases everywhere, its checkpoints in GGUF's order.

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{ModelSpec, Pairing, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    llama_like(m)?
        .pairing(Pairing::Adjacent)
        .qkv_bias(Presence::Optional)
        .out_bias(Presence::Optional)
        .mlp_bias(Presence::Optional)
        .build()
}
