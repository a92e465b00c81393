//! The activation functions of feed-forward blocks, applied to a gate and multiplied with the other
//! branch, or alone.

use super::lanes;
use super::math::{erf, exp_m1, sigmoid, softplus_f32, tanh};
use crate::isa::Floats;
use crate::{Kernels, SMALL};

/// Activation of the gate of a feed-forward block.
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Activation {
    /// `x·sigmoid(x)`. Also called swish.
    Silu,
    /// `1/(1 + e^-x)`.
    Sigmoid,
    /// `x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`. Hendrycks and Gimpel 2016.
    GeluTanh,
    /// `x/2·(1 + erf(x/√2))`.
    Gelu,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)²`. So et al. 2021.
    Relu2,
    /// `ln(1 + e^x)`.
    Softplus,
    /// `alpha_p·x² + beta·x` above 0, else `alpha_n·(e^min(x, eps) − 1 − x) + beta·x`. xIELU: Huang
    /// and Schlag 2025.
    Xielu {
        /// Curvature above 0.
        alpha_p: f32,
        /// Curvature below 0.
        alpha_n: f32,
        /// The slope at 0.
        beta: f32,
        /// The largest exponent.
        eps: f32,
    },
    /// A gate and its other branch, both clamped: `g·sigmoid(alpha·g)·(u + 1)` with `g = min(gate,
    /// limit)` and `u` the other branch within ±limit. Of gpt-oss.
    Clamped {
        /// How steep the sigmoid is.
        alpha: f32,
        /// The largest gate, and the largest magnitude of the other branch.
        limit: f32,
    },
}

const SQRT_2_OVER_PI: f32 = 0.797_884_6;

#[inline(always)]
fn silu(x: f32) -> f32 {
    x * sigmoid(x)
}

#[inline(always)]
fn gelu_tanh(x: f32) -> f32 {
    0.5 * x * (1.0 + tanh(SQRT_2_OVER_PI * (x + 0.044_715 * (x * x * x))))
}

#[inline(always)]
fn gelu(x: f32) -> f32 {
    0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2))
}

#[inline(always)]
fn relu2(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x * x }
}

/// `numbers` are alpha_p, alpha_n, beta and eps.
#[inline(always)]
fn xielu(x: f32, numbers: [f32; 4]) -> f32 {
    let [alpha_p, alpha_n, beta, eps] = numbers;
    // A comparison, because `x` that is NaN need not pass it: `- x` below is NaN then.
    let exponent = if x < eps { x } else { eps };
    let below = (exp_m1(exponent) - x) * alpha_n;
    let above = alpha_p * x * x;
    (if x > 0.0 { above } else { below }) + beta * x
}

#[inline(always)]
fn clamped(gate: f32, up: f32, (alpha, limit): (f32, f32)) -> f32 {
    // Comparisons, because `min` would turn NaN into a number.
    let gate = if gate > limit { limit } else { gate };
    let up = if up > limit { limit } else { up };
    let up = if up < -limit { -limit } else { up };
    gate * sigmoid(alpha * gate) * (up + 1.0)
}

#[inline(always)]
fn apply(gate: &mut [f32], up: &[f32], f: impl Fn(f32) -> f32) {
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = f(*gate) * up;
    }
}

/// Whether activations are multiplied in a second pass, so that a small program has each of them
/// once for an instruction set. On RISC-V the product with the most frequent one is in assembly.
const APART: bool = SMALL && !cfg!(target_arch = "riscv64");

impl Kernels {
    /// `gate = activation(gate)·up`; both of the same length.
    pub(crate) fn gate(self, activation: Activation, gate: &mut [f32], up: &[f32]) {
        if !APART || matches!(activation, Activation::Clamped { .. }) {
            return self.gate_up(activation, gate, up);
        }
        self.activate(activation, gate);
        apply(gate, up, |x| x);
    }
}

/// As [`Kernels::gate`], if activations are [`APART`] only for the one that changes `up`.
#[inline(always)]
pub(crate) fn gate(activation: Activation, gate: &mut [f32], up: &[f32]) {
    match activation {
        Activation::Clamped { alpha, limit } => {
            gate.iter_mut()
                .zip(up)
                .for_each(|(gate, up)| *gate = clamped(*gate, *up, (alpha, limit)));
        }
        _ if APART => unreachable!("activated apart"),
        Activation::Silu => apply(gate, up, silu),
        Activation::Sigmoid => apply(gate, up, sigmoid),
        Activation::GeluTanh => apply(gate, up, gelu_tanh),
        Activation::Gelu => apply(gate, up, gelu),
        Activation::Relu => apply(gate, up, |x| x.max(0.0)),
        Activation::Relu2 => apply(gate, up, relu2),
        Activation::Softplus => apply(gate, up, softplus_f32),
        Activation::Xielu {
            alpha_p,
            alpha_n,
            beta,
            eps,
        } => apply(gate, up, |x| xielu(x, [alpha_p, alpha_n, beta, eps])),
    }
}

#[inline(always)]
fn map(x: &mut [f32], f: impl Fn(f32) -> f32) {
    x.iter_mut().for_each(|x| *x = f(*x));
}

/// `x = activation(x)`; the values of [`gate`] with `up = 1`.
#[inline(always)]
pub(crate) fn activate(activation: Activation, x: &mut [f32]) {
    match activation {
        Activation::Silu => map(x, silu),
        Activation::Sigmoid => map(x, sigmoid),
        Activation::GeluTanh => map(x, gelu_tanh),
        Activation::Gelu => map(x, gelu),
        Activation::Relu => map(x, |x| x.max(0.0)),
        Activation::Relu2 => map(x, relu2),
        Activation::Softplus => map(x, softplus_f32),
        Activation::Xielu {
            alpha_p,
            alpha_n,
            beta,
            eps,
        } => map(x, |x| xielu(x, [alpha_p, alpha_n, beta, eps])),
        Activation::Clamped { alpha, limit } => map(x, |x| clamped(x, 1.0, (alpha, limit))),
    }
}

/// `x = max(x − mean(x) − deviations·std(x), 0)`.
#[inline(always)]
pub(crate) fn keep_large<I: Floats>(isa: I, x: &mut [f32], deviations: f32) {
    let n = x.len() as f32;
    let mean = lanes::sum(isa, x) / n;
    let deviation = (lanes::sum_of_squares(isa, x, mean) / n).sqrt();
    let smallest = mean + deviations * deviation;
    map(x, |x| {
        let above = x - smallest;
        // A comparison, because `max` would turn NaN into a number.
        if above < 0.0 { 0.0 } else { above }
    });
}
