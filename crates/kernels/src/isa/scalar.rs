//! No instruction set at all: plain loops, and 8 bytes at a time in ordinary registers.
//!
//! Correct on every machine, and the definition of the results of all other instruction sets.
//! Compilers turn the dot products into the vector instructions of the build's baseline; byte-wise
//! array maps they leave as calls, so codes are unpacked in u64.

use super::{CODE_BIAS, Codes, Flat, Floats, KeyCodes, PairCodes, Pairs, Row};
use crate::algo::lanes::total;
use crate::format::float::widen_f16;
use atta_formats::f16::bf16_to_f32;

/// Proof of nothing.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

/// `byte` in all 8 bytes.
const fn splat(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

#[inline(always)]
fn words<const N: usize>(bytes: &[[u8; 8]; N]) -> [u64; N] {
    let mut v = [0; N];
    for i in 0..N {
        v[i] = u64::from_le_bytes(bytes[i]);
    }
    v
}

#[inline(always)]
fn each(mut v: [u64; 4], f: impl Fn(u64) -> u64) -> [u64; 4] {
    for word in &mut v {
        *word = f(*word);
    }
    v
}

/// `(code − offset)·scale` of 8 codes.
#[inline(always)]
fn scale_word(codes: u64, offset: i16, scale: i16, out: &mut [i16; 8]) {
    let bytes = codes.to_le_bytes();
    for i in 0..8 {
        out[i] = (i16::from(bytes[i]) - offset) * scale;
    }
}

/// [`Row::biased`]; a call where programs must stay small.
#[cfg_attr(feature = "avx512", inline(always))]
#[cfg_attr(not(feature = "avx512"), inline(never))]
fn biased(codes: [u64; 4], signs: u32) -> [u64; 4] {
    let minus = Scalar.bits(&signs.to_le_bytes());
    // CODE_BIAS is 64, and 64 − code 128 − (64 + code), and 127 − x is x with all bits but the top
    // one flipped.
    let biased =
        |i: usize| ((codes[i] | splat(CODE_BIAS)) ^ ((minus[i] << 7) - minus[i])) + minus[i];
    [biased(0), biased(1), biased(2), biased(3)]
}

/// [`Row::digits`]; a call where programs must stay small.
#[cfg_attr(feature = "avx512", inline(always))]
#[cfg_attr(not(feature = "avx512"), inline(never))]
fn replace_by_digits(bytes: &mut [u8; 32], factors: &[u8; 32]) {
    for (byte, factor) in bytes.iter_mut().zip(factors) {
        *byte = ((u16::from(byte.wrapping_mul(*factor)) * 3) >> 8) as u8;
    }
}

/// [`Floats::transposed`]; a call where programs must stay small.
#[cfg_attr(feature = "avx512", inline(always))]
#[cfg_attr(not(feature = "avx512"), inline(never))]
fn transposed(x: &[floats::F; 16]) -> [floats::F; 16] {
    let mut columns = [[0.0; 16]; 16];
    for (i, row) in x.iter().enumerate() {
        for (column, x) in columns.iter_mut().zip(floats::store(*row)) {
            column[i] = x;
        }
    }
    columns.map(|column| floats::load(&column))
}

/// [`Floats::totals_of_16`]; a call where programs must stay small.
#[cfg_attr(feature = "avx512", inline(always))]
#[cfg_attr(not(feature = "avx512"), inline(never))]
fn totals(x: &[floats::F; 16]) -> floats::F {
    floats::load(&x.map(|x| total(floats::store(x))))
}

/// [`Floats::halves`]; a call where programs must stay small.
#[cfg_attr(feature = "avx512", inline(always))]
#[cfg_attr(not(feature = "avx512"), inline(never))]
fn halves(x: &[[u8; 2]; 16]) -> [f32; 16] {
    x.map(|x| widen_f16(u16::from_le_bytes(x)))
}

impl Row for Scalar {
    type V = [u64; 4];

    #[inline(always)]
    fn load(self, bytes: &[u8; 32]) -> [u64; 4] {
        words(
            bytes
                .as_chunks()
                .0
                .first_chunk()
                .expect("32 bytes are 4 words"),
        )
    }

    #[inline(always)]
    fn store(self, v: [u64; 4], bytes: &mut [u8; 32]) {
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(v) {
            *bytes = word.to_le_bytes();
        }
    }

    #[inline(always)]
    fn prefetch(self, _: &[u8], _: usize) {}

    #[inline(always)]
    fn words_of_64(self, words: [u64; 4]) -> [u64; 4] {
        words
    }

    #[inline(always)]
    fn load_pair(self, low: &[u8; 16], high: &[u8; 16]) -> [u64; 4] {
        let [a, b] = words(
            low.as_chunks()
                .0
                .first_chunk()
                .expect("16 bytes are 2 words"),
        );
        let [c, d] = words(
            high.as_chunks()
                .0
                .first_chunk()
                .expect("16 bytes are 2 words"),
        );
        [a, b, c, d]
    }

    #[inline(always)]
    fn nibbles(self, bytes: &[u8; 16]) -> [u64; 4] {
        let [a, b] = words(
            bytes
                .as_chunks()
                .0
                .first_chunk()
                .expect("16 bytes are 2 words"),
        );
        let low = splat(15);
        [a & low, b & low, (a >> 4) & low, (b >> 4) & low]
    }

    #[inline(always)]
    fn bits(self, bits: &[u8; 4]) -> [u64; 4] {
        // A copy of the eight bits in each byte; byte i keeps bit i, and adding 127 carries it to
        // the top.
        bits.map(|byte| {
            ((((u64::from(byte) * splat(1)) & 0x8040_2010_0804_0201) + splat(127)) >> 7) & splat(1)
        })
    }

    #[inline(always)]
    fn and(self, v: [u64; 4], mask: u8) -> [u64; 4] {
        each(v, |word| word & splat(mask))
    }

    #[inline(always)]
    fn xor(self, v: [u64; 4], mask: u8) -> [u64; 4] {
        each(v, |word| word ^ splat(mask))
    }

    #[inline(always)]
    fn or(self, a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
        [a[0] | b[0], a[1] | b[1], a[2] | b[2], a[3] | b[3]]
    }

    #[inline(always)]
    fn shr(self, v: [u64; 4], n: usize) -> [u64; 4] {
        each(v, |word| (word >> n) & splat(0xff >> n))
    }

    #[inline(always)]
    fn shl(self, v: [u64; 4], n: usize) -> [u64; 4] {
        each(v, |word| (word << n) & splat(0xff << n))
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], v: [u64; 4]) -> [u64; 4] {
        let mut bytes = [0; 32];
        self.store(v, &mut bytes);
        for byte in &mut bytes {
            *byte = table[usize::from(*byte & 15)];
        }
        self.load(&bytes)
    }

    #[inline(always)]
    fn look_up_of<const N: usize>(self, tables: &[[u8; 16]; N], v: [u64; 4]) -> [u64; 4] {
        let (table, mut bytes) = (tables.as_flattened(), [0; 32]);
        self.store(v, &mut bytes);
        for byte in &mut bytes {
            *byte = table[usize::from(*byte) % (16 * N)];
        }
        self.load(&bytes)
    }

    #[inline(always)]
    fn digits(self, v: [u64; 4], factors: &[u8; 32]) -> [u64; 4] {
        let mut bytes = [0; 32];
        self.store(v, &mut bytes);
        replace_by_digits(&mut bytes, factors);
        self.load(&bytes)
    }

    #[inline(always)]
    fn biased(self, codes: [u64; 4], signs: u32) -> [u64; 4] {
        biased(codes, signs)
    }
}

