//! QSF's blocks of 64: from the plan's rule, a search of scale and minimum around it.
//!
//! The rule takes scale and minimum from the extreme weights, and of ternary blocks from the mean
//! magnitude. Every candidate is judged with its numbers rounded to f16 and by the codes that are
//! written, so that the result is never worse than the rule. Operations have one order, so bytes
//! are the same on every processor.

use atta_formats::f16::{f16_to_f32, f32_to_f16};

use super::pack::put_f16;

/// Candidates for the range of a block, on either side of the rule's.
const N_RANGES: usize = 12;
/// Candidates for the smallest magnitude of a ternary weight that is not 0, in tenths of the mean.
const TERNARY_TENTHS: std::ops::Range<usize> = 2..17;

/// A scale and a minimum, which f16 hold exactly.
#[derive(Clone, Copy)]
struct Steps {
    scale: f32,
    min: f32,
}

impl Steps {
    fn new(scale: f32, min: f32) -> Self {
        let rounded = |x: f32| f16_to_f32(f32_to_f16(x.clamp(-65504.0, 65504.0)));
        Self {
            scale: rounded(scale),
            min: rounded(min),
        }
    }

    /// The code, at most `largest`, of a weight.
    fn code(self, x: f32, largest: u8) -> u8 {
        if self.scale == 0.0 {
            return 0;
        }
        // The conversion saturates.
        ((x - self.min) / self.scale)
            .round()
            .min(f32::from(largest)) as u8
    }

    fn weight(self, code: u8) -> f32 {
        f32::from(code) * self.scale + self.min
    }

    /// `Σ w·(x − y)²`.
    fn error(self, block: Weighted<'_>, largest: u8) -> f64 {
        block.sum(|x| {
            let difference = f64::from(x - self.weight(self.code(x, largest)));
            difference * difference
        })
    }
}

/// Weights of a block and the weights of their errors, of equal length.
#[derive(Clone, Copy)]
struct Weighted<'a> {
    x: &'a [f32],
    weights: &'a [f32],
}

impl Weighted<'_> {
    /// `Σ w·f(x)`.
    fn sum(self, f: impl Fn(f32) -> f64) -> f64 {
        let pairs = self.x.iter().zip(self.weights);
        pairs.fold(0.0, |sum, (&x, &w)| sum + f64::from(w) * f(x))
    }

    fn largest_magnitude(self) -> f32 {
        self.x.iter().fold(0.0, |most, x| x.abs().max(most))
    }

    /// The line through the codes of `steps` with the least squared error.
    fn line(self, steps: Steps, largest: u8) -> Option<Steps> {
        let code = |x: f32| f64::from(steps.code(x, largest));
        let [w, q, qq] = [
            self.sum(|_| 1.0),
            self.sum(code),
            self.sum(|x| code(x).powi(2)),
        ];
        let [x, qx] = [self.sum(f64::from), self.sum(|x| code(x) * f64::from(x))];
        let determinant = w * qq - q * q;
        let scale = (w * qx - q * x) / determinant;
        let is_line = determinant > 0.0 && scale > 0.0;
        is_line.then(|| Steps::new(scale as f32, ((x - scale * q) / w) as f32))
    }

    /// The scale of `codes` (of a weight's sign, magnitude and all) with the least squared error.
    fn scale(self, code: impl Fn(f32) -> f64) -> f32 {
        let squares = self.sum(|x| code(x).powi(2));
        match squares > 0.0 {
            true => (self.sum(|x| code(x) * f64::from(x)) / squares) as f32,
            false => 0.0,
        }
    }
}

/// The best of candidates, the first of equal ones.
fn best<T: Copy>(candidates: impl Iterator<Item = T>, error: impl Fn(T) -> f64) -> Option<T> {
    let judged = candidates.map(|candidate| (error(candidate), candidate));
    let least = judged.reduce(|least, next| if next.0 < least.0 { next } else { least });
    least.map(|(_, candidate)| candidate)
}

