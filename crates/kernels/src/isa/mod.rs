//! Instruction sets: zero-sized tokens with the few operations that decoders and dot products need.
//!
//! A token is only handed out after its CPU features were detected, so its methods are safe to
//! call. They are `#[inline(always)]` and must be reached from a function of `table.rs` with the
//! matching `#[target_feature]`.
//!
//! - [`Row`]: 32 codes of one row of weights in the plain GGUF layout; what decoders are written
//!   in.
//! - [`Flat`]: integer dot products of arrays, for machines without known vectors.
//! - [`Wide`]: dot products of one activation row with several weight rows; memory-bound decoding.
//! - [`Lanes`]: one 32-bit lane per weight row, for many activation rows at once; compute-bound
//!   prefill.
//! - [`Words`]: the same for rows that are unpacked together.
//! - [`Floats`]: 16 floats, the lanes of `algo/lanes.rs`.
//! - [`Codes`]: the codes of quantized keys and values, sixteen at a time.
//!
//! What compilers vectorise by themselves (elementwise loops) is not here: rope, softmax and the
//! quantizer are ordinary Rust, compiled once per instruction set. `rvv.rs`, whose vectors no
//! compiler may use, replaces those of [`Floats`] that take time.

use crate::algo::math::exp_weight;
use crate::algo::quantize;
use atta_formats::layout::{even_signs, spread_sevens};
#[cfg(target_arch = "riscv64")]
use std::ops::Range;

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(crate) mod amx;
#[cfg(all(target_arch = "arm", target_os = "linux"))]
pub(crate) mod armv7;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
pub(crate) mod avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) mod dotprod;
#[cfg(target_arch = "aarch64")]
pub(crate) mod i8mm;
#[cfg(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    all(target_family = "wasm", target_feature = "simd128")
))]
pub(crate) mod memory;
#[cfg(target_arch = "aarch64")]
pub(crate) mod mull;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
#[cfg(target_arch = "riscv64")]
pub(crate) mod rvv;
pub(crate) mod scalar;
pub(crate) mod states;
#[cfg(all(target_family = "wasm", target_feature = "simd128"))]
pub(crate) mod wasm;
#[cfg(all(target_family = "wasm", target_feature = "relaxed-simd"))]
mod wasm_relaxed;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
mod words_256;

/// Added to codes from −62 to 62 to make them unsigned; byte products of pairs of them cannot
/// saturate.
pub(crate) const CODE_BIAS: u8 = 64;