impl Flat for Scalar {
    #[inline(always)]
    fn scaled(self, codes: [u64; 4], offset: i16, scale: [i16; 2], out: &mut [i16; 32]) {
        for (k, out) in out.as_chunks_mut().0.iter_mut().enumerate() {
            scale_word(codes[k], offset, scale[k / 2], out);
        }
    }

    #[inline(always)]
    fn dot<const N: usize>(self, w: &[i16; N], x: &[i8; N]) -> i32 {
        let mut sum = 0;
        for i in 0..N {
            sum += i32::from(w[i]) * i32::from(x[i]);
        }
        sum
    }

    #[inline(always)]
    fn dot16(self, a: [u64; 2], b: &[i16; 16]) -> i32 {
        let mut sum = 0;
        for (a, b) in a.into_iter().zip(b.as_chunks::<8>().0) {
            for (a, b) in a.to_le_bytes().into_iter().zip(b) {
                sum += i32::from(a as i8) * i32::from(*b);
            }
        }
        sum
    }
}

/// The 16 floats of the baseline that every x86-64 has.
#[cfg(target_arch = "x86_64")]
mod floats {
    use crate::isa::memory;
    use std::arch::x86_64::{__m128, _mm_add_ps, _mm_max_ps, _mm_mul_ps, _mm_setzero_ps};

