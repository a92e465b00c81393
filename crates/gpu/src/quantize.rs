//! The kernel that makes activations of values: a norm, an activation or a copy, then codes.

use crate::{ActLayout, Dispatch, host::PARAM_WORDS};
use crate::{Bindings, PipelineId};

/// A word in parameters that stands for nothing.
pub(crate) const NONE: u32 = u32::MAX;

/// A norm of rows. Weights and biases are words of the buffer of weights, `[d]` f32.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RowNorm {
    /// `x / √(mean(x²) + eps) · weight`.
    Rms {
        /// First word of the weight.
        weight: u32,
        /// Added to the mean of squares.
        eps: f32,
    },
    /// `(x − mean) / √(variance + eps) · weight + bias`.
    Layer {
        /// First word of the weight.
        weight: u32,
        /// First word of the bias, if there is one.
        bias: Option<u32>,
        /// Added to the variance.
        eps: f32,
    },
}

impl RowNorm {
    /// Kind, weight, bias and eps.
    pub(crate) fn words(self) -> [u32; 4] {
        match self {
            Self::Rms { weight, eps } => [1, weight, NONE, eps.to_bits()],
            Self::Layer { weight, bias, eps } => [2, weight, bias.unwrap_or(NONE), eps.to_bits()],
        }
    }
}

/// The function of a row that is quantized.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RowFunction {
    /// The row itself.
    Copy,
    /// A norm.
    Norm(RowNorm),
    /// `activation(x)`.
    Activate(RowActivation),
    /// `activation(x) · up`.
    Gate {
        /// Applied to the row.
        activation: RowActivation,
        /// First word of the other factor among the values, `[n_rows, d]`.
        up: u32,
    },
}

/// An activation that GPUs compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowActivation {
    /// `x·sigmoid(x)`.
    Silu,
    /// GELU by tanh.
    GeluTanh,
    /// GELU by the error function.
    Gelu,
    /// `max(x, 0)²`.
    Relu2,
}

impl RowActivation {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Silu, Self::GeluTanh, Self::Gelu, Self::Relu2];
}

/// Rows of values to activations.
#[derive(Clone, Copy, Debug)]
pub struct Quantize {
    /// The function of a row.
    pub function: RowFunction,
    /// Rows.
    pub n_rows: u32,
    /// Their width.
    pub d: u32,
    /// First word of the rows among the values, `[n_rows, d]`.
    pub x: u32,
    /// First word among the activations for each layout that is wanted.
    pub out: [Option<u32>; 3],
}

impl Quantize {
    /// The place in [`out`](Self::out) of a layout.
    pub fn slot(layout: ActLayout) -> usize {
        match layout {
            ActLayout::Q8_256 => 0,
            ActLayout::Q8_32 => 1,
            ActLayout::F32 => 2,
        }
    }

    /// The run of the kernel [`Shader::quantize`](crate::Shader::quantize).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let [of_256, of_32, of_f32] = self.out.map(|at| at.unwrap_or(NONE));
        let function = self.function.words();
        let mut params = [0; PARAM_WORDS];
        params[1] = function[0];
        params[2] = function[1];
        params[3..5].copy_from_slice(&[self.d, self.x]);
        params[5..9].copy_from_slice(&function[2..]);
        params[9..12].copy_from_slice(&[of_256, of_32, of_f32]);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.n_rows, 1, 1],
        }
    }
}

impl RowFunction {
    /// Kind, activation, the other factor, weight, bias and eps.
    fn words(self) -> [u32; 6] {
        match self {
            Self::Copy => [0, 0, NONE, NONE, NONE, 0],
            Self::Norm(norm) => {
                let [kind, weight, bias, eps] = norm.words();
                [kind, 0, NONE, weight, bias, eps]
            }
            Self::Activate(activation) => [3, activation as u32, NONE, NONE, NONE, 0],
            Self::Gate { activation, up } => [4, activation as u32, up, NONE, NONE, 0],
        }
    }
}
