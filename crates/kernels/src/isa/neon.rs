//! 128-bit ARM: NEON, which every 64-bit ARM has.
//!
//! The instruction sets of ARM differ in one thing only, how bytes are multiplied. So [`Neon`] is
//! written once over [`Dot`]: `mull.rs` multiplies and adds in 16 bits, `dotprod.rs` and `i8mm.rs`
//! have instructions for the whole product. Two registers hold 32 codes; 4 weight rows make a
//! vector of the panel.

#[cfg(feature = "avx512")]
use super::Words;
use super::memory::{load, load_at, store};
use super::{CODE_BIAS, Codes, Floats, KeyCodes, Lanes, PairCodes, Pairs, Row, Wide};
use std::arch::aarch64::*;
use std::arch::asm;

/// Methods whose bodies are intrinsics of features that the token proves.
macro_rules! proven {
    ($(
        $(#[$doc:meta])*
        fn $name:ident $(<const $n:ident: usize>)? ($self:ident $(, $arg:ident: $ty:ty)*)
        $(-> $out:ty)? { $($body:tt)* }
    )*) => {
        $($(#[$doc])*
        #[inline(always)]
        fn $name $(<const $n: usize>)? ($self $(, $arg: $ty)*) $(-> $out)? {
            // SAFETY: the token proves the features of intrinsics; none of them takes a pointer.
            unsafe { $($body)* }
        })*
    };
}
pub(crate) use proven;

/// Products of bytes; a token that proves the instructions for them, and NEON. Codes are at most
/// 127, or any bytes by way of [`Wide::any_codes`] and [`Lanes::any_codes`]; no `x` is −128.
pub(crate) trait Dot: Copy + Send + Sync + 'static {
    /// [`Lanes::P`].
    type P: Copy;
    /// [`Lanes::PAIRS`].
    const PAIRS: bool;
    /// Whether bytes of codes are signed.
    const SIGNED: bool;
    /// Sums of the products of a group of codes.
    type G: Copy;
    /// The 16 scales of a block.
    type S: Copy;

    /// `acc + Σ w·x` of the four bytes of each lane, both signed and `w` not −128.
    fn dot_signed(self, acc: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t;
    /// `Σ w·x`, both signed and `w` at most 63 in magnitude: of the first eight bytes of all
    /// vectors in lanes 0 and 1, of the others in lanes 2 and 3.
    fn dot_halves(self, w: [int8x16_t; 4], x: &[int8x16_t; 4]) -> int32x4_t;
    /// Adds `Σ code·x` to the sum of the lanes.
    fn dot(self, acc: int32x4_t, codes: uint8x16_t, x: int8x16_t) -> int32x4_t;
    /// Adds `scale·Σ code·x` to the sum of the lanes; `scale` from −128 to 127.
    fn dot_scaled(self, acc: int32x4_t, codes: uint8x16_t, x: int8x16_t, scale: i32) -> int32x4_t;
    /// Scales of the groups of a block, from bytes.
    fn group_scales(self, scales: [u64; 2]) -> Self::S;
    /// `Σ code·x` of a group of 16 codes, at most 63.
    fn group_of_16(self, codes: uint8x16_t, x: int8x16_t) -> Self::G;
    /// `Σ code·x` of a group of 32 codes, at most 31.
    fn group_of_32(self, codes: [uint8x16_t; 2], x: [int8x16_t; 2]) -> Self::G;
    /// `acc` and the groups 2·`pair` and 2·`pair` + 1, times their scales. `pair` is a constant
    /// once inlined.
    fn add_groups(
        self,
        acc: int32x4_t,
        groups: [Self::G; 2],
        scales: Self::S,
        pair: usize,
    ) -> int32x4_t;
    /// The totals of four groups of 32.
    fn group_totals(self, groups: [Self::G; 4]) -> int32x4_t;
    /// `Σ w·x` of 32 signed bytes, in four parts.
    fn dot_32(self, w: [uint8x16_t; 2], x: [int8x16_t; 2]) -> int32x4_t;

    /// [`Lanes::dot4`].
    fn products(self, acc: Self::P, codes: uint8x16_t, x: int8x16_t) -> Self::P;
    /// [`Lanes::widen_start`].
    fn widen_start(self, n: int32x4_t) -> (int32x4_t, Self::P);
    /// [`Lanes::widen_add`].
    fn widen_add(self, n: int32x4_t, p: Self::P) -> int32x4_t;
    /// [`Lanes::widen_add_scaled`].
    fn widen_add_scaled(self, n: int32x4_t, p: Self::P, scale: int32x4_t) -> int32x4_t;
}

/// Number `i` of `x` in all lanes. `i` is a constant once inlined.
///
/// # Safety
/// The CPU must have NEON.
#[inline(always)]
pub(crate) unsafe fn splat_lane(x: int32x4_t, i: usize) -> int32x4_t {
    // SAFETY: the caller's obligation.
    unsafe {
        match i {
            0 => vdupq_laneq_s32::<0>(x),
            1 => vdupq_laneq_s32::<1>(x),
            2 => vdupq_laneq_s32::<2>(x),
            _ => vdupq_laneq_s32::<3>(x),
        }
    }
}

/// NEON with the byte products of `D`.
#[derive(Clone, Copy)]
pub(crate) struct Neon<D>(pub(crate) D);

/// Bit k % 8 in byte k.
const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

impl<D: Dot> Row for Neon<D> {
    type V = [uint8x16_t; 2];

    #[inline(always)]
    fn load(self, bytes: &[u8; 32]) -> [uint8x16_t; 2] {
        load(bytes)
    }

    #[inline(always)]
    fn store(self, v: [uint8x16_t; 2], bytes: &mut [u8; 32]) {
        store(v, bytes);
    }

    #[inline(always)]
    fn load_pair(self, low: &[u8; 16], high: &[u8; 16]) -> [uint8x16_t; 2] {
        [load(low), load(high)]
    }

    #[inline(always)]
    fn prefetch(self, bytes: &[u8], offset: usize) {
        let at = bytes.as_ptr().wrapping_add(offset);
        // SAFETY: a hint, which may name any address.
        unsafe {
            asm!("prfm pldl1keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags))
        }
    }

    proven! {
        fn words_of_64(self, words: [u64; 4]) -> [uint8x16_t; 2] {
            let pair = |low, high| vcombine_u8(vcreate_u8(low), vcreate_u8(high));
            [pair(words[0], words[1]), pair(words[2], words[3])]
        }
        fn nibbles(self, bytes: &[u8; 16]) -> [uint8x16_t; 2] {
            let v = load(bytes);
            [vandq_u8(v, vdupq_n_u8(15)), vshrq_n_u8::<4>(v)]
        }
        fn bits(self, bits: &[u8; 4]) -> [uint8x16_t; 2] {
            let (bit, one) = (load(&BITS), vdupq_n_u8(1));
            let half = |low, high| vandq_u8(vtstq_u8(vcombine_u8(vdup_n_u8(low), vdup_n_u8(high)), bit), one);
            [half(bits[0], bits[1]), half(bits[2], bits[3])]
        }
        fn and(self, v: [uint8x16_t; 2], mask: u8) -> [uint8x16_t; 2] {
            let mask = vdupq_n_u8(mask);
            [vandq_u8(v[0], mask), vandq_u8(v[1], mask)]
        }
        fn xor(self, v: [uint8x16_t; 2], mask: u8) -> [uint8x16_t; 2] {
            let mask = vdupq_n_u8(mask);
            [veorq_u8(v[0], mask), veorq_u8(v[1], mask)]
        }
        fn or(self, a: [uint8x16_t; 2], b: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
            [vorrq_u8(a[0], b[0]), vorrq_u8(a[1], b[1])]
        }
        fn shr(self, v: [uint8x16_t; 2], n: usize) -> [uint8x16_t; 2] {
            let n = vdupq_n_s8(-(n as i8));
            [vshlq_u8(v[0], n), vshlq_u8(v[1], n)]
        }
        fn shl(self, v: [uint8x16_t; 2], n: usize) -> [uint8x16_t; 2] {
            let n = vdupq_n_s8(n as i8);
            [vshlq_u8(v[0], n), vshlq_u8(v[1], n)]
        }
        fn look_up(self, table: &[u8; 16], v: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
            let table = load(table);
            [vqtbl1q_u8(table, v[0]), vqtbl1q_u8(table, v[1])]
        }
        fn look_up_of<const N: usize>(
            self,
            tables: &[[u8; 16]; N],
            v: [uint8x16_t; 2]
        ) -> [uint8x16_t; 2] {
            let table = |i: usize| load(&tables[i % N]);
            match N {
                1 => [vqtbl1q_u8(table(0), v[0]), vqtbl1q_u8(table(0), v[1])],
                2 => {
                    let two = uint8x16x2_t(table(0), table(1));
                    [vqtbl2q_u8(two, v[0]), vqtbl2q_u8(two, v[1])]
                }
                _ => {
                    const { assert!(N == 1 || N == 2 || N == 4) };
                    let four = uint8x16x4_t(table(0), table(1), table(2), table(3));
                    [vqtbl4q_u8(four, v[0]), vqtbl4q_u8(four, v[1])]
                }
            }
        }
        fn spread(self, word: u64, step: usize) -> [uint8x16_t; 2] {
            let word = vdupq_n_u64(word);
            let left = |n: usize| vcreate_s64(-((n * step) as i64) as u64);
            let lefts = |n: usize| vcombine_s64(left(n), left(n + 1));
            let half = |n: usize| vreinterpretq_u8_u64(vshlq_u64(word, lefts(n)));
            [half(0), half(2)]
        }
        fn digits(self, v: [uint8x16_t; 2], factors: &[u8; 32]) -> [uint8x16_t; 2] {
            let factors = self.load(factors);
            // Three times 86 is more than 256, three times 171 more than twice that; a comparison
            // gives −1.
            let digit = |rest| {
                let once = vcgeq_u8(rest, vdupq_n_u8(86));
                vsubq_u8(vsubq_u8(vdupq_n_u8(0), once), vcgeq_u8(rest, vdupq_n_u8(171)))
            };
            [digit(vmulq_u8(v[0], factors[0])), digit(vmulq_u8(v[1], factors[1]))]
        }
        fn biased(self, codes: [uint8x16_t; 2], signs: u32) -> [uint8x16_t; 2] {
            let (bit, signs, offset) = (load(&BITS), signs.to_le_bytes(), vdupq_n_u8(CODE_BIAS));
            let half = |codes, low, high| {
                let minus = vtstq_u8(vcombine_u8(vdup_n_u8(low), vdup_n_u8(high)), bit);
                vbslq_u8(minus, vsubq_u8(offset, codes), vaddq_u8(offset, codes))
            };
            [half(codes[0], signs[0], signs[1]), half(codes[1], signs[2], signs[3])]
        }
    }
}

impl<D: Dot> Wide for Neon<D> {
    type A = int32x4_t;
    /// Of each 16 weights, in memory: products take a scale from a general register or with the
    /// load.
    type S = [i32; 16];
    type F8 = [float32x4_t; 2];
    const SIGNED: bool = D::SIGNED;

    #[inline(always)]
    fn dot_scaled(
        self,
        acc: int32x4_t,
        codes: [uint8x16_t; 2],
        x: &[i8; 32],
        scales: [i32; 16],
        g: usize,
    ) -> int32x4_t {
        let [first, second] = load(x);
        let acc = self.0.dot_scaled(acc, codes[0], first, scales[2 * g]);
        self.0.dot_scaled(acc, codes[1], second, scales[2 * g + 1])
    }

    #[inline(always)]
    fn dot_scaled_bytes(
        self,
        acc: int32x4_t,
        codes: [uint8x16_t; 2],
        x: &[i8; 32],
        scales: [i32; 16],
        g: usize,
    ) -> int32x4_t {
        self.dot_scaled(acc, codes, x, scales, g)
    }

    #[inline(always)]
    fn dot_codes(self, acc: int32x4_t, codes: [uint8x16_t; 2], x: &[i8; 32]) -> int32x4_t {
        let [first, second] = load(x);
        self.0
            .dot(self.0.dot(acc, codes[0], first), codes[1], second)
    }

    #[inline(always)]
    fn dot_bytes(self, acc: int32x4_t, codes: [uint8x16_t; 2], x: &[i8; 32]) -> int32x4_t {
        self.dot_codes(acc, codes, x)
    }

    #[inline(always)]
    fn store8(self, x: [float32x4_t; 2], out: &mut [f32; 8]) {
        store(x, out);
    }

    proven! {
        fn start(self, total: i32) -> int32x4_t { vsetq_lane_s32::<0>(total, vdupq_n_s32(0)) }
        fn scales_of_16(self, scales: [u64; 2]) -> [i32; 16] { widen_bytes(scales.map(|scales| vcreate_s8(scales))) }
        fn scales_of_32(self, scales: u64) -> [i32; 16] {
            let scales = vcreate_s8(scales);
            widen_bytes([vzip1_s8(scales, scales), vzip2_s8(scales, scales)])
        }
        fn any_codes(self, codes: [uint8x16_t; 2], offset: i16) -> [uint8x16_t; 2] {
            if !D::SIGNED {
                return codes;
            }
            let offset = vdupq_n_u8(offset as u8);
            [vsubq_u8(codes[0], offset), vsubq_u8(codes[1], offset)]
        }
        fn dot_sums(self, a: [u64; 2], b: &[i16; 16], factor: i32) -> int32x4_t {
            let a = [vmovl_s8(vcreate_s8(a[0])), vmovl_s8(vcreate_s8(a[1]))];
            let b: [int16x8_t; 2] = load(b);
            let sums = vmlal_high_s16(vmull_s16(vget_low_s16(a[0]), vget_low_s16(b[0])), a[0], b[0]);
            let sums = vmlal_high_s16(vmlal_s16(sums, vget_low_s16(a[1]), vget_low_s16(b[1])), a[1], b[1]);
            vmulq_n_s32(sums, factor)
        }
        fn totals(self, s: [int32x4_t; 8]) -> [float32x4_t; 2] {
            let low = vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3]));
            let high = vpaddq_s32(vpaddq_s32(s[4], s[5]), vpaddq_s32(s[6], s[7]));
            [vcvtq_f32_s32(low), vcvtq_f32_s32(high)]
        }
        fn widen8(self, bits: &[u16; 8]) -> [float32x4_t; 2] {
            let [low, high] = load(bits);
            [widen(low), widen(high)]
        }
        fn powers8(self, exponents: &[u16; 8]) -> [float32x4_t; 2] {
            let [low, high] = load(exponents);
            [half_powers(low), half_powers(high)]
        }
        fn mul8(self, x: [float32x4_t; 2], y: [float32x4_t; 2]) -> [float32x4_t; 2] {
            [vmulq_f32(x[0], y[0]), vmulq_f32(x[1], y[1])]
        }
        fn add8(self, x: [float32x4_t; 2], y: [float32x4_t; 2]) -> [float32x4_t; 2] {
            [vaddq_f32(x[0], y[0]), vaddq_f32(x[1], y[1])]
        }
        fn splat8(self, x: f32) -> [float32x4_t; 2] { [vdupq_n_f32(x); 2] }
        fn low_minus_high(self, x: [float32x4_t; 2]) -> [float32x4_t; 2] { [vsubq_f32(x[0], x[1]), x[1]] }
    }
}