    pub(super) type F = [__m128; 4];

    #[inline(always)]
    pub(super) fn zeros() -> F {
        // SAFETY: every x86-64 has SSE.
        unsafe { [_mm_setzero_ps(); 4] }
    }

    #[inline(always)]
    pub(super) fn load(x: &[f32; 16]) -> F {
        // One by one: all four at once make the loops of the scan a fifth longer.
        let [a, b, c, d] = x.as_chunks::<4>().0 else {
            unreachable!("16 are four times 4")
        };
        [
            memory::load(a),
            memory::load(b),
            memory::load(c),
            memory::load(d),
        ]
    }

    #[inline(always)]
    pub(super) fn store(x: F) -> [f32; 16] {
        let mut out = [0.0; 16];
        for (out, x) in out.as_chunks_mut::<4>().0.iter_mut().zip(x) {
            memory::store(x, out);
        }
        out
    }

    #[inline(always)]
    pub(super) fn add(x: F, y: F) -> F {
        // SAFETY: every x86-64 has SSE.
        unsafe {
            [
                _mm_add_ps(x[0], y[0]),
                _mm_add_ps(x[1], y[1]),
                _mm_add_ps(x[2], y[2]),
                _mm_add_ps(x[3], y[3]),
            ]
        }
    }

    #[inline(always)]
    pub(super) fn mul(x: F, y: F) -> F {
        // SAFETY: every x86-64 has SSE.
        unsafe {
            [
                _mm_mul_ps(x[0], y[0]),
                _mm_mul_ps(x[1], y[1]),
                _mm_mul_ps(x[2], y[2]),
                _mm_mul_ps(x[3], y[3]),
            ]
        }
    }

    #[inline(always)]
    pub(super) fn max(x: F, y: F) -> F {
        // SAFETY: every x86-64 has SSE.
        unsafe {
            [
                _mm_max_ps(x[0], y[0]),
                _mm_max_ps(x[1], y[1]),
                _mm_max_ps(x[2], y[2]),
                _mm_max_ps(x[3], y[3]),
            ]
        }
    }
}

/// 16 floats in an array, for the compiler to do what it can.
#[cfg(not(target_arch = "x86_64"))]
mod floats {
    pub(super) type F = [f32; 16];

    #[inline(always)]
    pub(super) fn zeros() -> F {
        [0.0; 16]
    }

    #[inline(always)]
    pub(super) fn load(x: &[f32; 16]) -> F {
        *x
    }

    #[inline(always)]
    pub(super) fn store(x: F) -> [f32; 16] {
        x
    }

    #[inline(always)]
    pub(super) fn add(mut x: F, y: F) -> F {
        for i in 0..16 {
            x[i] += y[i];
        }
        x
    }

    #[inline(always)]
    pub(super) fn mul(mut x: F, y: F) -> F {
        for i in 0..16 {
            x[i] *= y[i];
        }
        x
    }

    #[inline(always)]
    pub(super) fn max(mut x: F, y: F) -> F {
        for i in 0..16 {
            x[i] = if x[i] > y[i] { x[i] } else { y[i] };
        }
        x
    }
}

impl Floats for Scalar {
    type F = floats::F;
    const KEYS: usize = 1;
    const ROWS: usize = 2;
    const VECTORS: usize = 1;

    #[inline(always)]
    fn zeros(self) -> floats::F {
        floats::zeros()
    }

    #[inline(always)]
    fn splat_all(self, x: f32) -> floats::F {
        floats::load(&[x; 16])
    }

    #[inline(always)]
    fn floats(self, x: &[f32; 16]) -> floats::F {
        floats::load(x)
    }

    #[inline(always)]
    fn halves(self, x: &[[u8; 2]; 16]) -> floats::F {
        floats::load(&halves(x))
    }

    #[inline(always)]
    fn brains(self, x: &[[u8; 2]; 16]) -> floats::F {
        let mut wide = [0.0; 16];
        for i in 0..16 {
            wide[i] = bf16_to_f32(u16::from_le_bytes(x[i]));
        }
        floats::load(&wide)
    }

