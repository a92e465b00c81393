//! As `avx512_decode.rs`, for formats with codebooks: quads, 64 codes at a time.
//!
//! Codebooks of up to 512 entries lie packed in registers (or the L1), 32 words each, and 32
//! entries are looked up at once by `vpermi2w`; then the words are spread to bytes. Signs are
//! masks, and go to the inputs. Fields: `atta_formats::layout`. Formats with larger codebooks,
//! whose entries are loaded one by one, are not faster here than in `avx2_grid.rs`.

// Indices name rows and blocks that several arrays share.
#![allow(clippy::needless_range_loop)]

use super::blocks::{Inputs256, Prefetch, SCALES_OF_16, words_from};
use crate::format::KQuant;
use crate::format::{IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS};
use crate::isa::avx2::{even_signs, nibbles, odd, proven, spread_sevens};
use crate::isa::avx512::Avx512;
use crate::isa::memory::load;
use atta_formats::layout::{self, Signed, grids};
use std::arch::x86_64::*;

/// A format with blocks of `B` bytes that is unpacked here.
pub(crate) trait Codebook<const B: usize>: KQuant<Block = [u8; B]> {
    fn unpacked(isa: Avx512, block: &[u8; B]) -> Unpacked;
    /// f16.
    fn d(block: &[u8; B]) -> u16;
}

/// A block of 256 weights.
pub(crate) struct Unpacked {
    /// Unsigned, at most 62.
    codes: [__m512i; 4],
    /// Bit i of word k: whether code 64·k + i is negative.
    minus: [u64; 4],
    /// The scale of each group in a word; of eight groups in the lower half, and something in the
    /// upper one.
    scales: __m256i,
}

/// Words of a packed codebook.
#[repr(C, align(64))]
struct Packed<const N: usize>([u16; N]);

static PACKED_IQ2_XXS: Packed<256> = Packed(grids::PACKED_IQ2_XXS);
static PACKED_IQ2_XS: Packed<512> = Packed(grids::PACKED_IQ2_XS);
static PACKED_IQ3_XXS: Packed<256> = Packed(grids::PACKED_IQ3_XXS);
static PACKED_IQ3_S: Packed<512> = Packed(grids::PACKED_IQ3_S);

/// What codes of 2 or 3 bits stand for, as a table for `vpshufb`.
const OF_IQ2: [u8; 16] = table(&grids::IQ2_VALUES);
const OF_IQ3_XXS: [u8; 16] = table(&grids::IQ3_XXS_VALUES);
const OF_IQ3_S: [u8; 16] = table(&grids::IQ3_S_VALUES);

const fn table(values: &[i8]) -> [u8; 16] {
    let (mut table, mut i) = ([0; 16], 0);
    while i < values.len() {
        table[i] = values[i] as u8;
        i += 1;
    }
    table
}

/// Spread words of eight groups, two at a time, over 64 weights.
const WORDS_OF_GROUPS: [[u16; 32]; 4] = [
    words_from(0, 16),
    words_from(2, 16),
    words_from(4, 16),
    words_from(6, 16),
];

