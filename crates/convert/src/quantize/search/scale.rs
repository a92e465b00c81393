//! Searches a scale for a sub-block of signed codes, `x ≈ scale·l` with `l` from `−n` to `n − 1`
//! (ggml's `make_qx_quants`).
//!
//! Minimises `Σ w·(x − scale·l)²`. With the best scale for given codes, `Σ w·x·l / Σ w·l²`, the
//! error is `Σ w·x² − (Σ w·x·l)² / Σ w·l²`, so candidates are compared by the second term alone,
//! without a division.

use super::{
    LEAST, extreme,
    lanes::{LANES, Lanes, Tile, nearest},
};

/// The scale found for each of four sub-blocks.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// Weights per code.
    pub(crate) scale: Lanes,
    /// The codes are `x · codes_per_weight`, rounded. This is the scale of the candidate, not 1 /
    /// `scale`. 0 if all weights are zeros, for which ggml writes the lowest code.
    pub(crate) codes_per_weight: Lanes,
}

/// The sums that give the scale: `Σ w·x·l` and `Σ w·l²`.
#[derive(Clone, Copy)]
struct ScaleSums {
    xl: Lanes,
    ll: Lanes,
}

const ZERO: Lanes = Lanes::splat(0.0);
/// Candidates map the largest weight to `n` plus a tenth of these numbers.
const STEPS: [i8; 18] = [
    -9, -8, -7, -6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 7, 8, 9,
];

/// Finds a scale for each of four sub-blocks `x` with `weights`.
#[inline(always)]
pub(crate) fn scale<const N: usize>(x: &Tile<N>, weights: &Tile<N>, n: f32) -> Scale {
    let extreme = extreme(x);
    let search = ScaleSearch::new(x, weights, n);
    let mut per_weight = Lanes::splat(-n) / extreme;
    let first = search.sums(per_weight, Lanes::rounded);
    let mut scale = first.ll.equals(ZERO).choose(ZERO, first.xl / first.ll);
    let mut best = scale * first.xl;
    for step in STEPS {
        let tried = Lanes::splat(candidate(n, step)) / extreme;
        let s = search.sums(tried, Lanes::rounded);
        let better = s.ll.above(ZERO) & (s.xl * s.xl).above(best * s.ll);
        scale = better.choose(s.xl / s.ll, scale);
        best = better.choose(scale * s.xl, best);
        per_weight = better.choose(tried, per_weight);
    }
    let empty = Lanes::splat(LEAST).above(extreme.abs());
    Scale {
        scale: empty.choose(ZERO, scale),
        codes_per_weight: empty.choose(ZERO, per_weight),
    }
}

/// As [`scale`], for one sub-block; four candidates are computed at once.
pub(crate) fn one_scale<const N: usize>(
    x: &[f32; N],
    weights: &[f32; N],
    n: f32,
) -> (f32, [u8; N]) {
    let x_lanes = x.map(Lanes::splat);
    let extreme = extreme(&x_lanes).0[0];
    if extreme.abs() < LEAST {
        return (0.0, [0; N]);
    }
    // Huge weights give scales that are infinite or NaN, which only `nearest` rounds as llama.cpp
    // does.
    let search = ScaleSearch::new(&x_lanes, &weights.map(Lanes::splat), n);
    let mut per_weight = -n / extreme;
    let first = search.sums(Lanes::splat(per_weight), Lanes::nearest);
    let mut scale = if first.ll.0[0] == 0.0 {
        0.0
    } else {
        first.xl.0[0] / first.ll.0[0]
    };
    let mut best = scale * first.xl.0[0];
    for steps in STEPS.chunks(LANES) {
        let mut tried = Lanes::splat(0.0);
        steps
            .iter()
            .zip(&mut tried.0)
            .for_each(|(&step, tried)| *tried = candidate(n, step) / extreme);
        let s = search.sums(tried, Lanes::nearest);
        for k in 0..steps.len() {
            let xl = s.xl.0[k];
            let ll = s.ll.0[k];
            if ll > 0.0 && xl * xl > best * ll {
                (scale, per_weight) = (xl / ll, tried.0[k]);
                best = scale * xl;
            }
        }
    }
    (scale, codes(x, per_weight, n))
}

