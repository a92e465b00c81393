// f32 in the steps of the CPU. All float arithmetic of all shaders stands in this file.
//
// Compilers may fuse and reassociate floats, and division and square root of drivers may be wrong by some units in the
// last place. So each result passes through an xor with a zero that only the driver's memory knows, and division and
// square root are made of integers, digit by digit. Numbers are normal or zero: drivers may flush others.

const NONE: u32 = 0xffffffffu;
const NAN: u32 = 0x7fc00000u;
const INFINITE: u32 = 0x7f800000u;

fn guard(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ p.zero);
}

fn add(a: f32, b: f32) -> f32 {
    return guard(a + b);
}

fn sub(a: f32, b: f32) -> f32 {
    return guard(a - b);
}

fn mul(a: f32, b: f32) -> f32 {
    return guard(a * b);
}

fn negative(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ 0x80000000u);
}

fn magnitude(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0x7fffffffu);
}

fn with_sign(x: f32, sign_of: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(sign_of) & 0x80000000u));
}

// Rounded to nearest even: both parts and the product are exact, so that one rounding remains, fused or not.
fn to_float(i: i32) -> f32 {
    return guard(f32(i >> 12u) * 4096.0 + f32(i & 4095));
}

// The integer nearest to `x`, below 2^22 in magnitude, ties to even.
fn nearest(x: f32) -> i32 {
    return bitcast<i32>(bitcast<u32>(add(x, 12582912.0)) - 0x4b400000u);
}

// 25 bits of a quotient or a root, rounded to 24; an overflow carries into the exponent.
fn rounded(digits: u32, is_inexact: bool, exponent: i32) -> u32 {
    let up = (digits & 1u) & ((digits >> 1u) | select(0u, 1u, is_inexact));
    return (u32(exponent) << 23u) + ((digits >> 1u) + up - 0x800000u);
}

// `a / b`, rounded to nearest even; `b` is not zero.
fn div(a: f32, b: f32) -> f32 {
    let x = bitcast<u32>(a);
    let y = bitcast<u32>(b);
    let sign = (x ^ y) & 0x80000000u;
    let divisor = (y & 0x7fffffu) | 0x800000u;
    var rest = (x & 0x7fffffu) | 0x800000u;
    var exponent = i32((x >> 23u) & 255u) - i32((y >> 23u) & 255u) + 127;
    if rest < divisor {
        rest = rest << 1u;
        exponent -= 1;
    }
    var digits = 0u;
    for (var i = 0u; i < 25u; i++) {
        digits = digits << 1u;
        if rest >= divisor {
            rest -= divisor;
            digits |= 1u;
        }
        rest = rest << 1u;
    }
    let is_small = exponent <= 0 || (x & INFINITE) == 0u || (y & 0x7fffffffu) >= INFINITE;
    let is_large = exponent >= 255 || (x & 0x7fffffffu) == INFINITE;
    let quotient = select(rounded(digits, rest != 0u, exponent), INFINITE, is_large);
    let is_nan = (x & 0x7fffffffu) > INFINITE || (y & 0x7fffffffu) > INFINITE;
    return bitcast<f32>(select(sign | select(quotient, 0u, is_small), NAN, is_nan));
}

// Square root, rounded to nearest even.
fn sqrt_of(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let exponent = bits >> 23u;
    // Two digits of it make one of the root: 26 bits of the mantissa, then zeros.
    let radicand = ((bits & 0x7fffffu) | 0x800000u) << (2u - (exponent & 1u));
    var rest = 0u;
    var root = 0u;
    for (var i = 0u; i < 25u; i++) {
        let two = select(0u, (radicand >> (24u - 2u * min(i, 12u))) & 3u, i < 13u);
        rest = (rest << 2u) | two;
        let trial = (root << 2u) | 1u;
        root = root << 1u;
        if rest >= trial {
            rest -= trial;
            root |= 1u;
        }
    }
    let result = rounded(root, rest != 0u, i32((exponent + 127u) >> 1u));
    return bitcast<f32>(select(select(result, bits, exponent == 255u), 0u, exponent == 0u));
}

// IEEE binary16 in the low bits, exactly.
fn from_f16(bits: u32) -> f32 {
    let sign = (bits & 0x8000u) << 16u;
    let mantissa = bits & 0x3ffu;
    let exponent = (bits >> 10u) & 31u;
    let small = bitcast<u32>(mul(to_float(i32(mantissa)), 5.9604644775390625e-8));
    let normal = ((exponent + select(112u, 224u, exponent == 31u)) << 23u) | (mantissa << 13u);
    return bitcast<f32>(sign | select(normal, small, exponent == 0u));
}

// The sum of sixteen lanes: 8 + 8, 4 + 4, 2 + 2, 1 + 1.
fn sum_of_lanes(lanes: array<f32, 16>) -> f32 {
    let a = add(add(lanes[0], lanes[8]), add(lanes[4], lanes[12]));
    let b = add(add(lanes[1], lanes[9]), add(lanes[5], lanes[13]));
    let c = add(add(lanes[2], lanes[10]), add(lanes[6], lanes[14]));
    let d = add(add(lanes[3], lanes[11]), add(lanes[7], lanes[15]));
    return add(add(a, c), add(b, d));
}
