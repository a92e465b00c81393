//! Jamba: Mamba with norms of what its states read in most layers, attention without a rope in
//! others, and an MLP, or experts in every second layer.
//!
//! Layers without key-value heads are Mamba. Source: Jamba (Lieber et al. 2024), section 3, and the
//! model's code in Hugging Face transformers (`jamba`).

use super::{experts::routed, llama_like::backbone, meta::Meta, ssm};
use crate::{
    Error,
    spec::{Ffn, Mixer, ModelSpec, Moe, StateNorms},
};

/// One layer of so many has experts, the last one of them. No key holds it.
const EXPERT_PERIOD: usize = 2;

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let eps = m.positive("attention.layer_norm_rms_epsilon")?;
    let mamba = ssm::mamba(m, StateNorms::Weighted { eps })?;
    let has_attention = m.attention_layers()?;
    let experts = experts(m)?;
    let layers = backbone(m)?.attention(|a| a.rope = None);
    layers.build_each(|l, layer| {
        if !has_attention[l] {
            layer.mixer = Mixer::Mamba(mamba.clone());
        }
        if let Some(moe) = experts.as_ref().filter(|_| (l + 1) % EXPERT_PERIOD == 0) {
            layer.ffn = Ffn::Moe(moe.clone());
        }
    })
}

/// The experts; one is a dense MLP.
fn experts(m: &Meta<'_>) -> Result<Option<Moe>, Error> {
    if m.count("expert_count")? <= 1 {
        return Ok(None);
    }
    Ok(Some(Moe {
        renormalize: false,
        ..routed(m, m.size("feed_forward_length")?)?
    }))
}
