//! Rotation of a head by an orthonormal Hadamard matrix, which spreads a few large channels over
//! all channels before a row is quantized (QuaRot, Ashkboos et al. 2024).
//!
//! ```text
//! n = the largest power of two that divides d; for each block of n elements:
//!     for half in 1, 2, 4 … n/2, for each pair (a, b) `half` apart:  (a, b) = (a + b, a − b)
//!     x = x·(1/√n)
//! ```
//! The matrix is its own inverse and preserves the dot product of two rows. Every element has one
//! order of sums.

use super::lanes::LANES;
use crate::isa::Floats;

/// Rotates one head `x`, `[d]`.
#[inline(always)]
pub(crate) fn rotate<I: Floats>(isa: I, x: &mut [f32]) {
    if x.is_empty() || x.len() % 2 == 1 {
        return;
    }
    let n = 1 << x.len().trailing_zeros();
    let factor = 1.0 / (n as f32).sqrt();
    for block in x.chunks_exact_mut(n) {
        match block.as_chunks_mut() {
            (vectors, []) => rotate_vectors(isa, vectors, factor),
            (_, few) => rotate_few(few, factor),
        }
    }
}

/// Rotates a block of whole vectors: pairs inside vectors first, then pairs of vectors.
#[inline(always)]
fn rotate_vectors<I: Floats>(isa: I, x: &mut [[f32; LANES]], factor: f32) {
    for x in &mut *x {
        step::<1>(x);
        step::<2>(x);
        step::<4>(x);
        step::<8>(x);
    }
    for half in (0..x.len().trailing_zeros()).map(|i| 1 << i) {
        for pair in x.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                let a = isa.floats(low);
                let b = isa.floats(high);
                *low = isa.to_array(isa.sum_f(a, b));
                *high = isa.to_array(isa.sum_f(a, isa.product(b, isa.splat_all(-1.0))));
            }
        }
    }
    for x in x {
        *x = isa.to_array(isa.product(isa.floats(x), isa.splat_all(factor)));
    }
}

/// One step for pairs that are `HALF` apart.
#[inline(always)]
fn step<const HALF: usize>(x: &mut [f32; LANES]) {
    let old = *x;
    for i in 0..LANES {
        x[i] = if i & HALF == 0 {
            old[i] + old[i ^ HALF]
        } else {
            old[i ^ HALF] - old[i]
        };
    }
}

/// Rotates a block that is shorter than a vector.
#[inline(always)]
fn rotate_few(x: &mut [f32], factor: f32) {
    let mut padded = [0.0; LANES];
    padded[..x.len()].copy_from_slice(x);
    for half in [1, 2, 4].into_iter().filter(|&half| half < x.len()) {
        let old = padded;
        for i in 0..LANES {
            padded[i] = if i & half == 0 {
                old[i] + old[i ^ half]
            } else {
                old[i ^ half] - old[i]
            };
        }
    }
    x.iter_mut().zip(padded).for_each(|(x, y)| *x = y * factor);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::scalar::Scalar;
    use crate::testing::{Random, bits};

    /// Row `i` of the matrix of `n` has the signs of the parities of `i & j`.
    fn by_definition(x: &[f32]) -> Vec<f64> {
        let n = 1 << x.len().trailing_zeros();
        let element = |block: &[f32], i: usize| {
            let sign = |j: usize| {
                if (i & j).count_ones().is_multiple_of(2) {
                    1.0
                } else {
                    -1.0
                }
            };
            block
                .iter()
                .enumerate()
                .map(|(j, &x)| sign(j) * f64::from(x))
                .sum::<f64>()
                / (n as f64).sqrt()
        };
        x.chunks(n)
            .flat_map(|block| (0..n).map(move |i| element(block, i)))
            .collect()
    }

    #[test]
    fn every_width_is_rotated_as_defined_and_back() {
        for d in [1, 2, 4, 6, 8, 16, 33, 40, 64, 80, 96, 128, 256, 1024] {
            let x = Random(d as u64).floats(d);
            let mut turned = x.clone();
            rotate(Scalar, &mut turned);
            assert!(
                turned
                    .iter()
                    .zip(by_definition(&x))
                    .all(|(x, y)| (f64::from(*x) - y).abs() < 1e-5),
                "{d}"
            );
            rotate(Scalar, &mut turned);
            assert!(
                turned.iter().zip(&x).all(|(x, y)| (x - y).abs() < 1e-5),
                "{d}"
            );
        }
    }

    #[test]
    fn an_odd_width_and_none_are_left_as_they_are() {
        for d in [33, 1, 0] {
            let mut x = Random(3).floats(d);
            let want = bits(&x);
            rotate(Scalar, &mut x);
            assert_eq!(bits(&x), want);
        }
    }
}
