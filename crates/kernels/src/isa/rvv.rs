//! RISC-V with vectors (V 1.0), of any length from 128 bits on.
//!
//! Rust has no type for a vector whose length the machine decides, no stable intrinsics for it, and
//! no vector operands of inline assembly. So the loops that take time are blocks of assembly from
//! memory to memory ([`rows`], `fused/riscv_v`). All other operations are those of [`Scalar`].
//!
//! It refuses to know formats. The one idea: a loop takes 16 or 32 elements at a time, in as many
//! registers as these fill at 128 bits, or at 256 bits where vectors are so `LONG`. Then the same
//! code is right for every length, and never reads an element that is not there.

mod detect;
pub(crate) mod rows;

use super::scalar::Scalar;
use super::{CodeRows, Codes, Flat, Floats, KeyCodes, PairCodes, Pairs, Row};
use std::ops::Range;

pub(crate) use detect::vector_bits;

/// A block of assembly with vectors: lines, then operands, each with a comma behind it.
///
/// It changes `vl` and `vtype`, which compilers expect nothing of, and any vector register.
macro_rules! vector {
    ($($line:literal),+ $(,)?; $($operand:tt)*) => {
        std::arch::asm!(
            ".option push",
            ".option arch, +v",
            $($line,)+
            ".option pop",
            $($operand)*
            out("v0") _, out("v1") _, out("v2") _, out("v3") _,
            out("v4") _, out("v5") _, out("v6") _, out("v7") _,
            out("v8") _, out("v9") _, out("v10") _, out("v11") _,
            out("v12") _, out("v13") _, out("v14") _, out("v15") _,
            out("v16") _, out("v17") _, out("v18") _, out("v19") _,
            out("v20") _, out("v21") _, out("v22") _, out("v23") _,
            out("v24") _, out("v25") _, out("v26") _, out("v27") _,
            out("v28") _, out("v29") _, out("v30") _, out("v31") _,
            options(nostack)
        )
    };
}
pub(crate) use vector;

/// Proof of V 1.0, and of vectors of at least 256 bits if they are `LONG`.
#[derive(Clone, Copy)]
pub(crate) struct Rvv<const LONG: bool>(());

/// `vtype` of elements of 8, 16 or 32 bits (`log_bytes` 0 to 2) in `1 << log_registers` registers
/// of 128 bits, or half as many of 256. Elements behind the last one mean nothing, masked ones keep
/// what they are.
const fn vtype(long: bool, log_bytes: i32, log_registers: i32) -> i32 {
    const TAILS_MEAN_NOTHING: i32 = 1 << 6;
    TAILS_MEAN_NOTHING | log_bytes << 3 | (log_registers - long as i32) & 7
}

impl<const LONG: bool> Rvv<LONG> {
    /// 16 bytes.
    pub(crate) const BYTES_16: i32 = vtype(LONG, 0, 0);
    /// 32 bytes.
    pub(crate) const BYTES_32: i32 = vtype(LONG, 0, 1);
    /// 64 bytes.
    pub(crate) const BYTES_64: i32 = vtype(LONG, 0, 2);
    /// 16 numbers of 16 bits.
    pub(crate) const HALVES_16: i32 = vtype(LONG, 1, 1);
    /// 32 numbers of 16 bits.
    pub(crate) const HALVES_32: i32 = vtype(LONG, 1, 2);
    /// 16 numbers of 32 bits.
    pub(crate) const WORDS_16: i32 = vtype(LONG, 2, 2);
    /// 32 numbers of 32 bits.
    pub(crate) const WORDS_32: i32 = vtype(LONG, 2, 3);

    /// # Safety
    /// [`vector_bits`] must be at least 128, and at least 256 if vectors are to be `LONG`.
    pub(crate) const unsafe fn assume() -> Self {
        Self(())
    }
}

/// Methods of [`Scalar`].
macro_rules! plain {
    ($(
        fn $name:ident $(<const $n:ident: usize>)? ($($arg:ident: $ty:ty),*) $(-> $out:ty)?;
    )*) => {
        $(#[inline(always)]
        fn $name $(<const $n: usize>)? (self, $($arg: $ty),*) $(-> $out)? {
            Scalar.$name($($arg),*)
        })*
    };
}

impl<const LONG: bool> Row for Rvv<LONG> {
    type V = <Scalar as Row>::V;

    plain! {
        fn load(bytes: &[u8; 32]) -> Self::V;
        fn store(v: Self::V, bytes: &mut [u8; 32]);
        fn words_of_64(words: [u64; 4]) -> Self::V;
        fn load_pair(low: &[u8; 16], high: &[u8; 16]) -> Self::V;
        fn nibbles(bytes: &[u8; 16]) -> Self::V;
        fn bits(bits: &[u8; 4]) -> Self::V;
        fn and(v: Self::V, mask: u8) -> Self::V;
        fn xor(v: Self::V, mask: u8) -> Self::V;
        fn or(a: Self::V, b: Self::V) -> Self::V;
        fn shr(v: Self::V, n: usize) -> Self::V;
        fn shl(v: Self::V, n: usize) -> Self::V;
        fn look_up(table: &[u8; 16], v: Self::V) -> Self::V;
        fn look_up_of<const N: usize>(tables: &[[u8; 16]; N], v: Self::V) -> Self::V;
        fn digits(v: Self::V, factors: &[u8; 32]) -> Self::V;
        fn biased(codes: Self::V, signs: u32) -> Self::V;
        fn prefetch(bytes: &[u8], offset: usize);
    }
}