/// Operations on 32 weight codes of one row.
pub(crate) trait Row: Copy + Send + Sync + 'static {
    /// 32 bytes.
    type V: Copy;
    /// Whether float weights, keys and values that come next are asked for.
    const ASKS: bool = false;

    fn load(self, bytes: &[u8; 32]) -> Self::V;
    fn store(self, v: Self::V, bytes: &mut [u8; 32]);
    /// One word behind the other.
    fn words_of_64(self, words: [u64; 4]) -> Self::V;
    /// One word behind the other.
    #[inline(always)]
    fn words_of_32(self, words: [u32; 8]) -> Self::V {
        let word = |i: usize| u64::from(words[2 * i]) | u64::from(words[2 * i + 1]) << 32;
        self.words_of_64([word(0), word(1), word(2), word(3)])
    }
    /// `low` in bytes 0 to 15, `high` in bytes 16 to 31.
    fn load_pair(self, low: &[u8; 16], high: &[u8; 16]) -> Self::V;
    /// Low nibbles of `bytes` in bytes 0 to 15, high nibbles in bytes 16 to 31.
    fn nibbles(self, bytes: &[u8; 16]) -> Self::V;
    /// Bit i of `bits` as byte i, 0 or 1.
    fn bits(self, bits: &[u8; 4]) -> Self::V;
    fn and(self, v: Self::V, mask: u8) -> Self::V;
    fn xor(self, v: Self::V, mask: u8) -> Self::V;
    fn or(self, a: Self::V, b: Self::V) -> Self::V;
    /// Logical shift right of each byte. `n < 8` is a constant once inlined.
    fn shr(self, v: Self::V, n: usize) -> Self::V;
    /// Shift left of each byte. `n < 8` is a constant once inlined.
    fn shl(self, v: Self::V, n: usize) -> Self::V;
    /// `table[i]` for each byte i of `v`, at most 15.
    fn look_up(self, table: &[u8; 16], v: Self::V) -> Self::V;
    /// `tables[i / 16][i % 16]` for each byte i of `v`, less than 16·N.
    fn look_up_of<const N: usize>(self, tables: &[[u8; 16]; N], v: Self::V) -> Self::V;
    /// `word` shifted right by 0, `step`, 2·`step` and 3·`step` bits, one behind the other. `step`
    /// is a constant once inlined.
    #[inline(always)]
    fn spread(self, word: u64, step: usize) -> Self::V {
        self.words_of_64([word, word >> step, word >> (2 * step), word >> (3 * step)])
    }
    /// The carry of three times each byte, after it was multiplied by its factor modulo 256.
    fn digits(self, v: Self::V, factors: &[u8; 32]) -> Self::V;
    /// [`CODE_BIAS`] + code, or [`CODE_BIAS`] − code where a bit of `signs` is set. Codes are at
    /// most 62.
    fn biased(self, codes: Self::V, signs: u32) -> Self::V;
    /// [`even_signs`] of each word, or, if they are `PACKED`, of what [`spread_sevens`] makes of
    /// it.
    #[inline(always)]
    fn even_signs<const PACKED: bool>(self, words: [u32; 8]) -> [u32; 8] {
        even_signs_of::<PACKED>(words)
    }
    /// Asks for the cache line `offset` bytes after the start of `bytes`, which need not exist.
    fn prefetch(self, bytes: &[u8], offset: usize);
}

/// [`Row::even_signs`] for all instruction sets; a call where programs must stay small.
#[cfg_attr(feature = "avx512", inline(always))]
#[cfg_attr(not(feature = "avx512"), inline(never))]
fn even_signs_of<const PACKED: bool>(mut words: [u32; 8]) -> [u32; 8] {
    for word in &mut words {
        *word = even_signs(if PACKED { spread_sevens(*word) } else { *word });
    }
    words
}

/// Integer dot products of arrays.
pub(crate) trait Flat: Row {
    /// `(code − offset)·scale` of each code, `scale[0]` for the first 16 and `scale[1]` for the
    /// rest. The caller guarantees that the products fit i16.
    fn scaled(self, codes: Self::V, offset: i16, scale: [i16; 2], out: &mut [i16; 32]);
    /// `Σ w·x`. The caller guarantees that the sum fits i32.
    fn dot<const N: usize>(self, w: &[i16; N], x: &[i8; N]) -> i32;
    /// `Σ a·b`, the bytes of `a` signed. The caller guarantees that the sum fits i32.
    fn dot16(self, a: [u64; 2], b: &[i16; 16]) -> i32;
}

/// Dot products with the codes of one activation row, summed across lanes only when eight of them
/// are done.
pub(crate) trait Wide: Row {
    /// Partial sums, i32; their number and order are the instruction set's own business.
    type A: Copy;
    /// The 16 scales of a block.
    type S: Copy;
    /// 8 f32.
    type F8: Copy;
    /// Whether codes that are not at most 127 are multiplied as signed bytes.
    const SIGNED: bool = false;

