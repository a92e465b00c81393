//! The tensors of indexers that would choose all positions: nothing is computed with them, but they
//! are kept.
//!
//! Source: llama.cpp's `conversion/qwen4exp.py`.

use atta_formats::TensorType;
use atta_model::spec::{IdleIndexer, ModelSpec};

use super::{
    rows::{Change, GatheredRows, RowMap},
    source_tensor::SourceTensor,
    tensors::{TensorBuilder, moved},
};
use crate::{Error, Tensor};

/// The checkpoint's tensors of those that [`IdleIndexer::tensors`] lists. The projections of
/// queries and keys are one.
const FROM: [&str; 4] = [
    "self_attn.indexer.index_qk_proj.weight",
    "self_attn.indexer.index_qk_proj.weight",
    "self_attn.indexer.q_layernorm.weight",
    "self_attn.indexer.k_layernorm.weight",
];

impl TensorBuilder<'_> {
    /// The tensors of the indexers of all layers.
    pub(super) fn indexers(&mut self, spec: &ModelSpec) -> Result<Vec<Tensor>, Error> {
        let mut all = Vec::new();
        for (l, layer) in spec.layers.iter().enumerate() {
            if let Some(indexer) = layer.attention().and_then(|a| a.idle_indexer) {
                all.extend(self.indexer(l, indexer, spec.d_model)?);
            }
        }
        Ok(all)
    }

    fn indexer(
        &mut self,
        l: usize,
        indexer: IdleIndexer,
        d_model: usize,
    ) -> Result<Vec<Tensor>, Error> {
        let d_keys = indexer.d_head as u64;
        let d_queries = d_keys.saturating_mul(indexer.n_heads as u64);
        let of = d_queries.saturating_add(d_keys);
        let mut all = Vec::new();
        for (i, (name, shape)) in indexer.tensors(d_model).into_iter().enumerate() {
            let source = self.share(&self.family.in_layer(FROM[i], Some(l)), i > 0)?;
            let dims: Vec<u64> = shape.iter().map(|&d| d as u64).collect();
            let name = format!("blk.{l}.{name}");
            let source = SourceTensor::Plain(source);
            all.push(match dims[..] {
                [take, d] => {
                    source.expect(&[of, d])?;
                    let first = i as u64 * d_queries;
                    projection(
                        name,
                        source,
                        dims,
                        RowMap::Part {
                            take,
                            of,
                            first,
                            step: 1,
                        },
                    )?
                }
                _ => self.index_norm(name, source, dims)?,
            });
        }
        Ok(all)
    }

    fn index_norm(
        &self,
        name: String,
        source: SourceTensor,
        dims: Vec<u64>,
    ) -> Result<Tensor, Error> {
        source.expect(&dims)?;
        let rows = GatheredRows {
            change: Change::Add(self.family.norm_offset),
            ty: TensorType::F32,
            ..moved(source, &dims, RowMap::Same)?
        };
        Ok(Tensor {
            name,
            dims,
            ty: TensorType::F32,
            rows: Box::new(rows),
        })
    }
}

/// Rows of the projection of queries and keys.
fn projection(
    name: String,
    source: SourceTensor,
    dims: Vec<u64>,
    order: RowMap,
) -> Result<Tensor, Error> {
    let rows = moved(source, &dims, order)?;
    Ok(Tensor {
        name,
        dims,
        ty: rows.ty,
        rows: Box::new(rows),
    })
}
