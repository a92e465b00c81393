//! 16-bit codes of queries, keys and values, for attention in integers.
//!
//! ```text
//! m = max |x| of the elements that share a scale
//!     m < 2⁻⁵⁶: s = 0, all codes 0;   m ≥ 2⁵⁶ or not finite: s = NaN, all codes 0
//! keys, queries:  s = max(sqrt(Σ x²) / 46000, m / 32639)
//! values:         s = m / 8191, of the rotated row
//! code = rne(x·(1/s)), at most 32639 in magnitude;   x ≈ s·code
//! ```
//! `Σ` is the sum of `lanes.rs`, `rne` rounds to nearest even. Every step is an IEEE f32 step and
//! none is fused, so codes and scales are the same on every machine.
//!
//! By Cauchy-Schwarz the sum of products of a query and a key stays below 0.986·2³¹ in magnitude,
//! in any order of adding: both have a norm of at most 46000, but for rounding. No code is larger
//! than 32639 = 127·256 + 127, so the upper byte of a code rounded to bytes is a signed byte.

use super::lanes::sum_of_squares;
use super::quantize::ROUND;
use crate::attention::VALUE_MAX;
use crate::isa::Floats;
use crate::{KvArray, KvRole, KvRows};

/// The largest code in magnitude.
pub(super) const CODE_MAX: f32 = 32639.0;
/// The norm of the codes of a key or a query.
const NORM: f32 = 46000.0;
/// 2⁻⁵⁶: rows whose elements are all smaller become zeros.
const TINY: f32 = f32::from_bits((127 - 56) << 23);
/// 2⁵⁶: rows with a magnitude of at least this have no codes.
const HUGE: f32 = f32::from_bits((127 + 56) << 23);
/// What the squares of the codes of a key may add up to: rounding adds half a code per element.
const NORM_MAX: u64 = 46_100 * 46_100;

/// The largest magnitude; NaN is above all.
#[inline(always)]
fn largest(x: &[f32]) -> f32 {
    // Magnitudes compare as their bits do, and the bits of NaN are the largest.
    let max = x
        .iter()
        .fold(0, |max, x| x.abs().to_bits().cast_signed().max(max));
    f32::from_bits(max.cast_unsigned())
}

/// The scale of a section whose largest magnitude is `m`: `scale` if it has one.
#[inline(always)]
fn scale_of(m: f32, scale: f32) -> f32 {
    match m {
        _ if m < TINY => 0.0,
        _ if m < HUGE => scale,
        _ => f32::NAN,
    }
}

/// The scale of a section of a key or of a query.
#[inline(always)]
pub(super) fn key_scale<I: Floats>(isa: I, x: &[f32]) -> f32 {
    let m = largest(x);
    let of_norm = sum_of_squares(isa, x, 0.0).sqrt() / NORM;
    let of_max = m / CODE_MAX;
    scale_of(m, if of_norm > of_max { of_norm } else { of_max })
}

/// The scale of a value.
#[inline(always)]
fn value_scale(x: &[f32]) -> f32 {
    let m = largest(x);
    scale_of(m, m / f32::from(VALUE_MAX))
}

/// `1/s`; 0 if there are no codes.
#[inline(always)]
fn inverse(scale: f32) -> f32 {
    if scale > 0.0 { 1.0 / scale } else { 0.0 }
}

/// The integer nearest to `x`, ties to even, at most [`CODE_MAX`] in magnitude; one of them for
/// NaN.
#[inline(always)]
pub(super) fn rounded(x: f32) -> i16 {
    let x = if x > -CODE_MAX { x } else { -CODE_MAX };
    let x = if x < CODE_MAX { x } else { CODE_MAX };
    (x + ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as i16
}

/// Writes the codes of `x` by `put`.
#[inline(always)]
pub(super) fn encode<T>(x: &[f32], scale: f32, out: &mut [T], put: impl Fn(i16) -> T) {
    let inverse = inverse(scale);
    for (out, x) in out.iter_mut().zip(x) {
        // The row may be infinite, and 0 times that is NaN.
        let code = if inverse == 0.0 { 0.0 } else { x * inverse };
        *out = put(rounded(code));
    }
}

/// Stores the row `x`, which is rotated already if it is to be, at position `i` of a head's rows in
/// a block.
#[inline(always)]
pub(super) fn store<I: Floats>(isa: I, x: &[f32], rows: KvRows, i: usize, block: &mut [u8]) {
    let mut arrays = rows.arrays(block.len() / rows.row_bytes());
    let codes_at = row(arrays.next(), i);
    for (j, array) in arrays.enumerate() {
        let section = rows.section(j);
        let x = &x[section.clone()];
        let scale = match rows.role {
            KvRole::Value => value_scale(x),
            KvRole::Key | KvRole::Both { .. } => key_scale(isa, x),
        };
        block[array.rows(i..i + 1)].copy_from_slice(&scale.to_le_bytes());
        let codes = &mut block[codes_at.clone()].as_chunks_mut().0[section];
        encode(x, scale, codes, i16::to_le_bytes);
    }
}

/// The bytes of position `i` in the array of codes.
#[inline(always)]
fn row(codes: Option<KvArray>, i: usize) -> std::ops::Range<usize> {
    codes.expect("codes come first").rows(i..i + 1)
}

/// Decodes the row that [`store`] stored; a rotated row stays rotated.
pub(crate) fn load(rows: KvRows, i: usize, block: &[u8], out: &mut [f32]) {
    let mut arrays = rows.arrays(block.len() / rows.row_bytes());
    let codes = block[row(arrays.next(), i)].as_chunks().0;
    for (j, array) in arrays.enumerate() {
        let scale = block[array.rows(i..i + 1)].first_chunk();
        let scale = f32::from_le_bytes(*scale.expect("a scale has 4 bytes"));
        let section = rows.section(j);
        for (out, code) in out[section.clone()].iter_mut().zip(&codes[section]) {
            *out = f32::from(i16::from_le_bytes(*code)) * scale;
        }
    }
}

/// Whether attention may compute with the row at position `i` of a block: scales are such as
/// [`store`] writes, NaN left out, and codes do not overflow its sums.
pub(crate) fn is_sound(rows: KvRows, i: usize, block: &[u8]) -> bool {
    let mut arrays = rows.arrays(block.len() / rows.row_bytes());
    let codes = block[row(arrays.next(), i)].as_chunks().0;
    arrays.enumerate().all(|(j, array)| {
        let scale = block[array.rows(i..i + 1)].first_chunk();
        let scale = f32::from_le_bytes(*scale.expect("a scale has 4 bytes"));
        let codes = codes[rows.section(j)]
            .iter()
            .map(|&c| i16::from_le_bytes(c));
        let are_sound = match rows.role {
            KvRole::Value => codes.clone().all(|c| c.unsigned_abs() <= VALUE_MAX as u16),
            KvRole::Key | KvRole::Both { .. } => {
                let square = |c: i16| u64::from(c.unsigned_abs()).pow(2);
                codes.clone().all(|c| c.unsigned_abs() <= CODE_MAX as u16)
                    && codes.map(square).sum::<u64>() <= NORM_MAX
            }
        };
        are_sound && (0.0..HUGE).contains(&scale)
    })
}