    /// Sums whose total is `total`.
    fn start(self, total: i32) -> Self::A;
    /// Scales of 16 weights each.
    fn scales_of_16(self, scales: [u64; 2]) -> Self::S;
    /// Scales of 32 weights each.
    fn scales_of_32(self, scales: u64) -> Self::S;
    /// `acc + Σ scale·code·x` of the group `g` of 32 weights. Codes are at most 127.
    fn dot_scaled(
        self,
        acc: Self::A,
        codes: Self::V,
        x: &[i8; 32],
        scales: Self::S,
        g: usize,
    ) -> Self::A;
    /// Codes less `offset` if they are wanted [signed](Self::SIGNED), else as they are.
    #[inline(always)]
    fn any_codes(self, codes: Self::V, _offset: i16) -> Self::V {
        codes
    }
    /// As [`Self::dot_scaled`] for any codes, by way of [`Self::any_codes`]; no `x` is −128.
    fn dot_scaled_bytes(
        self,
        acc: Self::A,
        codes: Self::V,
        x: &[i8; 32],
        scales: Self::S,
        g: usize,
    ) -> Self::A;
    /// `acc + Σ code·x`. Codes are at most 127.
    fn dot_codes(self, acc: Self::A, codes: Self::V, x: &[i8; 32]) -> Self::A;
    /// `acc + Σ code·x` of any codes, by way of [`Self::any_codes`]; no `x` is −128.
    fn dot_bytes(self, acc: Self::A, codes: Self::V, x: &[i8; 32]) -> Self::A;
    /// `factor·Σ a·b`, the bytes of `a` signed.
    fn dot_sums(self, a: [u64; 2], b: &[i16; 16], factor: i32) -> Self::A;
    /// The totals of eight sums.
    fn totals(self, sums: [Self::A; 8]) -> Self::F8;

    fn store8(self, x: Self::F8, out: &mut [f32; 8]);
    /// Widens eight f16.
    fn widen8(self, bits: &[u16; 8]) -> Self::F8;
    /// [`half_power`](atta_formats::layout::half_power) of eight exponents.
    fn powers8(self, exponents: &[u16; 8]) -> Self::F8;
    fn mul8(self, x: Self::F8, y: Self::F8) -> Self::F8;
    fn add8(self, x: Self::F8, y: Self::F8) -> Self::F8;
    fn splat8(self, x: f32) -> Self::F8;
    /// Elements 0 to 3 less elements 4 to 7, in elements 0 to 3; the others mean nothing.
    fn low_minus_high(self, x: Self::F8) -> Self::F8;
}

/// Operations with one 32-bit lane for each of [`Self::LANES`] weight rows.
pub(crate) trait Lanes: Row {
    /// 16, 8 or 4.
    const LANES: usize;
    /// Four bytes in each lane.
    type W: Copy;
    /// An i32 in each lane.
    type N: Copy;
    /// An f32 in each lane.
    type L: Copy;
    /// Sums of products: [`Self::N`], or i16 where products are added in 16 bits.
    type P: Copy;
    /// Whether it is the latter: sums of the first two and of the last two products of each word
    /// must fit an i16, up to which they wrap around.
    const PAIRS: bool;
    /// Whether any codes are signed, because [`Self::any_codes`] subtracted their offset.
    const SIGNED_CODES: bool = Self::PAIRS;
    /// Codes biased by more than this are multiplied as any bytes. Pairs of products of 126 and 127
    /// leave no room for a third in an i16, those of codes that are lowered first do.
    const ANY_ABOVE: i16 = if Self::PAIRS { 32 } else { 64 };

