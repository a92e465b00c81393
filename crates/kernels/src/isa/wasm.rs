//! WebAssembly with 128-bit vectors (simd128). Nothing is detected at run time: a build has it or
//! has it not, so the token proves nothing.
//!
//! Only a build with relaxed SIMD has a product of bytes that sums four (`wasm_relaxed.rs`).
//! Without it, even and odd bytes are widened to i16 in place, whose products are summed in pairs
//! (`i32x4.dot_i16x8_s`): two of these are the four products of a lane, for any codes.

use super::memory::{load, load_at, store};
#[cfg(target_feature = "relaxed-simd")]
use super::wasm_relaxed::{dot, dot_any};
use super::{
    CODE_BIAS, Codes, Floats, KeyCodes, Lanes, PairCodes, Pairs, Row, Wide, products_of_four,
};
#[cfg(not(target_feature = "relaxed-simd"))]
use dot as dot_any;
use std::arch::wasm32::*;

/// Proof of nothing: a module with instructions that the host lacks does not load.
#[derive(Clone, Copy)]
pub(crate) struct Simd128;

/// `acc + Σ w·x` of the four bytes of each lane, `w` unsigned and `x` signed.
#[cfg(not(target_feature = "relaxed-simd"))]
#[inline(always)]
fn dot(acc: v128, w: v128, x: v128) -> v128 {
    let even = i32x4_dot_i16x8(
        v128_and(w, u16x8_splat(0xff)),
        i16x8_shr(i16x8_shl(x, 8), 8),
    );
    let odd = i32x4_dot_i16x8(u16x8_shr(w, 8), i16x8_shr(x, 8));
    i32x4_add(acc, i32x4_add(even, odd))
}

/// As [`dot`], with `w` signed.
#[inline(always)]
fn dot_signed(acc: v128, w: v128, x: v128) -> v128 {
    let even = i32x4_dot_i16x8(i16x8_shr(i16x8_shl(w, 8), 8), i16x8_shr(i16x8_shl(x, 8), 8));
    let odd = i32x4_dot_i16x8(i16x8_shr(w, 8), i16x8_shr(x, 8));
    i32x4_add(acc, i32x4_add(even, odd))
}

/// `acc + scales[0]·sums[0] + scales[1]·sums[1]`.
#[inline(always)]
fn add_scaled(acc: v128, sums: [v128; 2], scales: [i32; 2]) -> v128 {
    let scaled = |i: usize| i32x4_mul(sums[i], i32x4_splat(scales[i]));
    i32x4_add(acc, i32x4_add(scaled(0), scaled(1)))
}

/// Signed bytes as floats.
#[inline(always)]
fn floats_of_bytes(bytes: v128) -> [v128; 4] {
    let (low, high) = (
        i16x8_extend_low_i8x16(bytes),
        i16x8_extend_high_i8x16(bytes),
    );
    [
        f32x4_convert_i32x4(i32x4_extend_low_i16x8(low)),
        f32x4_convert_i32x4(i32x4_extend_high_i16x8(low)),
        f32x4_convert_i32x4(i32x4_extend_low_i16x8(high)),
        f32x4_convert_i32x4(i32x4_extend_high_i16x8(high)),
    ]
}

/// 16 bytes as numbers.
#[inline(always)]
fn widen_bytes(bytes: v128) -> [i32; 16] {
    let (low, high) = (
        i16x8_extend_low_i8x16(bytes),
        i16x8_extend_high_i8x16(bytes),
    );
    load(&[
        i32x4_extend_low_i16x8(low),
        i32x4_extend_high_i16x8(low),
        i32x4_extend_low_i16x8(high),
        i32x4_extend_high_i16x8(high),
    ])
}

/// The totals of four sums.
#[inline(always)]
fn totals(s: [v128; 4]) -> v128 {
    let halves = |a, b| {
        i32x4_add(
            i32x4_shuffle::<0, 4, 1, 5>(a, b),
            i32x4_shuffle::<2, 6, 3, 7>(a, b),
        )
    };
    let (a, b) = (halves(s[0], s[1]), halves(s[2], s[3]));
    i32x4_add(
        i32x4_shuffle::<0, 1, 4, 5>(a, b),
        i32x4_shuffle::<2, 3, 6, 7>(a, b),
    )
}

