//! AVX2 for one activation row: a block of each of four weight rows at once.
//!
//! What a block needs beside its codes, four blocks share as far as they can: the headers of Q4_K
//! and Q5_K are transposed and unpacked together (scales of Q6_K are bytes, and stay with their
//! row), and the dot products are summed across lanes by one tree. A block yields four floats, one
//! for each row, before they are multiplied by the scale of the activations. A Q4_K block
//! takes about 90 instructions of a processor so, by itself in `algo/gemv.rs` 140.

use crate::activations::Sums;
use crate::isa::avx2::{Avx2, AvxVnni, EVEN_ODD, proven};
use crate::isa::avx512::Avx512;
use crate::isa::memory::{load, load_at};
use std::arch::x86_64::*;

/// An instruction set that has AVX2.
pub(crate) trait HasAvx2 {
    fn avx2(self) -> Avx2;
}

impl HasAvx2 for Avx2 {
    #[inline(always)]
    fn avx2(self) -> Avx2 {
        self
    }
}

impl HasAvx2 for Avx512 {
    #[inline(always)]
    fn avx2(self) -> Avx2 {
        // SAFETY: the proof of AVX-512 is one of AVX2, FMA and F16C, too.
        unsafe { Avx2::assume() }
    }
}

impl HasAvx2 for AvxVnni {
    #[inline(always)]
    fn avx2(self) -> Avx2 {
        // SAFETY: the proof of AVX-VNNI is one of AVX2, FMA and F16C, too.
        unsafe { Avx2::assume() }
    }
}

/// 256 values of the activation row.
pub(crate) struct Input<'a> {
    pub(crate) codes: &'a [i8; 256],
    pub(crate) sums: &'a Sums,
}

/// Indices for `vpshufb` that make byte `i` every word.
const fn widened(i: u8) -> [u8; 32] {
    let mut index = [0x80; 32];
    let mut k = 0;
    while k < 32 {
        index[k] = i;
        k += 2;
    }
    index
}

/// Indices that make word `i` of each 128-bit lane every word.
const fn spread(i: u8) -> [u8; 32] {
    let mut index = [0; 32];
    let mut k = 0;
    while k < 32 {
        index[k] = 2 * i + k as u8 % 2;
        k += 1;
    }
    index
}

/// `[row][i]` makes byte `i` of the row's four every word.
static BYTES_OF_ROWS: [[[u8; 32]; 4]; 4] = [
    [widened(0), widened(1), widened(2), widened(3)],
    [widened(4), widened(5), widened(6), widened(7)],
    [widened(8), widened(9), widened(10), widened(11)],
    [widened(12), widened(13), widened(14), widened(15)],
];
/// Each word of a lane everywhere in it; in memory, where a shuffle takes them from without an
/// instruction more.
pub(super) static WORDS: [[u8; 32]; 8] = [
    spread(0),
    spread(1),
    spread(2),
    spread(3),
    spread(4),
    spread(5),
    spread(6),
    spread(7),
];

/// The reference through an empty piece of assembler. If the compiler knew what indices say, it
/// would make two instructions of a shuffle; and if it knew that rows are multiplied with the same
/// input, it would load that once, for which there are not registers enough.
#[inline(always)]
pub(super) fn unknown<T>(x: &T) -> &T {
    let mut x = &raw const *x;
    // SAFETY: the text is a comment, so `x` is what it was.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) x, options(readonly, nostack, preserves_flags));
        &*x
    }
}

