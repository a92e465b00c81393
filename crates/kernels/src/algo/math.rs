//! Elementary functions of our own, so that results do not depend on the C library of the machine.
//!
//! The f32 ones are straight-line code that vectorises; errors are in units in the last place
//! (ulp), measured over the range by the tests below. The f64 ones make tables once (rope) and are
//! accurate to a few 1e-16. Coefficients, digits as published: Cephes Mathematical Library (`expf`,
//! `tanhf`, `erff`) and FreeBSD msun (`k_sin`, `k_cos`).

#![allow(clippy::excessive_precision, clippy::approx_constant)]

/// Adding and subtracting this rounds an f32 below 2²² to the nearest integer, ties to even.
pub(crate) const ROUND: f32 = 12_582_912.0;
/// ln 2 in two parts; small integers times the first are exact.
pub(crate) const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
/// The polynomial `(e^r − 1 − r)/r²`, highest coefficient first.
pub(crate) const EXP_M1: [f32; 6] = [
    1.987_569_1e-4,
    1.398_199_9e-3,
    8.333_452e-3,
    4.166_579_6e-2,
    1.666_666_5e-1,
    0.5,
];

/// Whether no element is NaN or infinite.
pub fn all_finite(x: &[f32]) -> bool {
    all_below(x, f32::INFINITY)
}

/// Whether every magnitude is below `limit`, which that of NaN never is. Without a branch per
/// element, so that it vectorises.
pub fn all_below(x: &[f32], limit: f32) -> bool {
    // The bits of magnitudes have the order of the magnitudes, with those of NaN above all.
    let limit = limit.to_bits().cast_signed();
    x.iter().fold(0, |any, x| {
        any | u32::from(x.abs().to_bits().cast_signed() >= limit)
    }) == 0
}

/// Evaluates a polynomial, highest coefficient first, without fused operations.
#[inline(always)]
fn poly<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    coefficients[1..]
        .iter()
        .fold(coefficients[0], |y, &c| y * x + c)
}

/// `2^n` for −126 ≤ n ≤ 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits(((n + 127) << 23) as u32)
}

/// `x = x·2^exponent`, element by element; exact where the result is a normal number. Both have the
/// same length. Queries times these and keys over them ([`over_powers`]) have the same scores.
pub fn times_powers(x: &mut [f32], exponents: &[i8]) {
    for (x, &n) in x.iter_mut().zip(exponents) {
        *x *= power_of_two(i32::from(n).max(-126));
    }
}

/// `x = x·2^−exponent`, as [`times_powers`] multiplies; exponents are from −126 to 126.
pub fn over_powers(x: &mut [f32], exponents: &[i8]) {
    for (x, &n) in x.iter_mut().zip(exponents) {
        *x *= power_of_two((-i32::from(n)).clamp(-126, 127));
    }
}

/// `e^x`. Error below 2 ulp; infinite from 88.73 up, 0 from −104 down and for −∞.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let (y, n) = exp_parts(x.clamp(-104.0, 89.0));
    // In two steps, because 2^n may overflow or be subnormal where the result does not or is.
    let half = n >> 1;
    y * power_of_two(half) * power_of_two(n - half)
}

/// `e^x` as `y·2^n`.
#[inline(always)]
fn exp_parts(x: f32) -> (f32, i32) {
    let (m, n) = exp_m1_parts(x);
    (m + 1.0, n)
}

/// `e^x` as `(m + 1)·2^n`.
#[inline(always)]
fn exp_m1_parts(x: f32) -> (f32, i32) {
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2[0]) - n * LN_2[1];
    let p = poly(r, EXP_M1);
    (
        p * (r * r) + r,
        shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32,
    )
}

/// `e^x − 1` for x ≤ 0, and 0 above. Error below 2 ulp.
#[inline(always)]
pub(crate) fn exp_m1(x: f32) -> f32 {
    let (m, n) = exp_m1_parts(x.clamp(-87.0, 0.0));
    let power = power_of_two(n);
    m * power + (power - 1.0)
}