/// 16 bytes as numbers.
#[inline(always)]
fn widen_bytes(bytes: [int8x8_t; 2]) -> [i32; 16] {
    // SAFETY: the vectors come from a token that proves NEON.
    let wide = unsafe {
        let [low, high] = [vmovl_s8(bytes[0]), vmovl_s8(bytes[1])];
        [
            vmovl_s16(vget_low_s16(low)),
            vmovl_high_s16(low),
            vmovl_s16(vget_low_s16(high)),
            vmovl_high_s16(high),
        ]
    };
    load(&wide)
}

/// Widens four f16.
///
/// # Safety
/// The CPU must have NEON.
#[inline(always)]
unsafe fn widen(bits: uint16x4_t) -> float32x4_t {
    // SAFETY: the caller's obligation; every CPU with NEON widens f16.
    unsafe { vcvt_f32_f16(vreinterpret_f16_u16(bits)) }
}

/// [`layout::half_power`](atta_formats::layout::half_power) of four exponents.
///
/// # Safety
/// The CPU must have NEON.
#[inline(always)]
unsafe fn half_powers(exponents: uint16x4_t) -> float32x4_t {
    // SAFETY: the caller's obligation.
    unsafe {
        let e = vreinterpretq_s32_u32(vmovl_u16(exponents));
        let one = vdupq_n_s32(1);
        let normal = vshlq_n_s32::<23>(vsubq_s32(e, one));
        let subnormal = vshlq_n_s32::<21>(vaddq_s32(vandq_s32(e, one), one));
        vreinterpretq_f32_s32(vmaxq_s32(normal, subnormal))
    }
}

