//! What mixtures of experts share: their sizes and their gating, from the usual keys.

use super::meta::Meta;
use crate::{
    Error,
    spec::{
        Activation, ExpertGroups, Gating, GroupScore, Mlp, Moe, Presence, SharedExpert,
        WeightedSide,
    },
};

/// The experts of an architecture whose layers all have them; as [`routed`].
pub(super) fn experts(m: &Meta<'_>, d_ff: usize) -> Result<Moe, Error> {
    let dense = [
        ("leading_dense_block_count", 0),
        ("interleave_moe_layer_step", 1),
    ];
    for (key, known) in dense {
        match m.count(key)? {
            0 => {}
            n if n == known => {}
            n => return Err(m.unsupported(key, n)),
        }
    }
    routed(m, d_ff)
}

/// SiLU-gated experts, by default behind a softmax over all of them, the weights of the chosen ones
/// renormalized; of width `d_ff` where no key says another one.
pub(super) fn routed(m: &Meta<'_>, d_ff: usize) -> Result<Moe, Error> {
    let d_ff = m.size_opt("expert_feed_forward_length")?.unwrap_or(d_ff);
    Ok(Moe {
        n_experts: m.size("expert_count")?,
        n_used: m.size("expert_used_count")?,
        expert: perceptron(d_ff),
        has_gates: true,
        router_norm: None,
        router_bias: Presence::Absent,
        gating: gating(m, Gating::Softmax)?,
        selection_bias: Presence::Absent,
        groups: groups(m, GroupScore::BestTwo)?,
        renormalize: m.flag_opt("expert_weights_norm")?.unwrap_or(true),
        weights_scale: m.positive_opt("expert_weights_scale")?.unwrap_or(1.0),
        weighted: WeightedSide::Output,
        sum_bias: Presence::Absent,
        shared: None,
    })
}

/// The groups that experts are chosen from, if there are several.
pub(super) fn groups(m: &Meta<'_>, score: GroupScore) -> Result<Option<ExpertGroups>, Error> {
    let n_groups = m.count("expert_group_count")?;
    let n_used = m.count("expert_group_used_count")?;
    if n_groups <= 1 {
        return Ok(None);
    }
    if n_used == 0 || n_used > n_groups {
        return Err(m.unsupported("expert_group_used_count", n_used));
    }
    Ok(Some(ExpertGroups {
        n_groups: m.size("expert_group_count")?,
        n_used: m.size("expert_group_used_count")?,
        score,
    }))
}

/// The expert that every position uses, without a gate; `expert_shared_count` of width `d_expert`
/// are one, if no key says its width. `None` if there is none.
pub(super) fn shared(m: &Meta<'_>, d_expert: usize) -> Result<Option<SharedExpert>, Error> {
    let given = m.size_opt("expert_shared_feed_forward_length")?;
    let d_ff = match (given, m.count("expert_shared_count")?) {
        (None, 0) => return Ok(None),
        (Some(d_ff), _) => d_ff,
        (None, _) => m.size("expert_shared_count")?.saturating_mul(d_expert),
    };
    Ok(Some(SharedExpert {
        mlp: perceptron(d_ff),
        is_gated: false,
    }))
}

/// Which layers have experts: from number `leading_dense_block_count` on, every
/// `interleave_moe_layer_step`th of all.
pub(super) fn expert_layers(m: &Meta<'_>) -> Result<Vec<bool>, Error> {
    let n_dense = m.count("leading_dense_block_count")?;
    let step = m.size_opt("interleave_moe_layer_step")?.unwrap_or(1);
    let has = |l: usize| l as u64 >= n_dense && (l + 1).is_multiple_of(step);
    Ok((0..m.n_layers()?).map(has).collect())
}

/// By ggml's enumeration, where 0 means that the file does not say.
pub(super) fn gating(m: &Meta<'_>, default: Gating) -> Result<Gating, Error> {
    match m.count("expert_gating_func")? {
        0 => Ok(default),
        1 => Ok(Gating::Softmax),
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

/// A shared expert of width `d_ff` behind a gate of its own.
pub(super) fn gated_shared(d_ff: usize) -> SharedExpert {
    SharedExpert {
        mlp: perceptron(d_ff),
        is_gated: true,
    }
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
