//! Qwen3.5 (dense), and 3.6: of four layers three are gated delta nets, the fourth has gated
//! attention.
//!
//! Sources: Gated Delta Networks (Yang et al. 2025), and the models' code in Hugging Face
//! transformers (`qwen3_next`, `qwen3_5`), which has the epsilon of the norms of queries and keys.
//! The rope of Qwen3.5 has three positions per token, which are the same for text.

use super::{
    llama_like::{Builder, llama_like},
    meta::Meta,
};
use crate::{
    Error,
    spec::{
        DeltaNet, GateRows, KeySharing, Mixer, ModelSpec, NetDecay, NetGate, NetTensors, Norm,
        OutputGate, Pairing,
    },
};

/// No key holds it.
const L2_EPS: f32 = 1e-6;

pub(super) fn lower(m: &Meta<'_>) -> Result<ModelSpec, Error> {
    hybrid(m, llama_like(m)?, KeySharing::InTurn, GateRows::Apart)
}

/// The model with a gated delta net in place of attention in most of these layers.
pub(super) fn hybrid(
    m: &Meta<'_>,
    layers: Builder,
    sharing: KeySharing,
    gates: GateRows,
) -> Result<ModelSpec, Error> {
    let Norm::Rms { eps } = layers.norm() else {
        unreachable!("a backbone has RMS norms")
    };
    let d_inner = m.size("ssm.inner_size")?;
    let n_heads = m.size("ssm.time_step_rank")?;
    if !d_inner.is_multiple_of(n_heads) {
        return Err(m.unsupported("ssm.inner_size", d_inner));
    }
    let net = DeltaNet {
        n_taps: m.size("ssm.conv_kernel")?,
        n_heads,
        n_key_heads: m.size("ssm.group_count")?,
        d_key: m.size("ssm.state_size")?,
        d_value: d_inner / n_heads,
        sharing,
        tensors: NetTensors::Joint,
        decay: NetDecay::Heads(gates),
        gate: NetGate::Silu,
        gate_rank: None,
        l2_eps: L2_EPS,
        eps,
    };
    let recurrent = m.recurrent_layers(4)?;
    layers
        .pairing(Pairing::Halves)
        .qk_norm_per_head()
        .attention(|a| a.gate = OutputGate::Elements)
        .build_each(|l, layer| {
            if recurrent[l] {
                layer.mixer = Mixer::DeltaNet(net.clone());
            }
        })
}