/// The code, before rounding, that a candidate maps the largest weight to.
#[inline(always)]
fn candidate(n: f32, step: i8) -> f32 {
    -(n + 0.1 * f32::from(step))
}

/// The inputs of a search.
struct ScaleSearch<const N: usize> {
    x: Tile<N>,
    weights: Tile<N>,
    /// Products of `weights` and `x`.
    wx: Tile<N>,
    /// Codes go from `−n` to `n − 1`.
    n: f32,
}

impl<const N: usize> ScaleSearch<N> {
    #[inline(always)]
    fn new(x: &Tile<N>, weights: &Tile<N>, n: f32) -> Self {
        Self {
            x: *x,
            weights: *weights,
            wx: std::array::from_fn(|i| weights[i] * x[i]),
            n,
        }
    }

    /// Sums over the codes that a candidate leads to.
    #[inline(always)]
    fn sums(&self, per_weight: Lanes, round: impl Fn(Lanes) -> Lanes) -> ScaleSums {
        let lowest = Lanes::splat(-self.n);
        let highest = Lanes::splat(self.n - 1.0);
        let mut sums = ScaleSums { xl: ZERO, ll: ZERO };
        for i in 0..N {
            let l = round(per_weight * self.x[i]).max(lowest).min(highest);
            sums.xl = sums.xl + self.wx[i] * l;
            sums.ll = sums.ll + self.weights[i] * l * l;
        }
        sums
    }
}

impl Scale {
    /// The codes of sub-block `k` of the four, biased by `n`.
    pub(crate) fn codes<const N: usize>(&self, k: usize, x: &[f32; N], n: f32) -> [u8; N] {
        match self.codes_per_weight.0[k] {
            0.0 => [0; N],
            per_weight => codes(x, per_weight, n),
        }
    }
}

fn codes<const N: usize>(x: &[f32; N], per_weight: f32, n: f32) -> [u8; N] {
    let n = n as i32;
    x.map(|x| (nearest(per_weight * x).clamp(-n, n - 1) + n) as u8)
}

/// Finds a scale and codes, from `−n` on, for each of four sub-blocks by coordinate descent: codes
/// are initialized by mapping the largest weight to `−n`; then each code in turn is rounded again
/// under the best scale for all others, up to five times. Error weights are squares of the weights.
#[inline(always)]
pub(crate) fn descend<const N: usize>(x: &Tile<N>, n: f32) -> (Lanes, Tile<N>) {
    let extreme = extreme(x);
    let lowest = Lanes::splat(-n);
    let highest = Lanes::splat(n - 1.0);
    let per_weight = lowest / extreme;
    let mut codes: Tile<N> =
        std::array::from_fn(|i| (per_weight * x[i]).rounded().max(lowest).min(highest));
    let mut sums = ScaleSums { xl: ZERO, ll: ZERO };
    for (&x, &l) in x.iter().zip(&codes) {
        sums.xl = sums.xl + x * x * x * l;
        sums.ll = sums.ll + x * x * l * l;
    }
    for _ in 0..5 {
        let mut changed = false;
        for (&x, l) in x.iter().zip(&mut codes) {
            let w = x * x;
            let xl = sums.xl - w * x * *l;
            let ll = sums.ll - w * *l * *l;
            let new = (x * ll / xl).nearest().max(lowest).min(highest);
            let other = xl.above(ZERO) & new.differs(*l);
            // A shortcut that is rarely taken, so that it predicts well and the next step need not
            // wait.
            if !other.any() {
                continue;
            }
            let new_xl = xl + w * x * new;
            let new_ll = ll + w * new * new;
            let gain = (new_xl * new_xl * sums.ll).above(sums.xl * sums.xl * new_ll);
            let better = other & new_ll.above(ZERO) & gain;
            *l = better.choose(new, *l);
            sums = ScaleSums {
                xl: better.choose(new_xl, sums.xl),
                ll: better.choose(new_ll, sums.ll),
            };
            changed |= better.any();
        }
        if !changed {
            break;
        }
    }
    let empty = Lanes::splat(LEAST).above(extreme.abs());
    let scale = sums.ll.above(ZERO).choose(sums.xl / sums.ll, ZERO);
    (
        empty.choose(ZERO, scale),
        codes.map(|l| empty.choose(lowest, l)),
    )
}
