//! 256-bit x86-64: AVX2 with F16C, and the same with byte dot products (AVX-VNNI).
//!
//! [`Avx2`] multiplies bytes by `vpmaddubsw` and pairs by `vpmaddwd`, [`AvxVnni`] does both in one
//! `vpdpbusd`. Everything else is shared by the macros below; AVX-512 machines use the row
//! operations too, since 32 codes fill 256 bits.

use super::memory::{load, load_at, store};
use super::{Codes, Floats, KeyCodes, Lanes, PairCodes, Pairs, Row, Wide, products_of_four};
use std::arch::x86_64::*;

/// Proof of AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

/// Proof of those and AVX-VNNI.
#[derive(Clone, Copy)]
pub(crate) struct AvxVnni(());

impl Avx2 {
    /// # Safety
    /// The CPU must have AVX2, FMA and F16C.
    pub(crate) const unsafe fn assume() -> Self {
        Self(())
    }
}

impl AvxVnni {
    /// # Safety
    /// The CPU must have AVX2, FMA, F16C and AVX-VNNI.
    pub(crate) const unsafe fn assume() -> Self {
        Self(())
    }
}

/// Methods whose bodies are intrinsics of features that the token proves.
macro_rules! proven {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident $(<$(const $n:ident: $of:ty),+>)? ($this:ident $(, $arg:ident: $ty:ty)*)
    $(-> $out:ty)? { $($body:tt)* })*) => {
        $($(#[$doc])*
        #[inline(always)]
        $vis fn $name $(<$(const $n: $of),+>)? ($this $(, $arg: $ty)*) $(-> $out)? {
            // SAFETY: the token proves the features of the intrinsics; none of them takes a
            // pointer.
            unsafe { $($body)* }
        })*
    };
}
pub(crate) use proven;

/// Word `i` of the first or the second 8 bytes of a 128-bit lane, eight times: indices for
/// `vpshufb`.
const fn word_index(i: u8) -> [u8; 16] {
    let mut index = [0; 16];
    let mut k = 0;
    while k < 16 {
        index[k] = 2 * i + k as u8 % 2;
        k += 1;
    }
    index
}

/// Spreads word `i` of each 128-bit lane over the lane.
pub(crate) const SPREAD: [[u8; 16]; 8] = [
    word_index(0),
    word_index(1),
    word_index(2),
    word_index(3),
    word_index(4),
    word_index(5),
    word_index(6),
    word_index(7),
];
/// Even bytes, then odd bytes.
pub(crate) const EVEN_ODD: [u8; 16] = [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15];
/// Byte k/8 of four in byte k of the lane pair, to test one bit in each.
pub(crate) const BYTE_OF_BIT: [u8; 32] = [
    0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3,
];
/// `[j]` makes byte j of each dword the upper half of both of its words.
const UPPER_OF_WORDS: [[u8; 32]; 4] = [
    upper_of_words(0),
    upper_of_words(1),
    upper_of_words(2),
    upper_of_words(3),
];

/// Byte `j` of each dword of a 128-bit lane above a zero, twice: indices for `vpshufb`.
const fn upper_of_words(j: u8) -> [u8; 32] {
    let mut index = [0x80; 32];
    let mut k = 0;
    while k < 32 {
        index[k + 1] = k as u8 % 16 / 4 * 4 + j;
        k += 2;
    }
    index
}

/// Set bits of a nibble.
#[cfg(feature = "avx512")]
const ONES: [u8; 16] = [0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4];
/// Bit k % 8.
pub(crate) const BIT: i64 = 0x8040_2010_0804_0201_u64 as i64;

/// [`layout::spread_sevens`](atta_formats::layout::spread_sevens) of each word.
#[cfg(feature = "avx512")]
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn spread_sevens(words: __m256i) -> __m256i {
    let and = |v, mask| _mm256_and_si256(v, _mm256_set1_epi32(mask));
    let halves = _mm256_or_si256(
        and(words, 0x3fff),
        _mm256_slli_epi32::<2>(and(words, 0x0fff_c000)),
    );
    _mm256_or_si256(
        and(halves, 0x007f_007f),
        _mm256_slli_epi32::<1>(and(halves, 0x3f80_3f80)),
    )
}

