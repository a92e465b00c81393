//! Sums of floats in one order: element i goes to lane `i % 16`, and the lanes are added by halves.
//!
//! Sixteen lanes are one register of the widest machines and four of the narrowest; any vector unit
//! that does not fuse computes the same bits. Ends that do not fill the lanes are padded with
//! zeros, which changes no bit: a lane begins as +0 and can never become −0.

use crate::isa::Floats;

/// Number of lanes.
pub(crate) const LANES: usize = 16;

/// Sum of the lanes: 8 + 8, 4 + 4, 2 + 2, 1 + 1.
#[inline(always)]
pub(crate) fn total(lanes: [f32; LANES]) -> f32 {
    let mut halves = [0.0; 4];
    for i in 0..4 {
        halves[i] = (lanes[i] + lanes[i + 8]) + (lanes[i + 4] + lanes[i + 12]);
    }
    (halves[0] + halves[2]) + (halves[1] + halves[3])
}

/// Up to 16 elements, padded with zeros.
#[inline(always)]
pub(crate) fn padded(x: &[f32]) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    out[..x.len()].copy_from_slice(x);
    out
}

/// `Σ x`.
#[inline(always)]
pub(crate) fn sum<I: Floats>(isa: I, x: &[f32]) -> f32 {
    let mut lanes = isa.zeros();
    let (x, rest) = x.as_chunks::<LANES>();
    for x in x {
        lanes = isa.sum_f(lanes, isa.floats(x));
    }
    if !rest.is_empty() {
        lanes = isa.sum_f(lanes, isa.floats(&padded(rest)));
    }
    total(isa.to_array(lanes))
}

/// `Σ a·b`, both of the same length.
#[inline(always)]
pub(crate) fn dot<I: Floats>(isa: I, a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = isa.zeros();
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        lanes = isa.sum_f(lanes, isa.product(isa.floats(a), isa.floats(b)));
    }
    let last = isa.product(isa.floats(&padded(a_rest)), isa.floats(&padded(b_rest)));
    total(isa.to_array(isa.sum_f(lanes, last)))
}

/// `Σ (x − center)²`.
#[inline(always)]
pub(crate) fn sum_of_squares<I: Floats>(isa: I, x: &[f32], center: f32) -> f32 {
    let (x, rest) = x.as_chunks::<LANES>();
    let mut lanes = isa.lanes_of_squares(x, -center);
    if !rest.is_empty() {
        let mut last = [0.0; LANES];
        for (last, x) in last.iter_mut().zip(rest) {
            *last = (x - center) * (x - center);
        }
        lanes = isa.sum_f(lanes, isa.floats(&last));
    }
    total(isa.to_array(lanes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::scalar::Scalar;

    #[test]
    fn the_order_of_a_sum_is_fixed() {
        for n in [1, 15, 16, 37] {
            let x: Vec<f32> = (0..n)
                .map(|i| (i as f32 * 0.7).sin() * 10f32.powi(i % 9))
                .collect();
            let mut lanes = [0f32; 16];
            x.iter().enumerate().for_each(|(i, &x)| lanes[i % 16] += x);
            for width in [8, 4, 2, 1] {
                (0..width).for_each(|i| lanes[i] += lanes[i + width]);
            }
            assert_eq!(sum(Scalar, &x).to_bits(), lanes[0].to_bits());
            let ones = vec![1.0; x.len()];
            assert_eq!(dot(Scalar, &x, &ones).to_bits(), lanes[0].to_bits());
        }
    }
}
