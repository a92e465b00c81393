//! As `k_quants.rs`, for T2, T3 and T4: four weight rows, half a block at a time.
//!
//! The steps are those of `fused/x86_512/trellis.rs`, with shifts in place of rotations, a byte
//! shuffle for each 16 levels, and pairs of products that a scale of their sub-block multiplies.
//! A shorter block at the end of a row is read by masked loads, which do not reach behind it.

use super::k_quants::{Input, unknown};
use crate::algo::matmul::RowTile;
use crate::algo::unpack::NextTile;
use crate::format::trellis::Leveled;
use crate::fused::masked::{dwords_256, qwords_256};
use crate::fused::x86_512::{four_rows, store};
use crate::isa::avx2::{Avx2, proven};
use crate::isa::memory::{load, load_at};
use std::arch::x86_64::*;

/// Multiplies a row tile.
#[inline(always)]
pub(crate) fn fours<F: Leveled<B>, const B: usize>(isa: Avx2, row_tile: RowTile<'_>) {
    #[cfg(test)]
    crate::testing::ran("x86_256::trellis");
    let w = row_tile.w;
    let n_last = row_tile.w.d_in() % 256 / 32;
    let next = NextTile::new(&row_tile, w.d_out());
    for r in (0..w.d_out()).step_by(4) {
        let places = [r, r + 1, r + 2, r + 3];
        let [first, second, third, fourth] = four_rows(w, F::blocks, places);
        let next = next.behind(r * w.row(0).len());
        let n_whole = first.len();
        let mut out = isa.no_four();
        for (b, (((first, second), third), fourth)) in
            first.iter().zip(second).zip(third).zip(fourth).enumerate()
        {
            let (input, scale) = input(&row_tile, b);
            let v = isa.trellis::<F, B>([first, second, third, fourth], input, |i| {
                next.block(isa, 4 * b + i, B)
            });
            out = isa.add_four(out, scale, v);
        }
        if n_last > 0 {
            let tails = four_rows(w, |row| row.as_chunks::<B>().1, places);
            let (input, scale) = input(&row_tile, n_whole);
            out = isa.add_four(out, scale, isa.short_trellis::<F, B>(tails, n_last, input));
        }
        store(load(&out), places, &mut row_tile.acc[..w.d_out()]);
    }
}

/// Block `b` of the activation row of a row tile, and its scale.
#[inline(always)]
fn input<'a>(row_tile: &RowTile<'a>, b: usize) -> (Input<'a>, f32) {
    let x = row_tile.x.q8_256();
    let at = x.at(b, row_tile.rows.start);
    let input = Input {
        codes: &x.codes[at].0,
        sums: &x.sums[at],
    };
    (input, x.scales[at])
}

/// A block in registers: qword b of both belongs to sub-block b.
struct HalfWords {
    /// Symbols.
    x: [__m256i; 2],
    /// Byte l: what lane l has above its nibbles.
    upper: [__m256i; 2],
    /// Nibbles of all sub-blocks.
    scales: i32,
}

/// Indices for `vpshufb` that spread words of scales over the four words of each of four
/// sub-blocks, from `first` on.
const fn four_of_each(first: u8) -> [u8; 32] {
    let (mut index, mut k) = ([0; 32], 0);
    while k < 32 {
        index[k] = 2 * (first + k as u8 / 8) + k as u8 % 2;
        k += 1;
    }
    index
}