/// Word i of each of four rows in vector i.
///
/// # Safety
/// The CPU must have NEON.
#[inline(always)]
unsafe fn transposed_words(rows: [uint32x4_t; 4]) -> [uint8x16_t; 4] {
    // SAFETY: the caller's obligation.
    unsafe {
        let low = |x, y| vreinterpretq_u64_u32(vtrn1q_u32(x, y));
        let high = |x, y| vreinterpretq_u64_u32(vtrn2q_u32(x, y));
        // Words 0 and 2, then words 1 and 3, of two rows each.
        let even = [low(rows[0], rows[1]), low(rows[2], rows[3])];
        let odd = [high(rows[0], rows[1]), high(rows[2], rows[3])];
        [
            vreinterpretq_u8_u64(vtrn1q_u64(even[0], even[1])),
            vreinterpretq_u8_u64(vtrn1q_u64(odd[0], odd[1])),
            vreinterpretq_u8_u64(vtrn2q_u64(even[0], even[1])),
            vreinterpretq_u8_u64(vtrn2q_u64(odd[0], odd[1])),
        ]
    }
}

impl<D: Dot> Lanes for Neon<D> {
    const LANES: usize = 4;
    type W = uint8x16_t;
    type N = int32x4_t;
    type L = float32x4_t;
    type P = D::P;
    const PAIRS: bool = D::PAIRS;
    const SIGNED_CODES: bool = D::SIGNED;
    const ANY_ABOVE: i16 = if D::SIGNED { 0 } else { 64 };

