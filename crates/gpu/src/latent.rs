//! The kernels that latent attention needs beside those of other attention: products with a matrix
//! of each head, and copies of columns.
//!
//! They know widths and places, and no layer. Rows of values have heads, and each has its words.

use crate::host::PARAM_WORDS;
use crate::{Bindings, Dispatch, PipelineId, Product, ProductWay};

/// Columns of a workgroup of the transposed product.
const COLUMNS: u32 = 64;

/// `y_h = W_h x_h` with a matrix of each head.
#[derive(Clone, Copy, Debug)]
pub struct HeadProduct {
    /// The product of the first head: rows of activations follow those of the head before, results
    /// are those of a row's head, `[n_rows, n_all, d_out]`.
    pub product: Product,
    /// Heads.
    pub n_heads: u32,
    /// Heads of a row of results.
    pub n_all: u32,
    /// Words of the matrix of a head.
    pub head_words: u32,
}

impl HeadProduct {
    /// The run of the kernel [`Shader::head_product`](crate::Shader::head_product) of the format
    /// and this way.
    pub fn dispatch(&self, way: ProductWay, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let mut run = self.product.dispatch(way, pipeline, bindings);
        run.params[12..14].copy_from_slice(&[self.head_words, self.n_all]);
        run.grid[2] *= self.n_heads;
        run
    }
}

/// Where the columns of heads are among the values.
#[derive(Clone, Copy, Debug)]
pub struct HeadColumns {
    /// The first word of the first head of the first row.
    pub at: u32,
    /// Words from row to row.
    pub row: u32,
    /// Words from head to head.
    pub head: u32,
}

impl HeadColumns {
    fn words(self) -> [u32; 3] {
        [self.at, self.row, self.head]
    }

    /// The same from head `h` on.
    #[must_use]
    pub fn from_head(self, h: u32) -> Self {
        Self {
            at: self.at + h * self.head,
            ..self
        }
    }
}

/// `y_h = W_hᵀ x_h` with a matrix of f32 of each head.
#[derive(Clone, Copy, Debug)]
pub struct TransposedProduct {
    /// First word of the matrices, `[n_heads, d_in, d_out]`.
    pub w: u32,
    /// Width of the rows that are multiplied.
    pub d_in: u32,
    /// Width of the results.
    pub d_out: u32,
    /// Rows.
    pub n_rows: u32,
    /// Heads.
    pub n_heads: u32,
    /// The rows that are multiplied.
    pub x: HeadColumns,
    /// The results.
    pub out: HeadColumns,
}

impl TransposedProduct {
    /// The run of the kernel [`Shader::transposed`](crate::Shader::transposed).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let mut params = [0; PARAM_WORDS];
        params[1..4].copy_from_slice(&[self.w, self.d_in, self.d_out]);
        params[4..7].copy_from_slice(&self.x.words());
        params[7..10].copy_from_slice(&self.out.words());
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.n_rows, self.n_heads, self.d_out.div_ceil(COLUMNS)],
        }
    }
}

/// Columns of heads, copied within the values.
#[derive(Clone, Copy, Debug)]
pub struct CopyColumns {
    /// Columns of a head.
    pub n: u32,
    /// Rows.
    pub n_rows: u32,
    /// Heads.
    pub n_heads: u32,
    /// Where they are.
    pub from: HeadColumns,
    /// Where they are copied to.
    pub to: HeadColumns,
}

impl CopyColumns {
    /// The run of the kernel [`Shader::copy_columns`](crate::Shader::copy_columns).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let mut params = [0; PARAM_WORDS];
        params[1] = self.n;
        params[2..5].copy_from_slice(&self.from.words());
        params[5..8].copy_from_slice(&self.to.words());
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.n_rows, self.n_heads, 1],
        }
    }
}
