//! Llama 1, 2 and 3.x, and all that share their layout: TinyLlama, SmolLM2, Mistral 7B; with
//! experts Mixtral.
//!
//! Source: Touvron et al. 2023; the Llama 3.1 model card for the rope factors, which GGUF files
//! carry as a tensor; Jiang et al. 2024 for the experts. Files that were QSF may keep the rows of q
//! and k in Hugging Face's order, and then say so by a key that llama.cpp does not have.

use super::{experts::experts, llama_like::backbone, meta::Meta};
use crate::{
    Error,
    spec::{ModelSpec, Pairing, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let model = backbone(m)?
        .pairing(pairing(m)?)
        .rope_factors(Presence::Optional)
        .qkv_bias(Presence::Optional)
        .out_bias(Presence::Optional);
    match m.count("expert_count")? {
        0 => model.mlp_bias(Presence::Optional).build(),
        _ => model
            .experts(experts(m, m.size("feed_forward_length")?)?)
            .build(),
    }
}

fn pairing(m: &Meta<'_>) -> Result<Pairing, Error> {
    match m.text_opt("rope.pairing")? {
        None => Ok(Pairing::Adjacent),
        Some("halves") => Ok(Pairing::Halves),
        Some(other) => Err(m.unsupported("rope.pairing", other)),
    }
}
