//! Groups of int8, and what they lose.

use crate::Error;

/// What rounding to int8 did to all tensors of one kind.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Loss {
    n_weights: u64,
    sum_of_weights: f64,
    sum_of_errors: f64,
    largest_error: f64,
}

impl Loss {
    /// The mean error, as a part of the mean magnitude of the weights.
    pub fn mean(&self) -> f64 {
        if self.sum_of_weights == 0.0 {
            0.0
        } else {
            self.sum_of_errors / self.sum_of_weights
        }
    }

    /// The largest error of a weight, as a part of the mean magnitude of the weights.
    pub fn max(&self) -> f64 {
        let mean = self.sum_of_weights / self.n_weights.max(1) as f64;
        if mean == 0.0 {
            0.0
        } else {
            self.largest_error / mean
        }
    }

    /// Whether it is about no weight at all.
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

/// Rounds a group to codes and returns its scale, `max |w| / 127`; a tie goes to the even code.
pub(super) fn quantize(group: &[f32], codes: &mut Vec<u8>, loss: &mut Loss) -> Result<f32, Error> {
    if let Some(at) = group.iter().position(|w| !w.is_finite()) {
        return Err(Error::NotFinite {
            at,
            value: group[at],
        });
    }
    let scale = group.iter().fold(0.0f32, |max, w| max.max(w.abs())) / 127.0;
    for &weight in group {
        // A group of zeros, or of subnormals that are none of 127 parts, has a scale of 0.
        let code = if scale == 0.0 {
            0
        } else {
            (weight / scale).round_ties_even() as i8
        };
        loss.add(weight, f32::from(code) * scale);
        codes.push(code as u8);
    }
    Ok(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantized(group: &[f32]) -> (Vec<i8>, f32, Loss) {
        let mut codes = Vec::new();
        let mut loss = Loss::default();
        let scale = quantize(group, &mut codes, &mut loss).unwrap();
        (codes.iter().map(|&code| code as i8).collect(), scale, loss)
    }

    #[test]
    fn ties_go_to_the_even_code() {
        let (codes, scale, loss) = quantized(&[-127.0, 0.5, 1.5, -2.5, 3.4]);
        assert_eq!((codes, scale), (vec![-127, 0, 2, -2, 3], 1.0));
        let mean = 134.9 / 5.0;
        assert!((loss.mean() - 1.9 / 134.9).abs() < 1e-6 && (loss.max() - 0.5 / mean).abs() < 1e-6);
    }

    #[test]
    fn groups_of_nothing_are_zeros() {
        let (codes, scale, loss) = quantized(&[0.0, -0.0]);
        assert_eq!(
            (codes, scale, loss.mean(), loss.max()),
            (vec![0, 0], 0.0, 0.0, 0.0)
        );
        assert_eq!(quantized(&[f32::from_bits(1)]).0, [0]);
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let error = quantize(&[0.0, f32::NAN], &mut Vec::new(), &mut Loss::default()).unwrap_err();
        assert!(matches!(error, Error::NotFinite { at: 1, .. }));
    }
}