impl Avx2 {
    proven! {
        /// `acc + Σ scale·code·x`.
        pub(super) fn add_pairs(self, acc: __m256i, codes: __m256i, x: __m256i, scales: __m256i) -> __m256i {
            _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), scales))
        }
        /// Word i of the rows in vector i.
        fn transposed_words(self, rows: [&[u8; 16]; 4]) -> [__m128i; 4] {
            let [a, b, c, d] = [load(rows[0]), load(rows[1]), load(rows[2]), load(rows[3])];
            let (ab, cd) = (_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d));
            let (ef, gh) = (_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d));
            [
                _mm_unpacklo_epi64(ab, cd),
                _mm_unpackhi_epi64(ab, cd),
                _mm_unpacklo_epi64(ef, gh),
                _mm_unpackhi_epi64(ef, gh),
            ]
        }
        /// The sum of each vector.
        pub(super) fn four_totals(self, v: [__m256i; 4]) -> __m128 {
            let a = _mm256_add_epi32(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
            let b = _mm256_add_epi32(_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
            let c = _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
            _mm_cvtepi32_ps(_mm_add_epi32(_mm256_castsi256_si128(c), _mm256_extracti128_si256::<1>(c)))
        }

        /// Q4_K (blocks of 144 bytes) and Q5_K (of 176).
        pub(crate) fn nibbles_k<const B: usize>(
            self, blocks: [&[u8; B]; 4], x: Input<'_>, prefetch: impl Fn(usize)
        ) -> __m128 {
            let at = |r: usize| blocks[r].first_chunk().expect("a block is longer than its header");
            // d and dmin, then bytes 0 to 3, 4 to 7 and 8 to 11 of the six-bit scales; see
            // `format/q4_k.rs`.
            let [halves, low_scales, low_mins, rest] = self.transposed_words([at(0), at(1), at(2), at(3)]);
            let (low_6, low_4, top_2) = (_mm_set1_epi8(0x3f), _mm_set1_epi8(0x0f), _mm_set1_epi8(0x30));
            let both = |nibbles, top| {
                _mm_or_si128(_mm_and_si128(nibbles, low_4), _mm_and_si128(_mm_srli_epi32::<2>(top), top_2))
            };
            let scales = [_mm_and_si128(low_scales, low_6), both(rest, low_scales)];
            let mins = [_mm_and_si128(low_mins, low_6), both(_mm_srli_epi32::<4>(rest), low_mins)];

            let first = _mm256_set1_epi64x(load_at(&x.sums.of_32.whole, 0));
            let last = _mm256_set1_epi64x(load_at(&x.sums.of_32.whole, 4));
            let bias = _mm256_add_epi32(
                _mm256_madd_epi16(_mm256_cvtepu8_epi16(mins[0]), first),
                _mm256_madd_epi16(_mm256_cvtepu8_epi16(mins[1]), last),
            );
            let bias = _mm_hadd_epi32(_mm256_castsi256_si128(bias), _mm256_extracti128_si256::<1>(bias));

            let scales = [_mm256_broadcastsi128_si256(scales[0]), _mm256_broadcastsi128_si256(scales[1])];
            let mut dots = [_mm256_setzero_si256(); 4];
            for r in 0..4 {
                prefetch(r);
                let (block, spread) = (unknown(blocks[r]), &unknown(&BYTES_OF_ROWS)[r]);
                let groups = unknown(x.codes).as_chunks::<32>().0;
                let (mut even, mut odd) = (_mm256_setzero_si256(), _mm256_setzero_si256());
                for c in 0..4 {
                    let [low, high] = self.nibbles_of(block, c);
                    let scale = |i: usize| _mm256_shuffle_epi8(scales[c / 2], load(&spread[2 * (c % 2) + i]));
                    even = self.add_pairs(even, low, load(&groups[2 * c]), scale(0));
                    odd = self.add_pairs(odd, high, load(&groups[2 * c + 1]), scale(1));
                }
                dots[r] = _mm256_add_epi32(even, odd);
            }
            let halves = _mm256_cvtph_ps(halves);
            let (low, high) = (_mm256_castps256_ps128(halves), _mm256_extractf128_ps::<1>(halves));
            let (d, dmin) = (_mm_shuffle_ps::<0x88>(low, high), _mm_shuffle_ps::<0xdd>(low, high));
            _mm_sub_ps(_mm_mul_ps(d, self.four_totals(dots)), _mm_mul_ps(dmin, _mm_cvtepi32_ps(bias)))
        }
        /// Codes of sub-blocks 2·c and 2·c + 1 of Q4_K or Q5_K.
        fn nibbles_of<const B: usize>(self, block: &[u8; B], c: usize) -> [__m256i; 2] {
            let nibbles: &[u8; 128] = block.last_chunk().expect("the nibbles end the block");
            let (nibbles, low_4) = (load(&nibbles.as_chunks::<32>().0[c]), _mm256_set1_epi8(15));
            let codes = [
                _mm256_and_si256(nibbles, low_4),
                _mm256_and_si256(_mm256_srli_epi16::<4>(nibbles), low_4),
            ];
            if B == 144 {
                return codes;
            }
            // Bit s of byte j is the fifth bit of weight j of sub-block s.
            let fifth = load_at(block, 16);
            let bit = _mm256_set1_epi8(16);
            let shifted = match c {
                0 => [_mm256_slli_epi16::<4>(fifth), _mm256_slli_epi16::<3>(fifth)],
                1 => [_mm256_slli_epi16::<2>(fifth), _mm256_slli_epi16::<1>(fifth)],
                2 => [fifth, _mm256_srli_epi16::<1>(fifth)],
                _ => [_mm256_srli_epi16::<2>(fifth), _mm256_srli_epi16::<3>(fifth)],
            };
            [
                _mm256_or_si256(codes[0], _mm256_and_si256(shifted[0], bit)),
                _mm256_or_si256(codes[1], _mm256_and_si256(shifted[1], bit)),
            ]
        }

        pub(crate) fn q6_k(self, blocks: [&[u8; 210]; 4], x: Input<'_>, prefetch: impl Fn(usize)) -> __m128 {
            let (low_4, top_2) = (_mm256_set1_epi8(0x0f), _mm256_set1_epi8(0x30));
            let even_odd = load(unknown(&EVEN_ODD));
            let (sums, mut dots) = (load(&x.sums.of_16.whole), [_mm256_setzero_si256(); 4]);
            for r in 0..4 {
                prefetch(r);
                let (block, spread) = (unknown(blocks[r]), unknown(&WORDS));
                let groups = unknown(x.codes).as_chunks::<32>().0;
                let scales = load_at(block, 192);
                // 32 is subtracted from the codes.
                let offset = _mm256_slli_epi32::<5>(_mm256_madd_epi16(_mm256_cvtepi8_epi16(scales), sums));
                let (mut even, mut odd) = (_mm256_sub_epi32(_mm256_setzero_si256(), offset), _mm256_setzero_si256());
                // Those of the first halves of sub-blocks of 32 in the low lane, of the second
                // halves in the high one.
                let scales = _mm256_cvtepi8_epi16(_mm_shuffle_epi8(scales, even_odd));
                let scale = |i: usize| _mm256_shuffle_epi8(scales, load(&spread[i]));
                for h in 0..2 {
                    let at = |at: usize| load_at(block, at);
                    let (a, b, top) = (at(64 * h), at(64 * h + 32), at(128 + 32 * h));
                    let with = |low, top| _mm256_or_si256(_mm256_and_si256(low, low_4), _mm256_and_si256(top, top_2));
                    let x = |i: usize| load(&groups[4 * h + i]);
                    even = self.add_pairs(even, with(a, _mm256_slli_epi16::<4>(top)), x(0), scale(4 * h));
                    odd = self.add_pairs(odd, with(b, _mm256_slli_epi16::<2>(top)), x(1), scale(4 * h + 1));
                    even = self.add_pairs(even, with(_mm256_srli_epi16::<4>(a), top), x(2), scale(4 * h + 2));
                    let last = with(_mm256_srli_epi16::<4>(b), _mm256_srli_epi16::<2>(top));
                    odd = self.add_pairs(odd, last, x(3), scale(4 * h + 3));
                }
                dots[r] = _mm256_add_epi32(even, odd);
            }
            let half = |r: usize| i32::from(u16::from_le_bytes([blocks[r][208], blocks[r][209]]));
            let d = _mm_cvtph_ps(_mm_set_epi32(0, 0, half(2) | half(3) << 16, half(0) | half(1) << 16));
            _mm_mul_ps(d, self.four_totals(dots))
        }

        pub(crate) fn no_four(self) -> __m128 { _mm_setzero_ps() }
        /// `out + scale·v`.
        pub(crate) fn add_four(self, out: __m128, scale: f32, v: __m128) -> __m128 {
            _mm_add_ps(out, _mm_mul_ps(_mm_set1_ps(scale), v))
        }
    }
}
