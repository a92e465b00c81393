//! As `k_quants.rs`, for formats with codebooks.
//!
//! ```text
//! for each of four blocks:
//!     scales, signs and indices by vectors
//!     for each group of 32: entries, 8 (or 4) codes at a time; signs go to the inputs; products
//! ```
//! Codes with signs need not be raised so; those of IQ1, which have shifts instead, are. A block of
//! IQ2_XXS takes 230 instructions of a processor, as compiled. Fields: `atta_formats::layout`.

use super::k_quants::{Input, WORDS, unknown};
use crate::activations::Sums;
use crate::format::KQuant;
use crate::format::grid::{entries_of_4, entries_of_8};
use crate::format::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};
use crate::isa::Row;
use crate::isa::avx2::{Avx2, BIT, BYTE_OF_BIT, even_signs, nibbles, odd, proven, spread_sevens};
use crate::isa::memory::load;
use atta_formats::layout::{self, Signed, grids};
use std::arch::x86_64::*;

/// A format with blocks of `B` bytes that is unpacked here.
pub(crate) trait Codebook<const B: usize>: KQuant<Block = [u8; B]> {
    /// Indices, where they are put together for a whole block; and the shifts of entries.
    type At;

    /// What `block` needs beside its codes; `sums` are those of its inputs.
    fn unpacked(isa: Avx2, block: &[u8; B], sums: &Sums) -> Unpacked<Self::At>;
    /// Codes 32·g to 32·g + 31, unsigned, at most 62.
    fn unsigned_codes(isa: Avx2, block: &[u8; B], at: &Self::At, g: usize) -> __m256i;
    /// f16.
    fn d(block: &[u8; B]) -> u16;
}

/// What a block needs beside its codes.
pub(crate) struct Unpacked<T> {
    at: T,
    /// Bit i of word g: whether code 32·g + i is negative.
    minus: Option<[u32; 8]>,
    /// The scales of group g in word g of both lanes: of its first half in the low one, of the
    /// second in the high one.
    scales: __m256i,
    /// What lowers raised codes, in some of the lanes.
    start: __m256i,
}

/// Indices for `vpshufb` that make word `i / n` from `first` on of each 128-bit lane word i.
const fn repeated(first: [u8; 2], n: u8) -> [u8; 32] {
    let mut index = [0; 32];
    let mut k = 0;
    while k < 32 {
        index[k] = 2 * (first[k / 16] + k as u8 % 16 / 2 / n) + k as u8 % 2;
        k += 1;
    }
    index
}

/// `2^(first − step·(i % n))` in word i, what shifts each of `n` fields to the same place; in the
/// high lane `first[1]`.
const fn factors(first: [u32; 2], step: u32, n: usize) -> [i16; 16] {
    let mut factors = [0; 16];
    let mut i = 0;
    while i < 16 {
        factors[i] = (1_u16 << (first[i / 8] - step * (i % n) as u32)) as i16;
        i += 1;
    }
    factors
}