/// [`layout::even_signs`](atta_formats::layout::even_signs) of each word.
#[cfg(feature = "avx512")]
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn even_signs(sevens: __m256i) -> __m256i {
    let nibble = _mm256_set1_epi8(15);
    let ones = _mm256_broadcastsi128_si256(load(&ONES));
    let low = _mm256_shuffle_epi8(ones, _mm256_and_si256(sevens, nibble));
    let high = _mm256_shuffle_epi8(
        ones,
        _mm256_and_si256(_mm256_srli_epi16::<4>(sevens), nibble),
    );
    // How many bits are set; if that is odd, the top bit is.
    let odd = _mm256_slli_epi16::<7>(_mm256_add_epi8(low, high));
    _mm256_or_si256(sevens, _mm256_and_si256(odd, _mm256_set1_epi8(-128)))
}

/// `2·s + 1` in each word, which is what the scale of a format with a codebook stands for.
#[cfg(feature = "avx512")]
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn odd(scales: __m256i) -> __m256i {
    _mm256_add_epi16(_mm256_add_epi16(scales, scales), _mm256_set1_epi16(1))
}

/// The nibbles of the low eight bytes, the low one of each first.
#[cfg(feature = "avx512")]
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn nibbles(bytes: __m128i) -> __m128i {
    let words = _mm_cvtepu8_epi16(bytes);
    _mm_and_si128(
        _mm_or_si128(words, _mm_slli_epi16::<4>(words)),
        _mm_set1_epi8(15),
    )
}

/// [`layout::half_power`](atta_formats::layout::half_power) of each exponent.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn half_powers(exponents: &[u16; 8]) -> __m256 {
    let e = _mm256_cvtepu16_epi32(load(exponents));
    let one = _mm256_set1_epi32(1);
    let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(e, one));
    let subnormal = _mm256_slli_epi32::<21>(_mm256_add_epi32(_mm256_and_si256(e, one), one));
    _mm256_castsi256_ps(_mm256_max_epi32(normal, subnormal))
}

