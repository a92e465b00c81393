//! Hunyuan (dense): a llama with norms of queries and keys behind their rotation.
//!
//! Its base is stretched by NTK-aware scaling, which files have in `rope.freq_base`. Source: the
//! model's code in Hugging Face transformers (`hunyuan_v1_dense`).

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{ModelSpec, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    llama_like(m)?
        .rotated_qk_norm_per_head()
        .qkv_bias(Presence::Optional)
        .out_bias(Presence::Optional)
        .build()
}
