//! What mixtures of experts share: their sizes and their gating, from the usual keys.

use super::meta::Meta;
use crate::{
    Error,
    spec::{Activation, Gating, Mlp, Moe, Presence},
};

/// The experts of an architecture whose layers all have them; as [`routed`].
pub(super) fn experts(m: &Meta<'_>, d_ff: usize) -> Result<Moe, Error> {
    match m.count("leading_dense_block_count")? {
        0 => routed(m, d_ff),
        n => Err(m.unsupported("leading_dense_block_count", n)),
    }
}

/// SiLU-gated experts, by default behind a softmax over all of them, the weights of the chosen ones
/// renormalized; of width `d_ff` where no key says another one.
pub(super) fn routed(m: &Meta<'_>, d_ff: usize) -> Result<Moe, Error> {
    // Experts in groups, or only in some layers.
    for (key, known) in [("expert_group_count", 1), ("interleave_moe_layer_step", 1)] {
        let value = m.count(key)?;
        if value != 0 && value != known {
            return Err(m.unsupported(key, value));
        }
    }
    let d_ff = m.size_opt("expert_feed_forward_length")?.unwrap_or(d_ff);
    Ok(Moe {
        n_experts: m.size("expert_count")?,
        n_used: m.size("expert_used_count")?,
        expert: perceptron(d_ff),
        router_norm: None,
        router_bias: Presence::Absent,
        gating: gating(m)?,
        selection_bias: Presence::Absent,
        renormalize: m.flag_opt("expert_weights_norm")?.unwrap_or(true),
        weights_scale: m.positive_opt("expert_weights_scale")?.unwrap_or(1.0),
        shared: None,
    })
}

/// By ggml's enumeration, where 0 means that the file does not say.
fn gating(m: &Meta<'_>) -> Result<Gating, Error> {
    match m.count("expert_gating_func")? {
        0 | 1 => Ok(Gating::Softmax),
        2 => Ok(Gating::Sigmoid),
        n => Err(m.unsupported("expert_gating_func", n)),
    }
}

/// The width of an expert in files that do not say it: the experts in use are together as wide as a
/// dense layer.
pub(super) fn shared_out(m: &Meta<'_>) -> Result<usize, Error> {
    let d_ff = m.size("feed_forward_length")?;
    let n_used = m.size("expert_used_count")?;
    Ok((d_ff / n_used).max(1))
}

/// An expert of width `d_ff`.
pub(super) fn perceptron(d_ff: usize) -> Mlp {
    Mlp {
        d_ff,
        activation: Activation::Silu,
        bias: Presence::Absent,
        sub_norm: None,
    }
}