macro_rules! rows_of_256_bits {
    ($isa:ty) => {
        impl Row for $isa {
            type V = __m256i;
            // A program for boards, which is without AVX-512, must stay small.
            const ASKS: bool = cfg!(feature = "avx512");

            #[inline(always)]
            fn load(self, bytes: &[u8; 32]) -> __m256i {
                load(bytes)
            }

            #[inline(always)]
            fn store(self, v: __m256i, bytes: &mut [u8; 32]) {
                store(v, bytes)
            }

            #[inline(always)]
            fn prefetch(self, bytes: &[u8], offset: usize) {
                let at = bytes.as_ptr().wrapping_add(offset).cast();
                // SAFETY: a hint, which may name any address; every x86-64 has the instruction.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(at) }
            }

            proven! {
                fn words_of_64(self, words: [u64; 4]) -> __m256i {
                    let [a, b, c, d] = words.map(|word| word as i64);
                    _mm256_set_epi64x(d, c, b, a)
                }
                fn words_of_32(self, words: [u32; 8]) -> __m256i {
                    let [a, b, c, d, e, f, g, h] = words.map(|word| word as i32);
                    _mm256_setr_epi32(a, b, c, d, e, f, g, h)
                }
                fn load_pair(self, low: &[u8; 16], high: &[u8; 16]) -> __m256i {
                    let low = load(low);
                    _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), load(high))
                }
                fn nibbles(self, bytes: &[u8; 16]) -> __m256i {
                    let low = load(bytes);
                    let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(low), _mm_srli_epi16::<4>(low));
                    _mm256_and_si256(both, _mm256_set1_epi8(15))
                }
                fn bits(self, bits: &[u8; 4]) -> __m256i {
                    let index = load(&$crate::isa::avx2::BYTE_OF_BIT);
                    let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(i32::from_le_bytes(*bits)), index);
                    let set = _mm256_and_si256(bytes, _mm256_set1_epi64x($crate::isa::avx2::BIT));
                    _mm256_min_epu8(set, _mm256_set1_epi8(1))
                }
                fn and(self, v: __m256i, mask: u8) -> __m256i { _mm256_and_si256(v, _mm256_set1_epi8(mask as i8)) }
                fn xor(self, v: __m256i, mask: u8) -> __m256i { _mm256_xor_si256(v, _mm256_set1_epi8(mask as i8)) }
                fn or(self, a: __m256i, b: __m256i) -> __m256i { _mm256_or_si256(a, b) }
                fn shr(self, v: __m256i, n: usize) -> __m256i {
                    let wide = _mm256_srl_epi16(v, _mm_cvtsi32_si128(n as i32));
                    _mm256_and_si256(wide, _mm256_set1_epi8((0xff_u8 >> n) as i8))
                }
                fn shl(self, v: __m256i, n: usize) -> __m256i {
                    let wide = _mm256_sll_epi16(v, _mm_cvtsi32_si128(n as i32));
                    _mm256_and_si256(wide, _mm256_set1_epi8((0xff_u8 << n) as i8))
                }
                fn look_up(self, table: &[u8; 16], v: __m256i) -> __m256i {
                    let table = load(table);
                    _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), v)
                }
                // The index has its top bit set, and the shuffle gives 0, in all tables but one.
                fn look_up_of<const N: usize>(self, tables: &[[u8; 16]; N], v: __m256i) -> __m256i {
                    if N == 1 {
                        return self.look_up(&tables[0], v);
                    }
                    let mut out = _mm256_setzero_si256();
                    for (i, table) in tables.iter().enumerate() {
                        let index = _mm256_xor_si256(v, _mm256_set1_epi8(16 * i as i8));
                        let index = _mm256_adds_epu8(index, _mm256_set1_epi8(0x70));
                        out = _mm256_or_si256(out, self.look_up(table, index));
                    }
                    out
                }
                fn spread(self, word: u64, step: usize) -> __m256i {
                    let step = step as i64;
                    let shifts = _mm256_setr_epi64x(0, step, 2 * step, 3 * step);
                    _mm256_srlv_epi64(_mm256_set1_epi64x(word as i64), shifts)
                }
                // Each byte of a word as its upper half: what the multiplication modulo 256 drops
                // is what words drop.
                fn digits(self, v: __m256i, factors: &[u8; 32]) -> __m256i {
                    let (factors, three) = (self.load(factors), _mm256_set1_epi16(3));
                    let even = _mm256_mullo_epi16(v, _mm256_slli_epi16::<8>(factors));
                    let high = _mm256_and_si256(v, _mm256_set1_epi16(-256));
                    let odd = _mm256_mullo_epi16(high, _mm256_srli_epi16::<8>(factors));
                    let odd = _mm256_slli_epi16::<8>(_mm256_mulhi_epu16(odd, three));
                    _mm256_or_si256(_mm256_mulhi_epu16(even, three), odd)
                }
                fn biased(self, codes: __m256i, signs: u32) -> __m256i {
                    let index = load(&$crate::isa::avx2::BYTE_OF_BIT);
                    let bit = _mm256_set1_epi64x($crate::isa::avx2::BIT);
                    let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(signs as i32), index);
                    let minus = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
                    let signed = _mm256_sub_epi8(_mm256_xor_si256(codes, minus), minus);
                    _mm256_add_epi8(signed, _mm256_set1_epi8($crate::isa::CODE_BIAS as i8))
                }
                /// Not for boards, whose programs must stay small.
                #[cfg(feature = "avx512")]
                fn even_signs<const PACKED: bool>(self, words: [u32; 8]) -> [u32; 8] {
                    let words = self.words_of_32(words);
                    let words = if PACKED { $crate::isa::avx2::spread_sevens(words) } else { words };
                    load(&$crate::isa::avx2::even_signs(words))
                }
            }
        }
    };
}
#[cfg(feature = "avx512")]
pub(crate) use rows_of_256_bits;

