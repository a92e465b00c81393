//! Quantization to int8 groups, with error statistics.

use crate::Error;

/// The quantization errors of all tensors of one role.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RoundingError {
    n_weights: u64,
    sum_of_weights: f64,
    sum_of_errors: f64,
    largest_error: f64,
}

impl RoundingError {
    /// The mean error, relative to the mean magnitude of the weights.
    pub fn mean(&self) -> f64 {
        if self.sum_of_weights == 0.0 {
            0.0
        } else {
            self.sum_of_errors / self.sum_of_weights
        }
    }

    /// The largest error of a weight, relative to the mean magnitude of the weights.
    pub fn max(&self) -> f64 {
        let mean = self.sum_of_weights / self.n_weights.max(1) as f64;
        if mean == 0.0 {
            0.0
        } else {
            self.largest_error / mean
        }
    }

    /// Whether no weight was quantized.
    pub(super) fn is_empty(&self) -> bool {
        self.n_weights == 0
    }

    fn add(&mut self, weight: f32, got: f32) {
        let error = (f64::from(weight) - f64::from(got)).abs();
        self.n_weights += 1;
        self.sum_of_weights += f64::from(weight).abs();
        self.sum_of_errors += error;
        self.largest_error = self.largest_error.max(error);
    }
}

/// Quantizes a group and returns its scale, `max |w| / 127`; ties go to the even code.
pub(super) fn quantize(
    group: &[f32],
    codes: &mut Vec<u8>,
    rounding: &mut RoundingError,
) -> Result<f32, Error> {
    if let Some(at) = group.iter().position(|w| !w.is_finite()) {
        return Err(Error::NotFinite {
            at,
            value: group[at],
        });
    }
    let scale = group.iter().fold(0.0f32, |max, w| max.max(w.abs())) / 127.0;
    for &weight in group {
        // The scale of zeros, and of subnormals below 127 units, is 0.
        let code = if scale == 0.0 {
            0
        } else {
            (weight / scale).round_ties_even() as i8
        };
        rounding.add(weight, f32::from(code) * scale);
        codes.push(code as u8);
    }
    Ok(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantized(group: &[f32]) -> (Vec<i8>, f32, RoundingError) {
        let mut codes = Vec::new();
        let mut rounding = RoundingError::default();
        let scale = quantize(group, &mut codes, &mut rounding).unwrap();
        (
            codes.iter().map(|&code| code as i8).collect(),
            scale,
            rounding,
        )
    }

    #[test]
    fn ties_go_to_the_even_code() {
        let (codes, scale, rounding) = quantized(&[-127.0, 0.5, 1.5, -2.5, 3.4]);
        assert_eq!((codes, scale), (vec![-127, 0, 2, -2, 3], 1.0));
        let mean = 134.9 / 5.0;
        assert!(
            (rounding.mean() - 1.9 / 134.9).abs() < 1e-6
                && (rounding.max() - 0.5 / mean).abs() < 1e-6
        );
    }

    #[test]
    fn groups_with_a_scale_of_zero_have_zero_codes() {
        let (codes, scale, rounding) = quantized(&[0.0, -0.0]);
        assert_eq!(
            (codes, scale, rounding.mean(), rounding.max()),
            (vec![0, 0], 0.0, 0.0, 0.0)
        );
        assert_eq!(quantized(&[f32::from_bits(1)]).0, [0]);
    }

    #[test]
    fn nan_is_refused() {
        let error = quantize(
            &[0.0, f32::NAN],
            &mut Vec::new(),
            &mut RoundingError::default(),
        )
        .unwrap_err();
        assert!(matches!(error, Error::NotFinite { at: 1, .. }));
    }
}
