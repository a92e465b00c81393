//! Hunyuan A13B: a dense Hunyuan with experts in all layers, beside a shared one without a gate.
//!
//! Source: the model's code in Hugging Face transformers (`hunyuan_v1_moe`).

use super::{
    experts::{experts, shared},
    llama_like::backbone,
    meta::Meta,
};
use crate::{
    Error,
    spec::{ModelSpec, Moe, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let d_expert = m.size("expert_feed_forward_length")?;
    let moe = Moe {
        shared: shared(m, d_expert)?,
        ..experts(m, d_expert)?
    };
    backbone(m)?
        .rotated_qk_norm_per_head()
        .qkv_bias(Presence::Optional)
        .out_bias(Presence::Optional)
        .experts(moe)
        .build()
}