    /// Transposes bytes 16·c to 16·c + 15 of the first `LANES` rows: word i of the row of each lane
    /// in vector i.
    fn columns<const B: usize>(self, rows: &[[u8; B]; 16], c: usize) -> [Self::W; 4];
    /// The same four bytes in each lane.
    fn splat4(self, bytes: &[i8; 4]) -> Self::W;
    /// `w`, hidden from the compiler: keeps it from taking a measurement's
    /// work out of its loop.
    fn opaque(self, w: Self::W) -> Self::W;
    fn splat(self, x: i32) -> Self::N;
    /// Signed byte `j` of each lane, as [`Self::widen_add_scaled`] wants it.
    fn scale(self, w: Self::W, j: usize) -> Self::N;
    /// `acc + Σ w·x` in each lane; `w` unsigned and at most 127, `x` signed.
    fn dot4(self, acc: Self::P, w: Self::W, x: Self::W) -> Self::P;
    /// As [`Self::dot4`] for any bytes, which [`Self::any_codes`] made of codes; no `x` is −128.
    fn dot4_bytes(self, acc: Self::P, w: Self::W, x: Self::W) -> Self::P;
    /// Unsigned codes as [`Self::dot4_bytes`] wants them: less `offset` if they are to be
    /// [signed](Self::SIGNED_CODES).
    #[inline(always)]
    fn any_codes(self, w: Self::W, _offset: i16) -> Self::W {
        w
    }
    /// `n` as what products are added to: `n = number + Σ products`.
    fn widen_start(self, n: Self::N) -> (Self::N, Self::P);
    /// `−offset·Σ x` of a word or more, by the sum of `x`, and those of the first two and the last
    /// two of each word.
    fn offset_correction(self, offset: i16, sum: i16, halves: [i16; 2]) -> Self::P;
    /// `n + Σ p`.
    fn widen_add(self, n: Self::N, p: Self::P) -> Self::N;
    /// `n + scale·Σ p`.
    fn widen_add_scaled(self, n: Self::N, p: Self::P, scale: Self::N) -> Self::N;
    /// For [`products_of_four`].
    #[cfg(not(target_arch = "aarch64"))]
    fn add(self, x: Self::N, y: Self::N) -> Self::N;
    /// `x·256`.
    fn times_256(self, x: Self::N) -> Self::N;
    fn to_floats(self, x: Self::N) -> Self::L;
    /// The f16 of the first `LANES` of `bits`.
    fn widen_lanes(self, bits: &[u16; 16]) -> Self::L;
    /// [`half_power`](atta_formats::layout::half_power) of the first `LANES` exponents.
    fn power_lanes(self, exponents: &[u16; 16]) -> Self::L;
    fn splat_float(self, x: f32) -> Self::L;
    fn mul_lanes(self, x: Self::L, y: Self::L) -> Self::L;
    fn add_lanes(self, x: Self::L, y: Self::L) -> Self::L;
    fn sub_lanes(self, x: Self::L, y: Self::L) -> Self::L;
    /// `x` is `[LANES]`.
    fn load_from(self, x: &[f32]) -> Self::L;
    /// `out` is `[LANES]`.
    fn store_to(self, x: Self::L, out: &mut [f32]);
}

/// [`Lanes::P`] where four products are added to an i32 at once.
#[cfg(any(
    target_arch = "x86_64",
    all(target_family = "wasm", target_feature = "simd128")
))]
macro_rules! products_of_four {
    () => {
        type P = Self::N;
        const PAIRS: bool = false;

        #[inline(always)]
        fn widen_start(self, n: Self::N) -> (Self::N, Self::N) {
            (self.splat(0), n)
        }

        #[inline(always)]
        fn offset_correction(self, offset: i16, sum: i16, _: [i16; 2]) -> Self::N {
            self.splat(-i32::from(offset) * i32::from(sum))
        }

        #[inline(always)]
        fn widen_add(self, n: Self::N, p: Self::N) -> Self::N {
            self.add(n, p)
        }
    };
}
#[cfg(any(
    target_arch = "x86_64",
    all(target_family = "wasm", target_feature = "simd128")
))]
pub(crate) use products_of_four;

/// What formats are unpacked with whose blocks are transposed as they lie in memory.
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
pub(crate) trait Words: Lanes {
    /// Transposes 16 bytes of each of `LANES` rows: word i of the row of each lane in vector i.
    fn transpose_words(self, rows: &[&[u8; 16]; 16]) -> [Self::W; 4];
    /// Of each lane shifted down by `down` bits, or up where that is less than zero, the bits of
    /// `mask` in each byte.
    fn field(self, w: Self::W, down: i32, mask: u8) -> Self::W;
    /// The bits of both.
    fn join(self, v: Self::W, w: Self::W) -> Self::W;
    /// Each byte with the bits of `mask` turned over.
    fn flip(self, w: Self::W, mask: u8) -> Self::W;
    /// The f16 in the lower or the upper half of each lane.
    fn half(self, w: Self::W, upper: bool) -> Self::L;
}