impl Avx2 {
    proven! {
        fn loaded_8(self, bytes: &[u8; 8]) -> __m128i { _mm_cvtsi64_si128(load(bytes)) }
        fn zero(self) -> __m256i { _mm256_setzero_si256() }
        /// 16 bytes as words.
        fn widened(self, bytes: &[u8; 16]) -> __m256i { _mm256_cvtepu8_epi16(load(bytes)) }
        fn in_both_lanes(self, v: __m128i) -> __m256i { _mm256_broadcastsi128_si256(v) }
        /// Scales of 4 bits, the low nibbles those of first halves.
        fn odd_nibbles(self, bytes: &[u8; 8]) -> __m256i {
            let words = _mm_cvtepu8_epi16(self.loaded_8(bytes));
            let halves = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(words), _mm_srli_epi16::<4>(words));
            odd(_mm256_and_si256(halves, _mm256_set1_epi16(15)))
        }
        /// Scales in the top 4 bits of eight words.
        fn odd_tops(self, groups: __m256i) -> __m256i {
            let tops = _mm256_srli_epi32::<28>(groups);
            odd(_mm256_permute4x64_epi64::<0b10_00_10_00>(_mm256_packus_epi32(tops, tops)))
        }
        /// Scales of 3 bits, four in each of four words.
        fn odd_threes(self, words: &[u8; 8]) -> __m256i {
            let words = self.in_both_lanes(self.loaded_8(words));
            let words = _mm256_shuffle_epi8(words, self.load(const { &repeated([0, 0], 2) }));
            let scales = _mm256_mullo_epi16(words, load(const { &factors([9, 6], 6, 2) }));
            odd(_mm256_and_si256(_mm256_srli_epi16::<9>(scales), _mm256_set1_epi16(7)))
        }
        /// `−Σ factor·sum`, in some of the lanes.
        fn offset_correction(self, factors: __m256i, sums: __m256i) -> __m256i {
            _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_madd_epi16(factors, sums))
        }

        fn iq2_xxs(self, block: layout::IQ2_XXS<'_>) -> Unpacked<()> {
            // Of each group four indices, then 28 signs and the scale.
            let halves = block.qs().as_chunks().0;
            let half = |i: usize| _mm256_castsi256_ps(self.load(&halves[i]));
            let groups = _mm256_castps_si256(_mm256_shuffle_ps::<0b11_01_11_01>(half(0), half(1)));
            let groups = _mm256_permute4x64_epi64::<0b11_01_10_00>(groups);
            Unpacked {
                at: (),
                minus: Some(load(&even_signs(spread_sevens(groups)))),
                scales: self.odd_tops(groups),
                start: self.zero(),
            }
        }
        fn iq2_xs(self, block: layout::IQ2_XS<'_>) -> Unpacked<[[u16; 16]; 2]> {
            // Indices of 9 bits, then 7 signs.
            let halves = block.qs().as_chunks().0;
            let words = [self.load(&halves[0]), self.load(&halves[1])];
            let index = |i: usize| load(&_mm256_and_si256(words[i], _mm256_set1_epi16(511)));
            let signs = _mm256_packus_epi16(_mm256_srli_epi16::<9>(words[0]), _mm256_srli_epi16::<9>(words[1]));
            let signs = _mm256_permute4x64_epi64::<0b11_01_10_00>(signs);
            Unpacked {
                at: [index(0), index(1)],
                minus: Some(load(&even_signs(signs))),
                scales: self.odd_nibbles(block.scales()),
                start: self.zero(),
            }
        }
        fn iq2_s(self, block: layout::IQ2_S<'_>) -> Unpacked<[[u16; 16]; 2]> {
            // A byte of `qh` has 2 bits of each of 4 indices.
            let (low, high) = (block.qs().as_chunks().0, self.in_both_lanes(_mm_cvtepu8_epi16(self.loaded_8(block.qh()))));
            let index = |i: usize, order: &[u8; 32]| {
                let high = _mm256_shuffle_epi8(high, self.load(order));
                let high = _mm256_mullo_epi16(high, load(const { &factors([8, 8], 2, 4) }));
                let high = _mm256_and_si256(high, _mm256_set1_epi16(0x300));
                load(&_mm256_or_si256(self.widened(&low[i]), high))
            };
            Unpacked {
                at: [index(0, const { &repeated([0, 2], 4) }), index(1, const { &repeated([4, 6], 4) })],
                minus: IQ2_S::signs(self, block.0),
                scales: self.odd_nibbles(block.scales()),
                start: self.zero(),
            }
        }
        fn iq3_xxs(self, block: layout::IQ3_XXS<'_>) -> Unpacked<()> {
            // Of each group 28 signs and the scale.
            let groups = self.load(block.scales());
            Unpacked {
                at: (),
                minus: Some(load(&even_signs(spread_sevens(groups)))),
                scales: self.odd_tops(groups),
                start: self.zero(),
            }
        }
        fn iq3_s(self, block: layout::IQ3_S<'_>) -> Unpacked<[[u16; 16]; 4]> {
            let (low, ninth) = (block.qs().as_chunks().0, block.qh().as_chunks().0);
            let bit = load(const { &WORD_BITS });
            let index = |i: usize| {
                let set = _mm256_and_si256(_mm256_set1_epi16(i16::from_le_bytes(ninth[i])), bit);
                let high = _mm256_and_si256(_mm256_cmpeq_epi16(set, bit), _mm256_set1_epi16(256));
                load(&_mm256_or_si256(self.widened(&low[i]), high))
            };
            let nibbles = nibbles(_mm_cvtsi32_si128(i32::from_le_bytes(*block.scales())));
            Unpacked {
                at: [index(0), index(1), index(2), index(3)],
                minus: IQ3_S::signs(self, block.0),
                scales: odd(self.in_both_lanes(_mm_cvtepu8_epi16(nibbles))),
                start: self.zero(),
            }
        }
        /// Codes biased by 8: the shift, which is that of a group, goes to the sums.
        fn iq1_s(self, block: layout::IQ1_S<'_>, sums: &Sums) -> Unpacked<[[u16; 16]; 2]> {
            // Of each group 3 high bits of 4 indices, 3 bits of the scale and the sign of the
            // shift.
            let (low, groups) = (block.qs().as_chunks().0, self.in_both_lanes(load(block.qh())));
            let index = |i: usize, order: &[u8; 32]| {
                let high = _mm256_shuffle_epi8(groups, self.load(order));
                let high = _mm256_mullo_epi16(high, load(const { &factors([9, 9], 3, 4) }));
                let high = _mm256_and_si256(_mm256_srli_epi16::<1>(high), _mm256_set1_epi16(0x700));
                load(&_mm256_or_si256(self.widened(&low[i]), high))
            };
            let scales = odd(_mm256_and_si256(_mm256_srli_epi16::<12>(groups), _mm256_set1_epi16(7)));
            // 7 or 9.
            let minus = _mm256_and_si256(_mm256_srai_epi16::<15>(groups), _mm256_set1_epi16(2));
            let biased = _mm256_mullo_epi16(scales, _mm256_add_epi16(minus, _mm256_set1_epi16(7)));
            Unpacked {
                at: [index(0, const { &repeated([0, 2], 4) }), index(1, const { &repeated([4, 6], 4) })],
                minus: None,
                scales,
                // Zeros behind the first eight.
                start: self.offset_correction(biased, load(&sums.of_32.whole)),
            }
        }
        /// Codes biased by 9, with their shifts.
        fn iq1_m(self, block: layout::IQ1_M<'_>, sums: &Sums) -> Unpacked<([[u16; 16]; 2], [u32; 8])> {
            // A nibble of each index: 3 high bits and the sign of the shift.
            let (low, pairs) = (block.qs().as_chunks().0, self.widened(block.qh()));
            let nibbles = _mm256_or_si256(pairs, _mm256_slli_epi16::<4>(pairs));
            let index = |i: usize, nibbles: __m128i| {
                let high = _mm256_slli_epi16::<8>(_mm256_cvtepu8_epi16(nibbles));
                load(&_mm256_or_si256(self.widened(&low[i]), _mm256_and_si256(high, _mm256_set1_epi16(0x700))))
            };
            // 10 or 8.
            let minus = _mm256_and_si256(_mm256_srli_epi16::<2>(nibbles), _mm256_set1_epi8(2));
            let shifts = load(&_mm256_sub_epi8(_mm256_set1_epi8(10), minus));
            let scales = self.odd_threes(block.scales());
            // Sums of first halves in the low lane, of second halves in the high one.
            let sums = _mm256_shuffle_epi8(load(&sums.of_16.whole), self.load(const { &EVEN_ODD_WORDS }));
            let sums = _mm256_permute4x64_epi64::<0b11_01_10_00>(sums);
            Unpacked {
                at: (
                    [index(0, _mm256_castsi256_si128(nibbles)), index(1, _mm256_extracti128_si256::<1>(nibbles))],
                    shifts,
                ),
                minus: None,
                scales,
                start: self.offset_correction(_mm256_mullo_epi16(scales, _mm256_set1_epi16(9)), sums),
            }
        }

        /// Byte `i` of four in each of 8 bytes.
        fn of_eight(self, four: u32) -> __m256i {
            _mm256_shuffle_epi8(_mm256_set1_epi32(four as i32), self.load(&BYTE_OF_BIT))
        }
        fn sum(self, a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi32(a, b) }
        fn sum_of_bytes(self, a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi8(a, b) }
        fn splat_byte(self, byte: i8) -> __m256i { _mm256_set1_epi8(byte) }
        /// `x` without any −128, negative where `minus` is set.
        fn negated(self, x: &[i8; 32], minus: u32) -> __m256i {
            let bit = _mm256_set1_epi64x(BIT);
            let minus = _mm256_cmpeq_epi8(_mm256_and_si256(self.of_eight(minus), bit), bit);
            _mm256_sign_epi8(load(x), _mm256_or_si256(minus, _mm256_set1_epi8(1)))
        }
        fn spread(self, scales: __m256i, g: usize) -> __m256i { _mm256_shuffle_epi8(scales, self.load(&unknown(&WORDS)[g])) }
        fn scaled(self, k: f32, d: &[u16; 4], totals: __m128) -> __m128 {
            let d = _mm_mul_ps(_mm_cvtph_ps(_mm_cvtsi64_si128(load(d))), _mm_set1_ps(k));
            _mm_mul_ps(d, totals)
        }
    }

    /// A block of each of four rows, without the scale of the activations.
    #[inline(always)]
    pub(crate) fn codebook<F: Codebook<B>, const B: usize>(
        self,
        blocks: [&[u8; B]; 4],
        x: Input<'_>,
        prefetch: impl Fn(usize),
    ) -> __m128 {
        let (mut d, mut dots) = ([0; 4], [self.zero(); 4]);
        for r in 0..4 {
            prefetch(r);
            let block = unknown(blocks[r]);
            let unpacked = F::unpacked(self, block, x.sums);
            (d[r], dots[r]) = (
                F::d(block),
                self.dot::<F, B>(block, &unpacked, unknown(x.codes)),
            );
        }
        self.scaled(F::K, &d, self.four_totals(dots))
    }

    /// Written out: neither would a loop be unrolled for all formats, nor a closure inlined.
    #[inline(always)]
    fn dot<F: Codebook<B>, const B: usize>(
        self,
        block: &[u8; B],
        u: &Unpacked<F::At>,
        x: &[i8; 256],
    ) -> __m256i {
        let x = x.as_chunks().0;
        let even = self.group::<F, B>(u.start, block, u, &x[0], 0);
        let odd = self.group::<F, B>(self.zero(), block, u, &x[1], 1);
        let even = self.group::<F, B>(even, block, u, &x[2], 2);
        let odd = self.group::<F, B>(odd, block, u, &x[3], 3);
        let even = self.group::<F, B>(even, block, u, &x[4], 4);
        let odd = self.group::<F, B>(odd, block, u, &x[5], 5);
        let even = self.group::<F, B>(even, block, u, &x[6], 6);
        let odd = self.group::<F, B>(odd, block, u, &x[7], 7);
        self.sum(even, odd)
    }

    /// `acc` and the products of codes 32·g to 32·g + 31.
    #[inline(always)]
    fn group<F: Codebook<B>, const B: usize>(
        self,
        acc: __m256i,
        block: &[u8; B],
        Unpacked {
            at, minus, scales, ..
        }: &Unpacked<F::At>,
        x: &[i8; 32],
        g: usize,
    ) -> __m256i {
        let x = match minus {
            Some(minus) => self.negated(x, minus[g]),
            None => load(x),
        };
        // 2·62·127 fits an i16.
        self.add_pairs(
            acc,
            F::unsigned_codes(self, block, at, g),
            x,
            self.spread(*scales, g),
        )
    }
}