    #[inline(always)]
    fn dot4_bytes(self, acc: D::P, w: uint8x16_t, x: uint8x16_t) -> D::P {
        self.dot4(acc, w, x)
    }

    #[inline(always)]
    fn widen_start(self, n: int32x4_t) -> (int32x4_t, D::P) {
        self.0.widen_start(n)
    }

    // Not of signed codes, which are lowered themselves.
    #[inline(always)]
    fn offset_correction(self, offset: i16, sum: i16, _: [i16; 2]) -> D::P {
        let n = self.splat(-i32::from(offset) * i32::from(sum));
        self.0.widen_start(n).1
    }

    #[inline(always)]
    fn widen_add(self, n: int32x4_t, p: D::P) -> int32x4_t {
        self.0.widen_add(n, p)
    }

    #[inline(always)]
    fn widen_add_scaled(self, n: int32x4_t, p: D::P, scale: int32x4_t) -> int32x4_t {
        self.0.widen_add_scaled(n, p, scale)
    }

    #[inline(always)]
    fn load_from(self, x: &[f32]) -> float32x4_t {
        load::<_, [f32; 4]>(x.try_into().expect("four lanes"))
    }

    #[inline(always)]
    fn store_to(self, x: float32x4_t, out: &mut [f32]) {
        store::<_, [f32; 4]>(x, out.try_into().expect("four lanes"));
    }