/// Operations on 16 floats, one for each lane of `algo/lanes.rs`. Left to itself, the compiler
/// makes pairs of them, because it starts from the tree that adds the lanes.
pub(crate) trait Floats: Copy + Send + Sync + 'static {
    /// 16 f32.
    type F: Copy;
    /// Keys whose sums for two heads fit the registers; divides 8.
    const KEYS: usize;
    /// Heads whose sums of a vector fit the registers: 4 or 2.
    const ROWS: usize;
    /// Vectors whose sums fit the registers for `ROWS` heads: 4, or else 1.
    const VECTORS: usize;

    fn zeros(self) -> Self::F;
    fn splat_all(self, x: f32) -> Self::F;
    fn floats(self, x: &[f32; 16]) -> Self::F;
    /// Widens 16 little-endian f16, exactly.
    fn halves(self, x: &[[u8; 2]; 16]) -> Self::F;
    /// Widens 16 little-endian bfloat16, exactly.
    fn brains(self, x: &[[u8; 2]; 16]) -> Self::F;
    /// 16 little-endian f32.
    fn singles(self, x: &[[u8; 4]; 16]) -> Self::F;
    fn to_array(self, x: Self::F) -> [f32; 16];
    /// The sum of the lanes of each vector, in the order of `lanes::total`.
    fn totals_of_16(self, x: [Self::F; 16]) -> Self::F;
    /// Element j of each of sixteen vectors in vector j.
    #[inline(always)]
    fn transposed(self, x: [Self::F; 16]) -> [Self::F; 16] {
        let mut columns = [[0.0; 16]; 16];
        for i in 0..16 {
            let row = self.to_array(x[i]);
            for j in 0..16 {
                columns[j][i] = row[j];
            }
        }
        let mut out = x;
        for j in 0..16 {
            out[j] = self.floats(&columns[j]);
        }
        out
    }
    fn sum_f(self, x: Self::F, y: Self::F) -> Self::F;
    /// `x` where `x > y`, elsewhere `y`.
    fn max_f(self, x: Self::F, y: Self::F) -> Self::F;
    /// The product is rounded before anything is added to it.
    fn product(self, x: Self::F, y: Self::F) -> Self::F;
    /// `x·y + z`, rounded once or twice as the machine likes; for float weights only.
    fn mul_add(self, x: Self::F, y: Self::F, z: Self::F) -> Self::F;
    /// The lanes of `Σ (x + shift)²`.
    #[inline(always)]
    fn lanes_of_squares(self, x: &[[f32; 16]], shift: f32) -> Self::F {
        let mut lanes = self.zeros();
        let shift = self.splat_all(shift);
        for x in x {
            let x = self.sum_f(self.floats(x), shift);
            lanes = self.sum_f(lanes, self.product(x, x));
        }
        lanes
    }
    /// `x = e^(x − max)` by [`exp_weight`]; the lanes of `Σ x`.
    #[inline(always)]
    fn weigh(self, x: &mut [[f32; 16]], max: f32) -> Self::F {
        let mut lanes = self.zeros();
        for vector in x {
            for x in &mut *vector {
                *x = exp_weight(*x - max);
            }
            lanes = self.sum_f(lanes, self.floats(vector));
        }
        lanes
    }
    /// Codes of `x` and their scale ([`quantize::quantize`]).
    #[inline(always)]
    fn quantize<const N: usize>(self, x: &[f32; N], codes: &mut [i8; N]) -> f32 {
        quantize::quantize(x, codes)
    }
}

/// Sixteen codes of each of sixteen keys, in the order that the instruction set likes.
pub(crate) type KeyCodes = [[u8; 16]; 16];

/// Operations on the codes of quantized keys and values.
pub(crate) trait Codes: Row + Floats {
    /// 16 i32, one for each key.
    type N: Copy;

    /// Puts the codes of the keys, rows of sixteen, into the order in which products read them.
    fn arranged(self, keys: &KeyCodes) -> KeyCodes;
    fn no_sums(self) -> Self::N;
    /// `sums + Σ code·x` of `R` rows `x`; all signed, and no code is −128.
    fn dots<const R: usize>(
        self,
        sums: [Self::N; R],
        keys: &KeyCodes,
        x: [&[i8; 16]; R],
    ) -> [Self::N; R];
    /// As [`Self::dots`] for codes from 0 to 15.
    #[inline(always)]
    fn dots_of_nibbles<const R: usize>(
        self,
        sums: [Self::N; R],
        keys: &KeyCodes,
        x: [&[i8; 16]; R],
    ) -> [Self::N; R] {
        self.dots(sums, keys, x)
    }
    fn as_floats(self, x: Self::N) -> Self::F;
    /// Signed bytes as floats.
    fn signed(self, codes: &[u8; 16]) -> Self::F;
    /// Low nibbles as floats.
    fn low_nibbles(self, bytes: &[u8; 16]) -> Self::F;
    /// High nibbles as floats.
    fn high_nibbles(self, bytes: &[u8; 16]) -> Self::F;
}