/// Scale and minimum for codes from 0 to `largest`.
fn affine(block: Weighted<'_>, largest: u8) -> Steps {
    let low = block.x.iter().fold(f32::INFINITY, |low, &x| low.min(x));
    let high = block
        .x
        .iter()
        .fold(f32::NEG_INFINITY, |high, &x| high.max(x));
    let rule = Steps::new((high - low) / f32::from(largest), low);
    let ranges = (0..N_RANGES).flat_map(|i| {
        // From a third of the range, around its middle, to all of it.
        let part = 1.0 - 0.06 * i as f32;
        let narrow = Steps::new(rule.scale * part, low + (high - low) * (1.0 - part) / 2.0);
        let line = block.line(narrow, largest);
        let again = line.and_then(|line| block.line(line, largest));
        [Some(narrow), line, again].into_iter().flatten()
    });
    let candidates = std::iter::once(rule).chain(ranges);
    best(candidates, |steps| steps.error(block, largest)).unwrap_or(rule)
}

/// Writes scale and minimum, and returns the codes, zeros behind the last weight.
fn affine_codes(x: &[f32], weights: &[f32], largest: u8, block: &mut [u8]) -> [u8; 64] {
    let steps = affine(Weighted { x, weights }, largest);
    put_f16(block, 0, steps.scale);
    put_f16(block, 2, steps.min);
    codes(x, |x| steps.code(x, largest))
}

fn codes(x: &[f32], code: impl Fn(f32) -> u8) -> [u8; 64] {
    let mut codes = [0; 64];
    codes.iter_mut().zip(x).for_each(|(q, &x)| *q = code(x));
    codes
}

/// Packs codes of `bits` bits in order, the low ones of a byte first.
fn pack(codes: &[u8; 64], bits: usize, out: &mut [u8]) {
    out.fill(0);
    for (j, &code) in codes.iter().enumerate() {
        out[j * bits / 8] |= code << (j * bits % 8);
    }
}

/// `scale·(q − 1.5)`, as the minimum `−1.5·scale` that need not be an f16.
pub(super) fn qsf2s(x: &[f32], weights: &[f32], block: &mut [u8; 20]) {
    let weighted = Weighted { x, weights };
    let steps = |scale: f32| {
        let Steps { scale, .. } = Steps::new(scale, 0.0);
        let min = -1.5 * scale;
        Steps { scale, min }
    };
    let rule = steps(weighted.largest_magnitude() / 1.5);
    let scales = (0..2 * N_RANGES).flat_map(|i| {
        let narrow = steps(rule.scale * (1.0 - 0.035 * i as f32));
        let code = |x: f32| f64::from(narrow.code(x, 3)) - 1.5;
        [narrow, steps(weighted.scale(code))]
    });
    let candidates = std::iter::once(rule).chain(scales);
    let found = best(candidates, |steps| steps.error(weighted, 3)).unwrap_or(rule);
    put_f16(block, 0, found.scale);
    block[2..4].fill(0);
    pack(&codes(x, |x| found.code(x, 3)), 2, &mut block[4..]);
}

pub(super) fn qsf2(x: &[f32], weights: &[f32], block: &mut [u8; 20]) {
    let codes = affine_codes(x, weights, 3, block);
    pack(&codes, 2, &mut block[4..]);
}

pub(super) fn qsf3(x: &[f32], weights: &[f32], block: &mut [u8; 28]) {
    let codes = affine_codes(x, weights, 7, block);
    pack(&codes.map(|q| q & 3), 2, &mut block[4..20]);
    pack(&codes.map(|q| q >> 2), 1, &mut block[20..]);
}

pub(super) fn qsf4(x: &[f32], weights: &[f32], block: &mut [u8; 36]) {
    let codes = affine_codes(x, weights, 15, block);
    pack(&codes, 4, &mut block[4..]);
}

/// A scale, and the smallest magnitude that is not 0.
#[derive(Clone, Copy)]
struct Ternary {
    scale: f32,
    least: f32,
}

impl Ternary {
    fn new(scale: f32, least: f32) -> Self {
        let Steps { scale, .. } = Steps::new(scale, 0.0);
        Self { scale, least }
    }

    /// −1, 0 or 1.
    fn sign(self, x: f32) -> f32 {
        if x.abs() < self.least {
            0.0
        } else {
            1f32.copysign(x)
        }
    }
}

