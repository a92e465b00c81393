//! Gated delta nets: the keys of their sizes, and how the rows of their tensors lie in checkpoints.
//!
//! Checkpoints group the heads of values by their head of keys. GGUF has them in turn
//! ([`KeySharing::InTurn`]) but for Qwen3-Next, whose projections of queries, keys, values and gate
//! are one tensor in checkpoints, head after head.

use atta_model::{
    Role,
    spec::{DeltaNet, GateRows, KeySharing, NetDecay},
};
use serde_json::Value;

use super::{config::Config, keys::Keys, rows::RowMap};
use crate::Error;

/// Queries, keys, values and gate of Qwen3-Next, without the prefix of the layer.
pub(super) const JOINED: &str = "linear_attn.in_proj_qkvz.weight";

/// Whether a tensor is a part of [`JOINED`] in the checkpoint.
pub(super) fn is_in_joined(net: &DeltaNet, role: Role) -> bool {
    let is_joined = net.decay == NetDecay::Heads(GateRows::ByKeyHead);
    is_joined && matches!(role, Role::SsmQkv | Role::AttnGate)
}

/// The rows of [`JOINED`].
pub(super) fn n_joined(net: &DeltaNet) -> u64 {
    2 * (net.d_keys() + net.d_values()) as u64
}

/// The rows of [`JOINED`] that become those of `role`.
pub(super) fn order_in_joined(net: &DeltaNet, role: Role) -> RowMap {
    let d_key = net.d_key as u64;
    let d_values = (net.d_values() / net.n_key_heads) as u64;
    let of = 2 * (d_key + d_values);
    match role {
        Role::SsmQkv => RowMap::QkvOfHeads {
            n_heads: net.n_key_heads as u64,
            d_key,
            d_values,
            of,
        },
        _ => RowMap::Part {
            take: d_values,
            of,
            first: 2 * d_key + d_values,
            step: 1,
        },
    }
}

/// The order of the rows of a tensor of its own.
pub(super) fn row_order(net: &DeltaNet, role: Role) -> RowMap {
    let d_keys = 2 * net.d_keys() as u64;
    let d_value = net.d_value as u64;
    match role {
        Role::SsmQkv | Role::SsmConv => in_turn(net, d_keys, d_value),
        Role::AttnGate => in_turn(net, 0, d_value),
        Role::SsmBeta | Role::SsmAlpha | Role::SsmDtBias | Role::SsmA => in_turn(net, 0, 1),
        _ => RowMap::Same,
    }
}

/// The order of the columns of a tensor.
pub(super) fn column_order(net: &DeltaNet, role: Role) -> RowMap {
    match role {
        Role::SsmOut => in_turn(net, 0, net.d_value as u64),
        _ => RowMap::Same,
    }
}

/// Heads of `d` rows, behind `first` other rows.
fn in_turn(net: &DeltaNet, first: u64, d: u64) -> RowMap {
    match net.sharing {
        KeySharing::Neighbours => RowMap::Same,
        KeySharing::InTurn if net.n_heads == net.n_key_heads => RowMap::Same,
        KeySharing::InTurn => RowMap::InTurn {
            first,
            n_groups: net.n_key_heads as u64,
            n_each: (net.n_heads / net.n_key_heads) as u64,
            d,
        },
    }
}

/// Writes the sizes of the gated delta nets, and which layers they are.
pub(super) fn write_keys(c: &Config, keys: &mut Keys) -> Result<(), Error> {
    let n_heads = c.count(&["linear_num_value_heads"])?;
    let d_value = c.count(&["linear_value_head_dim"])?;
    for (key, field) in [
        ("ssm.conv_kernel", "linear_conv_kernel_dim"),
        ("ssm.state_size", "linear_key_head_dim"),
        ("ssm.group_count", "linear_num_key_heads"),
        ("ssm.time_step_rank", "linear_num_value_heads"),
    ] {
        keys.count(key, c.count(&[field])?);
    }
    keys.count("ssm.inner_size", d_value.saturating_mul(n_heads));
    keys.count(
        "full_attention_interval",
        c.count(&["full_attention_interval"])?,
    );
    write_recurrent(c, keys, 0)
}

/// Writes which layers are gated delta nets, if the configuration lists them. The last `n_nextn`
/// layers, of multi-token prediction, are none.
pub(super) fn write_recurrent(c: &Config, keys: &mut Keys, n_nextn: usize) -> Result<(), Error> {
    if let Some(listed) = c.list_opt("layer_types")? {
        let mut are_nets = recurrent(c, listed)?;
        are_nets.resize(listed.len() + n_nextn, false);
        keys.flags("attention.recurrent_layers", &are_nets);
    }
    Ok(())
}

/// Which layers of a list of layer types are gated delta nets.
fn recurrent(c: &Config, listed: &[Value]) -> Result<Vec<bool>, Error> {
    let is_recurrent = |(l, kind): (usize, &Value)| match kind.as_str() {
        Some("linear_attention") => Ok(true),
        Some("full_attention" | "indexed_attention") => Ok(false),
        _ => Err(c.wrong(format!("layer_types does not say what layer {l} is"))),
    };
    listed.iter().enumerate().map(is_recurrent).collect()
}
