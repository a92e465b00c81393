//! The kernels that multiply rows of activations with a matrix, or with several.

use crate::host::{PARAM_WORDS, grid_of};
use crate::quantize::NONE;
use crate::{ActLayout, Bindings, Dispatch, PipelineId, WeightFormat};

/// Activation rows of a workgroup.
const COLUMNS: u32 = 8;
/// Weight rows and activation rows of a tile.
const TILE: [u32; 2] = [32, 64];

/// How a product is divided among workgroups. Both have the same bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProductWay {
    /// A row of weights and up to eight activation rows: weights are read once for these.
    Columns,
    /// Tiles of 32 rows of weights and 64 activation rows.
    Tiles,
}

impl ProductWay {
    /// Activation rows of a workgroup.
    pub(crate) fn columns(self) -> u32 {
        match self {
            Self::Columns => COLUMNS,
            Self::Tiles => TILE[1],
        }
    }
}

/// What becomes of a product.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ProductEnd {
    /// `out = y`.
    Set,
    /// `out = out + factor·y`.
    Add(f32),
}

/// `y = (W x)·scale + bias` for rows of activations.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Format of the matrix, whose [`acts`](WeightFormat::acts) are the layout of the activations.
    pub format: WeightFormat,
    /// First word of the matrix, `[n_out, d_in]`.
    pub w: u32,
    /// Rows of the matrix.
    pub n_out: u32,
    /// Weights of a row.
    pub d_in: u32,
    /// Multiplies every weight; mostly 1.
    pub scale: f32,
    /// First word of the bias among the weights, `[n_out]`, if there is one.
    pub bias: Option<u32>,
    /// Rows of activations.
    pub n_rows: u32,
    /// Their first word.
    pub x: u32,
    /// First word of the results among the values: `[n_rows, d_out]`, this matrix being its first
    /// columns.
    pub out: u32,
    /// Width of the rows of results.
    pub d_out: u32,
    /// What becomes of them.
    pub end: ProductEnd,
}

impl Product {
    /// The run of the kernel [`Shader::product`](crate::Shader::product) of the format and this
    /// way.
    pub fn dispatch(&self, way: ProductWay, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        Dispatch {
            pipeline,
            bindings,
            params: self.params(),
            grid: self.grid(way),
        }
    }

    fn params(&self) -> [u32; PARAM_WORDS] {
        let [adds, factor] = match self.end {
            ProductEnd::Set => [0, 0],
            ProductEnd::Add(factor) => [1, factor.to_bits()],
        };
        let mut params = [0; PARAM_WORDS];
        params[1..8].copy_from_slice(&[
            self.w,
            self.n_out,
            self.d_in,
            self.n_rows,
            self.x,
            self.out,
            self.d_out,
        ]);
        let bias = self.bias.unwrap_or(NONE);
        params[8..12].copy_from_slice(&[bias, self.scale.to_bits(), adds, factor]);
        params
    }

    fn grid(&self, way: ProductWay) -> [u32; 3] {
        let [rows, columns] = tile_of(way, self.format);
        grid_of(self.n_out.div_ceil(rows), self.n_rows.div_ceil(columns))
    }
}

/// Rows that the matrices of a joined product begin at multiples of.
const JOINED_ROWS: u32 = TILE[0];

/// Up to three matrices of one format and one width that read the same activations, in one run:
/// `y = W x + bias` of each, such as queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub struct JoinedProducts {
    /// Format of the matrices; its [`acts`](WeightFormat::acts) are the layout of the activations.
    pub format: WeightFormat,
    /// Weights of a row.
    pub d_in: u32,
    /// Rows of activations.
    pub n_rows: u32,
    /// Their first word.
    pub x: u32,
    /// The matrices, in one buffer.
    pub parts: [Option<JoinedPart>; 3],
}

/// A matrix of a joined product.
#[derive(Clone, Copy, Debug)]
pub struct JoinedPart {
    /// Its first word, `[n_out, d_in]`.
    pub w: u32,
    /// Its rows.
    pub n_out: u32,
    /// First word of the bias among the weights, `[n_out]`, if there is one.
    pub bias: Option<u32>,
    /// First word of the results among the values, `[n_rows, n_out]`.
    pub out: u32,
}

impl JoinedProducts {
    /// The run of the kernel [`Shader::joined_product`](crate::Shader::joined_product) of the
    /// format and this way.
    pub fn dispatch(&self, way: ProductWay, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let mut params = [0; PARAM_WORDS];
        params[1..4].copy_from_slice(&[self.d_in, self.n_rows, self.x]);
        let words = params[4..].as_chunks_mut().0.iter_mut();
        for (words, part) in words.zip(self.parts.iter().flatten()) {
            *words = [part.n_out, part.w, part.bias.unwrap_or(NONE), part.out];
        }
        let parts = self.parts.iter().flatten();
        let n_rows = parts.map(|part| part.n_out.next_multiple_of(JOINED_ROWS));
        let [rows, columns] = tile_of(way, self.format);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: grid_of(
                n_rows.sum::<u32>().div_ceil(rows),
                self.n_rows.div_ceil(columns),
            ),
        }
    }
}

/// Rows of weights and of activations of a workgroup.
fn tile_of(way: ProductWay, format: WeightFormat) -> [u32; 2] {
    match (way, format.acts()) {
        (ProductWay::Tiles, _) => TILE,
        (ProductWay::Columns, ActLayout::F32) => [4, COLUMNS],
        (ProductWay::Columns, _) => [1, COLUMNS],
    }
}
