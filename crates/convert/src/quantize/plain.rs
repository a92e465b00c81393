//! Blocks of 32 whose scale follows from the extreme weights, without a search: Q8_0, and Q4_0,
//! Q4_1, Q5_0 and Q5_1 without importance.

use super::{
    pack::{fifth_bits, nibbles, put_f16},
    search::{floor_byte, largest_magnitude, least_and_most, round_byte},
};

pub(super) fn q8_0(x: &[f32; 32], block: &mut [u8; 34]) {
    let d = largest_magnitude(x) / 127.0;
    let per_weight = inverse(d);
    put_f16(block, 0, d);
    for (q, &x) in block[2..].iter_mut().zip(x) {
        *q = round_byte(x * per_weight);
    }
}

pub(super) fn q4_0(x: &[f32; 32], block: &mut [u8; 18]) {
    let d = extreme(x) / -8.0;
    put_f16(block, 0, d);
    block[2..].copy_from_slice(&nibbles(&signed_codes(x, d, 8.5, 15)));
}

pub(super) fn q5_0(x: &[f32; 32], block: &mut [u8; 22]) {
    let d = extreme(x) / -16.0;
    let codes = signed_codes(x, d, 16.5, 31);
    put_f16(block, 0, d);
    block[2..6].copy_from_slice(&fifth_bits(&codes));
    block[6..].copy_from_slice(&nibbles(&codes));
}

pub(super) fn q4_1(x: &[f32; 32], block: &mut [u8; 20]) {
    let (min, d) = range(x, 15.0);
    put_f16(block, 0, d);
    put_f16(block, 2, min);
    block[4..].copy_from_slice(&nibbles(
        &unsigned_codes(x, min, d).map(|code| code.min(15)),
    ));
}

pub(super) fn q5_1(x: &[f32; 32], block: &mut [u8; 24]) {
    let (min, d) = range(x, 31.0);
    let codes = unsigned_codes(x, min, d);
    put_f16(block, 0, d);
    put_f16(block, 2, min);
    block[4..8].copy_from_slice(&fifth_bits(&codes));
    block[8..].copy_from_slice(&nibbles(&codes));
}

/// 1 / d, and 0 of 0.
#[inline(always)]
pub(super) fn inverse(d: f32) -> f32 {
    if d == 0.0 { 0.0 } else { 1.0 / d }
}

/// The weight with the largest magnitude, the first of several.
#[inline(always)]
fn extreme(x: &[f32; 32]) -> f32 {
    let (least, most) = least_and_most(x);
    if most > -least {
        most
    } else if most < -least {
        least
    } else {
        // If all weights are zeros, the result is 0, not −0.
        x.iter()
            .copied()
            .find(|x| x.abs() == most && most != 0.0)
            .unwrap_or(0.0)
    }
}

/// The smallest weight, and the scale that maps the largest one to the code `largest`.
#[inline(always)]
fn range(x: &[f32; 32], largest: f32) -> (f32, f32) {
    let (min, max) = least_and_most(x);
    // The sign of the first zero is kept, which the lanes do not determine.
    let min = if min == 0.0 {
        x.iter().copied().find(|&x| x == 0.0).unwrap_or(min)
    } else {
        min
    };
    (min, (max - min) / largest)
}

/// Codes all weights. A loop, because LLVM does not vectorize `map` of an array.
#[inline(always)]
fn each(x: &[f32; 32], code: impl Fn(f32) -> u8) -> [u8; 32] {
    let mut codes = [0; 32];
    for (out, &x) in codes.iter_mut().zip(x) {
        *out = code(x);
    }
    codes
}

/// Codes of `x / d`, biased by `half` − 0.5.
#[inline(always)]
fn signed_codes(x: &[f32; 32], d: f32, half: f32, largest: u8) -> [u8; 32] {
    let per_weight = inverse(d);
    each(x, |x| floor_byte(x * per_weight + half).min(largest))
}

/// Codes of `(x − min) / d`.
#[inline(always)]
fn unsigned_codes(x: &[f32; 32], min: f32, d: f32) -> [u8; 32] {
    let per_weight = inverse(d);
    each(x, |x| floor_byte((x - min) * per_weight + 0.5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minimum_of_zero_has_the_sign_of_the_first_zero() {
        for (first, sign) in [(0.0, 0x00), (-0.0, 0x80)] {
            let mut x = [1.0; 32];
            (x[5], x[6], x[11]) = (first, -first, -first);
            let mut block = [0; 20];
            q4_1(&x, &mut block);
            assert_eq!(block[2..4], [0, sign]);
        }
    }

    #[test]
    fn the_first_of_two_extremes_wins() {
        for sign in [1.0, -1.0] {
            let mut x = [0.0; 32];
            (x[3], x[9]) = (2.0 * sign, -2.0 * sign);
            assert_eq!(extreme(&x), 2.0 * sign);
        }
        assert_eq!(extreme(&[-0.0; 32]).to_bits(), 0);
    }
}
