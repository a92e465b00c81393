//! As `blocks.rs`, for T2, T3 and T4: up to four blocks of each of four weight rows.
//!
//! ```text
//! x = 64 bytes of symbols: qword b is sub-block b        z = x ^ ror(x, 1) ^ ror(x, 4)
//! P = low halves of nibbles of x, high ones of z·4       labels of symbols 4j, 4j + 2 of lane j
//! Q = the same of x/4 and z                              labels of symbols 4j + 1, 4j + 3
//! for f in 0..4: sum += code(nibble f, upper bits)·x_f   16 dwords, two of each sub-block
//! isum = Σ sum·scale
//! ```
//! Activations are put into the order of symbols first, once for all rows of a row tile. With VBMI
//! one byte shuffle looks codes up, in a table that is repeated over the bits above the label;
//! without it one for each 16 levels. A shorter block at the end of a row is read by masked loads,
//! which do not reach behind it; its missing sub-blocks meet activations that are zeros.

// Indices name rows and blocks that several arrays share.
#![allow(clippy::needless_range_loop)]

use super::blocks::Prefetch;
use super::{Order, four_rows, store_few};
use crate::activations::{Quants, Sums};
use crate::algo::matmul::RowTile;
use crate::format::trellis::{BIAS, Leveled};
use crate::fused::masked::{dwords_512, qwords_512};
use crate::isa::avx2::proven;
use crate::isa::avx512::Avx512;
use crate::isa::memory::{load, load_at};
use std::arch::x86_64::*;