/// f16 as floats, each in the lower half of a lane: [`widen_f16`](crate::format::float::widen_f16)
/// of all of them.
#[inline(always)]
fn widen(bits: v128) -> v128 {
    let (exponent, infinite) = (u32x4_splat(0x7c00), u32x4_splat(0x3800_0000));
    let sign = u32x4_shl(v128_and(bits, u32x4_splat(0x8000)), 16);
    let shifted = u32x4_shl(v128_and(bits, u32x4_splat(0x7fff)), 13);
    let found = v128_and(bits, exponent);
    let bias = v128_and(i32x4_eq(found, exponent), infinite);
    let normal = i32x4_add(i32x4_add(shifted, infinite), bias);
    let least = u32x4_splat(0x3880_0000);
    let small = f32x4_sub(i32x4_add(shifted, least), least);
    let is_small = i32x4_eq(found, i32x4_splat(0));
    v128_or(sign, v128_bitselect(small, normal, is_small))
}

/// The f16 of a vector.
#[inline(always)]
fn widen_all(bits: v128) -> [v128; 2] {
    [u32x4_extend_low_u16x8(bits), u32x4_extend_high_u16x8(bits)].map(widen)
}

/// [`half_power`](atta_formats::layout::half_power) of four exponents, one in each lane.
#[inline(always)]
fn half_powers(e: v128) -> v128 {
    let one = i32x4_splat(1);
    let (normal, subnormal) = (
        i32x4_shl(i32x4_sub(e, one), 23),
        i32x4_shl(i32x4_add(v128_and(e, one), one), 21),
    );
    i32x4_max(normal, subnormal)
}

/// All bits of byte i where bit i of `bits` is set.
#[inline(always)]
fn masks(bits: [u8; 4]) -> [v128; 2] {
    let bit = u64x2_splat(0x8040_2010_0804_0201);
    let spread = |byte: u8| u64::from(byte) * 0x0101_0101_0101_0101;
    let half = |low, high| i8x16_eq(v128_and(u64x2(spread(low), spread(high)), bit), bit);
    [half(bits[0], bits[1]), half(bits[2], bits[3])]
}

impl Row for Simd128 {
    type V = [v128; 2];

    #[inline(always)]
    fn load(self, bytes: &[u8; 32]) -> [v128; 2] {
        load(bytes)
    }

    #[inline(always)]
    fn store(self, v: [v128; 2], bytes: &mut [u8; 32]) {
        store(v, bytes);
    }

    #[inline(always)]
    fn words_of_64(self, words: [u64; 4]) -> [v128; 2] {
        [u64x2(words[0], words[1]), u64x2(words[2], words[3])]
    }

    #[inline(always)]
    fn load_pair(self, low: &[u8; 16], high: &[u8; 16]) -> [v128; 2] {
        [load(low), load(high)]
    }

    #[inline(always)]
    fn nibbles(self, bytes: &[u8; 16]) -> [v128; 2] {
        let v = load(bytes);
        [v128_and(v, u8x16_splat(15)), u8x16_shr(v, 4)]
    }

    #[inline(always)]
    fn bits(self, bits: &[u8; 4]) -> [v128; 2] {
        masks(*bits).map(|set| v128_and(set, u8x16_splat(1)))
    }

    #[inline(always)]
    fn and(self, v: [v128; 2], mask: u8) -> [v128; 2] {
        v.map(|v| v128_and(v, u8x16_splat(mask)))
    }

    #[inline(always)]
    fn xor(self, v: [v128; 2], mask: u8) -> [v128; 2] {
        v.map(|v| v128_xor(v, u8x16_splat(mask)))
    }

    #[inline(always)]
    fn or(self, a: [v128; 2], b: [v128; 2]) -> [v128; 2] {
        [v128_or(a[0], b[0]), v128_or(a[1], b[1])]
    }

    #[inline(always)]
    fn shr(self, v: [v128; 2], n: usize) -> [v128; 2] {
        v.map(|v| u8x16_shr(v, n as u32))
    }

