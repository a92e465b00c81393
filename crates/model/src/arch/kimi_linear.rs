//! Kimi Linear: of four layers three are Kimi delta attention, the fourth has latent attention
//! without a rotation; a dense layer first, and experts in the others.
//!
//! The norms of queries and keys of its delta nets, and of latent vectors, have an epsilon of 1e-6,
//! which no key holds. Sources: Kimi Linear (Kimi Team 2025), and the model's code in Hugging Face
//! transformers (`kimi_linear`).

use super::{
    experts::{expert_layers, gating, groups, routed, shared},
    latent::{Heads, latent_like},
    meta::Meta,
};
use crate::{
    Error,
    spec::{
        DeltaNet, Ffn, Gating, GroupScore, KeySharing, LatentUp, Mixer, ModelSpec, Moe, NetDecay,
        NetGate, NetTensors, Norm, Presence,
    },
};

/// No key holds it.
const L2_EPS: f32 = 1e-6;

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    let layers = latent_like(m, &heads(m)?)?.attention(|a| a.rope = None);
    let Norm::Rms { eps } = layers.norm() else {
        unreachable!("layers of latent attention have RMS norms")
    };
    let net = delta_net(m, eps)?;
    let moe = experts(m)?;
    let has_attention = m.attention_layers()?;
    let has_experts = expert_layers(m)?;
    layers.build_each(|l, layer| {
        if !has_attention[l] {
            layer.mixer = Mixer::DeltaNet(net.clone());
        }
        if has_experts[l] {
            layer.ffn = Ffn::Moe(moe.clone());
        }
    })
}

/// The widths of heads. Files with a key-value head for each head have the projections of keys and
/// values in one tensor.
fn heads(m: &Meta<'_>) -> Result<Heads, Error> {
    let n_kv_heads = m.n_kv_heads()?.unwrap_or_default();
    let d_head = m.size("attention.key_length_mla")?;
    let d_key = m.size("attention.key_length")?;
    let d_absorbed = m.size("attention.kv_lora_rank")? + m.size("rope.dimension_count")?;
    if ![d_head, d_absorbed].contains(&d_key) {
        return Err(m.unsupported("attention.key_length", d_key));
    }
    // Files have the width of no value there.
    m.size_opt("attention.value_length")?;
    Ok(Heads {
        d_head,
        d_value: m.size("attention.value_length_mla")?,
        up: match n_kv_heads.iter().all(|&n| n == 1) {
            true => LatentUp::Split,
            false => LatentUp::Joint,
        },
    })
}

/// Keys and values are as wide as the vectors from which gates and decays are projected.
fn delta_net(m: &Meta<'_>, eps: f32) -> Result<DeltaNet, Error> {
    let n_heads = m.size("attention.head_count")?;
    let d_head = m.size("kda.head_dim")?;
    Ok(DeltaNet {
        n_taps: m.size("ssm.conv_kernel")?,
        n_heads,
        n_key_heads: n_heads,
        d_key: d_head,
        d_value: d_head,
        sharing: KeySharing::Neighbours,
        tensors: NetTensors::Apart,
        decay: NetDecay::Channels { rank: d_head },
        gate: NetGate::Sigmoid,
        gate_rank: Some(d_head),
        l2_eps: L2_EPS,
        eps,
    })
}

fn experts(m: &Meta<'_>) -> Result<Moe, Error> {
    let d_expert = m.size("expert_feed_forward_length")?;
    Ok(Moe {
        gating: gating(m, Gating::Sigmoid)?,
        selection_bias: Presence::Required,
        groups: groups(m, GroupScore::BestTwo)?,
        shared: shared(m, d_expert)?,
        ..routed(m, d_expert)?
    })
}