impl Avx512 {
    proven! {
        /// Words at indices of 8 bits.
        fn look_up_256(self, table: &[u16; 256], indices: __m512i) -> __m512i {
            let table = table.as_chunks::<32>().0;
            let of_64 = |i: usize| {
                _mm512_permutex2var_epi16(load(&table[2 * i]), indices, load(&table[2 * i + 1]))
            };
            let bit_6 = _mm512_test_epi16_mask(indices, _mm512_set1_epi16(64));
            let bit_7 = _mm512_test_epi16_mask(indices, _mm512_set1_epi16(128));
            let low = _mm512_mask_mov_epi16(of_64(0), bit_6, of_64(1));
            let high = _mm512_mask_mov_epi16(of_64(2), bit_6, of_64(3));
            _mm512_mask_mov_epi16(low, bit_7, high)
        }
        /// Words at indices of 8 bits and a ninth.
        fn look_up_512(self, table: &[u16; 512], indices: __m512i, ninth: u32) -> __m512i {
            let table = table.as_chunks::<256>().0;
            let (low, high) = (self.look_up_256(&table[0], indices), self.look_up_256(&table[1], indices));
            _mm512_mask_mov_epi16(low, ninth, high)
        }
        /// Codes of 2 bits, eight in each word, 64 in each vector.
        fn codes_of_pairs(self, words: __m512i, values: &[u8; 16]) -> [__m512i; 4] {
            [
                self.bytes_of_pairs(_mm512_castsi512_si128(words), values),
                self.bytes_of_pairs(_mm512_extracti32x4_epi32::<1>(words), values),
                self.bytes_of_pairs(_mm512_extracti32x4_epi32::<2>(words), values),
                self.bytes_of_pairs(_mm512_extracti32x4_epi32::<3>(words), values),
            ]
        }
        fn bytes_of_pairs(self, words: __m128i, values: &[u8; 16]) -> __m512i {
            let v = _mm512_cvtepu16_epi64(words);
            let v = _mm512_and_si512(_mm512_or_si512(v, _mm512_slli_epi64::<24>(v)), _mm512_set1_epi32(0xff));
            let v = _mm512_and_si512(_mm512_or_si512(v, _mm512_slli_epi32::<12>(v)), _mm512_set1_epi16(0x0f));
            let v = _mm512_and_si512(_mm512_or_si512(v, _mm512_slli_epi16::<6>(v)), _mm512_set1_epi8(3));
            self.values(values, v)
        }
        /// Codes of 3 bits, four in each word, 64 in each vector.
        fn codes_of_threes(self, words: [__m512i; 2], values: &[u8; 16]) -> [__m512i; 4] {
            [
                self.bytes_of_threes(_mm512_castsi512_si256(words[0]), values),
                self.bytes_of_threes(_mm512_extracti64x4_epi64::<1>(words[0]), values),
                self.bytes_of_threes(_mm512_castsi512_si256(words[1]), values),
                self.bytes_of_threes(_mm512_extracti64x4_epi64::<1>(words[1]), values),
            ]
        }
        fn bytes_of_threes(self, words: __m256i, values: &[u8; 16]) -> __m512i {
            let v = _mm512_cvtepu16_epi32(words);
            let v = _mm512_and_si512(_mm512_or_si512(v, _mm512_slli_epi32::<10>(v)), _mm512_set1_epi16(0x3f));
            let v = _mm512_and_si512(_mm512_or_si512(v, _mm512_slli_epi16::<5>(v)), _mm512_set1_epi8(7));
            self.values(values, v)
        }
        fn values(self, values: &[u8; 16], v: __m512i) -> __m512i {
            let table = _mm512_broadcast_i32x4(load(values));
            _mm512_shuffle_epi8(table, v)
        }
        /// 32 bytes as words.
        fn widened(self, bytes: &[u8; 32]) -> __m512i { _mm512_cvtepu8_epi16(load(bytes)) }
        fn loaded_8(self, bytes: &[u8; 8]) -> __m128i { _mm_cvtsi64_si128(load(bytes)) }
        /// Scales of 4 bits, the low nibble first.
        fn odd_nibbles(self, bytes: __m128i) -> __m256i { odd(_mm256_cvtepu8_epi16(nibbles(bytes))) }

        fn iq2_xxs(self, block: layout::IQ2_XXS<'_>) -> Unpacked {
            // Of each group four indices, then 28 signs and the scale.
            let groups = load(block.qs());
            let indices = _mm512_cvtepu8_epi16(_mm512_cvtepi64_epi32(groups));
            let signs = spread_sevens(_mm512_cvtepi64_epi32(_mm512_srli_epi64::<32>(groups)));
            let scales = _mm512_cvtepi64_epi16(_mm512_srli_epi64::<60>(groups));
            Unpacked {
                codes: self.codes_of_pairs(self.look_up_256(&PACKED_IQ2_XXS.0, indices), &OF_IQ2),
                minus: load(&even_signs(signs)),
                scales: odd(_mm256_zextsi128_si256(scales)),
            }
        }
        fn iq2_xs(self, block: layout::IQ2_XS<'_>) -> Unpacked {
            // Indices of 9 bits, then 7 signs.
            let words = load(block.qs());
            let ninth = _mm512_test_epi16_mask(words, _mm512_set1_epi16(256));
            let signs = _mm512_cvtepi16_epi8(_mm512_srli_epi16::<9>(words));
            Unpacked {
                codes: self.codes_of_pairs(self.look_up_512(&PACKED_IQ2_XS.0, words, ninth), &OF_IQ2),
                minus: load(&even_signs(signs)),
                scales: self.odd_nibbles(self.loaded_8(block.scales())),
            }
        }
        fn iq3_xxs(self, block: layout::IQ3_XXS<'_>) -> Unpacked {
            let [low, high] = halves(block.qs());
            let words = [
                self.look_up_256(&PACKED_IQ3_XXS.0, self.widened(low)),
                self.look_up_256(&PACKED_IQ3_XXS.0, self.widened(high)),
            ];
            // Of each group 28 signs and the scale.
            let groups = load(block.scales());
            let scales = _mm256_cvtepi32_epi16(_mm256_srli_epi32::<28>(groups));
            Unpacked {
                codes: self.codes_of_threes(words, &OF_IQ3_XXS),
                minus: load(&even_signs(spread_sevens(groups))),
                scales: odd(_mm256_zextsi128_si256(scales)),
            }
        }
        fn iq3_s(self, block: layout::IQ3_S<'_>) -> Unpacked {
            let ninth = u64::from_le_bytes(*block.qh());
            let [low, high] = halves(block.qs());
            let words = [
                self.look_up_512(&PACKED_IQ3_S.0, self.widened(low), ninth as u32),
                self.look_up_512(&PACKED_IQ3_S.0, self.widened(high), (ninth >> 32) as u32),
            ];
            let scales = i32::from_le_bytes(*block.scales());
            Unpacked {
                codes: self.codes_of_threes(words, &OF_IQ3_S),
                minus: masks_of(block.signs()),
                scales: self.odd_nibbles(_mm_cvtsi32_si128(scales)),
            }
        }
        /// `acc` and the products of 64 codes with the inputs, which are negative where `minus` is
        /// set.
        fn dot_signed(self, acc: __m512i, codes: __m512i, x: &[i8; 64], minus: u64, scales: __m512i) -> __m512i {
            let x = load(x);
            let x = _mm512_mask_sub_epi8(x, minus, _mm512_setzero_si512(), x);
            self.dot_pairs(acc, codes, x, scales)
        }
        fn spread(self, n_groups: usize, i: usize, scales: __m256i) -> __m512i {
            let index = if n_groups == 16 { &SCALES_OF_16[i] } else { &WORDS_OF_GROUPS[i] };
            _mm512_permutexvar_epi16(load(index), _mm512_castsi256_si512(scales))
        }
        fn finished(self, k: f32, d: &[u16; 16], blocks: [__m512i; 4], x_scales: [f32; 4]) -> __m512 {
            let d = _mm512_mul_ps(self.halves_16(d), _mm512_set1_ps(k));
            _mm512_mul_ps(self.of_blocks(x_scales), _mm512_mul_ps(d, self.fold_blocks(blocks)))
        }
        fn no_products(self) -> __m512i { _mm512_setzero_si512() }
    }

