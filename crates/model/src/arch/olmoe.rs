//! OLMoE: a llama with experts, whose queries and keys are normalized all together.
//!
//! The weights of the chosen experts are not renormalized. Source: Muennighoff et al. 2024, and the
//! model's code in Hugging Face transformers (`olmoe`).

use super::{experts::experts, llama_like::backbone, meta::Meta};
use crate::{
    Error,
    spec::{ModelSpec, Moe, Pairing},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let moe = Moe {
        renormalize: m.flag_opt("expert_weights_norm")?.unwrap_or(false),
        ..experts(m, m.size("feed_forward_length")?)?
    };
    backbone(m)?
        .pairing(Pairing::Halves)
        .qk_norm_whole()
        .experts(moe)
        .build()
}
