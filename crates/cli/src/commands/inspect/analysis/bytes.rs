//! Bytes per layer and role. Roles follow from GGUF's tensor names, so no architecture has to be
//! known.

use std::collections::BTreeMap;

use atta::TensorInfo;

/// The role of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TensorRole {
    Attention,
    Ffn,
    Experts,
    Embedding,
    Output,
    Other,
}

impl TensorRole {
    pub(super) const ALL: [Self; 6] = [
        Self::Attention,
        Self::Ffn,
        Self::Experts,
        Self::Embedding,
        Self::Output,
        Self::Other,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Attention => "attention",
            Self::Ffn => "ffn",
            Self::Experts => "experts",
            Self::Embedding => "embedding",
            Self::Output => "output",
            Self::Other => "other",
        }
    }

    fn of(name: &str, is_in_layer: bool) -> Self {
        match name {
            _ if name.contains("norm") => Self::Other,
            _ if is_in_layer && name.contains("_exps") => Self::Experts,
            _ if is_in_layer && name.starts_with("ffn") => Self::Ffn,
            _ if is_in_layer && name.starts_with("attn") => Self::Attention,
            _ if !is_in_layer && name.contains("token_embd") => Self::Embedding,
            _ if !is_in_layer && name.starts_with("output") => Self::Output,
            _ => Self::Other,
        }
    }
}

/// Bytes per role, in the order of [`TensorRole::ALL`].
pub(super) type RoleBytes = [u64; TensorRole::ALL.len()];

/// The bytes of a file's tensors.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TensorBytes {
    pub(super) outside: RoleBytes,
    pub(super) layers: BTreeMap<u32, RoleBytes>,
}

impl TensorBytes {
    pub(super) fn of(tensors: &[TensorInfo]) -> Self {
        let mut bytes = Self::default();
        tensors
            .iter()
            .for_each(|tensor| bytes.add(&tensor.name, tensor.n_bytes));
        bytes
    }

    fn add(&mut self, name: &str, n_bytes: u64) {
        let (row, role) = match layer(name) {
            Some((l, name)) => (
                self.layers.entry(l).or_default(),
                TensorRole::of(name, true),
            ),
            None => (&mut self.outside, TensorRole::of(name, false)),
        };
        // Sizes in a hostile file may have any value.
        row[role as usize] = row[role as usize].saturating_add(n_bytes);
    }
}

/// The layer and the rest of a name such as `blk.3.attn_q.weight`.
fn layer(name: &str) -> Option<(u32, &str)> {
    let (l, name) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((l.parse().ok()?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_layers_and_roles() {
        let mut bytes = TensorBytes::default();
        for name in [
            "blk.0.attn_q.weight",
            "blk.0.ffn_up.weight",
            "blk.0.ffn_up_exps.weight",
            "blk.0.attn_norm.weight",
        ] {
            bytes.add(name, 1);
        }
        bytes.add("blk.7.ffn_gate_inp.weight", u64::MAX);
        bytes.add("blk.7.ffn_up_shexp.weight", 9);
        for name in [
            "token_embd.weight",
            "output.weight",
            "output_norm.weight",
            "blk.x.attn_q",
            "rope_freqs.weight",
        ] {
            bytes.add(name, 2);
        }
        assert_eq!(bytes.outside, [0, 0, 0, 2, 2, 6]);
        assert_eq!(bytes.layers[&0], [1, 1, 1, 0, 0, 1]);
        assert_eq!(bytes.layers[&7], [0, u64::MAX, 0, 0, 0, 0]);
    }
}