pub(super) fn qsft(x: &[f32], weights: &[f32], block: &mut [u8; 18]) {
    let weighted = Weighted { x, weights };
    let mean = x.iter().map(|x| x.abs()).sum::<f32>() / x.len() as f32;
    let rule = Ternary::new(mean, 0.3 * mean);
    let candidates = TERNARY_TENTHS.map(|tenths| {
        let least = 0.1 * tenths as f32 * mean;
        let sign = |x: f32| f64::from(Ternary { scale: 1.0, least }.sign(x));
        Ternary::new(weighted.scale(sign), least)
    });
    let error = |t: Ternary| {
        weighted.sum(|x| {
            let difference = f64::from(x - t.scale * t.sign(x));
            difference * difference
        })
    };
    let found = best(std::iter::once(rule).chain(candidates), error).unwrap_or(rule);
    put_f16(block, 0, found.scale);
    let signs = codes(x, |x| u8::from(found.sign(x) < 0.0));
    pack(&signs, 1, &mut block[2..10]);
    let zeros = codes(x, |x| u8::from(found.sign(x) == 0.0));
    pack(&zeros, 1, &mut block[10..]);
}

#[cfg(test)]
mod tests {
    use atta_formats::{TensorType, decode};

    use super::*;

    /// Errors of a block of `ty`, and of scale and minimum by the rule.
    fn squares(x: &[f32; 64], y: impl Fn(usize) -> f32) -> f64 {
        let differences = x.iter().enumerate().map(|(i, x)| f64::from(x - y(i)));
        differences.map(|d| d * d).sum()
    }

    fn random(seed: u32) -> [f32; 64] {
        let mut state = seed;
        std::array::from_fn(|_| {
            let mut sum = 0.0;
            for _ in 0..4 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                sum += (state >> 8) as f32 / (1 << 24) as f32 - 0.5;
            }
            sum
        })
    }

    fn decoded<const N: usize>(ty: TensorType, block: &[u8; N]) -> [f32; 64] {
        let mut y = [0.0; 64];
        decode(ty, block, &mut y).unwrap();
        y
    }

    #[test]
    fn the_search_is_never_worse_than_the_rule() {
        for seed in 0..50 {
            let x = random(seed);
            let weights = [1.0; 64];
            let mut block = [0; 36];
            qsf4(&x, &weights, &mut block);
            let low = x.iter().fold(f32::INFINITY, |low, x| x.min(low));
            let high = x.iter().fold(f32::NEG_INFINITY, |high, x| x.max(high));
            let rule = Steps::new((high - low) / 15.0, low);
            let y = decoded(TensorType::QSF4, &block);
            let by_rule = squares(&x, |i| rule.weight(rule.code(x[i], 15)));
            assert!(squares(&x, |i| y[i]) <= by_rule, "{seed}");
        }
    }

    #[test]
    fn weights_on_a_grid_are_kept() {
        let x: [f32; 64] = std::array::from_fn(|i| (i * 7 % 4) as f32 * 0.25 - 0.5);
        let mut block = [0; 20];
        qsf2(&x, &[1.0; 64], &mut block);
        assert_eq!(decoded(TensorType::QSF2, &block), x);
        let x = x.map(|x| x + 0.125);
        qsf2s(&x, &[1.0; 64], &mut block);
        assert_eq!(decoded(TensorType::QSF2S, &block), x);
        let x: [f32; 64] = std::array::from_fn(|i| (i * 7 % 3) as f32 * 0.5 - 0.5);
        let mut block = [0; 18];
        qsft(&x, &[1.0; 64], &mut block);
        assert_eq!(decoded(TensorType::QSFT, &block), x);
    }

    #[test]
    fn blocks_of_equal_weights_and_of_zeros_are_finite() {
        for value in [0.0, 0.3, -7.0, 1e-9] {
            let mut block = [0; 28];
            qsf3(&[value; 64], &[1.0; 64], &mut block);
            let y = decoded(TensorType::QSF3, &block);
            assert!(
                y.iter()
                    .all(|y| (y - value).abs() <= value.abs() * 1e-3 + 1e-7),
                "{value}"
            );
        }
    }
}
