//! Norms over one row.

use super::lanes;
use crate::isa::Floats;

/// `1 / √(mean(x²) + eps)`. Root mean square norm: Zhang and Sennrich 2019, eq. 4.
#[inline(always)]
fn rms_scale<I: Floats>(isa: I, x: &[f32], eps: f32) -> f32 {
    1.0 / (lanes::sum_of_squares(isa, x, 0.0) / x.len() as f32 + eps).sqrt()
}

/// `out = x · rms_scale(x) · weight`; all `[d]`.
#[inline(always)]
pub(crate) fn rms_norm<I: Floats>(isa: I, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let scale = rms_scale(isa, x, eps);
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * weight;
    }
}

/// As [`rms_norm`], in place.
#[inline(always)]
pub(crate) fn rms_norm_inplace<I: Floats>(isa: I, x: &mut [f32], weight: &[f32], eps: f32) {
    let scale = rms_scale(isa, x, eps);
    for (x, weight) in x.iter_mut().zip(weight) {
        *x = *x * scale * weight;
    }
}

/// `out = (x − mean) / √(variance + eps) · weight + bias`; all `[d]`, and no sum without a bias.
/// Ba, Kiros and Hinton 2016, eq. 4.
#[inline(always)]
pub(crate) fn layer_norm<I: Floats>(
    isa: I,
    x: &[f32],
    (weight, bias): (&[f32], Option<&[f32]>),
    eps: f32,
    out: &mut [f32],
) {
    let n = x.len() as f32;
    let mean = lanes::sum(isa, x) / n;
    let variance = lanes::sum_of_squares(isa, x, mean) / n;
    let scale = 1.0 / (variance + eps).sqrt();
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = (x - mean) * scale * weight;
    }
    if let Some(bias) = bias {
        add_assign(out, bias);
    }
}

/// `out += x`.
#[inline(always)]
pub(crate) fn add_assign(out: &mut [f32], x: &[f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out += x;
    }
}

/// `x = scale · x / √(Σx² + eps)`.
#[inline(always)]
pub(crate) fn l2_norm_inplace<I: Floats>(isa: I, x: &mut [f32], eps: f32, scale: f32) {
    let factor = scale / (lanes::sum_of_squares(isa, x, 0.0) + eps).sqrt();
    for x in x {
        *x *= factor;
    }
}

/// `out += factor · x`.
#[inline(always)]
pub(crate) fn add_scaled(out: &mut [f32], factor: f32, x: &[f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out += factor * x;
    }
}

/// `out += x · w`.
#[inline(always)]
pub(crate) fn add_products(out: &mut [f32], x: &[f32], w: &[f32]) {
    for ((out, x), w) in out.iter_mut().zip(x).zip(w) {
        *out += x * w;
    }
}

/// `out = (out + x) · factor`.
#[inline(always)]
pub(crate) fn sum_scaled(out: &mut [f32], x: &[f32], factor: f32) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = (*out + x) * factor;
    }
}
