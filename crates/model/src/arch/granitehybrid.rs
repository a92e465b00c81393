//! Granite 4 (hybrid): a Granite with Mamba 2 in most layers, attention without a rope in others,
//! and a dense MLP, or experts beside one that is shared without a gate.
//!
//! Layers without key-value heads are Mamba 2. Source: the model's code in Hugging Face
//! transformers (`granitemoehybrid`).

use super::{
    experts::{routed, shared},
    granite,
    llama_like::backbone,
    meta::Meta,
    ssm,
};
use crate::{
    Error,
    spec::{Ffn, Mixer, ModelSpec, Moe},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let mamba = ssm::mamba2(m, m.positive("attention.layer_norm_rms_epsilon")?)?;
    let has_attention = m.attention_layers()?;
    let experts = experts(m)?;
    granite::scaled(m, backbone(m)?)?.build_each(|l, layer| {
        if !has_attention[l] {
            layer.mixer = Mixer::Mamba2(mamba.clone());
        }
        if let Some(moe) = &experts {
            layer.ffn = Ffn::Moe(moe.clone());
        }
    })
}

/// The experts, if there are some.
fn experts(m: &Meta<'_>) -> Result<Option<Moe>, Error> {
    if m.count("expert_count")? == 0 {
        return Ok(None);
    }
    let d_ff = m.size("feed_forward_length")?;
    Ok(Some(Moe {
        shared: shared(m, d_ff)?,
        ..routed(m, d_ff)?
    }))
}