    proven! {
        fn columns<const B: usize>(self, rows: &[[u8; B]; 16], c: usize) -> [uint8x16_t; 4] {
            let at = |r: usize| load_at(&rows[r], 16 * c);
            transposed_words([at(0), at(1), at(2), at(3)])
        }
        fn splat4(self, bytes: &[i8; 4]) -> uint8x16_t {
            vreinterpretq_u8_s32(vdupq_n_s32(i32::from_le_bytes(bytes.map(|byte| byte as u8))))
        }
        fn opaque(self, w: uint8x16_t) -> uint8x16_t {
            let mut out = w;
            asm!("/* {:v} */", inout(vreg) out, options(nomem, nostack, preserves_flags));
            out
        }
        fn scale(self, w: uint8x16_t, j: usize) -> int32x4_t {
            vshrq_n_s32::<24>(vshlq_s32(vreinterpretq_s32_u8(w), vdupq_n_s32(24 - 8 * j as i32)))
        }
        fn splat(self, x: i32) -> int32x4_t { vdupq_n_s32(x) }
        fn dot4(self, acc: D::P, w: uint8x16_t, x: uint8x16_t) -> D::P {
            self.0.products(acc, w, vreinterpretq_s8_u8(x))
        }
        fn any_codes(self, w: uint8x16_t, offset: i16) -> uint8x16_t {
            if D::SIGNED { vsubq_u8(w, vdupq_n_u8(offset as u8)) } else { w }
        }
        fn times_256(self, x: int32x4_t) -> int32x4_t { vshlq_n_s32::<8>(x) }
        fn to_floats(self, x: int32x4_t) -> float32x4_t { vcvtq_f32_s32(x) }
        fn widen_lanes(self, bits: &[u16; 16]) -> float32x4_t { widen(load_at(bits, 0)) }
        fn power_lanes(self, exponents: &[u16; 16]) -> float32x4_t { half_powers(load_at(exponents, 0)) }
        fn splat_float(self, x: f32) -> float32x4_t { vdupq_n_f32(x) }
        fn mul_lanes(self, x: float32x4_t, y: float32x4_t) -> float32x4_t { vmulq_f32(x, y) }
        fn add_lanes(self, x: float32x4_t, y: float32x4_t) -> float32x4_t { vaddq_f32(x, y) }
        fn sub_lanes(self, x: float32x4_t, y: float32x4_t) -> float32x4_t { vsubq_f32(x, y) }
    }
}