    #[inline(always)]
    fn shl(self, v: [v128; 2], n: usize) -> [v128; 2] {
        v.map(|v| u8x16_shl(v, n as u32))
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], v: [v128; 2]) -> [v128; 2] {
        v.map(|v| u8x16_swizzle(load(table), v))
    }

    // Indices from 16 on give 0.
    #[inline(always)]
    fn look_up_of<const N: usize>(self, tables: &[[u8; 16]; N], v: [v128; 2]) -> [v128; 2] {
        v.map(|v| {
            let mut out = u8x16_splat(0);
            for (i, table) in tables.iter().enumerate() {
                let index = u8x16_sub(v, u8x16_splat(16 * i as u8));
                out = v128_or(out, u8x16_swizzle(load(table), index));
            }
            out
        })
    }

    #[inline(always)]
    fn digits(self, v: [v128; 2], factors: &[u8; 32]) -> [v128; 2] {
        // Three times 86 is more than 256, three times 171 more than twice that; a comparison gives
        // −1.
        let digit = |v, factors| {
            let low = v128_and(u16x8_extmul_low_u8x16(v, factors), u16x8_splat(0xff));
            let high = v128_and(u16x8_extmul_high_u8x16(v, factors), u16x8_splat(0xff));
            let rest = u8x16_narrow_i16x8(low, high);
            let once = u8x16_sub(u8x16_splat(0), u8x16_ge(rest, u8x16_splat(86)));
            u8x16_sub(once, u8x16_ge(rest, u8x16_splat(171)))
        };
        let [low, high] = load(factors);
        [digit(v[0], low), digit(v[1], high)]
    }

    #[inline(always)]
    fn biased(self, codes: [v128; 2], signs: u32) -> [v128; 2] {
        let (minus, offset) = (masks(signs.to_le_bytes()), u8x16_splat(CODE_BIAS));
        let half = |i: usize| {
            v128_bitselect(
                u8x16_sub(offset, codes[i]),
                u8x16_add(offset, codes[i]),
                minus[i],
            )
        };
        [half(0), half(1)]
    }

    /// There is no such instruction.
    #[inline(always)]
    fn prefetch(self, _: &[u8], _: usize) {}
}

impl Wide for Simd128 {
    type A = v128;
    /// Of each 16 weights, in memory: a product takes one with a load that spreads it.
    type S = [i32; 16];
    type F8 = [v128; 2];

    #[inline(always)]
    fn start(self, total: i32) -> v128 {
        i32x4(total, 0, 0, 0)
    }

    #[inline(always)]
    fn scales_of_16(self, scales: [u64; 2]) -> [i32; 16] {
        widen_bytes(u64x2(scales[0], scales[1]))
    }

    #[inline(always)]
    fn scales_of_32(self, scales: u64) -> [i32; 16] {
        let scales = u64x2(scales, scales);
        widen_bytes(i8x16_shuffle::<
            0,
            0,
            1,
            1,
            2,
            2,
            3,
            3,
            4,
            4,
            5,
            5,
            6,
            6,
            7,
            7,
        >(scales, scales))
    }

    #[inline(always)]
    fn dot_scaled(
        self,
        acc: v128,
        codes: [v128; 2],
        x: &[i8; 32],
        scales: [i32; 16],
        g: usize,
    ) -> v128 {
        let sums = |i: usize| dot(i32x4_splat(0), codes[i], load_at(x, 16 * i));
        add_scaled(acc, [sums(0), sums(1)], [scales[2 * g], scales[2 * g + 1]])
    }

    #[inline(always)]
    fn dot_scaled_bytes(
        self,
        acc: v128,
        codes: [v128; 2],
        x: &[i8; 32],
        scales: [i32; 16],
        g: usize,
    ) -> v128 {
        let sums = |i: usize| dot_any(i32x4_splat(0), codes[i], load_at(x, 16 * i));
        add_scaled(acc, [sums(0), sums(1)], [scales[2 * g], scales[2 * g + 1]])
    }

    #[inline(always)]
    fn dot_codes(self, acc: v128, codes: [v128; 2], x: &[i8; 32]) -> v128 {
        let [first, second] = load(x);
        dot(dot(acc, codes[0], first), codes[1], second)
    }

    #[inline(always)]
    fn dot_bytes(self, acc: v128, codes: [v128; 2], x: &[i8; 32]) -> v128 {
        let [first, second] = load(x);
        dot_any(dot_any(acc, codes[0], first), codes[1], second)
    }