    /// A 4×4 block kernel of a format with a codebook.
    #[inline(always)]
    pub(crate) fn codebook<F: Codebook<B>, const B: usize, const N: usize>(
        self,
        rows: [&[[u8; B]; N]; 4],
        x: Inputs256<'_, N>,
        prefetch: impl Prefetch,
    ) -> __m512 {
        let (mut d, mut blocks) = ([0; 16], [self.no_products(); 4]);
        for c in 0..N {
            let xs = x.codes[c].as_chunks::<64>().0;
            let mut dots = [self.no_products(); 4];
            for r in 0..4 {
                prefetch.prefetch(self, &rows[r][c], c, r);
                d[4 * c + r] = F::d(&rows[r][c]);
                let Unpacked {
                    codes,
                    minus,
                    scales,
                } = F::unpacked(self, &rows[r][c]);
                for i in 0..4 {
                    let spread = self.spread(F::GROUPS, i, scales);
                    dots[r] = self.dot_signed(dots[r], codes[i], &xs[i], minus[i], spread);
                }
            }
            blocks[c] = self.fold_rows(dots);
        }
        self.finished(F::K, &d, blocks, x.scales)
    }
}

/// The indices of the first and the second 128 weights.
#[inline(always)]
fn halves(bytes: &[u8; 64]) -> [&[u8; 32]; 2] {
    let halves = bytes.as_chunks().0;
    [&halves[0], &halves[1]]
}

/// Signs that are stored as they are.
#[inline(always)]
fn masks_of(signs: &[u8; 32]) -> [u64; 4] {
    let words = signs.as_chunks().0;
    [0, 1, 2, 3].map(|i| u64::from_le_bytes(words[i]))
}

macro_rules! codebooks {
    ($($format:ident, $unpack:ident;)*) => {
        $(impl Codebook<{ layout::$format::BYTES }> for $format {
            #[inline(always)]
            fn unpacked(isa: Avx512, block: &[u8; layout::$format::BYTES]) -> Unpacked {
                isa.$unpack(layout::$format(block))
            }

            #[inline(always)]
            fn d(block: &[u8; layout::$format::BYTES]) -> u16 {
                layout::$format(block).d_bits()
            }
        })*
    };
}
codebooks! {
    IQ2_XXS, iq2_xxs;
    IQ2_XS, iq2_xs;
    IQ3_XXS, iq3_xxs;
    IQ3_S, iq3_s;
}
