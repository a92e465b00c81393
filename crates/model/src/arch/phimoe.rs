//! Phi-3.5 MoE: a Phi-3 with LayerNorms, biases everywhere and experts behind a sparse mixer.
//!
//! Beyond its original context it turns by the long factors, as in Microsoft's code and llama.cpp;
//! transformers takes the short ones in all contexts. Source: Abdin et al. 2024, section 3, and the
//! model's code in Hugging Face transformers (`phimoe`), whose mixer llama.cpp does not have.

use super::{experts::experts, llama_like::backbone, meta::Meta, phi3};
use crate::{
    Error,
    spec::{Gating, ModelSpec, Moe, Presence},
};

/// Twice the noise of the router in training, which no key holds.
const MIXER: Gating = Gating::SparseMixer { tolerance: 0.02 };

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let moe = Moe {
        gating: MIXER,
        renormalize: m.flag_opt("expert_weights_norm")?.unwrap_or(false),
        ..experts(m, m.size("feed_forward_length")?)?
    };
    phi3::of_long_context(m, backbone(m)?)?
        .layer_norms()
        .qkv_bias(Presence::Optional)
        .out_bias(Presence::Optional)
        .model(|model| model.head.bias = Presence::Optional)
        .experts(moe)
        .build()
}
