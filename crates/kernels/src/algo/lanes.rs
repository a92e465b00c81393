//! Sums of floats in one order: element i goes to lane `i % 16`, and the lanes are added by halves.
//!
//! Sixteen lanes are one register of the widest machines and four of the narrowest; any vector unit that does not fuse
//! computes the same bits.

/// Number of lanes.
pub(crate) const LANES: usize = 16;

/// Sum of the lanes: 8 + 8, 4 + 4, 2 + 2, 1 + 1.
#[inline(always)]
pub(crate) fn total(lanes: [f32; LANES]) -> f32 {
    let a: [f32; 8] = std::array::from_fn(|i| lanes[i] + lanes[i + 8]);
    let b: [f32; 4] = std::array::from_fn(|i| a[i] + a[i + 4]);
    (b[0] + b[2]) + (b[1] + b[3])
}

/// `Σ x·y` of two vectors of the same length.
#[inline(always)]
pub(crate) fn dot(x: &[f32], y: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (x, y) in x.iter().zip(y) {
        for i in 0..LANES {
            lanes[i] += x[i] * y[i];
        }
    }
    for (i, (x, y)) in x_rest.iter().zip(y_rest).enumerate() {
        lanes[i] += x * y;
    }
    total(lanes)
}

/// `Σ f(x)`.
#[inline(always)]
pub(crate) fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let (x, rest) = x.as_chunks::<LANES>();
    for x in x {
        for i in 0..LANES {
            lanes[i] += f(x[i]);
        }
    }
    for (i, &x) in rest.iter().enumerate() {
        lanes[i] += f(x);
    }
    total(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_a_sum_is_fixed() {
        let x: Vec<f32> = (0..37).map(|i| (i as f32 * 0.7).sin() * 10f32.powi(i % 9)).collect();
        let mut lanes = [0f32; 16];
        x.iter().enumerate().for_each(|(i, &x)| lanes[i % 16] += x);
        for width in [8, 4, 2, 1] {
            (0..width).for_each(|i| lanes[i] += lanes[i + width]);
        }
        assert_eq!(sum(&x, |x| x).to_bits(), lanes[0].to_bits());
        assert_eq!(dot(&x, &[1.0; 37]).to_bits(), lanes[0].to_bits());
    }
}
