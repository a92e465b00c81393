//! The kernel that makes activations of values: a norm, an activation or a copy, then codes.

use crate::{ActLayout, Dispatch, host::PARAM_WORDS};
use crate::{Bindings, PipelineId};
use atta_kernels::Activation;

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
    /// A norm, if there is one, times the weight of a route: a row for each of the `n_used` routes
    /// of a row of values.
    Weighted {
        /// The norm.
        norm: Option<RowNorm>,
        /// First word of the routes among the activations: [`Route`](crate::Route).
        routes: u32,
        /// Routes of a row of values.
        n_used: u32,
    },
    /// `activation(x)`.
    Activate(RowActivation),
    /// `activation(x)`, then a norm.
    ActivateNormed(RowActivation, RowNorm),
    /// `activation(x) · up`.
    Gate {
        /// Applied to the row.
        activation: RowActivation,
        /// First word of the other factor among the values, `[n_rows, d]`.
        up: u32,
    },
    /// `activation(x) · up`, then a norm.
    GateNormed {
        /// Applied to the row.
        activation: RowActivation,
        /// First word of the other factor among the values, `[n_rows, d]`.
        up: u32,
        /// The norm of the products.
        norm: RowNorm,
    },
}

/// An activation that GPUs compute: those of [`atta_kernels::Activation`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RowActivation {
    /// `x·sigmoid(x)`.
    Silu,
    /// GELU by tanh.
    GeluTanh,
    /// GELU by the error function.
    Gelu,
    /// `max(x, 0)²`.
    Relu2,
    /// `1/(1 + e^-x)`.
    Sigmoid,
    /// xIELU: alpha_p, alpha_n, beta and eps.
    Xielu([f32; 4]),
    /// A gate and its other factor, both clamped.
    Clamped {
        /// How steep the sigmoid is.
        alpha: f32,
        /// The largest gate, and the largest magnitude of the other factor.
        limit: f32,
    },
}

impl RowActivation {
    /// The one for an activation of the CPU, if GPUs have it.
    pub fn of(activation: Activation) -> Option<Self> {
        Some(match activation {
            Activation::Silu => Self::Silu,
            Activation::GeluTanh => Self::GeluTanh,
            Activation::Gelu => Self::Gelu,
            Activation::Relu2 => Self::Relu2,
            Activation::Sigmoid => Self::Sigmoid,
            Activation::Xielu {
                alpha_p,
                alpha_n,
                beta,
                eps,
            } => Self::Xielu([alpha_p, alpha_n, beta, eps]),
            Activation::Clamped { alpha, limit } => Self::Clamped { alpha, limit },
            _ => return None,
        })
    }

    /// Which one, as the shaders number them.
    pub(crate) fn kind(self) -> u32 {
        match self {
            Self::Silu => 0,
            Self::GeluTanh => 1,
            Self::Gelu => 2,
            Self::Relu2 => 3,
            Self::Sigmoid => 4,
            Self::Xielu(_) => 5,
            Self::Clamped { .. } => 6,
        }
    }

    fn numbers(self) -> [u32; 4] {
        let numbers = match self {
            Self::Xielu(numbers) => numbers,
            Self::Clamped { alpha, limit } => [alpha, limit, 0.0, 0.0],
            _ => [0.0; 4],
        };
        numbers.map(f32::to_bits)
    }
}

/// Rows of values to activations.
#[derive(Clone, Copy, Debug)]
pub struct Quantize {
    /// The function of a row.
    pub function: RowFunction,
    /// Rows of activations.
    pub n_rows: u32,
    /// Their width.
    pub d: u32,
    /// First word of the rows among the values, `[n_rows, d]`; with weights fewer.
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
        let [activation, up] = self.function.activation_words();
        let [kind, weight, bias, eps] = self
            .function
            .norm()
            .map_or([0, NONE, NONE, 0], RowNorm::words);
        let kind = kind | self.function.n_routes() << 8;
        let mut params = [0; PARAM_WORDS];
        params[1..9].copy_from_slice(&[kind, activation, self.d, self.x, up, weight, bias, eps]);
        params[9..12].copy_from_slice(&[of_256, of_32, of_f32]);
        let numbers = self.function.activation().map(RowActivation::numbers);
        params[12..16].copy_from_slice(&numbers.unwrap_or_default());
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.n_rows, 1, 1],
        }
    }
}

impl RowFunction {
    pub(crate) fn activation(self) -> Option<RowActivation> {
        match self {
            Self::Copy | Self::Norm(_) | Self::Weighted { .. } => None,
            Self::Activate(activation)
            | Self::ActivateNormed(activation, _)
            | Self::Gate { activation, .. }
            | Self::GateNormed { activation, .. } => Some(activation),
        }
    }

    pub(crate) fn norm(self) -> Option<RowNorm> {
        match self {
            Self::Copy | Self::Activate(_) | Self::Gate { .. } => None,
            Self::Weighted { norm, .. } => norm,
            Self::Norm(norm) | Self::ActivateNormed(_, norm) | Self::GateNormed { norm, .. } => {
                Some(norm)
            }
        }
    }

    /// Routes of a row of values; 0: rows are not weighted.
    fn n_routes(self) -> u32 {
        match self {
            Self::Weighted { n_used, .. } => n_used,
            _ => 0,
        }
    }

    /// Which activation, and the other factor, or the routes.
    fn activation_words(self) -> [u32; 2] {
        let up = match self {
            Self::Gate { up, .. } | Self::GateNormed { up, .. } => up,
            Self::Weighted { routes, .. } => routes,
            _ => NONE,
        };
        [self.activation().map_or(NONE, RowActivation::kind), up]
    }
}
