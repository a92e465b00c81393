//! ERNIE 4.5 with experts: an ERNIE 4.5 with dense layers first and experts in every nth layer
//! behind them, one of them shared without a gate.
//!
//! Experts are chosen by a softmax plus a bias. Source: the model's code in Hugging Face
//! transformers (`ernie4_5_moe`).

use super::{
    experts::{expert_layers, routed, shared},
    llama_like::backbone,
    meta::Meta,
};
use crate::{
    Error,
    spec::{ModelSpec, Moe, Pairing, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let d_expert = m.size("expert_feed_forward_length")?;
    let moe = Moe {
        selection_bias: Presence::Optional,
        shared: shared(m, d_expert)?,
        ..routed(m, d_expert)?
    };
    backbone(m)?
        .pairing(Pairing::Adjacent)
        .qkv_bias(Presence::Optional)
        .out_bias(Presence::Optional)
        .build_experts(&moe, &expert_layers(m)?)
}
