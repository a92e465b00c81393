//! Tensors of attention heads that checkpoints arrange otherwise: fused rows of q, k and v head by
//! head, and a norm of its own for each head.

use atta_formats::TensorType;
use atta_model::{
    Role, TensorReq,
    spec::{DeltaNet, ModelSpec, Presence, QkNorm},
};

use super::{
    config::Config,
    delta_net,
    family::Family,
    rows::{Change, GatheredRows, RowMap},
    source_tensor::SourceTensor,
    tensors::{TensorBuilder, shape_of, to_usize},
};
use crate::{Error, Tensor};

/// The placeholder for the number of a head in the name of a tensor.
const HEAD: &str = "{h}";

/// The order of the fused rows of q, k and v: all queries, all keys, all values.
fn qkv_order(n_rows: u64, d_head: u64) -> RowMap {
    let of = d_head.saturating_mul(3);
    RowMap::QkvOfHeads {
        n_heads: n_rows / of.max(1),
        d_key: d_head,
        d_values: d_head,
        of,
    }
}

/// Decides on the order of the rows of matrices and their biases in GGUF.
pub(super) struct RowOrder<'a> {
    pub(super) family: &'a Family,
    /// The gated delta nets of the model.
    pub(super) net: Option<&'a DeltaNet>,
    /// The width of a head.
    pub(super) d_head: u64,
}

impl RowOrder<'_> {
    /// The rows of the checkpoint's tensor for `n_rows` rows of GGUF's.
    pub(super) fn of(&self, role: Role, n_rows: u64) -> RowMap {
        let d_head = self.d_head;
        match role {
            Role::AttnQ | Role::AttnQBias if self.family.is_qkv_by_head => {
                qkv_order(n_rows, d_head)
            }
            Role::AttnQ | Role::AttnQBias | Role::AttnK | Role::AttnKBias
                if self.family.is_paired =>
            {
                RowMap::Pairs { d_head }
            }
            _ => self
                .net
                .map_or(RowMap::Same, |net| delta_net::row_order(net, role)),
        }
    }
}

/// Says whether there are norms of queries and keys, which GGUF has no key for.
pub(super) fn settle_qk_norm(c: &Config, spec: &mut ModelSpec) -> Result<(), Error> {
    let mut is_there = false;
    for field in ["use_qk_norm", "qk_layernorm"] {
        is_there |= c.flag_opt(field)?.unwrap_or(false);
    }
    for layer in &mut spec.layers {
        if layer.attention().is_none() {
            continue;
        }
        if let QkNorm::LayerPerHead { presence, .. } = &mut layer.attention_mut().qk_norm {
            *presence = match is_there {
                true => Presence::Required,
                false => Presence::Absent,
            };
        }
    }
    Ok(())
}

impl TensorBuilder<'_> {
    /// The norms of all heads, `[n_heads, d_head]`, if they are tensors of their own.
    pub(super) fn norms_of_heads(&mut self, req: &TensorReq) -> Result<Option<Tensor>, Error> {
        let name = self.family.name(req.role, req.layer);
        if !name.contains(HEAD) {
            return Ok(None);
        }
        let shape = shape_of(req);
        let mut parts = Vec::new();
        for h in 0..shape[0] {
            let from = name.replace(HEAD, &h.to_string());
            let source = SourceTensor::take(self.raw, self.quantization, &from, req.role)?
                .ok_or_else(|| Error::Missing.of(&from))?;
            source.expect(&shape[1..])?;
            parts.push(source);
        }
        let d = to_usize(shape[1])?;
        let rows = GatheredRows {
            parts,
            n_each: 1,
            width: d,
            d_row: d,
            order: RowMap::Same,
            change: Change::None,
            ty: TensorType::F32,
        };
        Ok(Some(Tensor {
            name: req.name(),
            dims: shape,
            ty: TensorType::F32,
            rows: Box::new(rows),
        }))
    }
}