/// [`Wide`] but for `dot_codes` and `dot_bytes`.
macro_rules! wide_of_256_bits {
    () => {
        type A = __m256i;
        type S = __m256i;
        type F8 = __m256;

        #[inline(always)]
        fn store8(self, x: __m256, out: &mut [f32; 8]) {
            store(x, out);
        }

        proven! {
            fn start(self, total: i32) -> __m256i { _mm256_zextsi128_si256(_mm_cvtsi32_si128(total)) }
            // Words of the even scales in the low lane, of the odd ones in the high lane, so that
            // one shuffle spreads the two scales of a group over its 16 + 16 products.
            fn scales_of_16(self, scales: [u64; 2]) -> __m256i {
                let order = load(&$crate::isa::avx2::EVEN_ODD);
                let scales = _mm_set_epi64x(scales[1] as i64, scales[0] as i64);
                _mm256_cvtepi8_epi16(_mm_shuffle_epi8(scales, order))
            }
            fn scales_of_32(self, scales: u64) -> __m256i {
                _mm256_cvtepi8_epi16(_mm_set1_epi64x(scales as i64))
            }
            fn dot_scaled(self, acc: __m256i, codes: __m256i, x: &[i8; 32], scales: __m256i, g: usize) -> __m256i {
                let pairs = _mm256_maddubs_epi16(codes, load(x));
                let spread = load(&$crate::isa::avx2::SPREAD[g]);
                let scale = _mm256_shuffle_epi8(scales, _mm256_broadcastsi128_si256(spread));
                _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, scale))
            }
            // The sign of the code goes to x, or the top bit apart: two products with a whole byte
            // do not fit i16.
            fn dot_scaled_bytes(
                self,
                acc: __m256i,
                codes: __m256i,
                x: &[i8; 32],
                scales: __m256i,
                g: usize
            ) -> __m256i {
                if Self::SIGNED {
                    let x = $crate::isa::avx2::signed_by(codes, x);
                    return self.dot_scaled(acc, _mm256_abs_epi8(codes), &x, scales, g);
                }
                let top = _mm256_set1_epi8(-128);
                let acc = self.dot_scaled(acc, _mm256_andnot_si256(top, codes), x, scales, g);
                self.dot_scaled(acc, _mm256_and_si256(top, codes), x, scales, g)
            }
            fn dot_sums(self, a: [u64; 2], b: &[i16; 16], factor: i32) -> __m256i {
                let a = _mm256_cvtepi8_epi16(_mm_set_epi64x(a[1] as i64, a[0] as i64));
                let sums = _mm256_madd_epi16(a, load(b));
                _mm256_mullo_epi32(sums, _mm256_set1_epi32(factor))
            }
            fn totals(self, s: [__m256i; 8]) -> __m256 {
                let ab = [_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[4], s[5])];
                let cd = [_mm256_hadd_epi32(s[2], s[3]), _mm256_hadd_epi32(s[6], s[7])];
                // Four sums in each lane, of the first and of the second half of their terms.
                let (first, second) = (_mm256_hadd_epi32(ab[0], cd[0]), _mm256_hadd_epi32(ab[1], cd[1]));
                let low = _mm256_permute2x128_si256::<0x20>(first, second);
                let high = _mm256_permute2x128_si256::<0x31>(first, second);
                _mm256_cvtepi32_ps(_mm256_add_epi32(low, high))
            }
            fn widen8(self, bits: &[u16; 8]) -> __m256 { _mm256_cvtph_ps(load(bits)) }
            fn powers8(self, exponents: &[u16; 8]) -> __m256 { $crate::isa::avx2::half_powers(exponents) }
            fn mul8(self, x: __m256, y: __m256) -> __m256 { _mm256_mul_ps(x, y) }
            fn add8(self, x: __m256, y: __m256) -> __m256 { _mm256_add_ps(x, y) }
            fn splat8(self, x: f32) -> __m256 { _mm256_set1_ps(x) }
            fn low_minus_high(self, x: __m256) -> __m256 {
                _mm256_castps128_ps256(_mm_sub_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x)))
            }
        }
    };
}
#[cfg(feature = "avx512")]
pub(crate) use wide_of_256_bits;

rows_of_256_bits!(Avx2);
rows_of_256_bits!(AvxVnni);

impl Wide for Avx2 {
    wide_of_256_bits!();

    const SIGNED: bool = true;

    proven! {
        fn dot_codes(self, acc: __m256i, codes: __m256i, x: &[i8; 32]) -> __m256i {
            let pairs = _mm256_maddubs_epi16(codes, load(x));
            _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
        fn any_codes(self, codes: __m256i, offset: i16) -> __m256i {
            _mm256_sub_epi8(codes, _mm256_set1_epi8(offset as i8))
        }
        fn dot_bytes(self, acc: __m256i, codes: __m256i, x: &[i8; 32]) -> __m256i {
            self.dot_codes(acc, _mm256_abs_epi8(codes), &signed_by(codes, x))
        }
    }
}

/// The register through an empty piece of assembler.
#[inline]
#[target_feature(enable = "avx2")]
fn opaque(mut w: __m256i) -> __m256i {
    // SAFETY: the text is a comment.
    unsafe {
        std::arch::asm!("/* {0} */", inout(ymm_reg) w, options(nomem, nostack, preserves_flags))
    }
    w
}

/// `x` with the sign of `codes`: what their magnitudes are multiplied with.
#[inline]
#[target_feature(enable = "avx2")]
pub(crate) fn signed_by(codes: __m256i, x: &[i8; 32]) -> [i8; 32] {
    load(&_mm256_sign_epi8(load(x), codes))
}

impl Wide for AvxVnni {
    wide_of_256_bits!();