impl<const LONG: bool> Flat for Rvv<LONG> {
    plain! {
        fn scaled(codes: Self::V, offset: i16, scale: [i16; 2], out: &mut [i16; 32]);
        fn dot16(a: [u64; 2], b: &[i16; 16]) -> i32;
    }

    #[inline(always)]
    fn dot<const N: usize>(self, w: &[i16; N], x: &[i8; N]) -> i32 {
        self.dot_of_codes(w, x)
    }
}

impl<const LONG: bool> Floats for Rvv<LONG> {
    type F = <Scalar as Floats>::F;
    const KEYS: usize = Scalar::KEYS;
    const ROWS: usize = Scalar::ROWS;
    const VECTORS: usize = Scalar::VECTORS;

    plain! {
        fn zeros() -> Self::F;
        fn splat_all(x: f32) -> Self::F;
        fn floats(x: &[f32; 16]) -> Self::F;
        fn halves(x: &[[u8; 2]; 16]) -> Self::F;
        fn brains(x: &[[u8; 2]; 16]) -> Self::F;
        fn singles(x: &[[u8; 4]; 16]) -> Self::F;
        fn totals_of_16(x: [Self::F; 16]) -> Self::F;
        fn to_array(x: Self::F) -> [f32; 16];
        fn sum_f(x: Self::F, y: Self::F) -> Self::F;
        fn max_f(x: Self::F, y: Self::F) -> Self::F;
        fn product(x: Self::F, y: Self::F) -> Self::F;
        fn mul_add(x: Self::F, y: Self::F, z: Self::F) -> Self::F;
    }

    #[inline(always)]
    fn lanes_of_squares(self, x: &[[f32; 16]], shift: f32) -> Self::F {
        self.floats(&self.sums_of_squares(x, shift))
    }

    #[inline(always)]
    fn weigh(self, x: &mut [[f32; 16]], max: f32) -> Self::F {
        self.floats(&self.exponentials(x, max))
    }

    #[inline(always)]
    fn quantize<const N: usize>(self, x: &[f32; N], codes: &mut [i8; N]) -> f32 {
        self.codes_of(x, codes)
    }
}

impl<const LONG: bool> Codes for Rvv<LONG> {
    type N = <Scalar as Codes>::N;

    plain! {
        fn arranged(keys: &KeyCodes) -> KeyCodes;
        fn no_sums() -> Self::N;
        fn dots<const R: usize>(
            sums: [Self::N; R],
            keys: &KeyCodes,
            x: [&[i8; 16]; R]
        ) -> [Self::N; R];
        fn as_floats(x: Self::N) -> Self::F;
        fn signed(codes: &[u8; 16]) -> Self::F;
        fn low_nibbles(bytes: &[u8; 16]) -> Self::F;
        fn high_nibbles(bytes: &[u8; 16]) -> Self::F;
    }
}

impl<const LONG: bool> Pairs for Rvv<LONG> {
    type Pair = <Scalar as Pairs>::Pair;
    type Sums = <Scalar as Pairs>::Sums;
    const TILE: usize = Scalar::TILE;
    const BY_ROWS: bool = true;

    plain! {
        fn pairs(x: &PairCodes) -> Self::Pair;
        fn pair(x: i32) -> Self::Pair;
        fn bits_of(x: Self::F) -> PairCodes;
        fn no_products() -> Self::Sums;
        fn dot_pairs(sums: Self::Sums, x: Self::Pair, y: Self::Pair) -> Self::Sums;
        fn lane_totals(sums: Self::Sums) -> Self::N;
    }

    #[inline(always)]
    fn dot_row(self, row: &[[u8; 2]], x: &[i32]) -> i32 {
        self.dot_of_row(row, x)
    }

    #[inline(always)]
    fn add_rows(
        self,
        rows: CodeRows<'_>,
        weights: &[i32],
        positions: Range<usize>,
        sums: &mut [f32],
    ) {
        self.add_weighted(rows, weights, positions, sums);
    }
}

/// The token for any vectors, if this CPU has them.
#[cfg(test)]
pub(crate) fn any() -> Option<Rvv<false>> {
    // SAFETY: they have so many bits.
    (vector_bits() >= 128).then(|| unsafe { Rvv::assume() })
}

/// The token for vectors of at least 256 bits, if this CPU has them.
#[cfg(test)]
pub(crate) fn long() -> Option<Rvv<true>> {
    // SAFETY: they have so many bits.
    (vector_bits() >= 256).then(|| unsafe { Rvv::assume() })
}