    #[inline(always)]
    fn dot_sums(self, a: [u64; 2], b: &[i16; 16], factor: i32) -> v128 {
        let (a, b): (_, [v128; 2]) = (u64x2(a[0], a[1]), load(b));
        let low = i32x4_dot_i16x8(i16x8_extend_low_i8x16(a), b[0]);
        let high = i32x4_dot_i16x8(i16x8_extend_high_i8x16(a), b[1]);
        i32x4_mul(i32x4_add(low, high), i32x4_splat(factor))
    }

    #[inline(always)]
    fn totals(self, s: [v128; 8]) -> [v128; 2] {
        let ([low, high], []) = s.as_chunks() else {
            unreachable!("8 are twice 4")
        };
        [
            f32x4_convert_i32x4(totals(*low)),
            f32x4_convert_i32x4(totals(*high)),
        ]
    }

    #[inline(always)]
    fn store8(self, x: [v128; 2], out: &mut [f32; 8]) {
        store(x, out);
    }

    #[inline(always)]
    fn widen8(self, bits: &[u16; 8]) -> [v128; 2] {
        widen_all(load(bits))
    }

    #[inline(always)]
    fn powers8(self, exponents: &[u16; 8]) -> [v128; 2] {
        let e = load(exponents);
        [u32x4_extend_low_u16x8(e), u32x4_extend_high_u16x8(e)].map(half_powers)
    }

    #[inline(always)]
    fn mul8(self, x: [v128; 2], y: [v128; 2]) -> [v128; 2] {
        [f32x4_mul(x[0], y[0]), f32x4_mul(x[1], y[1])]
    }

    #[inline(always)]
    fn add8(self, x: [v128; 2], y: [v128; 2]) -> [v128; 2] {
        [f32x4_add(x[0], y[0]), f32x4_add(x[1], y[1])]
    }

    #[inline(always)]
    fn splat8(self, x: f32) -> [v128; 2] {
        [f32x4_splat(x); 2]
    }

    #[inline(always)]
    fn low_minus_high(self, x: [v128; 2]) -> [v128; 2] {
        [f32x4_sub(x[0], x[1]), x[1]]
    }
}

impl Lanes for Simd128 {
    const LANES: usize = 4;
    type W = v128;
    type N = v128;
    type L = v128;

    products_of_four!();

    #[inline(always)]
    fn columns<const B: usize>(self, rows: &[[u8; B]; 16], c: usize) -> [v128; 4] {
        let at = |r: usize| load_at(&rows[r], 16 * c);
        let low = |x, y| i32x4_shuffle::<0, 4, 1, 5>(x, y);
        let high = |x, y| i32x4_shuffle::<2, 6, 3, 7>(x, y);
        // Words 0 and 1, then words 2 and 3, of two rows each.
        let first = [low(at(0), at(1)), low(at(2), at(3))];
        let last = [high(at(0), at(1)), high(at(2), at(3))];
        [
            i64x2_shuffle::<0, 2>(first[0], first[1]),
            i64x2_shuffle::<1, 3>(first[0], first[1]),
            i64x2_shuffle::<0, 2>(last[0], last[1]),
            i64x2_shuffle::<1, 3>(last[0], last[1]),
        ]
    }

    #[inline(always)]
    fn splat4(self, bytes: &[i8; 4]) -> v128 {
        i32x4_splat(i32::from_le_bytes(bytes.map(|byte| byte as u8)))
    }

    #[inline(always)]
    fn opaque(self, w: v128) -> v128 {
        std::hint::black_box(w)
    }

    #[inline(always)]
    fn scale(self, w: v128, j: usize) -> v128 {
        i32x4_shr(i32x4_shl(w, 24 - 8 * j as u32), 24)
    }

    #[inline(always)]
    fn splat(self, x: i32) -> v128 {
        i32x4_splat(x)
    }

    #[inline(always)]
    fn dot4(self, acc: v128, w: v128, x: v128) -> v128 {
        dot(acc, w, x)
    }

    #[inline(always)]
    fn dot4_bytes(self, acc: v128, w: v128, x: v128) -> v128 {
        dot_any(acc, w, x)
    }

    #[inline(always)]
    fn add(self, x: v128, y: v128) -> v128 {
        i32x4_add(x, y)
    }

    #[inline(always)]
    fn widen_add_scaled(self, n: v128, p: v128, scale: v128) -> v128 {
        i32x4_add(n, i32x4_mul(p, scale))
    }

    #[inline(always)]
    fn times_256(self, x: v128) -> v128 {
        i32x4_shl(x, 8)
    }

