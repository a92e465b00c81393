//! QSF's blocks of 64: from the plan's rule, a search of scale and minimum around it.
//!
//! The rule takes scale and minimum from the extreme weights, and of ternary blocks from the mean
//! magnitude. Every candidate is judged with its numbers rounded to f16 and by the codes that are
//! written, so that the result is never worse than the rule. Sums have one order, in eight lanes,
//! so bytes are the same on every processor.

use atta_formats::f16::{f16_to_f32, f32_to_f16};

use super::pack::put_f16;

/// Candidates for the range of a block, narrower and narrower.
const N_RANGES: usize = 12;
/// Candidates for the smallest magnitude of a ternary weight that is not 0, in tenths of the mean.
const TERNARY_TENTHS: std::ops::Range<usize> = 2..17;
/// The sum of a magnitude below 2^22 and this has no fraction: f32 round to the nearest integer.
const TO_INTEGER: f32 = 12_582_912.0;

/// A block of 64 numbers.
type Block64 = [f32; 64];

/// Weights of a block and the weights of their errors, zeros behind the last.
#[derive(Clone, Copy)]
pub(super) struct Weighted<'a> {
    pub(super) x: &'a Block64,
    pub(super) weights: &'a Block64,
    /// How many there are.
    pub(super) n: usize,
}

impl Weighted<'_> {
    /// `Σ w·f(i)`.
    #[inline(always)]
    fn sum(self, f: impl Fn(usize) -> f32) -> f32 {
        let mut lanes = [0.0; 8];
        for (c, weights) in self.weights.as_chunks::<8>().0.iter().enumerate() {
            for (j, lane) in lanes.iter_mut().enumerate() {
                *lane += weights[j] * f(8 * c + j);
            }
        }
        lanes.iter().sum()
    }

    /// `Σ w·(x − y)²`.
    #[inline(always)]
    fn error(self, y: impl Fn(usize) -> f32) -> f32 {
        self.sum(|i| {
            let difference = self.x[i] - y(i);
            difference * difference
        })
    }

    /// The smallest and the largest weight.
    fn range(self) -> [f32; 2] {
        let start = [f32::INFINITY, f32::NEG_INFINITY];
        let x = self.x[..self.n].iter();
        x.fold(start, |[low, high], &x| [low.min(x), high.max(x)])
    }

    /// The scale of codes with the least squared error.
    #[inline(always)]
    fn scale(self, codes: &Block64) -> f32 {
        let squares = self.sum(|i| codes[i] * codes[i]);
        match squares > 0.0 {
            true => self.sum(|i| codes[i] * self.x[i]) / squares,
            false => 0.0,
        }
    }

    /// Scale and minimum of codes with the least squared error, if their scale is positive.
    #[inline(always)]
    fn line(self, codes: &Block64) -> Option<Steps> {
        let w = f64::from(self.sum(|_| 1.0));
        let q = f64::from(self.sum(|i| codes[i]));
        let qq = f64::from(self.sum(|i| codes[i] * codes[i]));
        let x = f64::from(self.sum(|i| self.x[i]));
        let qx = f64::from(self.sum(|i| codes[i] * self.x[i]));
        let determinant = w * qq - q * q;
        let scale = (w * qx - q * x) / determinant;
        let is_line = determinant > 0.0 && scale > 0.0;
        is_line.then(|| Steps::new(scale as f32, ((x - scale * q) / w) as f32))
    }
}

/// A scale and a minimum, as f16 hold them.
#[derive(Clone, Copy)]
struct Steps {
    scale: f32,
    min: f32,
}

/// The nearest f16; the largest in place of an infinity.
fn rounded(x: f32) -> f32 {
    f16_to_f32(f32_to_f16(x.clamp(-65504.0, 65504.0)))
}

impl Steps {
    fn new(scale: f32, min: f32) -> Self {
        Self {
            scale: rounded(scale),
            min: rounded(min),
        }
    }

    /// The codes of weights, at most `largest`.
    #[inline(always)]
    fn codes(self, x: &Block64, largest: f32) -> Block64 {
        let per_weight = match self.scale > 0.0 {
            true => 1.0 / self.scale,
            false => 0.0,
        };
        let mut codes = [0.0; 64];
        for (q, &x) in codes.iter_mut().zip(x) {
            let exact = ((x - self.min) * per_weight).max(0.0).min(largest);
            *q = (exact + TO_INTEGER) - TO_INTEGER;
        }
        codes
    }