    proven! {
        fn dot_codes(self, acc: __m256i, codes: __m256i, x: &[i8; 32]) -> __m256i {
            _mm256_dpbusd_avx_epi32(acc, codes, load(x))
        }
        fn dot_bytes(self, acc: __m256i, codes: __m256i, x: &[i8; 32]) -> __m256i {
            _mm256_dpbusd_avx_epi32(acc, codes, load(x))
        }
    }
}

/// Word i of each of eight rows in vector i.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn transposed_words(rows: [__m128i; 8]) -> [__m256i; 4] {
    let two = |r: usize| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(rows[r]), rows[r + 4]);
    let two = [two(0), two(1), two(2), two(3)];
    let (a, b) = (
        _mm256_unpacklo_epi32(two[0], two[1]),
        _mm256_unpackhi_epi32(two[0], two[1]),
    );
    let (c, d) = (
        _mm256_unpacklo_epi32(two[2], two[3]),
        _mm256_unpackhi_epi32(two[2], two[3]),
    );
    [
        _mm256_unpacklo_epi64(a, c),
        _mm256_unpackhi_epi64(a, c),
        _mm256_unpacklo_epi64(b, d),
        _mm256_unpackhi_epi64(b, d),
    ]
}

/// [`Lanes`] but for products.
macro_rules! lanes_of_256_bits {
    () => {
        const LANES: usize = 8;
        type W = __m256i;
        type N = __m256i;
        type L = __m256;

        #[inline(always)]
        fn load_from(self, x: &[f32]) -> __m256 {
            load::<_, [f32; 8]>(x.try_into().expect("eight lanes"))
        }

        #[inline(always)]
        fn store_to(self, x: __m256, out: &mut [f32]) {
            store::<_, [f32; 8]>(x, out.try_into().expect("eight lanes"));
        }

        proven! {
            fn columns<const B: usize>(self, rows: &[[u8; B]; 16], c: usize) -> [__m256i; 4] {
                let at = |r: usize| load_at(&rows[r], 16 * c);
                transposed_words([at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)])
            }
            fn splat4(self, bytes: &[i8; 4]) -> __m256i {
                _mm256_set1_epi32(i32::from_le_bytes(bytes.map(|byte| byte as u8)))
            }
            fn opaque(self, w: __m256i) -> __m256i { opaque(w) }
            fn splat(self, x: i32) -> __m256i { _mm256_set1_epi32(x) }
            fn add(self, x: __m256i, y: __m256i) -> __m256i { _mm256_add_epi32(x, y) }
            fn times_256(self, x: __m256i) -> __m256i { _mm256_slli_epi32::<8>(x) }
            fn to_floats(self, x: __m256i) -> __m256 { _mm256_cvtepi32_ps(x) }
            fn widen_lanes(self, bits: &[u16; 16]) -> __m256 {
                _mm256_cvtph_ps(load_at(bits, 0))
            }
            fn power_lanes(self, exponents: &[u16; 16]) -> __m256 {
                $crate::isa::avx2::half_powers(exponents.first_chunk().expect("eight of sixteen"))
            }
            fn splat_float(self, x: f32) -> __m256 { _mm256_set1_ps(x) }
            fn mul_lanes(self, x: __m256, y: __m256) -> __m256 { _mm256_mul_ps(x, y) }
            fn add_lanes(self, x: __m256, y: __m256) -> __m256 { _mm256_add_ps(x, y) }
            fn sub_lanes(self, x: __m256, y: __m256) -> __m256 { _mm256_sub_ps(x, y) }
        }
    };
}

impl Lanes for Avx2 {
    lanes_of_256_bits!();

    /// Two i16 in each lane.
    type P = __m256i;
    const PAIRS: bool = true;