/// `e^x` for x ≤ 0, and 0 below −87: no result is subnormal, which would cost a hundred cycles
/// each. Error below 2 ulp elsewhere. For weights of a softmax, whose largest is 1.
#[inline(always)]
pub(crate) fn exp_weight(x: f32) -> f32 {
    const LEAST: f32 = -87.0;
    // Not `max`, which would turn NaN into a number.
    let within = if x < LEAST { LEAST } else { x };
    let (y, n) = exp_parts(within);
    if x < LEAST { 0.0 } else { y * power_of_two(n) }
}

/// `tanh x`. Error below 3 ulp.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let a = x.abs();
    let z = x * x;
    let small = poly(
        z,
        [
            -5.704_988_7e-3,
            2.063_908_9e-2,
            -5.373_971_6e-2,
            1.333_144_2e-1,
            -3.333_328_2e-1,
        ],
    );
    let small = small * z * a + a;
    let large = 1.0 - 2.0 / (exp(2.0 * a) + 1.0);
    if a < 0.625 {
        small.copysign(x)
    } else {
        large.copysign(x)
    }
}

/// `1 / (1 + e^-x)`. Error below 4 ulp where the result is normal.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The error function. Absolute error below 2e-7.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let a = x.abs();
    let z = a * a;
    let small = a * poly(
        z,
        [
            7.853_862e-5,
            -8.010_193_6e-4,
            5.188_327_7e-3,
            -2.685_381_2e-2,
            1.128_358_5e-1,
            -3.761_262_7e-1,
            1.128_379_2,
        ],
    );
    let q = 1.0 / a.max(1.0);
    let y = q * q;
    let middle = poly(
        y,
        [
            2.326_819_9e-2,
            -1.387_039_4e-1,
            3.687_424_7e-1,
            -5.824_733e-1,
            6.210_004_7e-1,
            -4.944_515_3e-1,
            3.404_88e-1,
            -2.741_127e-1,
            5.638_259_6e-1,
        ],
    );
    let far = poly(
        y,
        [
            -1.047_766_4e1,
            1.297_72e1,
            -7.495_519,
            2.921_019,
            -1.015_265_3,
            4.218_463_4e-1,
            -2.820_767_5e-1,
            5.641_895e-1,
        ],
    );
    let large = 1.0 - exp(-z) * q * if a < 2.0 { middle } else { far };
    if a < 1.0 {
        small.copysign(x)
    } else {
        large.copysign(x)
    }
}

