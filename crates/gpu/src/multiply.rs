//! The kernel that multiplies rows of values: by a number of the model, or by other values.

use crate::host::PARAM_WORDS;
use crate::quantize::NONE;
use crate::{Bindings, Dispatch, PipelineId, RowActivation};

/// What rows are multiplied by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RowFactor {
    /// A number among the weights, at this word.
    Weight(u32),
    /// A value for each `n` neighbours.
    Values {
        /// First word among the values, `[n_rows, d / n]`.
        at: u32,
        /// Neighbours that share a value.
        n: u32,
        /// The function that is applied to it before; one without numbers of its own.
        activation: Option<RowActivation>,
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
        let [weight, gates, n, activation] = match self.by {
            RowFactor::Weight(at) => [at, NONE, 1, NONE],
            RowFactor::Values { at, n, activation } => {
                let kind = activation.map_or(NONE, RowActivation::kind);
                [NONE, at, n, kind]
            }
        };
        let mut params = [0; PARAM_WORDS];
        params[1..7].copy_from_slice(&[self.d, self.x, weight, gates, n, activation]);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.n_rows, 1, 1],
        }
    }
}