    // Products are opaque so that the compiler leaves their order as it is: it would do all of one
    // row first, whose inputs do not fit the registers.
    proven! {
        // Twice, as words.
        fn scale(self, w: __m256i, j: usize) -> __m256i {
            _mm256_srai_epi16::<8>(_mm256_shuffle_epi8(w, load(&UPPER_OF_WORDS[j])))
        }
        fn dot4(self, acc: __m256i, w: __m256i, x: __m256i) -> __m256i {
            opaque(_mm256_add_epi16(acc, _mm256_maddubs_epi16(w, x)))
        }
        // One factor must be unsigned: the sign of `w` goes to `x`.
        fn dot4_bytes(self, acc: __m256i, w: __m256i, x: __m256i) -> __m256i {
            opaque(_mm256_add_epi16(acc, _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))))
        }
        fn any_codes(self, w: __m256i, offset: i16) -> __m256i { _mm256_sub_epi8(w, _mm256_set1_epi8(offset as i8)) }
        fn widen_start(self, n: __m256i) -> (__m256i, __m256i) { (n, _mm256_setzero_si256()) }
        fn offset_correction(self, offset: i16, _sum: i16, halves: [i16; 2]) -> __m256i {
            let halves = u32::from(halves[0] as u16) | u32::from(halves[1] as u16) << 16;
            _mm256_mullo_epi16(_mm256_set1_epi32(halves as i32), _mm256_set1_epi16(-offset))
        }
        fn widen_add(self, n: __m256i, p: __m256i) -> __m256i {
            _mm256_add_epi32(n, _mm256_madd_epi16(p, _mm256_set1_epi16(1)))
        }
        fn widen_add_scaled(self, n: __m256i, p: __m256i, scale: __m256i) -> __m256i {
            _mm256_add_epi32(n, _mm256_madd_epi16(p, scale))
        }
    }
}

impl Lanes for AvxVnni {
    lanes_of_256_bits!();
    products_of_four!();

    proven! {
        fn scale(self, w: __m256i, j: usize) -> __m256i {
            let top = _mm256_sll_epi32(w, _mm_cvtsi32_si128(24 - 8 * j as i32));
            _mm256_srai_epi32::<24>(top)
        }
        fn widen_add_scaled(self, n: __m256i, p: __m256i, scale: __m256i) -> __m256i {
            _mm256_add_epi32(n, _mm256_mullo_epi32(p, scale))
        }
        fn dot4(self, acc: __m256i, w: __m256i, x: __m256i) -> __m256i { _mm256_dpbusd_avx_epi32(acc, w, x) }
        fn dot4_bytes(self, acc: __m256i, w: __m256i, x: __m256i) -> __m256i { _mm256_dpbusd_avx_epi32(acc, w, x) }
    }
}

/// The sum of the lanes of each of eight pairs of vectors: lanes 0 to 7 with 8 to 15, 0 to 3 with 4
/// to 7, 0 and 1 with 2 and 3, 0 with 1. Vectors i and i + 4 share a register from the second step
/// on.
#[inline]
#[target_feature(enable = "avx2")]
fn totals_of_8(x: &[[__m256; 2]; 8]) -> __m256 {
    let mut fours = [_mm256_setzero_ps(); 4];
    for i in 0..4 {
        let (a, b) = (x[i], x[i + 4]);
        let (a, b) = (_mm256_add_ps(a[0], a[1]), _mm256_add_ps(b[0], b[1]));
        fours[i] = _mm256_add_ps(
            _mm256_permute2f128_ps::<0x20>(a, b),
            _mm256_permute2f128_ps::<0x31>(a, b),
        );
    }
    let mut pairs = [_mm256_setzero_pd(); 2];
    for i in 0..2 {
        let (a, b) = (fours[2 * i], fours[2 * i + 1]);
        pairs[i] = _mm256_castps_pd(_mm256_add_ps(
            _mm256_unpacklo_ps(a, b),
            _mm256_unpackhi_ps(a, b),
        ));
    }
    let (low, high) = (
        _mm256_unpacklo_pd(pairs[0], pairs[1]),
        _mm256_unpackhi_pd(pairs[0], pairs[1]),
    );
    _mm256_add_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high))
}

/// Half `half` of each of eight pairs of vectors, transposed.
#[inline]
#[target_feature(enable = "avx2")]
fn transposed_8(x: &[[__m256; 2]; 8], half: usize) -> [__m256; 8] {
    // Elements j and 4 + j of four rows in vector j.
    let mut fours = [[_mm256_setzero_ps(); 4]; 2];
    for i in 0..2 {
        let x = [
            x[4 * i][half],
            x[4 * i + 1][half],
            x[4 * i + 2][half],
            x[4 * i + 3][half],
        ];
        let (a, b) = (
            _mm256_unpacklo_ps(x[0], x[1]),
            _mm256_unpackhi_ps(x[0], x[1]),
        );
        let (c, d) = (
            _mm256_unpacklo_ps(x[2], x[3]),
            _mm256_unpackhi_ps(x[2], x[3]),
        );
        fours[i] = [
            _mm256_shuffle_ps::<0x44>(a, c),
            _mm256_shuffle_ps::<0xee>(a, c),
            _mm256_shuffle_ps::<0x44>(b, d),
            _mm256_shuffle_ps::<0xee>(b, d),
        ];
    }
    let mut out = [_mm256_setzero_ps(); 8];
    for j in 0..4 {
        out[j] = _mm256_permute2f128_ps::<0x20>(fours[0][j], fours[1][j]);
        out[4 + j] = _mm256_permute2f128_ps::<0x31>(fours[0][j], fours[1][j]);
    }
    out
}