/// Even words of each 128-bit lane, then odd ones.
const EVEN_ODD_WORDS: [u8; 32] = {
    let (mut index, mut k) = ([0; 32], 0);
    while k < 32 {
        let i = k as u8 % 16;
        index[k] = 4 * (i / 2 % 4) + 2 * (i / 8) + i % 2;
        k += 1;
    }
    index
};

/// Bit i in word i.
const WORD_BITS: [i16; 16] = {
    let (mut bits, mut i) = ([0; 16], 0);
    while i < 16 {
        bits[i] = (1_u16 << i) as i16;
        i += 1;
    }
    bits
};

/// Those of group `g`; `% N` says to the compiler what the masks of indices do.
#[inline(always)]
fn indices_of<const N: usize, const CODES: usize, const ENTRIES: usize>(
    _: &[[i8; CODES]; N],
    indices: &[[u16; 16]],
    g: usize,
) -> [u16; ENTRIES] {
    const { assert!(N.is_power_of_two() && CODES * ENTRIES == 32) };
    indices.as_flattened().as_chunks().0[g].map(|index| index % N as u16)
}

macro_rules! codebooks {
    (
        $($format:ident, $unpack:ident($($sums:ident)?) -> $at:ty:
        |$isa:ident, $block:ident, $indices:ident, $g:ident| $codes:expr;)*
    ) => {
        $(impl Codebook<{ layout::$format::BYTES }> for $format {
            type At = $at;

            #[inline(always)]
            fn unpacked(isa: Avx2, block: &[u8; layout::$format::BYTES], _sums: &Sums) -> Unpacked<$at> {
                $(let $sums = _sums;)?
                isa.$unpack(layout::$format(block) $(, $sums)?)
            }

            #[inline(always)]
            fn unsigned_codes($isa: Avx2, $block: &[u8; layout::$format::BYTES], $indices: &$at, $g: usize) -> __m256i {
                $codes
            }

            #[inline(always)]
            fn d(block: &[u8; layout::$format::BYTES]) -> u16 {
                layout::$format(block).d_bits()
            }
        })*
    };
}
codebooks! {
    IQ1_S, iq1_s(sums) -> [[u16; 16]; 2]: |isa, _b, at, g|
        isa.sum_of_bytes(entries_of_8(isa, &grids::IQ1, indices_of(&grids::IQ1, at, g)), isa.splat_byte(8));
    IQ1_M, iq1_m(sums) -> ([[u16; 16]; 2], [u32; 8]): |isa, _b, at, g|
        isa.sum_of_bytes(entries_of_8(isa, &grids::IQ1, indices_of(&grids::IQ1, &at.0, g)), isa.of_eight(at.1[g]));
    IQ2_XXS, iq2_xxs() -> (): |isa, b, _at, g| Self::codes(isa, b, g);
    IQ2_XS, iq2_xs() -> [[u16; 16]; 2]: |isa, _b, at, g| entries_of_8(isa, &grids::IQ2_XS, indices_of(&grids::IQ2_XS, at, g));
    IQ2_S, iq2_s() -> [[u16; 16]; 2]: |isa, _b, at, g| entries_of_8(isa, &grids::IQ2_S, indices_of(&grids::IQ2_S, at, g));
    IQ3_XXS, iq3_xxs() -> (): |isa, b, _at, g| Self::codes(isa, b, g);
    IQ3_S, iq3_s() -> [[u16; 16]; 4]: |isa, _b, at, g| entries_of_4(isa, &grids::IQ3_S, indices_of(&grids::IQ3_S, at, g));
}
