//! The kernels that add rows: the result of a sublayer to the residual stream, with a norm behind
//! it, and what adapters compute.

use crate::host::PARAM_WORDS;
use crate::quantize::RowNorm;
use crate::{Bindings, Dispatch, PipelineId};

/// The operand of a norm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Normed {
    /// The result: `x = x + factor·norm(y)`.
    Result,
    /// The sum: `x = norm(x + factor·y)`.
    Sum,
    /// The row alone: `x = norm(x)`.
    Alone,
}

/// Rows of the residual stream, and results that are added to them.
#[derive(Clone, Copy, Debug)]
pub struct AddNormed {
    /// The norm.
    pub norm: RowNorm,
    /// The operand of the norm.
    pub normed: Normed,
    /// Rows.
    pub n_rows: u32,
    /// Their width.
    pub d: u32,
    /// First word of the residual stream among the values, `[n_rows, d]`.
    pub x: u32,
    /// First word of the results among the values, `[n_rows, d]`.
    pub y: u32,
    /// Multiplies the results.
    pub factor: f32,
    /// Weights that rows have in turn, `[n_weights, d]`.
    pub n_weights: u32,
}

impl AddNormed {
    /// The run of the kernel [`Shader::add`](crate::Shader::add).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let [kind, weight, bias, eps] = self.norm.words();
        let mut params = [0; PARAM_WORDS];
        params[1..8].copy_from_slice(&[kind, self.d, self.x, self.y, weight, bias, eps]);
        params[8..11].copy_from_slice(&[self.factor.to_bits(), self.normed as u32, self.n_weights]);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.n_rows, 1, 1],
        }
    }
}

/// Rows, and what adapters add to them: `x = x + s·y`.
#[derive(Clone, Copy, Debug)]
pub struct AddScaled {
    /// Rows.
    pub n_rows: u32,
    /// Their width.
    pub d: u32,
    /// First word of the rows among the values, `[n_rows, d]`.
    pub x: u32,
    /// First word of the summands among the values, `[n_rows, d]`.
    pub y: u32,
    /// First word among the tables of their factors, f32; `u32::MAX`: nothing is added.
    pub factors: u32,
    /// Neighbouring rows that share a factor.
    pub n_shared: u32,
}

impl AddScaled {
    /// The run of the kernel [`Shader::add_scaled`](crate::Shader::add_scaled).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let mut params = [0; PARAM_WORDS];
        params[1..6].copy_from_slice(&[self.d, self.x, self.y, self.factors, self.n_shared]);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.n_rows, 1, 1],
        }
    }
}