    fn weight(self, code: f32) -> f32 {
        code * self.scale + self.min
    }
}

/// Keeps the best of candidates, the first of equal ones.
struct Best<T> {
    found: T,
    error: f32,
}

impl<T> Best<T> {
    fn judge(&mut self, found: T, error: f32) {
        if error < self.error {
            *self = Self { found, error };
        }
    }
}

/// Scale, minimum and codes from 0 to `largest`.
fn affine(block: Weighted<'_>, largest: f32) -> (Steps, Block64) {
    let [low, high] = block.range();
    let rule = Steps::new((high - low) / largest, low);
    let codes = rule.codes(block.x, largest);
    let mut best = Best {
        found: (rule, codes),
        error: block.error(|i| rule.weight(codes[i])),
    };
    for i in 0..N_RANGES {
        // From all of the range to a third of it, around its middle.
        let part = 1.0 - 0.06 * i as f32;
        let middle = (high - low) * (1.0 - part) / 2.0;
        let mut steps = Some(Steps::new(rule.scale * part, low + middle));
        for _ in 0..3 {
            let Some(now) = steps else {
                break;
            };
            let codes = now.codes(block.x, largest);
            best.judge((now, codes), block.error(|i| now.weight(codes[i])));
            steps = block.line(&codes);
        }
    }
    best.found
}

/// Writes scale and minimum, and returns the codes.
fn affine_codes(block: Weighted<'_>, largest: u8, out: &mut [u8]) -> [u8; 64] {
    let (steps, codes) = affine(block, f32::from(largest));
    put_f16(out, 0, steps.scale);
    put_f16(out, 2, steps.min);
    bytes(block, |i| codes[i] as u8)
}

/// A byte for each weight, zeros behind the last one.
fn bytes(block: Weighted<'_>, byte: impl Fn(usize) -> u8) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (i, out) in bytes[..block.n].iter_mut().enumerate() {
        *out = byte(i);
    }
    bytes
}

/// Packs codes of `bits` bits in order, the low ones of a byte first.
fn pack(codes: &[u8; 64], bits: usize, out: &mut [u8]) {
    out.fill(0);
    for (j, &code) in codes.iter().enumerate() {
        out[j * bits / 8] |= code << (j * bits % 8);
    }
}

/// `scale·(q − 1.5)`: the minimum `−1.5·scale` need not be an f16.
pub(super) fn qsf2s(block: Weighted<'_>, out: &mut [u8; 20]) {
    let steps = |scale: f32| {
        let scale = rounded(scale);
        let min = -1.5 * scale;
        Steps { scale, min }
    };
    let [low, high] = block.range();
    let rule = steps(high.max(-low) / 1.5);
    let mut best = Best {
        found: (rule, rule.codes(block.x, 3.0)),
        error: f32::INFINITY,
    };
    for i in 0..2 * N_RANGES {
        let narrow = steps(rule.scale * (1.0 - 0.035 * i as f32));
        let around = narrow.codes(block.x, 3.0).map(|q| q - 1.5);
        for now in [narrow, steps(block.scale(&around))] {
            let codes = now.codes(block.x, 3.0);
            best.judge((now, codes), block.error(|i| now.weight(codes[i])));
        }
    }
    let (found, codes) = best.found;
    put_f16(out, 0, found.scale);
    out[2..4].fill(0);
    pack(&bytes(block, |i| codes[i] as u8), 2, &mut out[4..]);
}

pub(super) fn qsf2(block: Weighted<'_>, out: &mut [u8; 20]) {
    let codes = affine_codes(block, 3, out);
    pack(&codes, 2, &mut out[4..]);
}

pub(super) fn qsf3(block: Weighted<'_>, out: &mut [u8; 28]) {
    let codes = affine_codes(block, 7, out);
    pack(&codes.map(|q| q & 3), 2, &mut out[4..20]);
    pack(&codes.map(|q| q >> 2), 1, &mut out[20..]);
}

pub(super) fn qsf4(block: Weighted<'_>, out: &mut [u8; 36]) {
    let codes = affine_codes(block, 15, out);
    pack(&codes, 4, &mut out[4..]);
}

/// −1, 0 or 1 for each weight: 0 below the magnitude `least`.
fn signs(x: &Block64, least: f32) -> Block64 {
    x.map(|x| match x.abs() < least {
        true => 0.0,
        false => 1f32.copysign(x),
    })
}

