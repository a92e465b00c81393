//! Nemotron 3, such as Nano: a Nemotron-H with experts in place of MLPs, without gates, with a
//! squared ReLU, behind a sigmoid router with a bias, and a shared expert.
//!
//! A layer with key-value heads is attention, one with a width of its experts has those. Source:
//! the model's code in Hugging Face transformers (`nemotron_h`).

use super::{
    experts::{gating, routed, shared},
    meta::Meta,
    nemotron_h::{MIN_STEP, alone, eps, layers},
    ssm,
};
use crate::{
    Error,
    spec::{Activation, Ffn, Gating, Mamba2, Mixer, Mlp, ModelSpec, Moe, Presence, SharedExpert},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let eps = eps(m)?;
    let mamba = Mamba2 {
        min_step: MIN_STEP,
        ..ssm::mamba2(m, eps)?
    };
    let moe = experts(m)?;
    let widths = m.counts_opt("feed_forward_length")?;
    let widths = widths.ok_or_else(|| m.missing("feed_forward_length"))?;
    let has_attention = m.attention_layers()?;
    layers(m, eps)?.build_each(|l, layer| match (has_attention[l], widths[l]) {
        (true, _) => alone(layer, 0),
        (false, 0) => {
            layer.mixer = Mixer::Mamba2(mamba.clone());
            alone(layer, 0);
        }
        (false, _) => {
            layer.ffn = Ffn::Moe(moe.clone());
            alone(layer, 1);
        }
    })
}

fn experts(m: &Meta<'_>) -> Result<Moe, Error> {
    match m.count("moe_latent_size")? {
        0 => {}
        n => return Err(m.unsupported("moe_latent_size", n)),
    }
    let d_ff = m.size("expert_feed_forward_length")?;
    let moe = routed(m, d_ff)?;
    Ok(Moe {
        expert: squared(moe.expert),
        has_gates: false,
        gating: gating(m, Gating::Sigmoid)?,
        selection_bias: Presence::Required,
        shared: shared(m, d_ff)?.map(|shared| SharedExpert {
            mlp: squared(shared.mlp),
            ..shared
        }),
        ..moe
    })
}

fn squared(mlp: Mlp) -> Mlp {
    Mlp {
        activation: Activation::Relu2,
        ..mlp
    }
}
