//! The kernel that multiplies rows of values: by a number of the model, or by gates.

use crate::host::PARAM_WORDS;
use crate::quantize::NONE;
use crate::{Bindings, Dispatch, PipelineId};

/// What rows are multiplied by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowFactor {
    /// A number among the weights, at this word.
    Weight(u32),
    /// The sigmoid of a gate for each `n` neighbours.
    Gates {
        /// First word among the values, `[n_rows, d / n]`.
        at: u32,
        /// Neighbours that share a gate.
        n: u32,
    },
}

/// Rows of values, `x = x·factor`.
#[derive(Clone, Copy, Debug)]
pub struct MultiplyRows {
    /// Rows.
    pub n_rows: u32,
    /// Their width.
    pub d: u32,
    /// First word of the rows among the values, `[n_rows, d]`.
    pub x: u32,
    /// What they are multiplied by.
    pub by: RowFactor,
}

impl MultiplyRows {
    /// The run of the kernel [`Shader::multiply`](crate::Shader::multiply).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let [weight, gates, n] = match self.by {
            RowFactor::Weight(at) => [at, NONE, 1],
            RowFactor::Gates { at, n } => [NONE, at, n],
        };
        let mut params = [0; PARAM_WORDS];
        params[1..6].copy_from_slice(&[self.d, self.x, weight, gates, n]);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.n_rows, 1, 1],
        }
    }
}