    #[inline(always)]
    fn to_floats(self, x: v128) -> v128 {
        f32x4_convert_i32x4(x)
    }

    #[inline(always)]
    fn widen_lanes(self, bits: &[u16; 16]) -> v128 {
        let [low, _]: [v128; 2] = load(bits);
        widen(u32x4_extend_low_u16x8(low))
    }

    #[inline(always)]
    fn power_lanes(self, exponents: &[u16; 16]) -> v128 {
        let [low, _]: [v128; 2] = load(exponents);
        half_powers(u32x4_extend_low_u16x8(low))
    }

    #[inline(always)]
    fn splat_float(self, x: f32) -> v128 {
        f32x4_splat(x)
    }

    #[inline(always)]
    fn mul_lanes(self, x: v128, y: v128) -> v128 {
        f32x4_mul(x, y)
    }

    #[inline(always)]
    fn add_lanes(self, x: v128, y: v128) -> v128 {
        f32x4_add(x, y)
    }

    #[inline(always)]
    fn sub_lanes(self, x: v128, y: v128) -> v128 {
        f32x4_sub(x, y)
    }

    #[inline(always)]
    fn load_from(self, x: &[f32]) -> v128 {
        load::<_, [f32; 4]>(x.try_into().expect("four lanes"))
    }

    #[inline(always)]
    fn store_to(self, x: v128, out: &mut [f32]) {
        store::<_, [f32; 4]>(x, out.try_into().expect("four lanes"));
    }
}

/// Lanes 4i to 4i + 3 by `f(i)`.
#[inline(always)]
fn four(f: impl Fn(usize) -> v128) -> [v128; 4] {
    [f(0), f(1), f(2), f(3)]
}

impl Floats for Simd128 {
    type F = [v128; 4];
    const KEYS: usize = 1;
    const ROWS: usize = 2;
    const VECTORS: usize = 1;

    #[inline(always)]
    fn zeros(self) -> [v128; 4] {
        [f32x4_splat(0.0); 4]
    }

    #[inline(always)]
    fn splat_all(self, x: f32) -> [v128; 4] {
        [f32x4_splat(x); 4]
    }

    #[inline(always)]
    fn floats(self, x: &[f32; 16]) -> [v128; 4] {
        load(x)
    }

    #[inline(always)]
    fn halves(self, x: &[[u8; 2]; 16]) -> [v128; 4] {
        let two: [v128; 2] = load(x);
        let [low, high] = two.map(widen_all);
        [low[0], low[1], high[0], high[1]]
    }

    #[inline(always)]
    fn brains(self, x: &[[u8; 2]; 16]) -> [v128; 4] {
        let two: [v128; 2] = load(x);
        four(|i| match i % 2 {
            0 => u32x4_shl(u32x4_extend_low_u16x8(two[i / 2]), 16),
            _ => u32x4_shl(u32x4_extend_high_u16x8(two[i / 2]), 16),
        })
    }

    #[inline(always)]
    fn singles(self, x: &[[u8; 4]; 16]) -> [v128; 4] {
        load(x)
    }

    #[inline(always)]
    fn to_array(self, x: [v128; 4]) -> [f32; 16] {
        load(&x)
    }

    #[inline(always)]
    fn sum_f(self, x: [v128; 4], y: [v128; 4]) -> [v128; 4] {
        four(|i| f32x4_add(x[i], y[i]))
    }

    #[inline(always)]
    fn max_f(self, x: [v128; 4], y: [v128; 4]) -> [v128; 4] {
        four(|i| f32x4_pmax(y[i], x[i]))
    }

    #[inline(always)]
    fn product(self, x: [v128; 4], y: [v128; 4]) -> [v128; 4] {
        four(|i| f32x4_mul(x[i], y[i]))
    }

    #[inline(always)]
    fn mul_add(self, x: [v128; 4], y: [v128; 4], z: [v128; 4]) -> [v128; 4] {
        four(|i| f32x4_add(f32x4_mul(x[i], y[i]), z[i]))
    }

