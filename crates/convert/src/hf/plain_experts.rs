//! Experts without gates that are matrices of one tensor each, `[n_experts d_ff, d_model]`: up, and
//! down transposed (Nomic Embed 2).

use atta_model::{Role, TensorReq};

use super::{
    rows::RowMap,
    source_tensor::SourceTensor,
    tensors::{TensorBuilder, columns, shape_of, whole},
};
use crate::{Error, RowSource, Tensor};

impl TensorBuilder<'_> {
    /// Up or down of experts without gates whose rows are `[n_experts d_ff, d_model]`.
    pub(super) fn plain_rows(&mut self, req: &TensorReq, from: &str) -> Result<Tensor, Error> {
        let source = SourceTensor::Plain(self.share(from, true)?);
        let shape = shape_of(req);
        let [n, d_out, d_in] = shape[..] else {
            unreachable!("matrices of experts have three dimensions")
        };
        let ty = source.tensor_type();
        let rows: Box<dyn RowSource> = match req.role {
            Role::FfnDownExps => {
                source.expect(&[n.saturating_mul(d_in), d_out])?;
                Box::new(columns(source, &[d_out, d_in], RowMap::Same)?)
            }
            _ => {
                let stored = [n.saturating_mul(d_out), d_in];
                source.expect(&stored)?;
                whole(source, &stored, ty)?
            }
        };
        Ok(Tensor {
            name: req.name(),
            dims: shape,
            ty,
            rows,
        })
    }
}
