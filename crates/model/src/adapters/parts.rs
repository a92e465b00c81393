//! The matrices of adapters, for backends that keep weights elsewhere.

use atta_formats::TensorType;

use super::{Adapter, Factor};
use crate::Role;

/// The two matrices that an adapter has for one of the model, or for that of each expert.
#[derive(Clone, Copy, Debug)]
pub struct AdapterPair<'a> {
    /// The matrix of the model.
    pub role: Role,
    /// Its layer; `None`: it is of the whole model.
    pub layer: Option<usize>,
    /// `[rank, d_in]`.
    pub a: AdapterMatrix<'a>,
    /// `[d_out, rank]`.
    pub b: AdapterMatrix<'a>,
    /// What multiplies their product, beside the scale of a row.
    pub scale: f32,
}

/// One of the two.
#[derive(Clone, Copy, Debug)]
pub struct AdapterMatrix<'a> {
    /// Block type.
    pub ty: TensorType,
    /// Rows.
    pub n_rows: usize,
    /// Elements of a row.
    pub d_in: usize,
    /// From the matrix of the first expert on.
    bytes: &'a [u8],
    /// Bytes from one expert to the next.
    stride: usize,
}

impl<'a> AdapterMatrix<'a> {
    fn new(adapter: &'a Adapter, factor: &Factor) -> Self {
        Self {
            ty: factor.ty,
            n_rows: factor.n_rows,
            d_in: factor.d_in,
            bytes: &adapter.bytes[factor.start..],
            stride: factor.stride,
        }
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.ty.row_bytes(self.d_in).unwrap_or(0)
    }

    /// The rows of expert `e`; of a matrix that is of no expert with `e` 0.
    pub fn rows(&self, e: usize) -> &'a [u8] {
        &self.bytes[e * self.stride..][..self.n_rows * self.row_bytes()]
    }
}

impl Adapter {
    /// All of its pairs, in no order.
    pub fn pairs(&self) -> impl Iterator<Item = AdapterPair<'_>> {
        self.pairs.iter().map(|(&(role, layer), pair)| AdapterPair {
            role,
            layer,
            a: AdapterMatrix::new(self, &pair.a),
            b: AdapterMatrix::new(self, &pair.b),
            scale: pair.scale,
        })
    }
}
