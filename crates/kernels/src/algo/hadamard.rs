//! Rotation of a head by an orthonormal Hadamard matrix, so that a few large channels are shared out among all of them
//! before a row is quantized (QuaRot, Ashkboos et al. 2024).
//!
//! ```text
//! n = the largest power of two that divides d; for each block of n elements:
//!     for half in 1, 2, 4 … n/2, for each pair (a, b) that lies `half` apart:  (a, b) = (a + b, a − b)
//!     x = x·(1/√n)
//! ```
//! The matrix is its own inverse and leaves products of two rows as they are. Every element has one order of sums.

/// Elements that one vector or two hold: pairs inside them are found by constant shuffles.
const NEAR: usize = 16;

/// Rotates one head `x`, `[d]`.
#[inline(always)]
pub(crate) fn rotate(x: &mut [f32]) {
    if x.len() % 2 == 1 {
        return;
    }
    let n = 1 << x.len().trailing_zeros();
    let factor = 1.0 / (n as f32).sqrt();
    for block in x.chunks_exact_mut(n) {
        let start = near(block);
        for half in (start..n.trailing_zeros()).map(|i| 1 << i) {
            far(block, half);
        }
        block.iter_mut().for_each(|x| *x *= factor);
    }
}

/// Pairs inside sixteen elements, where the block has as many; returns how many of the steps that was.
#[inline(always)]
fn near(block: &mut [f32]) -> u32 {
    let (sixteens, rest) = block.as_chunks_mut::<NEAR>();
    for x in sixteens {
        step::<1>(x);
        step::<2>(x);
        step::<4>(x);
        step::<8>(x);
    }
    if rest.is_empty() { NEAR.trailing_zeros() } else { 0 }
}

/// Pairs that lie `HALF` apart.
#[inline(always)]
fn step<const HALF: usize>(x: &mut [f32; NEAR]) {
    let old = *x;
    for i in 0..NEAR {
        x[i] = if i & HALF == 0 { old[i] + old[i ^ HALF] } else { old[i ^ HALF] - old[i] };
    }
}

/// The same for pairs of whole vectors.
#[inline(always)]
fn far(block: &mut [f32], half: usize) {
    for pair in block.chunks_exact_mut(2 * half) {
        let (low, high) = pair.split_at_mut(half);
        for (low, high) in low.iter_mut().zip(high) {
            (*low, *high) = (*low + *high, *low - *high);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, bits};

    /// Row `i` of the matrix of `n` has the signs of the parities of `i & j`.
    fn by_definition(x: &[f32]) -> Vec<f64> {
        let n = 1 << x.len().trailing_zeros();
        let element = |block: &[f32], i: usize| {
            let sign = |j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
            block.iter().enumerate().map(|(j, &x)| sign(j) * f64::from(x)).sum::<f64>() / (n as f64).sqrt()
        };
        x.chunks(n).flat_map(|block| (0..n).map(move |i| element(block, i))).collect()
    }

    #[test]
    fn every_width_is_rotated_as_defined_and_back() {
        for d in [1, 2, 4, 6, 8, 16, 33, 40, 64, 80, 96, 128, 256, 1024] {
            let x = Random(d as u64).floats(d);
            let mut turned = x.clone();
            rotate(&mut turned);
            assert!(turned.iter().zip(by_definition(&x)).all(|(x, y)| (f64::from(*x) - y).abs() < 1e-5), "{d}");
            rotate(&mut turned);
            assert!(turned.iter().zip(&x).all(|(x, y)| (x - y).abs() < 1e-5), "{d}");
        }
    }

    #[test]
    fn an_odd_width_is_left_as_it_is() {
        let mut x = Random(3).floats(33);
        let want = bits(&x);
        rotate(&mut x);
        assert_eq!(bits(&x), want);
    }
}
