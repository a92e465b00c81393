//! Searches a scale and a minimum for a sub-block of unsigned codes, `x ≈ scale·l − min` (ggml's
//! `make_qkx2_quants`).
//!
//! Minimises `Σ w·|scale·l − min − x|²` (or without the square). Several candidate scales give
//! codes `l`; for given codes the best line is a linear regression, so the candidates themselves
//! need not fit well.

use super::lanes::{Lanes, Mask, Tile, nearest};

/// The candidates of a search.
#[derive(Clone, Copy)]
pub(crate) struct Candidates {
    /// The largest code.
    pub(crate) largest: f32,
    /// Candidate `i` maps the range of the weights to `largest + first + step·i` codes.
    pub(crate) first: f32,
    /// See `first`.
    pub(crate) step: f32,
    /// The number of candidates.
    pub(crate) n: usize,
    /// The error that is minimised.
    pub(crate) error: ErrorNorm,
}

/// The error of a difference before it is weighted.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum ErrorNorm {
    /// The square.
    Square,
    /// The magnitude.
    Magnitude,
}

/// The line found for each of four sub-blocks.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    /// Weights per code.
    pub(crate) scale: Lanes,
    /// Subtracted from the scaled code.
    pub(crate) min: Lanes,
    /// The codes are `(x − origin) · codes_per_weight`, rounded. This is the scale of the
    /// candidate, not 1 / `scale`.
    pub(crate) codes_per_weight: Lanes,
    /// The value of code 0 for the candidate.
    pub(crate) origin: Lanes,
}

const ZERO: Lanes = Lanes::splat(0.0);
const ONE: Lanes = Lanes::splat(1.0);

/// Finds a line for each of four sub-blocks `x` with `weights`. A candidate maps the range from the
/// minimum of the best line so far to the largest weight, so later candidates improve on earlier
/// ones.
#[inline(always)]
pub(crate) fn line<const N: usize>(x: &Tile<N>, weights: &Tile<N>, tried: Candidates) -> Line {
    let w = LineSearch::new(x, weights, tried);
    let low = ZERO.min(w.lowest);
    let per_weight = w.largest / (w.highest - low);
    let mut best = Line {
        scale: ONE / per_weight,
        min: low,
        codes_per_weight: per_weight,
        origin: low,
    };
    let mut codes = [ZERO; N];
    w.sums(&best, &mut codes, Lanes::nearest);
    let mut least = w.error(&codes, &best);
    for i in 0..tried.n {
        let wide = Lanes::splat(tried.first + tried.step * i as f32 + tried.largest);
        let candidate = Line {
            origin: best.min,
            codes_per_weight: wide / (w.highest - best.min),
            ..best
        };
        let sums = if w.is_tame(&candidate) {
            w.sums(&candidate, &mut codes, Lanes::rounded)
        } else {
            w.sums(&candidate, &mut codes, Lanes::nearest)
        };
        let (determinant, this) = w.regression(&sums, candidate);
        let error = w.error(&codes, &this);
        let better = determinant.above(ZERO) & least.above(error);
        least = better.choose(error, least);
        best = this.or(&best, better);
    }
    let constant = Line {
        scale: ZERO,
        min: low,
        codes_per_weight: ZERO,
        origin: low,
    };
    best = constant.or(&best, w.highest.equals(low));
    Line {
        min: best.min.negated(),
        ..best
    }
}

/// The inputs of a search, with sums that all candidates share.
struct LineSearch<'a, const N: usize> {
    x: &'a Tile<N>,
    weights: &'a Tile<N>,
    /// The smallest and the largest of `x`.
    lowest: Lanes,
    highest: Lanes,
    /// `Σ w` and `Σ w·x`.
    sum_w: Lanes,
    sum_x: Lanes,
    /// The largest code.
    largest: Lanes,
    error: ErrorNorm,
}

/// The sums of a regression: `Σ w·l`, `Σ w·l²` and `Σ w·x·l`.
struct LineSums {
    l: Lanes,
    ll: Lanes,
    xl: Lanes,
}