static SCALES_OF_HALVES: [[u8; 32]; 2] = [four_of_each(0), four_of_each(4)];
const DWORDS: [i32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

impl Avx2 {
    proven! {
        /// 128 activations in the order of symbols: those of 4j + f in vector f.
        fn symbol_order(self, codes: &[i8; 128]) -> [__m256i; 4] {
            let [a, b, c, d] = load(codes);
            let even = [_mm256_unpacklo_epi64(a, b), _mm256_unpacklo_epi64(c, d)];
            let odd = [_mm256_unpackhi_epi64(a, b), _mm256_unpackhi_epi64(c, d)];
            [
                _mm256_permute2x128_si256::<0x20>(even[0], even[1]),
                _mm256_permute2x128_si256::<0x20>(odd[0], odd[1]),
                _mm256_permute2x128_si256::<0x31>(even[0], even[1]),
                _mm256_permute2x128_si256::<0x31>(odd[0], odd[1]),
            ]
        }

        fn whole_words<const B: usize>(self, block: &[u8; B], n_upper: usize) -> HalfWords {
            let none = _mm256_setzero_si256();
            let upper = match n_upper {
                0 => [none; 2],
                1 => {
                    let h = load_at(block, 70);
                    [h, _mm256_srli_epi64::<4>(h)]
                }
                _ => [load_at(block, 70), load_at(block, 102)],
            };
            let x = [load_at(block, 6), load_at(block, 38)];
            HalfWords { x, upper, scales: load_at(block, 2) }
        }
        /// A block of `n` sub-blocks.
        fn short_words(self, block: &[u8], n: usize, n_upper: usize) -> HalfWords {
            let x = &block[2 + n.div_ceil(2)..];
            let above = &x[8 * n..];
            let upper = match n_upper {
                0 => [_mm256_setzero_si256(); 2],
                1 => {
                    let h = dwords_256(above, n);
                    [self.halves_of(h, n, 0), self.halves_of(h, n, 8)]
                }
                _ => qwords_256(above, n),
            };
            // Symbols take the place of missing scales, which multiply zeros.
            let scales = i32::from_le_bytes([block[2], block[3], block[4], block[5]]);
            HalfWords { x: qwords_256(x, n), upper, scales }
        }
        /// Of the low nibbles of `n` dwords and then their high ones, eight from `first` on.
        fn halves_of(self, h: __m256i, n: usize, first: i32) -> __m256i {
            let n = _mm256_set1_epi32(n as i32);
            let dwords = _mm256_add_epi32(load(&DWORDS), _mm256_set1_epi32(first));
            let low = _mm256_cmpgt_epi32(n, dwords);
            let from = _mm256_sub_epi32(dwords, _mm256_andnot_si256(low, n));
            let shift = _mm256_andnot_si256(low, _mm256_set1_epi32(4));
            _mm256_srlv_epi32(_mm256_permutevar8x32_epi32(h, from), shift)
        }

        /// The low four bits of the labels of symbols 4j + f in vector f.
        fn nibbles_of_symbols(self, x: __m256i) -> [__m256i; 4] {
            let low = _mm256_set1_epi8(0x33);
            let high = _mm256_set1_epi8(-0x34);
            let nibble = _mm256_set1_epi8(0x0f);
            let once = _mm256_xor_si256(_mm256_srli_epi64::<1>(x), _mm256_slli_epi64::<63>(x));
            let four = _mm256_xor_si256(_mm256_srli_epi64::<4>(x), _mm256_slli_epi64::<60>(x));
            let z = _mm256_xor_si256(x, _mm256_xor_si256(once, four));
            let p = _mm256_or_si256(
                _mm256_and_si256(x, low),
                _mm256_and_si256(_mm256_slli_epi64::<2>(z), high),
            );
            let q = _mm256_or_si256(
                _mm256_and_si256(_mm256_srli_epi64::<2>(x), low),
                _mm256_and_si256(z, high),
            );
            [
                _mm256_and_si256(p, nibble),
                _mm256_and_si256(q, nibble),
                _mm256_and_si256(_mm256_srli_epi64::<4>(p), nibble),
                _mm256_and_si256(_mm256_srli_epi64::<4>(q), nibble),
            ]
        }
        /// Bit `I` of each byte at its top.
        fn to_top<const I: usize>(self, upper: __m256i) -> __m256i {
            match I {
                0 => _mm256_slli_epi64::<7>(upper),
                1 => _mm256_slli_epi64::<6>(upper),
                2 => _mm256_slli_epi64::<5>(upper),
                3 => _mm256_slli_epi64::<4>(upper),
                4 => _mm256_slli_epi64::<3>(upper),
                5 => _mm256_slli_epi64::<2>(upper),
                6 => _mm256_slli_epi64::<1>(upper),
                _ => upper,
            }
        }
        /// Codes by their nibbles and bit `ONE` above them, of T4 bits `LOW` and `HIGH`.
        fn code_of<const ONE: usize, const LOW: usize, const HIGH: usize>(
            self, codes: &[u8; 64], low: __m256i, upper: __m256i, n_upper: usize
        ) -> __m256i {
            let codes = codes.as_chunks::<16>().0;
            let first = self.of_table(&codes[0], low);
            match n_upper {
                0 => first,
                1 => {
                    let second = self.of_table(&codes[1], low);
                    _mm256_blendv_epi8(first, second, self.to_top::<ONE>(upper))
                }
                _ => {
                    let odd = self.to_top::<LOW>(upper);
                    let first = _mm256_blendv_epi8(first, self.of_table(&codes[1], low), odd);
                    let second = self.of_table(&codes[2], low);
                    let second = _mm256_blendv_epi8(second, self.of_table(&codes[3], low), odd);
                    _mm256_blendv_epi8(first, second, self.to_top::<HIGH>(upper))
                }
            }
        }
        fn of_table(self, table: &[u8; 16], low: __m256i) -> __m256i {
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load(table)), low)
        }
        /// `isum` of a block in some parts.
        fn dot_labels(
            self,
            codes: &[u8; 64],
            words: HalfWords,
            n_upper: usize,
            x: &[[__m256i; 4]; 2],
            sums: &[i16; 16]
        ) -> __m256i {
            let nibbles = _mm_cvtsi32_si128(words.scales);
            let nibbles = _mm_unpacklo_epi8(nibbles, _mm_srli_epi16::<4>(nibbles));
            let scales = _mm_add_epi8(_mm_and_si128(nibbles, _mm_set1_epi8(15)), _mm_set1_epi8(1));
            let scales = _mm_cvtepu8_epi16(scales);
            // 64 is subtracted from the codes.
            let offset = _mm_slli_epi32::<6>(_mm_madd_epi16(scales, load_at(sums, 0)));
            let start = _mm256_zextsi128_si256(_mm_sub_epi32(_mm_setzero_si128(), offset));
            let scales = _mm256_broadcastsi128_si256(scales);
            let [low, high] = &SCALES_OF_HALVES;
            let of_low = _mm256_shuffle_epi8(scales, load(low));
            let half = [words.x[0], words.upper[0]];
            let sum = self.add_half(start, codes, half, n_upper, &x[0], of_low);
            let of_high = _mm256_shuffle_epi8(scales, load(high));
            self.add_half(sum, codes, [words.x[1], words.upper[1]], n_upper, &x[1], of_high)
        }
        fn no_sum(self) -> __m256i { _mm256_setzero_si256() }
        fn scaled_four(self, k: f32, d: &[u16; 4], totals: __m128) -> __m128 {
            let d = _mm_mul_ps(_mm_cvtph_ps(_mm_cvtsi64_si128(load(d))), _mm_set1_ps(k));
            _mm_mul_ps(d, totals)
        }
    }

    /// `sum` and the products of half a block. Written out: a loop over symbols would not be
    /// unrolled for all formats.
    #[inline(always)]
    fn add_half(
        self,
        sum: __m256i,
        codes: &[u8; 64],
        half: [__m256i; 2],
        n_upper: usize,
        x: &[__m256i; 4],
        scales: __m256i,
    ) -> __m256i {
        let low = self.nibbles_of_symbols(half[0]);
        let upper = half[1];
        let code = self.code_of::<0, 0, 1>(codes, low[0], upper, n_upper);
        let sum = self.add_pairs(sum, code, x[0], scales);
        let code = self.code_of::<1, 2, 3>(codes, low[1], upper, n_upper);
        let sum = self.add_pairs(sum, code, x[1], scales);
        let code = self.code_of::<2, 4, 5>(codes, low[2], upper, n_upper);
        let sum = self.add_pairs(sum, code, x[2], scales);
        let code = self.code_of::<3, 6, 7>(codes, low[3], upper, n_upper);
        self.add_pairs(sum, code, x[3], scales)
    }

    /// A block of each of four rows, without the scale of the activations.
    #[inline(always)]
    fn trellis<F: Leveled<B>, const B: usize>(
        self,
        blocks: [&[u8; B]; 4],
        x: Input<'_>,
        prefetch: impl Fn(usize),
    ) -> __m128 {
        let halves = x.codes.as_chunks::<128>().0;
        let xs = [self.symbol_order(&halves[0]), self.symbol_order(&halves[1])];
        let (mut d, mut dots) = ([0; 4], [self.no_sum(); 4]);
        for r in 0..4 {
            prefetch(r);
            let block = unknown(blocks[r]);
            d[r] = u16::from_le_bytes([block[0], block[1]]);
            let words = self.whole_words(block, F::N_UPPER);
            let sums = &x.sums.of_32.whole;
            dots[r] = self.dot_labels(const { &F::CODES }, words, F::N_UPPER, unknown(&xs), sums);
        }
        self.scaled_four(F::K, &d, self.four_totals(dots))
    }

    /// The same of the shorter block of `n` sub-blocks that ends each row.
    #[inline(always)]
    fn short_trellis<F: Leveled<B>, const B: usize>(
        self,
        rows: [&[u8]; 4],
        n: usize,
        x: Input<'_>,
    ) -> __m128 {
        let halves = x.codes.as_chunks::<128>().0;
        let xs = [self.symbol_order(&halves[0]), self.symbol_order(&halves[1])];
        let (mut d, mut dots) = ([0; 4], [self.no_sum(); 4]);
        for r in 0..4 {
            d[r] = u16::from_le_bytes([rows[r][0], rows[r][1]]);
            let words = self.short_words(rows[r], n, F::N_UPPER);
            let sums = &x.sums.of_32.whole;
            dots[r] = self.dot_labels(const { &F::CODES }, words, F::N_UPPER, unknown(&xs), sums);
        }
        self.scaled_four(F::K, &d, self.four_totals(dots))
    }
}