#[cfg(feature = "avx512")]
impl<D: Dot> Words for Neon<D> {
    proven! {
        fn transpose_words(self, rows: &[&[u8; 16]; 16]) -> [uint8x16_t; 4] {
            transposed_words([load(rows[0]), load(rows[1]), load(rows[2]), load(rows[3])])
        }
        fn field(self, w: uint8x16_t, down: i32, mask: u8) -> uint8x16_t {
            let w = vshlq_u32(vreinterpretq_u32_u8(w), vdupq_n_s32(-down));
            vandq_u8(vreinterpretq_u8_u32(w), vdupq_n_u8(mask))
        }
        fn join(self, v: uint8x16_t, w: uint8x16_t) -> uint8x16_t { vorrq_u8(v, w) }
        fn flip(self, w: uint8x16_t, mask: u8) -> uint8x16_t { veorq_u8(w, vdupq_n_u8(mask)) }
        fn half(self, w: uint8x16_t, upper: bool) -> float32x4_t {
            let w = vreinterpretq_u32_u8(w);
            widen(if upper { vshrn_n_u32::<16>(w) } else { vmovn_u32(w) })
        }
    }
}

/// Four vectors, transposed.
///
/// # Safety
/// The CPU must have NEON.
#[inline(always)]
unsafe fn transpose_words(x: [float32x4_t; 4]) -> [float32x4_t; 4] {
    // SAFETY: the caller's obligation.
    unsafe {
        // Elements 0 and 2, then 1 and 3, of two vectors each.
        let even = [
            vreinterpretq_f64_f32(vtrn1q_f32(x[0], x[1])),
            vreinterpretq_f64_f32(vtrn1q_f32(x[2], x[3])),
        ];
        let odd = [
            vreinterpretq_f64_f32(vtrn2q_f32(x[0], x[1])),
            vreinterpretq_f64_f32(vtrn2q_f32(x[2], x[3])),
        ];
        [
            vreinterpretq_f32_f64(vtrn1q_f64(even[0], even[1])),
            vreinterpretq_f32_f64(vtrn1q_f64(odd[0], odd[1])),
            vreinterpretq_f32_f64(vtrn2q_f64(even[0], even[1])),
            vreinterpretq_f32_f64(vtrn2q_f64(odd[0], odd[1])),
        ]
    }
}

