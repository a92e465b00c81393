//! Nemotron 3, such as Nano: a Nemotron-H with experts in place of MLPs, without gates, with a
//! squared ReLU, behind a sigmoid router with a bias, and a shared expert.
//!
//! A layer with key-value heads is attention, one with a width of its experts has those. Source:
//! the model's code in Hugging Face transformers (`nemotron_h`).

use super::{
    experts::{gating, routed, shared},
    meta::Meta,
    nemotron_h::single_sublayers,
};
use crate::{
    Error,
    spec::{Activation, Ffn, Gating, Mlp, ModelSpec, Moe, Presence, SharedExpert},
};

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let moe = experts(m)?;
    single_sublayers(m, |layer, _| layer.ffn = Ffn::Moe(moe.clone()))
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