/// Sixteen pairs of 16-bit codes, the first of each in the lower half of a word.
pub(crate) type PairCodes = [i32; 16];

/// Products of 16-bit codes, which are added in 32 bits. Sums wrap around; no code is −32768.
pub(crate) trait Pairs: Codes {
    /// Sixteen pairs of codes.
    type Pair: Copy;
    /// Sums of products for sixteen lanes, some for each lane.
    type Sums: Copy;
    /// Vectors of sixteen lanes whose sums fit the registers for four heads; divides 4.
    const TILE: usize;

    fn pairs(self, x: &PairCodes) -> Self::Pair;
    /// The same pair in each lane.
    fn pair(self, x: i32) -> Self::Pair;
    /// The bits of floats, which may have been loaded as such to be transposed.
    fn bits_of(self, x: Self::F) -> PairCodes;
    fn no_products(self) -> Self::Sums;
    /// `sums + x₀·y₀ + x₁·y₁` in each lane.
    fn dot_pairs(self, sums: Self::Sums, x: Self::Pair, y: Self::Pair) -> Self::Sums;
    /// The total of each lane.
    fn lane_totals(self, sums: Self::Sums) -> Self::N;
    /// Whether rows of codes are multiplied as they lie in memory, by the next two.
    #[cfg(target_arch = "riscv64")]
    const BY_ROWS: bool = false;
    /// `Σ row·x`; `x` are pairs.
    #[cfg(target_arch = "riscv64")]
    fn dot_row(self, _row: &[[u8; 2]], _x: &[i32]) -> i32 {
        unreachable!("rows are transposed")
    }
    /// `sums += Σ weight·row`, the sum in integers. `weights` are pairs, and those at `positions`
    /// belong to the rows.
    #[cfg(target_arch = "riscv64")]
    fn add_rows(
        self,
        _rows: CodeRows<'_>,
        _weights: &[i32],
        _positions: Range<usize>,
        _sums: &mut [f32],
    ) {
        unreachable!("rows are interleaved")
    }
    /// `Σ x₀·y₀ + x₁·y₁` over the pairs of `R` rows `y`, for `B` vectors of lanes: at pair i those
    /// are `x[b][i][at[b]]`.
    #[inline(always)]
    fn sums_of_pairs<const R: usize, const B: usize, const S: usize>(
        self,
        x: [&[[PairCodes; S]]; B],
        at: [usize; B],
        y: [&[i32]; R],
    ) -> [[Self::Sums; B]; R] {
        let n = y[0].len();
        let mut rows = y;
        for r in 0..R {
            rows[r] = &y[r][..n];
        }
        let mut columns = x;
        for b in 0..B {
            columns[b] = &x[b][..n];
        }
        let mut sums = [[self.no_products(); B]; R];
        for i in 0..n {
            let mut vectors = [self.pair(0); B];
            for b in 0..B {
                vectors[b] = self.pairs(&columns[b][i][at[b]]);
            }
            for r in 0..R {
                let y = self.pair(rows[r][i]);
                for b in 0..B {
                    sums[r][b] = self.dot_pairs(sums[r][b], y, vectors[b]);
                }
            }
        }
        sums
    }
}

/// Rows of 16-bit codes, little-endian.
#[cfg(target_arch = "riscv64")]
#[derive(Clone, Copy)]
pub(crate) struct CodeRows<'a> {
    /// From the first wanted code of the first row on.
    pub(crate) bytes: &'a [u8],
    /// Bytes from a row to the next.
    pub(crate) row_bytes: usize,
}
