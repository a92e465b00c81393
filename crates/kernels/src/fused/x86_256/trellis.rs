//! As `k_quants.rs`, for T2, T3 and T4: four weight rows and up to four activation rows, half a
//! block at a time.
//!
//! The steps are those of `fused/x86_512/trellis.rs`, with shifts in place of rotations, a byte
//! shuffle for each 16 levels, and pairs of products that a scale of their sub-block multiplies.
//! A shorter block at the end of a row is read by masked loads, which do not reach behind it.

// Indices name rows and blocks that several arrays share.
#![allow(clippy::needless_range_loop)]

use super::k_quants::unknown;
use crate::algo::matmul::RowTile;
use crate::algo::unpack::NextTile;
use crate::format::trellis::Leveled;
use crate::fused::masked::{dwords_256, qwords_256};
use crate::fused::x86_512::{four_rows, store_few};
use crate::isa::avx2::{Avx2, proven};
use crate::isa::memory::{load, load_at};
use std::arch::x86_64::*;

/// Multiplies a row tile, up to [`AT_ONCE`] activation rows at a time: codes are unpacked once for
/// all of them. Three are four, the last of them twice.
#[inline(always)]
pub(crate) fn k_quant<F: Leveled<B>, const B: usize>(isa: Avx2, mut row_tile: RowTile<'_>) {
    #[cfg(test)]
    crate::testing::ran("x86_256::trellis");
    while !row_tile.rows.is_empty() {
        let few = row_tile.take_rows(AT_ONCE);
        match few.rows.len() {
            1 => fours_of::<F, B, 1>(isa, few),
            2 => fours_of::<F, B, 2>(isa, few),
            _ => fours_of::<F, B, AT_ONCE>(isa, few),
        }
    }
}

/// Activation rows at once.
const AT_ONCE: usize = 4;
/// The weight rows of a row tile.
const PLACES: [[usize; 4]; 4] = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]];

/// Multiplies T activation rows.
#[inline(always)]
fn fours_of<F: Leveled<B>, const B: usize, const T: usize>(isa: Avx2, row_tile: RowTile<'_>) {
    let d_out = row_tile.w.d_out();
    let places = &PLACES[..d_out.div_ceil(4)];
    let mut out = [[isa.no_four(); T]; 4];
    add_blocks::<F, B, T>(isa, &row_tile, places, &mut out);
    if !row_tile.w.d_in().is_multiple_of(256) {
        add_tails::<F, B, T>(isa, &row_tile, places, &mut out);
    }
    for (out, places) in out.iter().zip(places) {
        store_few(out, *places, d_out, row_tile.width, row_tile.acc);
    }
}

/// Adds the whole blocks of all weight rows, block by block, because each block of activations is
/// put into the order of symbols first.
#[inline(always)]
fn add_blocks<F: Leveled<B>, const B: usize, const T: usize>(
    isa: Avx2,
    row_tile: &RowTile<'_>,
    places: &[[usize; 4]],
    out: &mut [[__m128; T]; 4],
) {
    let (w, n) = (row_tile.w, places.len());
    let next = NextTile::new(row_tile, w.d_out());
    let mut rows = [four_rows(w, F::blocks, places[0]); 4];
    for i in 1..n {
        rows[i] = four_rows(w, F::blocks, places[i]);
    }
    for b in 0..rows[0][0].len() {
        let inputs = OrderedInputs::<T>::new(isa, row_tile, b);
        for i in 0..n {
            let blocks = [
                &rows[i][0][b],
                &rows[i][1][b],
                &rows[i][2][b],
                &rows[i][3][b],
            ];
            let v = isa
                .trellis::<F, B, T>(blocks, &inputs, |r| next.block(isa, 4 * (n * b + i) + r, B));
            out[i] = inputs.add(isa, out[i], v);
        }
    }
}

/// Adds the shorter block that ends each weight row.
#[inline(always)]
fn add_tails<F: Leveled<B>, const B: usize, const T: usize>(
    isa: Avx2,
    row_tile: &RowTile<'_>,
    places: &[[usize; 4]],
    out: &mut [[__m128; T]; 4],
) {
    let (w, n_whole) = (row_tile.w, row_tile.w.d_in() / 256);
    let inputs = OrderedInputs::<T>::new(isa, row_tile, n_whole);
    for i in 0..places.len() {
        let tails = four_rows(w, |row| row.as_chunks::<B>().1, places[i]);
        let v = isa.short_trellis::<F, B, T>(tails, w.d_in() % 256 / 32, &inputs);
        out[i] = inputs.add(isa, out[i], v);
    }
}