/// `(sin x, cos x)` of an angle in radians, |x| ≤ 1e6. Absolute error below 3e-16.
pub fn sin_cos(x: f64) -> (f64, f64) {
    let quadrant = (x * std::f64::consts::FRAC_2_PI).round();
    // π/2 in three parts; the products with the first two are exact.
    let r = x - quadrant * 1.570_796_326_734_125_6;
    let r = r - quadrant * 6.077_100_506_303_966e-11;
    let r = r - quadrant * 2.022_266_248_795_950_6e-21;
    let z = r * r;
    let sin = [
        1.589_690_995_211_550_1e-10,
        -2.505_076_025_340_686_3e-8,
        2.755_731_370_707_006_8e-6,
        -1.984_126_982_985_794_9e-4,
        8.333_333_333_322_49e-3,
        -1.666_666_666_666_663_2e-1,
    ];
    let cos = [
        -1.135_964_755_778_819_5e-11,
        2.087_572_321_298_175e-9,
        -2.755_731_435_139_066_3e-7,
        2.480_158_728_947_673e-5,
        -1.388_888_888_887_411e-3,
        4.166_666_666_666_66e-2,
    ];
    let horner = |c: [f64; 6]| c[1..].iter().fold(c[0], |y, &c| y * z + c);
    let sin = r + r * z * horner(sin);
    let cos = 1.0 - 0.5 * z + z * z * horner(cos);
    match (quadrant as i64).rem_euclid(4) {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

/// Natural logarithm of a positive, finite, normal number. Relative error below 4e-16.
pub fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    // x = m·2^e with m between √½ and √2.
    let e = ((bits.wrapping_sub(std::f64::consts::FRAC_1_SQRT_2.to_bits())) as i64) >> 52;
    let m = f64::from_bits(bits.wrapping_sub((e << 52) as u64));
    // ln m = 2·artanh s, and |s| ≤ 0.172 makes the twelfth term smaller than 1e-19.
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let series = (0..12)
        .rev()
        .fold(0.0, |y, k| y * z + 1.0 / f64::from(2 * k + 1));
    e as f64 * std::f64::consts::LN_2 + 2.0 * s * series
}

/// `e^x` for |x| ≤ 700. Relative error below 4e-16.
fn exp_f64(x: f64) -> f64 {
    let n = (x * std::f64::consts::LOG2_E).round();
    // ln 2 in two parts; n times the first is exact.
    let r = (x - n * 0.693_147_180_369_123_8) - n * 1.908_214_929_270_587_7e-10;
    // Taylor: |r| ≤ 0.347 makes the fifteenth term smaller than 1e-17.
    let y = (1..=14).rev().fold(1.0, |y, k| 1.0 + y * r / f64::from(k));
    y * f64::from_bits(((n as i64 + 1023) << 52) as u64)
}

/// `ln(1 + e^x)` in f32. Error below 4 ulp.
#[inline(always)]
pub(crate) fn softplus_f32(x: f32) -> f32 {
    let above = if x < 0.0 { 0.0 } else { x };
    let t = exp(-x.abs());
    // ln(1 + t) = 2·artanh s, and s ≤ 1/3 makes the ninth term smaller than 1e-8.
    let s = t / (2.0 + t);
    let series = poly(
        s * s,
        [
            1.0 / 15.0,
            1.0 / 13.0,
            1.0 / 11.0,
            1.0 / 9.0,
            1.0 / 7.0,
            1.0 / 5.0,
            1.0 / 3.0,
            1.0,
        ],
    );
    above + 2.0 * s * series
}

/// `ln(1 + e^x)`, which is x to the last bit above 20.
pub fn softplus(x: f32) -> f32 {
    if x > 20.0 || x.is_nan() {
        return x;
    }
    ln(1.0 + exp_f64(f64::from(x).max(-700.0))) as f32
}

/// `base^exponent` for a positive, normal `base`, where `|exponent·ln base|` ≤ 700. Relative error
/// below 1e-15 + 2e-16·|exponent·ln base|.
pub fn pow(base: f64, exponent: f64) -> f64 {
    exp_f64(exponent * ln(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance of `got` from `want` in units in the last place of `want` as f32, at least those of
    /// 2^-126.
    fn ulps(got: f32, want: f64) -> f64 {
        let magnitude = (want.abs() as f32).max(f32::MIN_POSITIVE);
        let unit = f64::from(magnitude.next_up()) - f64::from(magnitude);
        (f64::from(got) - want).abs() / unit
    }

    fn worst(range: (f64, f64), f: fn(f32) -> f32, reference: fn(f64) -> f64) -> f64 {
        let n = 400_000;
        let x = |i: i32| (range.0 + (range.1 - range.0) * f64::from(i) / f64::from(n)) as f32;
        let distances = (0..=n).map(|i| ulps(f(x(i)), reference(f64::from(x(i)))));
        // `f64::max` passes over NaN.
        distances
            .inspect(|ulps| assert!(!ulps.is_nan(), "between {range:?}"))
            .fold(0.0, f64::max)
    }

    #[test]
    fn powers_of_two_are_exact_and_undone() {
        let exponents = [0, 1, -1, 20, -20, 60];
        let x = [1.5, -3.25, 7.0, 1e-3, 0.0, -2.0];
        let mut y = x;
        times_powers(&mut y, &exponents);
        assert_eq!(y[..4], [1.5, -6.5, 3.5, 1e-3 * 1_048_576.0]);
        over_powers(&mut y, &exponents);
        assert_eq!(y, x);
    }

    #[test]
    fn exp_is_within_two_ulp() {
        assert!(worst((-104.0, 88.7), exp, f64::exp) < 2.0);
        assert!(worst((-1.0, 1.0), exp, f64::exp) < 2.0);
    }

    #[test]
    fn exp_m1_is_within_two_ulp() {
        assert!(worst((-104.0, 0.0), exp_m1, f64::exp_m1) < 2.0);
        assert!(worst((-1.0, 0.0), exp_m1, f64::exp_m1) < 2.0);
        assert!(worst((-1e-5, 0.0), exp_m1, f64::exp_m1) < 2.0);
        assert_eq!(exp_m1(9.0), 0.0);
    }

    #[test]
    fn a_weight_is_never_subnormal() {
        assert!(worst((-87.0, 0.0), exp_weight, f64::exp) < 2.0);
        assert!(worst((-80.0, 30.0), softplus_f32, |x| x.exp().ln_1p()) < 4.0);
        assert_eq!(
            (
                exp_weight(0.0),
                exp_weight(-87.1),
                exp_weight(f32::NEG_INFINITY)
            ),
            (1.0, 0.0, 0.0)
        );
        assert!(exp_weight(-87.0).is_normal() && exp_weight(f32::NAN).is_nan());
    }

    #[test]
    fn exp_has_exact_ends() {
        assert_eq!(
            (exp(0.0), exp(f32::NEG_INFINITY), exp(-200.0)),
            (1.0, 0.0, 0.0)
        );
        assert_eq!(
            (exp(89.0), exp(f32::INFINITY)),
            (f32::INFINITY, f32::INFINITY)
        );
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn tanh_is_within_three_ulp() {
        assert!(worst((-12.0, 12.0), tanh, f64::tanh) < 3.0);
        assert!(worst((-1e-3, 1e-3), tanh, f64::tanh) < 3.0);
        assert_eq!((tanh(100.0), tanh(-100.0), tanh(0.0)), (1.0, -1.0, 0.0));
    }

    #[test]
    fn sigmoid_is_within_four_ulp() {
        assert!(worst((-85.0, 40.0), sigmoid, |x| 1.0 / (1.0 + (-x).exp())) < 4.0);
    }

    /// Maclaurin series, enough terms for |x| ≤ 5 in f64.
    fn erf_reference(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..120 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    }

    #[test]
    fn erf_is_within_2e_7() {
        for i in -4000..=4000 {
            let x = i as f32 / 1000.0;
            assert!(
                (f64::from(erf(x)) - erf_reference(f64::from(x))).abs() < 2e-7,
                "{x}"
            );
        }
        assert_eq!((erf(6.0), erf(-30.0), erf(0.0)), (1.0, -1.0, 0.0));
    }

    #[test]
    fn sin_and_cos_agree_with_libm() {
        for i in 0..200_000 {
            let x = (f64::from(i) - 100_000.0) * 9.99;
            let (sin, cos) = sin_cos(x);
            assert!(
                (sin - x.sin()).abs() < 3e-16 && (cos - x.cos()).abs() < 3e-16,
                "{x}"
            );
        }
    }

    #[test]
    fn pow_agrees_with_libm() {
        for base in [10_000.0, 500_000.0, 1e6, 0.3, 1.0, 2.0, 1e-5] {
            for i in -64..=64 {
                let y = f64::from(i) / 32.0;
                let want = f64::powf(base, y);
                assert!((pow(base, y) / want - 1.0).abs() < 8e-15, "{base}^{y}");
            }
        }
    }
}