impl<'a, const N: usize> LineSearch<'a, N> {
    #[inline(always)]
    fn new(x: &'a Tile<N>, weights: &'a Tile<N>, tried: Candidates) -> Self {
        let largest = Lanes::splat(tried.largest);
        let error = tried.error;
        let mut new = Self {
            x,
            weights,
            lowest: x[0],
            highest: x[0],
            sum_w: ZERO,
            sum_x: ZERO,
            largest,
            error,
        };
        for (&x, &w) in x.iter().zip(weights) {
            new.lowest = x.min(new.lowest);
            new.highest = x.max(new.highest);
            new.sum_w = new.sum_w + w;
            new.sum_x = new.sum_x + w * x;
        }
        new
    }

    /// Whether all codes are small enough for [`Lanes::rounded`]. They are not if the best line so
    /// far has its minimum next to the largest weight.
    #[inline(always)]
    fn is_tame(&self, line: &Line) -> bool {
        let code = |x: Lanes| (line.codes_per_weight * (x - line.origin)).abs();
        let limit = Lanes::splat(4e6);
        (limit.above(code(self.lowest)) & limit.above(code(self.highest))).all()
    }

    /// Computes the codes of a candidate and the sums over them.
    #[inline(always)]
    fn sums(&self, line: &Line, codes: &mut Tile<N>, round: impl Fn(Lanes) -> Lanes) -> LineSums {
        let mut sums = LineSums {
            l: ZERO,
            ll: ZERO,
            xl: ZERO,
        };
        for ((&x, &w), code) in self.x.iter().zip(self.weights).zip(codes) {
            let l = round(line.codes_per_weight * (x - line.origin))
                .max(ZERO)
                .min(self.largest);
            *code = l;
            sums.l = sums.l + w * l;
            sums.ll = sums.ll + w * l * l;
            sums.xl = sums.xl + w * l * x;
        }
        sums
    }

    /// The determinant of the regression and the best line for the codes, with a minimum that is
    /// not positive. The line is valid if the determinant is positive.
    #[inline(always)]
    fn regression(&self, sums: &LineSums, candidate: Line) -> (Lanes, Line) {
        let determinant = self.sum_w * sums.ll - sums.l * sums.l;
        let min = (sums.ll * self.sum_x - sums.l * sums.xl) / determinant;
        let scale = (self.sum_w * sums.xl - self.sum_x * sums.l) / determinant;
        let positive = min.above(ZERO);
        let min = positive.choose(ZERO, min);
        (
            determinant,
            Line {
                min,
                scale: positive.choose(sums.xl / sums.ll, scale),
                ..candidate
            },
        )
    }

    /// The weighted error of a line with codes.
    #[inline(always)]
    fn error(&self, codes: &Tile<N>, line: &Line) -> Lanes {
        let mut sum = ZERO;
        for ((&x, &w), &l) in self.x.iter().zip(self.weights).zip(codes) {
            let difference = line.scale * l + line.min - x;
            let counted = match self.error {
                ErrorNorm::Square => difference * difference,
                ErrorNorm::Magnitude => difference.abs(),
            };
            sum = sum + w * counted;
        }
        sum
    }
}

impl Line {
    /// This line in the lanes of a mask, and the other one elsewhere.
    #[inline(always)]
    fn or(&self, other: &Self, lanes: Mask) -> Self {
        Self {
            scale: lanes.choose(self.scale, other.scale),
            min: lanes.choose(self.min, other.min),
            codes_per_weight: lanes.choose(self.codes_per_weight, other.codes_per_weight),
            origin: lanes.choose(self.origin, other.origin),
        }
    }

    /// The codes of sub-block `k` of the four.
    pub(crate) fn codes<const N: usize>(&self, k: usize, x: &[f32; N], largest: i32) -> [u8; N] {
        line_codes(x, self.origin.0[k], self.codes_per_weight.0[k], largest)
    }
}

/// The codes of a sub-block for a candidate.
pub(crate) fn line_codes<const N: usize>(
    x: &[f32; N],
    origin: f32,
    per_weight: f32,
    largest: i32,
) -> [u8; N] {
    x.map(|x| nearest(per_weight * (x - origin)).clamp(0, largest) as u8)
}