pub(super) fn qsft(block: Weighted<'_>, out: &mut [u8; 18]) {
    let mean = block.x.iter().map(|x| x.abs()).sum::<f32>() / block.n as f32;
    let rule = (rounded(mean), signs(block.x, 0.3 * mean));
    let mut best = Best {
        found: rule,
        error: block.error(|i| rule.0 * rule.1[i]),
    };
    for tenths in TERNARY_TENTHS {
        let signs = signs(block.x, 0.1 * tenths as f32 * mean);
        let scale = rounded(block.scale(&signs));
        best.judge((scale, signs), block.error(|i| scale * signs[i]));
    }
    let (scale, signs) = best.found;
    put_f16(out, 0, scale);
    let negative = bytes(block, |i| u8::from(signs[i] < 0.0));
    pack(&negative, 1, &mut out[2..10]);
    let zeros = bytes(block, |i| u8::from(signs[i] == 0.0));
    pack(&zeros, 1, &mut out[10..]);
}

#[cfg(test)]
mod tests {
    use atta_formats::{TensorType, decode};

    use super::*;

    fn all<'a>(x: &'a Block64, weights: &'a Block64) -> Weighted<'a> {
        let n = 64;
        Weighted { x, weights, n }
    }

    fn random(seed: u32) -> Block64 {
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

    fn decoded<const N: usize>(ty: TensorType, block: &[u8; N]) -> Block64 {
        let mut y = [0.0; 64];
        decode(ty, block, &mut y).unwrap();
        y
    }

    #[test]
    fn the_search_is_never_worse_than_the_rule_and_mostly_better() {
        let mut n_better = 0;
        for seed in 0..50 {
            let x = random(seed);
            let block = all(&x, &[1.0; 64]);
            let mut out = [0; 36];
            qsf4(block, &mut out);
            let [low, high] = block.range();
            let rule = Steps::new((high - low) / 15.0, low);
            let codes = rule.codes(&x, 15.0);
            let y = decoded(TensorType::QSF4, &out);
            let errors = [
                block.error(|i| y[i]),
                block.error(|i| rule.weight(codes[i])),
            ];
            assert!(errors[0] <= errors[1], "{seed}: {errors:?}");
            n_better += usize::from(errors[0] < 0.95 * errors[1]);
        }
        assert!(n_better > 25, "{n_better}");
    }

    #[test]
    fn important_weights_are_nearer() {
        let x = random(7);
        let weights = std::array::from_fn(|i| if i < 8 { 100.0 } else { 1.0 });
        let error = |weights: &Block64| {
            let mut out = [0; 20];
            qsf2(all(&x, weights), &mut out);
            let y = decoded(TensorType::QSF2, &out);
            (0..8).map(|i| (x[i] - y[i]) * (x[i] - y[i])).sum::<f32>()
        };
        assert!(error(&weights) < 0.8 * error(&[1.0; 64]));
    }

    #[test]
    fn weights_on_a_grid_are_kept() {
        let x: Block64 = std::array::from_fn(|i| (i * 7 % 4) as f32 * 0.25 - 0.5);
        let mut out = [0; 20];
        qsf2(all(&x, &[1.0; 64]), &mut out);
        assert_eq!(decoded(TensorType::QSF2, &out), x);
        let x = x.map(|x| x + 0.125);
        qsf2s(all(&x, &[1.0; 64]), &mut out);
        assert_eq!(decoded(TensorType::QSF2S, &out), x);
        let x: Block64 = std::array::from_fn(|i| (i * 7 % 3) as f32 * 0.5 - 0.5);
        let mut out = [0; 18];
        qsft(all(&x, &[1.0; 64]), &mut out);
        assert_eq!(decoded(TensorType::QSFT, &out), x);
    }

    #[test]
    fn blocks_of_equal_weights_and_of_zeros_are_finite() {
        for value in [0.0, 0.3, -7.0, 1e-9] {
            let mut out = [0; 28];
            qsf3(all(&[value; 64], &[1.0; 64]), &mut out);
            let y = decoded(TensorType::QSF3, &out);
            let most = value.abs() * 1e-3 + 1e-7;
            assert!(y.iter().all(|y| (y - value).abs() <= most), "{value}");
        }
    }
}
