//! BitNet b1.58: a llama with weights of -1, 0 and 1 times a number, and norms of the input of each
//! sublayer's last projection.
//!
//! Of the two kinds of such models Microsoft's (BitNet b1.58 2B4T, Ma et al. 2025, section 2) gates
//! with a squared ReLU, the older ones of 1bitLLM, which reproduce Ma et al. 2024, with SiLU. No
//! key of a file tells them apart; but only Microsoft's share key-value heads.

use super::{llama_like::llama_like, meta::Meta};
use crate::{
    Error,
    spec::{Activation, ModelSpec, Pairing},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    llama_like(m)?
        .pairing(Pairing::Halves)
        .sub_norms()
        .layer(|layer| {
            let a = layer.attention_mut();
            if a.n_kv_heads < a.n_heads {
                layer.mlp_mut().activation = Activation::Relu2;
            }
        })
        .build()
}