    #[inline(always)]
    fn singles(self, x: &[[u8; 4]; 16]) -> floats::F {
        floats::load(&x.map(f32::from_le_bytes))
    }

    #[inline(always)]
    fn totals_of_16(self, x: [floats::F; 16]) -> floats::F {
        totals(&x)
    }

    #[inline(always)]
    fn transposed(self, x: [floats::F; 16]) -> [floats::F; 16] {
        transposed(&x)
    }

    #[inline(always)]
    fn to_array(self, x: floats::F) -> [f32; 16] {
        floats::store(x)
    }

    #[inline(always)]
    fn sum_f(self, x: floats::F, y: floats::F) -> floats::F {
        floats::add(x, y)
    }

    #[inline(always)]
    fn max_f(self, x: floats::F, y: floats::F) -> floats::F {
        floats::max(x, y)
    }

    #[inline(always)]
    fn product(self, x: floats::F, y: floats::F) -> floats::F {
        floats::mul(x, y)
    }

    #[inline(always)]
    fn mul_add(self, x: floats::F, y: floats::F, z: floats::F) -> floats::F {
        floats::add(floats::mul(x, y), z)
    }
}

impl Codes for Scalar {
    type N = [i32; 16];

    /// As they are: compilers know the product of two rows.
    #[inline(always)]
    fn arranged(self, keys: &KeyCodes) -> KeyCodes {
        *keys
    }

    #[inline(always)]
    fn no_sums(self) -> [i32; 16] {
        [0; 16]
    }

    #[inline(always)]
    fn dots<const R: usize>(
        self,
        mut sums: [[i32; 16]; R],
        keys: &KeyCodes,
        x: [&[i8; 16]; R],
    ) -> [[i32; 16]; R] {
        for (sums, x) in sums.iter_mut().zip(x) {
            for (sum, key) in sums.iter_mut().zip(keys) {
                let mut dot = 0;
                for i in 0..16 {
                    dot += i32::from(key[i] as i8) * i32::from(x[i]);
                }
                *sum += dot;
            }
        }
        sums
    }

    #[inline(always)]
    fn as_floats(self, x: [i32; 16]) -> floats::F {
        let mut wide = [0.0; 16];
        for i in 0..16 {
            wide[i] = x[i] as f32;
        }
        floats::load(&wide)
    }

    #[inline(always)]
    fn signed(self, codes: &[u8; 16]) -> floats::F {
        let mut wide = [0.0; 16];
        for i in 0..16 {
            wide[i] = f32::from(codes[i] as i8);
        }
        floats::load(&wide)
    }

    #[inline(always)]
    fn low_nibbles(self, bytes: &[u8; 16]) -> floats::F {
        let mut wide = [0.0; 16];
        for i in 0..16 {
            wide[i] = f32::from(bytes[i] & 15);
        }
        floats::load(&wide)
    }

    #[inline(always)]
    fn high_nibbles(self, bytes: &[u8; 16]) -> floats::F {
        let mut wide = [0.0; 16];
        for i in 0..16 {
            wide[i] = f32::from(bytes[i] >> 4);
        }
        floats::load(&wide)
    }
}

impl Pairs for Scalar {
    type Pair = PairCodes;
    type Sums = [i32; 16];
    const TILE: usize = 1;

    #[inline(always)]
    fn pairs(self, x: &PairCodes) -> PairCodes {
        *x
    }

    #[inline(always)]
    fn pair(self, x: i32) -> PairCodes {
        [x; 16]
    }

    #[inline(always)]
    fn bits_of(self, x: floats::F) -> PairCodes {
        let mut out = [0; 16];
        for (out, x) in out.iter_mut().zip(floats::store(x)) {
            *out = x.to_bits().cast_signed();
        }
        out
    }

    #[inline(always)]
    fn no_products(self) -> [i32; 16] {
        [0; 16]
    }

    #[inline(always)]
    fn dot_pairs(self, mut sums: [i32; 16], x: PairCodes, y: PairCodes) -> [i32; 16] {
        let codes = |x: i32| [i32::from(x as i16), x >> 16];
        for i in 0..16 {
            let [x, y] = [codes(x[i]), codes(y[i])];
            let both = (x[0] * y[0]).wrapping_add(x[1] * y[1]);
            sums[i] = sums[i].wrapping_add(both);
        }
        sums
    }

    #[inline(always)]
    fn lane_totals(self, sums: [i32; 16]) -> [i32; 16] {
        sums
    }
}
