//! K-EXAONE: a llama with norms of queries and keys, whose layers but every fourth one have a
//! window and rotate; a dense layer first, experts in the others, chosen by sigmoids with a bias.
//!
//! Source: the model's code in Hugging Face transformers (`exaone_moe`).

use super::{
    experts::{expert_layers, gating, routed, shared},
    llama_like::backbone,
    meta::Meta,
};
use crate::{
    Error,
    spec::{Ffn, Gating, Mask, ModelSpec, Moe, Presence},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let window = m.size("attention.sliding_window")?;
    let has_window = m.window_pattern(4)?;
    let has_experts = expert_layers(m)?;
    let d_expert = m.size("expert_feed_forward_length")?;
    let moe = Moe {
        gating: gating(m, Gating::Sigmoid)?,
        selection_bias: Presence::Required,
        shared: shared(m, d_expert)?,
        ..routed(m, d_expert)?
    };
    backbone(m)?
        .rope_factors(Presence::Optional)
        .qk_norm_per_head()
        .build_each(|l, layer| {
            let a = layer.attention_mut();
            match has_window[l] {
                true => a.mask = Mask::Window(window),
                false => a.rope = None,
            }
            if has_experts[l] {
                layer.ffn = Ffn::Moe(moe.clone());
            }
        })
}