/// Lanes 4i to 4i + 3 by `f(i)`.
#[inline(always)]
fn four(f: impl Fn(usize) -> float32x4_t) -> [float32x4_t; 4] {
    [f(0), f(1), f(2), f(3)]
}

impl<D: Dot> Floats for Neon<D> {
    type F = [float32x4_t; 4];
    const KEYS: usize = 2;
    const ROWS: usize = 4;
    const VECTORS: usize = 1;

    #[inline(always)]
    fn floats(self, x: &[f32; 16]) -> [float32x4_t; 4] {
        load(x)
    }

    #[inline(always)]
    fn singles(self, x: &[[u8; 4]; 16]) -> [float32x4_t; 4] {
        load(x)
    }

    #[inline(always)]
    fn to_array(self, x: [float32x4_t; 4]) -> [f32; 16] {
        load(&x)
    }

    proven! {
        fn zeros(self) -> [float32x4_t; 4] { [vdupq_n_f32(0.0); 4] }
        fn splat_all(self, x: f32) -> [float32x4_t; 4] { [vdupq_n_f32(x); 4] }
        fn halves(self, x: &[[u8; 2]; 16]) -> [float32x4_t; 4] {
            let x: [uint16x4_t; 4] = load(x);
            four(|i| widen(x[i]))
        }
        fn brains(self, x: &[[u8; 2]; 16]) -> [float32x4_t; 4] {
            let x: [uint16x4_t; 4] = load(x);
            four(|i| vreinterpretq_f32_u32(vshll_n_u16::<16>(x[i])))
        }
        fn sum_f(self, x: [float32x4_t; 4], y: [float32x4_t; 4]) -> [float32x4_t; 4] {
            four(|i| vaddq_f32(x[i], y[i]))
        }
        fn max_f(self, x: [float32x4_t; 4], y: [float32x4_t; 4]) -> [float32x4_t; 4] {
            four(|i| vbslq_f32(vcgtq_f32(x[i], y[i]), x[i], y[i]))
        }
        fn transposed(self, x: [[float32x4_t; 4]; 16]) -> [[float32x4_t; 4]; 16] {
            let mut out = x;
            for (i, j) in (0..16).map(|k| (k / 4, k % 4)) {
                let columns = transpose_words([x[4 * i][j], x[4 * i + 1][j], x[4 * i + 2][j], x[4 * i + 3][j]]);
                for c in 0..4 {
                    out[4 * j + c][i] = columns[c];
                }
            }
            out
        }
        fn product(self, x: [float32x4_t; 4], y: [float32x4_t; 4]) -> [float32x4_t; 4] {
            four(|i| vmulq_f32(x[i], y[i]))
        }
        fn mul_add(self, x: [float32x4_t; 4], y: [float32x4_t; 4], z: [float32x4_t; 4]) -> [float32x4_t; 4] {
            four(|i| vfmaq_f32(z[i], x[i], y[i]))
        }
        fn totals_of_16(self, x: [[float32x4_t; 4]; 16]) -> [float32x4_t; 4] {
            let quarter = |x: [float32x4_t; 4]| vaddq_f32(vaddq_f32(x[0], x[2]), vaddq_f32(x[1], x[3]));
            // Elements 0 and 1 of two vectors, with elements 2 and 3.
            let two = |i: usize| {
                let (a, b) = (vreinterpretq_f64_f32(quarter(x[i])), vreinterpretq_f64_f32(quarter(x[i + 1])));
                vaddq_f32(vreinterpretq_f32_f64(vtrn1q_f64(a, b)), vreinterpretq_f32_f64(vtrn2q_f64(a, b)))
            };
            four(|i| vpaddq_f32(two(4 * i), two(4 * i + 2)))
        }
    }
}

/// Signed bytes as floats.
///
/// # Safety
/// The CPU must have NEON.
#[inline(always)]
unsafe fn floats_of_bytes(bytes: int8x16_t) -> [float32x4_t; 4] {
    // SAFETY: the caller's obligation.
    unsafe {
        let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
        [
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
            vcvtq_f32_s32(vmovl_high_s16(low)),
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
            vcvtq_f32_s32(vmovl_high_s16(high)),
        ]
    }
}