    #[inline(always)]
    fn totals_of_16(self, x: [[v128; 4]; 16]) -> [v128; 4] {
        let quarter = |x: [v128; 4]| f32x4_add(f32x4_add(x[0], x[2]), f32x4_add(x[1], x[3]));
        // Elements 0 and 1 of two vectors, with elements 2 and 3.
        let two = |i: usize| {
            let (a, b) = (quarter(x[i]), quarter(x[i + 1]));
            f32x4_add(i64x2_shuffle::<0, 2>(a, b), i64x2_shuffle::<1, 3>(a, b))
        };
        four(|i| {
            let (a, b) = (two(4 * i), two(4 * i + 2));
            f32x4_add(
                i32x4_shuffle::<0, 2, 4, 6>(a, b),
                i32x4_shuffle::<1, 3, 5, 7>(a, b),
            )
        })
    }
}

impl Codes for Simd128 {
    type N = [v128; 4];

    /// Word j of each row in bytes 64·j to 64·j + 63.
    #[inline(always)]
    fn arranged(self, keys: &KeyCodes) -> KeyCodes {
        let mut out = [[0; 16]; 16];
        for i in 0..4 {
            let rows: [v128; 4] = load(&keys.as_chunks::<4>().0[i]);
            // Words 0 and 1, then words 2 and 3, of two rows each.
            let first = [
                i32x4_shuffle::<0, 4, 1, 5>(rows[0], rows[1]),
                i32x4_shuffle::<0, 4, 1, 5>(rows[2], rows[3]),
            ];
            let last = [
                i32x4_shuffle::<2, 6, 3, 7>(rows[0], rows[1]),
                i32x4_shuffle::<2, 6, 3, 7>(rows[2], rows[3]),
            ];
            store(i64x2_shuffle::<0, 2>(first[0], first[1]), &mut out[i]);
            store(i64x2_shuffle::<1, 3>(first[0], first[1]), &mut out[4 + i]);
            store(i64x2_shuffle::<0, 2>(last[0], last[1]), &mut out[8 + i]);
            store(i64x2_shuffle::<1, 3>(last[0], last[1]), &mut out[12 + i]);
        }
        out
    }

    #[inline(always)]
    fn no_sums(self) -> [v128; 4] {
        [i32x4_splat(0); 4]
    }

    #[inline(always)]
    fn dots<const R: usize>(
        self,
        mut sums: [[v128; 4]; R],
        keys: &KeyCodes,
        x: [&[i8; 16]; R],
    ) -> [[v128; 4]; R] {
        for j in 0..4 {
            for r in 0..R {
                let x = self.splat4(&x[r].as_chunks().0[j]);
                for i in 0..4 {
                    sums[r][i] = dot_signed(sums[r][i], load(&keys[4 * j + i]), x);
                }
            }
        }
        sums
    }

    #[inline(always)]
    fn as_floats(self, x: [v128; 4]) -> [v128; 4] {
        four(|i| f32x4_convert_i32x4(x[i]))
    }

    #[inline(always)]
    fn signed(self, codes: &[u8; 16]) -> [v128; 4] {
        floats_of_bytes(load(codes))
    }

    #[inline(always)]
    fn low_nibbles(self, bytes: &[u8; 16]) -> [v128; 4] {
        floats_of_bytes(v128_and(load(bytes), u8x16_splat(15)))
    }

    #[inline(always)]
    fn high_nibbles(self, bytes: &[u8; 16]) -> [v128; 4] {
        floats_of_bytes(u8x16_shr(load(bytes), 4))
    }
}

impl Pairs for Simd128 {
    type Pair = [v128; 4];
    type Sums = [v128; 4];
    const TILE: usize = 1;

    #[inline(always)]
    fn pairs(self, x: &PairCodes) -> [v128; 4] {
        load(x)
    }

    #[inline(always)]
    fn pair(self, x: i32) -> [v128; 4] {
        [i32x4_splat(x); 4]
    }

    #[inline(always)]
    fn bits_of(self, x: [v128; 4]) -> PairCodes {
        load(&x)
    }

    #[inline(always)]
    fn no_products(self) -> [v128; 4] {
        [i32x4_splat(0); 4]
    }

    #[inline(always)]
    fn dot_pairs(self, sums: [v128; 4], x: [v128; 4], y: [v128; 4]) -> [v128; 4] {
        four(|i| i32x4_add(sums[i], i32x4_dot_i16x8(x[i], y[i])))
    }

    #[inline(always)]
    fn lane_totals(self, sums: [v128; 4]) -> [v128; 4] {
        sums
    }
}