macro_rules! floats_of_256_bits {
    ($isa:ty) => {
        impl Floats for $isa {
            type F = [__m256; 2];
            const KEYS: usize = 2;
            const ROWS: usize = 4;
            const VECTORS: usize = 1;

            #[inline(always)]
            fn floats(self, x: &[f32; 16]) -> [__m256; 2] {
                load(x)
            }

            #[inline(always)]
            fn singles(self, x: &[[u8; 4]; 16]) -> [__m256; 2] {
                load(x)
            }

            #[inline(always)]
            fn to_array(self, x: [__m256; 2]) -> [f32; 16] {
                load(&x)
            }

            proven! {
                fn zeros(self) -> [__m256; 2] { [_mm256_setzero_ps(); 2] }
                fn splat_all(self, x: f32) -> [__m256; 2] { [_mm256_set1_ps(x); 2] }
                fn halves(self, x: &[[u8; 2]; 16]) -> [__m256; 2] {
                    let [low, high] = load(x);
                    [_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)]
                }
                fn brains(self, x: &[[u8; 2]; 16]) -> [__m256; 2] {
                    let wide = |bits| _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits));
                    let [low, high] = load(x);
                    [_mm256_castsi256_ps(wide(low)), _mm256_castsi256_ps(wide(high))]
                }
                fn totals_of_16(self, x: [[__m256; 2]; 16]) -> [__m256; 2] {
                    [
                        totals_of_8(x[..8].first_chunk().expect("eight of sixteen")),
                        totals_of_8(x[8..].first_chunk().expect("eight of sixteen")),
                    ]
                }
                fn sum_f(self, x: [__m256; 2], y: [__m256; 2]) -> [__m256; 2] {
                    [_mm256_add_ps(x[0], y[0]), _mm256_add_ps(x[1], y[1])]
                }
                fn max_f(self, x: [__m256; 2], y: [__m256; 2]) -> [__m256; 2] {
                    [_mm256_max_ps(x[0], y[0]), _mm256_max_ps(x[1], y[1])]
                }
                fn transposed(self, x: [[__m256; 2]; 16]) -> [[__m256; 2]; 16] {
                    let mut out = x;
                    for half in 0..2 {
                        let rows: &[_; 8] = x[8 * half..].first_chunk().expect("eight of sixteen");
                        for i in 0..2 {
                            let columns = transposed_8(rows, i);
                            for j in 0..8 {
                                out[8 * i + j][half] = columns[j];
                            }
                        }
                    }
                    out
                }
                fn product(self, x: [__m256; 2], y: [__m256; 2]) -> [__m256; 2] {
                    [_mm256_mul_ps(x[0], y[0]), _mm256_mul_ps(x[1], y[1])]
                }
                fn mul_add(self, x: [__m256; 2], y: [__m256; 2], z: [__m256; 2]) -> [__m256; 2] {
                    [_mm256_fmadd_ps(x[0], y[0], z[0]), _mm256_fmadd_ps(x[1], y[1], z[1])]
                }
            }
        }
    };
}

floats_of_256_bits!(Avx2);
floats_of_256_bits!(AvxVnni);

/// Word j of each of sixteen rows in bytes 64·j to 64·j + 63.
#[inline]
#[target_feature(enable = "avx2")]
fn words_of_16(rows: &KeyCodes) -> KeyCodes {
    let mut out = [[0; 16]; 16];
    for half in 0..2 {
        let at = |r: usize| load(&rows[8 * half + r]);
        let words = transposed_words([at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)]);
        for j in 0..4 {
            let out: &mut [[u8; 16]; 2] = out[4 * j + 2 * half..]
                .first_chunk_mut()
                .expect("two of sixteen");
            store(words[j], out);
        }
    }
    out
}

impl Codes for Avx2 {
    type N = [__m256i; 2];

