//! Searches the scale of a block's scales: unsigned codes for non-negative numbers, `x ≈ scale·l`
//! (ggml's `make_qp_quants`).
//!
//! Minimises `Σ w·(x − scale·l)²`: first over nine candidates, then by coordinate descent as in
//! [`super::descend`].

use super::{LEAST, lanes::nearest};

/// Finds a scale for `x`, and codes up to `largest`.
pub(crate) fn shared_scale<const N: usize>(
    x: &[f32; N],
    weights: &[f32; N],
    largest: i32,
) -> (f32, [u8; N]) {
    let highest = x
        .iter()
        .fold(0.0, |max: f32, &x| if max > x { max } else { x });
    if highest < LEAST {
        return (0.0, [0; N]);
    }
    let per_number = best_candidate(x, weights, highest, largest);
    let mut codes = x.map(|x| nearest(per_number * x).min(largest) as u8);
    let mut xl = 0.0;
    let mut ll = 0.0;
    for i in 0..N {
        let l = nearest(per_number * x[i]).min(largest) as f32;
        xl += weights[i] * x[i] * l;
        ll += weights[i] * l * l;
    }
    let mut sums = SharedSums { xl, ll };
    for _ in 0..5 {
        let mut changed = false;
        for i in 0..N {
            changed |= sums.improve(x[i], weights[i], largest, &mut codes[i]);
        }
        if !changed {
            break;
        }
    }
    (
        if sums.ll > 0.0 {
            sums.xl / sums.ll
        } else {
            0.0
        },
        codes,
    )
}

/// The inverse scale of the candidate with the least error.
fn best_candidate<const N: usize>(
    x: &[f32; N],
    weights: &[f32; N],
    highest: f32,
    largest: i32,
) -> f32 {
    let mut best = largest as f32 / highest;
    // The codes of negative numbers, which are rare, wrap around for the first candidate, as in
    // ggml.
    let mut least = error(x, weights, best, |code| code as u8 as f32);
    for step in [-4i8, -3, -2, -1, 1, 2, 3, 4] {
        let tried = (0.1 * f32::from(step) + largest as f32) / highest;
        let error = error(x, weights, tried, |code| code.min(largest) as f32);
        if error < least {
            (best, least) = (tried, error);
        }
    }
    best
}

fn error<const N: usize>(
    x: &[f32; N],
    weights: &[f32; N],
    per_number: f32,
    stored: impl Fn(i32) -> f32,
) -> f32 {
    let scale = 1.0 / per_number;
    let mut sum = 0.0;
    for (&x, &w) in x.iter().zip(weights) {
        let difference = x - scale * stored(nearest(per_number * x));
        sum += w * difference * difference;
    }
    sum
}

/// The sums that give the scale: `Σ w·x·l` and `Σ w·l²`.
struct SharedSums {
    xl: f32,
    ll: f32,
}

impl SharedSums {
    /// Rounds one number again under the best scale for all others. Returns whether its code
    /// changed.
    fn improve(&mut self, x: f32, w: f32, largest: i32, code: &mut u8) -> bool {
        let old = f32::from(*code);
        let xl = self.xl - w * x * old;
        let ll = self.ll - w * old * old;
        if !(xl > 0.0 && ll > 0.0) {
            return false;
        }
        let new = nearest(x * ll / xl).min(largest);
        if new == i32::from(*code) {
            return false;
        }
        let xl = xl + w * x * new as f32;
        let ll = ll + w * new as f32 * new as f32;
        let better = xl * xl * self.ll > self.xl * self.xl * ll;
        if better {
            *self = Self { xl, ll };
            *code = new as u8;
        }
        better
    }
}