impl<D: Dot> Codes for Neon<D> {
    type N = [int32x4_t; 4];

    // Word j of each row in bytes 64·j to 64·j + 63: loading with stride four transposes.
    #[inline(always)]
    fn arranged(self, keys: &KeyCodes) -> KeyCodes {
        let mut out = [[0; 16]; 16];
        for (i, rows) in keys.as_chunks::<4>().0.iter().enumerate() {
            // SAFETY: the token proves NEON; reads the 64 bytes of its reference, at any alignment.
            let four = unsafe { vld4q_u32(rows.as_ptr().cast()) };
            store(four.0, &mut out[i]);
            store(four.1, &mut out[4 + i]);
            store(four.2, &mut out[8 + i]);
            store(four.3, &mut out[12 + i]);
        }
        out
    }

    proven! {
        fn no_sums(self) -> [int32x4_t; 4] { [vdupq_n_s32(0); 4] }
        fn dots<const R: usize>(
            self,
            sums: [[int32x4_t; 4]; R],
            keys: &KeyCodes,
            x: [&[i8; 16]; R]
        ) -> [[int32x4_t; 4]; R] {
            let mut sums = sums;
            for j in 0..4 {
                for r in 0..R {
                    let x = vreinterpretq_s8_s32(vdupq_n_s32(load(&x[r].as_chunks::<4>().0[j])));
                    for i in 0..4 {
                        sums[r][i] = self.0.dot_signed(sums[r][i], load(&keys[4 * j + i]), x);
                    }
                }
            }
            sums
        }
        fn as_floats(self, x: [int32x4_t; 4]) -> [float32x4_t; 4] { four(|i| vcvtq_f32_s32(x[i])) }
        fn signed(self, codes: &[u8; 16]) -> [float32x4_t; 4] { floats_of_bytes(load(codes)) }
        fn low_nibbles(self, bytes: &[u8; 16]) -> [float32x4_t; 4] {
            floats_of_bytes(vreinterpretq_s8_u8(vandq_u8(load(bytes), vdupq_n_u8(15))))
        }
        fn high_nibbles(self, bytes: &[u8; 16]) -> [float32x4_t; 4] {
            floats_of_bytes(vreinterpretq_s8_u8(vshrq_n_u8::<4>(load(bytes))))
        }
    }
}

impl<D: Dot> Pairs for Neon<D> {
    type Pair = [int16x8_t; 4];
    // Products of pairs 0 and 1 of a register, then of pairs 2 and 3.
    type Sums = [[int32x4_t; 2]; 4];
    const TILE: usize = 1;

    #[inline(always)]
    fn pairs(self, x: &PairCodes) -> [int16x8_t; 4] {
        load(x)
    }

    #[inline(always)]
    fn bits_of(self, x: [float32x4_t; 4]) -> PairCodes {
        load(&x)
    }

    proven! {
        fn pair(self, x: i32) -> [int16x8_t; 4] { [vreinterpretq_s16_s32(vdupq_n_s32(x)); 4] }
        fn no_products(self) -> [[int32x4_t; 2]; 4] { [[vdupq_n_s32(0); 2]; 4] }
        fn dot_pairs(
            self,
            sums: [[int32x4_t; 2]; 4],
            x: [int16x8_t; 4],
            y: [int16x8_t; 4]
        ) -> [[int32x4_t; 2]; 4] {
            let mut sums = sums;
            for i in 0..4 {
                sums[i] = [
                    vmlal_s16(sums[i][0], vget_low_s16(x[i]), vget_low_s16(y[i])),
                    vmlal_high_s16(sums[i][1], x[i], y[i]),
                ];
            }
            sums
        }
        fn lane_totals(self, sums: [[int32x4_t; 2]; 4]) -> [int32x4_t; 4] {
            [
                vpaddq_s32(sums[0][0], sums[0][1]),
                vpaddq_s32(sums[1][0], sums[1][1]),
                vpaddq_s32(sums[2][0], sums[2][1]),
                vpaddq_s32(sums[3][0], sums[3][1]),
            ]
        }
    }
}