/// A block of some activation rows, in the order of symbols.
struct OrderedInputs<'a, const T: usize> {
    x: [[[__m256i; 4]; 2]; T],
    sums: [&'a [i16; 16]; T],
    scales: [f32; T],
}

impl<'a, const T: usize> OrderedInputs<'a, T> {
    /// Block `b` of the rows of a row tile, the last row in place of those that are missing.
    #[inline(always)]
    fn new(isa: Avx2, row_tile: &RowTile<'a>, b: usize) -> Self {
        let (x, rows) = (row_tile.x.q8_256(), &row_tile.rows);
        let first = x.at(b, rows.start);
        let mut inputs = Self {
            x: [isa.ordered(&x.codes[first].0); T],
            sums: [&x.sums[first].of_32.whole; T],
            scales: [x.scales[first]; T],
        };
        for t in 1..T {
            let at = first + t.min(rows.len() - 1);
            inputs.x[t] = isa.ordered(&x.codes[at].0);
            inputs.sums[t] = &x.sums[at].of_32.whole;
            inputs.scales[t] = x.scales[at];
        }
        inputs
    }

    /// `out` plus `v` times the scales.
    #[inline(always)]
    fn add(&self, isa: Avx2, out: [__m128; T], v: [__m128; T]) -> [__m128; T] {
        let mut out = out;
        for t in 0..T {
            out[t] = isa.add_four(out[t], self.scales[t], v[t]);
        }
        out
    }
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
        /// The scales of eight sub-blocks, twice: one more than the nibbles.
        fn scales_of(self, nibbles: i32) -> __m256i {
            let nibbles = _mm_cvtsi32_si128(nibbles);
            let nibbles = _mm_unpacklo_epi8(nibbles, _mm_srli_epi16::<4>(nibbles));
            let scales = _mm_add_epi8(_mm_and_si128(nibbles, _mm_set1_epi8(15)), _mm_set1_epi8(1));
            _mm256_broadcastsi128_si256(_mm_cvtepu8_epi16(scales))
        }
        /// Four of those scales, each for the products of its sub-block.
        fn scales_of_half(self, scales: __m256i, half: usize) -> __m256i {
            _mm256_shuffle_epi8(scales, load(&SCALES_OF_HALVES[half]))
        }
        /// What lowers codes, from which 64 is subtracted.
        fn lowered(self, scales: __m256i, sums: &[i16; 16]) -> __m256i {
            let scales = _mm256_castsi256_si128(scales);
            let offset = _mm_slli_epi32::<6>(_mm_madd_epi16(scales, load_at(sums, 0)));
            _mm256_zextsi128_si256(_mm_sub_epi32(_mm_setzero_si128(), offset))
        }
        fn no_sum(self) -> __m256i { _mm256_setzero_si256() }
        fn scaled_four(self, k: f32, d: &[u16; 4], totals: __m128) -> __m128 {
            let d = _mm_mul_ps(_mm_cvtph_ps(_mm_cvtsi64_si128(load(d))), _mm_set1_ps(k));
            _mm_mul_ps(d, totals)
        }
    }

    /// `sums` and the products of half a block. Written out: a loop over symbols would not be
    /// unrolled for all formats.
    #[inline(always)]
    fn add_half<const T: usize>(
        self,
        sums: [__m256i; T],
        codes: &[u8; 64],
        half: [__m256i; 2],
        n_upper: usize,
        x: [&[__m256i; 4]; T],
        scales: __m256i,
    ) -> [__m256i; T] {
        let low = self.nibbles_of_symbols(half[0]);
        let upper = half[1];
        let code = self.code_of::<0, 0, 1>(codes, low[0], upper, n_upper);
        let sums = self.add_code::<T, 0>(sums, code, x, scales);
        let code = self.code_of::<1, 2, 3>(codes, low[1], upper, n_upper);
        let sums = self.add_code::<T, 1>(sums, code, x, scales);
        let code = self.code_of::<2, 4, 5>(codes, low[2], upper, n_upper);
        let sums = self.add_code::<T, 2>(sums, code, x, scales);
        let code = self.code_of::<3, 6, 7>(codes, low[3], upper, n_upper);
        self.add_code::<T, 3>(sums, code, x, scales)
    }

    /// `sums` and the products of symbols 4j + S.
    #[inline(always)]
    fn add_code<const T: usize, const S: usize>(
        self,
        sums: [__m256i; T],
        code: __m256i,
        x: [&[__m256i; 4]; T],
        scales: __m256i,
    ) -> [__m256i; T] {
        let mut sums = sums;
        for t in 0..T {
            sums[t] = self.add_pairs(sums[t], code, x[t][S], scales);
        }
        sums
    }

    /// A block of activations in the order of symbols.
    #[inline(always)]
    fn ordered(self, codes: &[i8; 256]) -> [[__m256i; 4]; 2] {
        let halves = codes.as_chunks::<128>().0;
        [self.symbol_order(&halves[0]), self.symbol_order(&halves[1])]
    }

    /// `isum` of a block in some parts, for each activation row.
    #[inline(always)]
    fn dot_words<F: Leveled<B>, const B: usize, const T: usize>(
        self,
        words: HalfWords,
        inputs: &OrderedInputs<'_, T>,
    ) -> [__m256i; T] {
        let codes = const { &F::CODES };
        let scales = self.scales_of(words.scales);
        let x = unknown(&inputs.x);
        let (mut sums, mut low, mut high) = ([self.no_sum(); T], [&x[0][0]; T], [&x[0][1]; T]);
        for t in 0..T {
            sums[t] = self.lowered(scales, inputs.sums[t]);
            (low[t], high[t]) = (&x[t][0], &x[t][1]);
        }
        let half = [words.x[0], words.upper[0]];
        let of_low = self.scales_of_half(scales, 0);
        let sums = self.add_half(sums, codes, half, F::N_UPPER, low, of_low);
        let half = [words.x[1], words.upper[1]];
        let of_high = self.scales_of_half(scales, 1);
        self.add_half(sums, codes, half, F::N_UPPER, high, of_high)
    }

    /// A block of each of four rows, without the scales of the activations.
    #[inline(always)]
    fn trellis<F: Leveled<B>, const B: usize, const T: usize>(
        self,
        blocks: [&[u8; B]; 4],
        inputs: &OrderedInputs<'_, T>,
        prefetch: impl Fn(usize),
    ) -> [__m128; T] {
        let (mut d, mut dots) = ([0; 4], [[self.no_sum(); T]; 4]);
        for r in 0..4 {
            prefetch(r);
            let block = unknown(blocks[r]);
            d[r] = u16::from_le_bytes([block[0], block[1]]);
            let words = self.whole_words(block, F::N_UPPER);
            dots[r] = self.dot_words::<F, B, T>(words, inputs);
        }
        self.scaled_fours(F::K, &d, &dots)
    }

    /// The same of the shorter block of `n` sub-blocks that ends each row.
    #[inline(always)]
    fn short_trellis<F: Leveled<B>, const B: usize, const T: usize>(
        self,
        rows: [&[u8]; 4],
        n: usize,
        inputs: &OrderedInputs<'_, T>,
    ) -> [__m128; T] {
        let (mut d, mut dots) = ([0; 4], [[self.no_sum(); T]; 4]);
        for r in 0..4 {
            d[r] = u16::from_le_bytes([rows[r][0], rows[r][1]]);
            let words = self.short_words(rows[r], n, F::N_UPPER);
            dots[r] = self.dot_words::<F, B, T>(words, inputs);
        }
        self.scaled_fours(F::K, &d, &dots)
    }

    /// `d·K·isum` of four rows, for each activation row.
    #[inline(always)]
    fn scaled_fours<const T: usize>(
        self,
        k: f32,
        d: &[u16; 4],
        dots: &[[__m256i; T]; 4],
    ) -> [__m128; T] {
        let mut fours = [self.no_four(); T];
        for t in 0..T {
            let totals = self.four_totals([dots[0][t], dots[1][t], dots[2][t], dots[3][t]]);
            fours[t] = self.scaled_four(k, d, totals);
        }
        fours
    }
}