/// Multiplies a row tile.
#[inline(always)]
pub(crate) fn k_quant<F: Leveled<B>, const B: usize, O: Order>(isa: Avx512, row_tile: RowTile<'_>) {
    if is_x86_feature_detected!("avx512vbmi") {
        // SAFETY: the feature was detected, the others are proven by the token.
        unsafe { with_vbmi::<F, B, O>(isa, row_tile) }
    } else {
        rows::<F, B, O, false>(isa, row_tile);
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi")]
fn with_vbmi<F: Leveled<B>, const B: usize, O: Order>(isa: Avx512, row_tile: RowTile<'_>) {
    rows::<F, B, O, true>(isa, row_tile);
}

/// Activation rows at once.
const AT_ONCE: usize = 4;

#[inline(always)]
fn rows<F: Leveled<B>, const B: usize, O: Order, const VBMI: bool>(
    isa: Avx512,
    mut row_tile: RowTile<'_>,
) {
    #[cfg(test)]
    crate::testing::ran("x86_512::trellis");
    while !row_tile.rows.is_empty() {
        if !O::FEW {
            few_rows::<F, B, O, VBMI, 1>(isa, row_tile.take_rows(1));
            continue;
        }
        let few = row_tile.take_rows(AT_ONCE);
        match few.rows.len() {
            1 => few_rows::<F, B, O, VBMI, 1>(isa, few),
            2 => few_rows::<F, B, O, VBMI, 2>(isa, few),
            _ => few_rows::<F, B, O, VBMI, AT_ONCE>(isa, few),
        }
    }
}

/// T activation rows, the last one again in place of those that are missing: codes are looked up
/// once for all of them.
#[inline(always)]
fn few_rows<F: Leveled<B>, const B: usize, O: Order, const VBMI: bool, const T: usize>(
    isa: Avx512,
    row_tile: RowTile<'_>,
) {
    let w = row_tile.w;
    let order = O::new(&row_tile);
    let mut ordered = [[isa.no_input(); T]; 16];
    let inputs = OrderedInputs::new(isa, &row_tile, &mut ordered);
    let n_last = w.d_in() % 256 / 32;
    for i in 0..w.d_out().div_ceil(4) {
        let places = order.rows(i);
        let mut out = [isa.no_quad(); T];
        let rows = four_rows(w, F::blocks, places);
        let n_fours = rows[0].len() / 4;
        let fours = rows.map(|row| &row.as_chunks::<4>().0[..n_fours]);
        for q in 0..n_fours {
            let prefetch = order.prefetch(&row_tile, i, 4 * q * B);
            let four = [&fours[0][q], &fours[1][q], &fours[2][q], &fours[3][q]];
            let quads = isa.trellis::<F, B, 4, VBMI, T>(four, &inputs, 4 * q, prefetch);
            out = isa.add_quads(out, quads, 4);
        }
        let rests = rows.map(|row| row.as_chunks::<4>().1);
        let first = 4 * n_fours;
        let prefetch = order.prefetch(&row_tile, i, first * B);
        out = match rests[0].len() {
            0 => out,
            1 => rest::<F, B, 1, VBMI, T>(isa, out, rests, &inputs, first, prefetch),
            2 => rest::<F, B, 2, VBMI, T>(isa, out, rests, &inputs, first, prefetch),
            _ => rest::<F, B, 3, VBMI, T>(isa, out, rests, &inputs, first, prefetch),
        };
        if n_last > 0 {
            let tails = four_rows(w, |row| row.as_chunks::<B>().1, places);
            let quads = isa.short_trellis::<F, B, VBMI, T>(tails, n_last, &inputs, rows[0].len());
            out = isa.add_quads(out, quads, 1);
        }
        store_few(&out, places, w.d_out(), row_tile.width, row_tile.acc);
    }
}

/// `out` plus the last N whole blocks, from block `first` on.
#[inline(always)]
fn rest<F: Leveled<B>, const B: usize, const N: usize, const VBMI: bool, const T: usize>(
    isa: Avx512,
    out: [__m128; T],
    rests: [&[[u8; B]]; 4],
    inputs: &OrderedInputs<'_, T>,
    first: usize,
    prefetch: impl Prefetch,
) -> [__m128; T] {
    let rows = rests.map(|row| row.first_chunk::<N>().expect("N blocks are left"));
    let quads = isa.trellis::<F, B, N, VBMI, T>(rows, inputs, first, prefetch);
    isa.add_quads(out, quads, N)
}

/// A block of activations in the order of symbols.
#[derive(Clone, Copy)]
struct Ordered {
    /// Those of symbols 4j + f in vector f.
    x: [__m512i; 4],
    /// What lowers raised codes.
    start: __m512i,
}

/// The activation rows of a row tile.
struct OrderedInputs<'a, const T: usize> {
    isa: Avx512,
    x: &'a Quants<f32, Sums>,
    /// The rows.
    rows: [usize; T],
    /// The first blocks, which all rows of weights share; the others are put in order again.
    ordered: &'a [[Ordered; T]; 16],
}

impl<'a, const T: usize> OrderedInputs<'a, T> {
    /// Puts blocks of the activation rows in order into `ordered`.
    #[inline(always)]
    fn new(isa: Avx512, row_tile: &RowTile<'a>, ordered: &'a mut [[Ordered; T]; 16]) -> Self {
        let x = row_tile.x.q8_256();
        let mut rows = [row_tile.rows.start; T];
        for t in 1..T {
            rows[t] += t.min(row_tile.rows.len() - 1);
        }
        let n_blocks = row_tile.w.d_in().div_ceil(256);
        for b in 0..n_blocks.min(16) {
            for t in 0..T {
                ordered[b][t] = isa.symbol_order(&x.codes[x.at(b, rows[t])].0);
            }
        }
        Self {
            isa,
            x,
            rows,
            ordered,
        }
    }

    /// Block `b`.
    #[inline(always)]
    fn ordered(&self, b: usize) -> [Ordered; T] {
        if let Some(ordered) = self.ordered.get(b) {
            return *ordered;
        }
        let mut ordered = [self.isa.no_input(); T];
        for t in 0..T {
            ordered[t] = self
                .isa
                .symbol_order(&self.x.codes[self.x.at(b, self.rows[t])].0);
        }
        ordered
    }

    #[inline(always)]
    fn scale(&self, b: usize, t: usize) -> f32 {
        self.x.scales[self.x.at(b, self.rows[t])]
    }
}

/// A block in registers: qword b belongs to sub-block b.
#[derive(Clone, Copy)]
struct BlockWords {
    /// Symbols.
    x: __m512i,
    /// Byte l: what lane l has above its nibbles.
    upper: __m512i,
    /// Nibbles of all sub-blocks.
    scales: i32,
}

/// Qwords of symbols 4j, then 4j + 1, of two vectors of two sub-blocks each.
const FIRST_SYMBOLS: [i64; 8] = [0, 4, 8, 12, 1, 5, 9, 13];
/// The same of symbols 4j + 2 and 4j + 3.
const LAST_SYMBOLS: [i64; 8] = [2, 6, 10, 14, 3, 7, 11, 15];
/// The nibble of its sub-block in each dword.
const NIBBLES: [i32; 16] = [0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28];
/// Where lanes of h lie in the halves of bytes.
const HALVES: [i64; 8] = [0, 0, 0, 0, 4, 4, 4, 4];
const DWORDS: [i32; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

impl Avx512 {
    proven! {
        fn symbol_order(self, codes: &[i8; 256]) -> Ordered {
            let [a, b, c, d] = load(codes);
            let first = load(&FIRST_SYMBOLS);
            let last = load(&LAST_SYMBOLS);
            let pair = |index, x, y| _mm512_permutex2var_epi64(x, index, y);
            let low = [pair(first, a, b), pair(last, a, b)];
            let high = [pair(first, c, d), pair(last, c, d)];
            let x = [
                _mm512_shuffle_i64x2::<0x44>(low[0], high[0]),
                _mm512_shuffle_i64x2::<0xee>(low[0], high[0]),
                _mm512_shuffle_i64x2::<0x44>(low[1], high[1]),
                _mm512_shuffle_i64x2::<0xee>(low[1], high[1]),
            ];
            let bias = _mm512_set1_epi8(BIAS as i8);
            let none = _mm512_setzero_si512();
            let sum = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(none, bias, x[0]), bias, x[1]);
            let sum = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, bias, x[2]), bias, x[3]);
            Ordered { x, start: _mm512_sub_epi32(none, sum) }
        }
        fn no_input(self) -> Ordered {
            let none = _mm512_setzero_si512();
            Ordered { x: [none; 4], start: none }
        }

        fn whole_words<const B: usize>(self, block: &[u8; B], n_upper: usize) -> BlockWords {
            let upper = match n_upper {
                0 => _mm512_setzero_si512(),
                1 => _mm512_srlv_epi64(_mm512_broadcast_i64x4(load_at(block, 70)), load(&HALVES)),
                _ => load_at(block, 70),
            };
            BlockWords { x: load_at(block, 6), upper, scales: load_at(block, 2) }
        }
        /// A block of `n` sub-blocks.
        fn short_words(self, block: &[u8], n: usize, n_upper: usize) -> BlockWords {
            let x = &block[2 + n.div_ceil(2)..];
            let above = &x[8 * n..];
            let upper = match n_upper {
                0 => _mm512_setzero_si512(),
                1 => self.halves_of(dwords_512(above, n), n),
                _ => qwords_512(above, n),
            };
            // Symbols take the place of missing scales, which multiply zeros.
            let scales = i32::from_le_bytes([block[2], block[3], block[4], block[5]]);
            BlockWords { x: qwords_512(x, n), upper, scales }
        }
        /// Low nibbles of `n` dwords, then their high ones, above others.
        fn halves_of(self, h: __m512i, n: usize) -> __m512i {
            let dwords = load(&DWORDS);
            let n = _mm512_set1_epi32(n as i32);
            let high = _mm512_cmpge_epi32_mask(dwords, n);
            let from = _mm512_mask_sub_epi32(dwords, high, dwords, n);
            let shift = _mm512_maskz_set1_epi32(high, 4);
            _mm512_srlv_epi32(_mm512_permutexvar_epi32(from, h), shift)
        }

        /// The labels of symbols 4j + f in vector f; bits above them mean nothing.
        fn labels(self, words: BlockWords, n_upper: usize) -> [__m512i; 4] {
            let x = words.x;
            let pairs = _mm512_set1_epi8(0x33);
            let nibble = _mm512_set1_epi8(0x0f);
            let once = _mm512_ror_epi64::<1>(x);
            let z = _mm512_ternarylogic_epi64::<0x96>(x, once, _mm512_ror_epi64::<4>(x));
            let p = _mm512_ternarylogic_epi64::<0xe4>(x, _mm512_slli_epi64::<2>(z), pairs);
            let q = _mm512_ternarylogic_epi64::<0xe4>(_mm512_srli_epi64::<2>(x), z, pairs);
            let low = [p, q, _mm512_srli_epi64::<4>(p), _mm512_srli_epi64::<4>(q)];
            let u = words.upper;
            let above = match n_upper {
                0 => return low,
                1 => [
                    _mm512_slli_epi64::<4>(u),
                    _mm512_slli_epi64::<3>(u),
                    _mm512_slli_epi64::<2>(u),
                    _mm512_slli_epi64::<1>(u),
                ],
                _ => [
                    _mm512_slli_epi64::<4>(u),
                    _mm512_slli_epi64::<2>(u),
                    u,
                    _mm512_srli_epi64::<2>(u),
                ],
            };
            [
                _mm512_ternarylogic_epi64::<0xe4>(low[0], above[0], nibble),
                _mm512_ternarylogic_epi64::<0xe4>(low[1], above[1], nibble),
                _mm512_ternarylogic_epi64::<0xe4>(low[2], above[2], nibble),
                _mm512_ternarylogic_epi64::<0xe4>(low[3], above[3], nibble),
            ]
        }
        /// Codes by labels, without VBMI.
        fn code_of(self, codes: &[u8; 64], label: __m512i, n_upper: usize) -> __m512i {
            let table = |i: usize| _mm512_broadcast_i32x4(load(&codes.as_chunks::<16>().0[i]));
            let low = _mm512_and_si512(label, _mm512_set1_epi8(0x0f));
            let first = _mm512_shuffle_epi8(table(0), low);
            if n_upper == 0 {
                return first;
            }
            let odd = _mm512_test_epi8_mask(label, _mm512_set1_epi8(0x10));
            let first = _mm512_mask_shuffle_epi8(first, odd, table(1), low);
            if n_upper == 1 {
                return first;
            }
            let upper = _mm512_test_epi8_mask(label, _mm512_set1_epi8(0x20));
            let second = _mm512_shuffle_epi8(table(2), low);
            let second = _mm512_mask_shuffle_epi8(second, odd, table(3), low);
            _mm512_mask_mov_epi8(first, upper, second)
        }
        /// Codes by labels.
        fn codes_of<const VBMI: bool>(
            self, codes: &[u8; 64], label: __m512i, n_upper: usize
        ) -> __m512i {
            if VBMI {
                return _mm512_permutexvar_epi8(label, load(codes));
            }
            self.code_of(codes, label, n_upper)
        }
        fn add_codes(self, acc: __m512i, codes: __m512i, x: __m512i) -> __m512i {
            _mm512_dpbusd_epi32(acc, codes, x)
        }
        /// Two sums of each sub-block times its scale, one more than its nibble.
        fn times_scales(self, sum: __m512i, scales: __m512i) -> __m512i {
            _mm512_add_epi32(sum, _mm512_mullo_epi32(sum, scales))
        }
        /// The nibble of each sub-block in both of its dwords.
        fn spread_nibbles(self, nibbles: i32) -> __m512i {
            let scales = _mm512_srlv_epi32(_mm512_set1_epi32(nibbles), load(&NIBBLES));
            _mm512_and_si512(scales, _mm512_set1_epi32(15))
        }
        fn no_block(self) -> __m512i { _mm512_setzero_si512() }
        fn scaled_quad(self, k: f32, d: &[u16; 16], isum: __m512, x_scales: [f32; 4]) -> __m512 {
            let d = _mm512_mul_ps(self.halves_16(d), _mm512_set1_ps(k));
            _mm512_mul_ps(self.of_blocks(x_scales), _mm512_mul_ps(d, isum))
        }
    }

    /// `isum` of a block in 16 parts, for each activation row. Written out: loops over labels would
    /// not be unrolled for all formats.
    #[inline(always)]
    fn dot_labels<const VBMI: bool, const T: usize>(
        self,
        codes: &[u8; 64],
        words: BlockWords,
        n_upper: usize,
        x: &[Ordered; T],
    ) -> [__m512i; T] {
        let labels = self.labels(words, n_upper);
        let codes = [
            self.codes_of::<VBMI>(codes, labels[0], n_upper),
            self.codes_of::<VBMI>(codes, labels[1], n_upper),
            self.codes_of::<VBMI>(codes, labels[2], n_upper),
            self.codes_of::<VBMI>(codes, labels[3], n_upper),
        ];
        let (scales, mut sums) = (self.spread_nibbles(words.scales), [self.no_block(); T]);
        for t in 0..T {
            let sum = self.add_codes(x[t].start, codes[0], x[t].x[0]);
            let sum = self.add_codes(sum, codes[1], x[t].x[1]);
            let sum = self.add_codes(sum, codes[2], x[t].x[2]);
            let sum = self.add_codes(sum, codes[3], x[t].x[3]);
            sums[t] = self.times_scales(sum, scales);
        }
        sums
    }

    /// What each of N blocks, from block `first` on, adds to the output of each row, lane
    /// 4·block + row, for each activation row.
    #[inline(always)]
    fn trellis<F: Leveled<B>, const B: usize, const N: usize, const VBMI: bool, const T: usize>(
        self,
        rows: [&[[u8; B]; N]; 4],
        inputs: &OrderedInputs<'_, T>,
        first: usize,
        prefetch: impl Prefetch,
    ) -> [__m512; T] {
        let (mut d, mut scales) = ([0; 16], [[0.0; 4]; T]);
        let mut blocks = [[self.no_block(); 4]; T];
        for c in 0..N {
            let x = inputs.ordered(first + c);
            let mut dots = [[self.no_block(); 4]; T];
            for r in 0..4 {
                let block = &rows[r][c];
                prefetch.prefetch(self, block, c, r);
                d[4 * c + r] = u16::from_le_bytes([block[0], block[1]]);
                let words = self.whole_words(block, F::N_UPPER);
                let sums = self.dot_labels::<VBMI, T>(&F::CODES, words, F::N_UPPER, &x);
                for t in 0..T {
                    dots[t][r] = sums[t];
                }
            }
            for t in 0..T {
                scales[t][c] = inputs.scale(first + c, t);
                blocks[t][c] = self.fold_rows(dots[t]);
            }
        }
        self.scaled_quads(F::K, &d, &blocks, &scales)
    }

    /// The same of the shorter block `b`, of `n` sub-blocks, that ends each row.
    #[inline(always)]
    fn short_trellis<F: Leveled<B>, const B: usize, const VBMI: bool, const T: usize>(
        self,
        rows: [&[u8]; 4],
        n: usize,
        inputs: &OrderedInputs<'_, T>,
        b: usize,
    ) -> [__m512; T] {
        let (mut d, x) = ([0; 16], inputs.ordered(b));
        let (mut blocks, mut scales) = ([[self.no_block(); 4]; T], [[0.0; 4]; T]);
        let mut dots = [[self.no_block(); 4]; T];
        for r in 0..4 {
            d[r] = u16::from_le_bytes([rows[r][0], rows[r][1]]);
            let words = self.short_words(rows[r], n, F::N_UPPER);
            let sums = self.dot_labels::<VBMI, T>(&F::CODES, words, F::N_UPPER, &x);
            for t in 0..T {
                dots[t][r] = sums[t];
            }
        }
        for t in 0..T {
            (blocks[t][0], scales[t]) = (self.fold_rows(dots[t]), [inputs.scale(b, t); 4]);
        }
        self.scaled_quads(F::K, &d, &blocks, &scales)
    }

    /// `dx·(d·K·isum)` of four blocks of four rows, for each activation row.
    #[inline(always)]
    fn scaled_quads<const T: usize>(
        self,
        k: f32,
        d: &[u16; 16],
        blocks: &[[__m512i; 4]; T],
        x_scales: &[[f32; 4]; T],
    ) -> [__m512; T] {
        let mut quads = [self.scaled_quad(k, d, self.fold_blocks(blocks[0]), x_scales[0]); T];
        for t in 1..T {
            quads[t] = self.scaled_quad(k, d, self.fold_blocks(blocks[t]), x_scales[t]);
        }
        quads
    }

    /// `out` plus the first `n` blocks of each.
    #[inline(always)]
    fn add_quads<const T: usize>(
        self,
        out: [__m128; T],
        quads: [__m512; T],
        n: usize,
    ) -> [__m128; T] {
        let mut out = out;
        for t in 0..T {
            out[t] = self.add_quad(out[t], quads[t], n);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{T2, T3, T4};
    use crate::fused::x86_512::Strided;
    use crate::testing::{Random, bits, pool};
    use crate::{Activations, Kernels, Layouts, Matrix};
    use atta_formats::TensorType;

    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    fn without_vbmi<F: Leveled<B>, const B: usize>(isa: Avx512, row_tile: RowTile<'_>) {
        rows::<F, B, Strided, false>(isa, row_tile);
    }

    fn check<F: Leveled<B>, const B: usize>(ty: TensorType) {
        let (Ok(k), scalar) = (Kernels::named("avx512"), Kernels::named("scalar").unwrap()) else {
            return;
        };
        let mut random = Random(47);
        for d_in in [32, 160, 256, 576, 1984, 4928] {
            let bytes = random.weights(ty, 30, d_in, 0.01);
            let w = Matrix::new(ty, 30, d_in, &bytes).unwrap();
            let mut x = Activations::new(3, d_in);
            let values = random.floats(3 * d_in);
            x.fill(k, &pool(1), (3, d_in), Layouts::Q8_256, |t, row| {
                row.copy_from_slice(&values[t * d_in..][..d_in])
            });
            let mut want = [0.0; 3 * 64];
            for (i, t) in (0..2).flat_map(|i| (0..3).map(move |t| (i, t))) {
                let mut acc = [0.0; 16];
                let input = crate::kernels::Input {
                    x: &x,
                    rows: t..t + 1,
                    prefetch_distance: 0,
                };
                scalar.row_tile(w.row_range(15 * i..15 * i + 15), input, &mut acc);
                want[64 * t + 15 * i..][..15].copy_from_slice(&acc[..15]);
            }
            for n_rows in 1..=3 {
                let mut got = [0.0; 3 * 64];
                let row_tile = RowTile {
                    w,
                    x: &x,
                    rows: 0..n_rows,
                    prefetch_distance: 0,
                    acc: &mut got,
                    width: 64,
                };
                // SAFETY: there are kernels for AVX-512, so the processor has its features.
                unsafe { without_vbmi::<F, B>(Avx512::assume(), row_tile) };
                let n = 64 * n_rows;
                assert_eq!(bits(&got[..n]), bits(&want[..n]), "{ty} {d_in} {n_rows}");
            }
        }
    }

    #[test]
    fn processors_without_vbmi_get_the_same_bits() {
        check::<T2, _>(TensorType::T2);
        check::<T3, _>(TensorType::T3);
        check::<T4, _>(TensorType::T4);
    }
}