    proven! {
        fn arranged(self, keys: &KeyCodes) -> KeyCodes { words_of_16(keys) }
        fn no_sums(self) -> [__m256i; 2] { [_mm256_setzero_si256(); 2] }
        // One factor must be unsigned: the sign of the code goes to x. Two products of at most
        // 127·127 fit i16.
        fn dots<const R: usize>(self, sums: [[__m256i; 2]; R], keys: &KeyCodes, x: [&[i8; 16]; R]) -> [[__m256i; 2]; R] {
            let (mut sums, ones) = (sums, _mm256_set1_epi16(1));
            for j in 0..4 {
                let keys: [__m256i; 2] = load(&keys.as_chunks::<4>().0[j]);
                let sizes = [_mm256_abs_epi8(keys[0]), _mm256_abs_epi8(keys[1])];
                for r in 0..R {
                    let x = _mm256_set1_epi32(load(&x[r].as_chunks::<4>().0[j]));
                    for i in 0..2 {
                        let pairs = _mm256_maddubs_epi16(sizes[i], _mm256_sign_epi8(x, keys[i]));
                        sums[r][i] = _mm256_add_epi32(sums[r][i], _mm256_madd_epi16(pairs, ones));
                    }
                }
            }
            sums
        }
        // Eight products of at most 15·127 fit i16.
        fn dots_of_nibbles<const R: usize>(
            self,
            sums: [[__m256i; 2]; R],
            keys: &KeyCodes,
            x: [&[i8; 16]; R]
        ) -> [[__m256i; 2]; R] {
            let (mut sums, mut pairs) = (sums, [[_mm256_setzero_si256(); 2]; R]);
            for j in 0..4 {
                let keys: [__m256i; 2] = load(&keys.as_chunks::<4>().0[j]);
                for r in 0..R {
                    let x = _mm256_set1_epi32(load(&x[r].as_chunks::<4>().0[j]));
                    for i in 0..2 {
                        pairs[r][i] = _mm256_add_epi16(pairs[r][i], _mm256_maddubs_epi16(keys[i], x));
                    }
                }
            }
            for r in 0..R {
                for i in 0..2 {
                    let fours = _mm256_madd_epi16(pairs[r][i], _mm256_set1_epi16(1));
                    sums[r][i] = _mm256_add_epi32(sums[r][i], fours);
                }
            }
            sums
        }
        fn as_floats(self, x: [__m256i; 2]) -> [__m256; 2] { [_mm256_cvtepi32_ps(x[0]), _mm256_cvtepi32_ps(x[1])] }
        fn signed(self, codes: &[u8; 16]) -> [__m256; 2] {
            let codes = load(codes);
            let high = _mm_unpackhi_epi64(codes, codes);
            [_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high))]
        }
        fn low_nibbles(self, bytes: &[u8; 16]) -> [__m256; 2] {
            let codes = _mm_and_si128(load(bytes), _mm_set1_epi8(15));
            let high = _mm_unpackhi_epi64(codes, codes);
            [_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high))]
        }
        fn high_nibbles(self, bytes: &[u8; 16]) -> [__m256; 2] {
            let codes = _mm_srli_epi16::<4>(load(bytes));
            let codes = _mm_and_si128(codes, _mm_set1_epi8(15));
            let high = _mm_unpackhi_epi64(codes, codes);
            [_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high))]
        }
    }
}

impl Pairs for Avx2 {
    type Pair = [__m256i; 2];
    type Sums = [__m256i; 2];
    const TILE: usize = 1;

    #[inline(always)]
    fn lane_totals(self, sums: [__m256i; 2]) -> [__m256i; 2] {
        sums
    }

    #[inline(always)]
    fn pairs(self, x: &PairCodes) -> [__m256i; 2] {
        load(x)
    }

    #[inline(always)]
    fn bits_of(self, x: [__m256; 2]) -> PairCodes {
        load(&x)
    }

    proven! {
        fn pair(self, x: i32) -> [__m256i; 2] { [_mm256_set1_epi32(x); 2] }
        fn no_products(self) -> [__m256i; 2] { [_mm256_setzero_si256(); 2] }
        fn dot_pairs(self, sums: [__m256i; 2], x: [__m256i; 2], y: [__m256i; 2]) -> [__m256i; 2] {
            [
                _mm256_add_epi32(sums[0], _mm256_madd_epi16(x[0], y[0])),
                _mm256_add_epi32(sums[1], _mm256_madd_epi16(x[1], y[1])),
            ]
        }
    }
}
