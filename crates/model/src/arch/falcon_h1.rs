//! Falcon-H1: in every layer attention and Mamba 2 side by side.
//!
//! The multipliers of its configuration are in the weights of the file. Whether results of Mamba 2
//! are normalized, no key says: the weight of the norm is there or not. Source: Falcon-H1 (Zuo et
//! al. 2025), section 2, and the model's code in Hugging Face transformers (`falcon_h1`).

use super::{llama_like::llama_like, meta::Meta, ssm};
use crate::{
    Error,
    spec::{AttentionAndMamba2, Mamba2, Mixer, ModelSpec, Pairing, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let mamba = Mamba2 {
        norm: Presence::Optional,
        ..ssm::mamba2(m, m.positive("attention.layer_norm_rms_epsilon")?)?
    };
    llama_like(m)?
        .pairing(Pairing::Halves)
        .layer(|layer| {
            layer.mixer = Mixer::AttentionAndMamba2(AttentionAndMamba2 {
                attention: layer.attention_mut().clone(),
                mamba,
            });
        })
        .build()
}
