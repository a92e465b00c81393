//! The projections of indexers: those of queries and keys are one tensor in checkpoints.
//!
//! Source: llama.cpp's `conversion/qwen4exp.py`.

use atta_model::{Role, TensorReq};

use super::{
    rows::RowMap,
    source_tensor::SourceTensor,
    tensors::{TensorBuilder, moved, shape_of},
};
use crate::{Error, Tensor};

/// Both projections.
pub(super) const JOINED: &str = "self_attn.indexer.index_qk_proj.weight";

impl TensorBuilder<'_> {
    /// The projection of queries or of keys: the rows of the first come first.
    pub(super) fn index_part(&mut self, req: &TensorReq) -> Result<Tensor, Error> {
        let is_of_keys = req.role == Role::IndexerK;
        let from = self.family.in_layer(JOINED, req.layer);
        let indexer = self.attention.and_then(|a| a.indexer);
        let indexer = indexer.ok_or_else(|| Error::Missing.of(&from))?;
        let source = SourceTensor::Plain(self.share(&from, is_of_keys)?);
        let shape = shape_of(req);
        let d_queries = indexer.d_queries() as u64;
        let of = d_queries.saturating_add(indexer.d_head as u64);
        source.expect(&[of, shape[1]])?;
        let order = RowMap::Part {
            take: shape[0],
            of,
            first: if is_of_keys { d_queries } else { 0 },
            step: 1,
        };
        let rows = moved(source, &shape, order)?;
        Ok(Tensor {
            name: req.name(),
            dims: shape,
            ty: rows.ty,
            rows: Box::new(rows),
        })
    }
}
