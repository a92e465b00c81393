//! As `blocks.rs`, for T2, T3 and T4: up to four blocks of each of four weight rows.
//!
//! ```text
//! x = 64 bytes of symbols: qword b is sub-block b        z = x ^ ror(x, 1) ^ ror(x, 4)
//! P = low halves of nibbles of x, high ones of z·4       labels of symbols 4j, 4j + 2 of lane j
//! Q = the same of x/4 and z                              labels of symbols 4j + 1, 4j + 3
//! for f in 0..4: sum += code(nibble f, upper bits)·x_f   16 dwords, two of each sub-block
//! isum = Σ sum·scale
//! ```
//! Activations are put into the order of symbols first, which four rows share. With VBMI one byte
//! shuffle looks codes up, in a table that is repeated over what stands above the label; without it
//! one for each 16 levels. A shorter block at the end of a row is read by masked loads, which do not
//! reach behind it; its missing sub-blocks meet activations that are zeros.

use super::blocks::Prefetch;
use super::{Order, store};
use crate::activations::{Quants, Sums};
use crate::algo::matmul::RowTile;
use crate::format::trellis::{BIAS, Leveled};
use crate::isa::avx2::proven;
use crate::isa::avx512::Avx512;
use crate::isa::memory::{load, load_at};
use std::arch::x86_64::*;

/// Multiplies a row tile, in the order `O`.
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

#[inline(always)]
fn rows<F: Leveled<B>, const B: usize, O: Order, const VBMI: bool>(
    isa: Avx512,
    row_tile: RowTile<'_>,
) {
    let (w, order) = (row_tile.w, O::new(&row_tile));
    let last = w.d_out() - 1;
    let n_blocks = w.d_in().div_ceil(256);
    for i in 0..w.d_out().div_ceil(4) {
        let (places, mut out) = (order.rows(i), isa.no_quad());
        let [p, q, r, s] = places;
        let rows = [
            w.row(p.min(last)),
            w.row(q.min(last)),
            w.row(r.min(last)),
            w.row(s.min(last)),
        ];
        for first in (0..n_blocks).step_by(4) {
            let four = Four {
                rows,
                blocks: [first, n_blocks.min(first + 4)],
                n_last: w.d_in() % 256 / 32,
                x: row_tile.x.q8_256(),
                t: row_tile.rows.start,
            };
            let prefetch = order.prefetch(&row_tile, i, first * B);
            let quad = isa.trellis::<F, B, VBMI>(&four, prefetch);
            out = isa.add_quad(out, quad, four.blocks[1] - first);
        }
        store(load(&out), places, &mut row_tile.acc[..w.d_out()]);
    }
}

/// Some blocks of four rows.
struct Four<'a> {
    rows: [&'a [u8]; 4],
    /// The first block and the one behind the last, at most four further on.
    blocks: [usize; 2],
    /// Sub-blocks of a shorter block at the end of a row.
    n_last: usize,
    x: &'a Quants<f32, Sums>,
    /// The activation row.
    t: usize,
}

/// A block in registers: qword b belongs to sub-block b.
#[derive(Clone, Copy)]
struct Words {
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
        /// 256 activations in the order of symbols: those of 4j + f in vector f.
        fn symbol_order(self, codes: &[i8; 256]) -> [__m512i; 4] {
            let [a, b, c, d] = load(codes);
            let (first, last) = (load(&FIRST_SYMBOLS), load(&LAST_SYMBOLS));
            let low = [_mm512_permutex2var_epi64(a, first, b), _mm512_permutex2var_epi64(a, last, b)];
            let high = [_mm512_permutex2var_epi64(c, first, d), _mm512_permutex2var_epi64(c, last, d)];
            [
                _mm512_shuffle_i64x2::<0x44>(low[0], high[0]),
                _mm512_shuffle_i64x2::<0xee>(low[0], high[0]),
                _mm512_shuffle_i64x2::<0x44>(low[1], high[1]),
                _mm512_shuffle_i64x2::<0xee>(low[1], high[1]),
            ]
        }
        /// What lowers raised codes: −64 times the sums of activations.
        fn start_of(self, xs: [__m512i; 4]) -> __m512i {
            let (bias, mut sum) = (_mm512_set1_epi8(BIAS as i8), _mm512_setzero_si512());
            for x in xs {
                sum = _mm512_dpbusd_epi32(sum, bias, x);
            }
            _mm512_sub_epi32(_mm512_setzero_si512(), sum)
        }

        fn whole_words<const B: usize>(self, block: &[u8; B], n_upper: usize) -> Words {
            let upper = match n_upper {
                0 => _mm512_setzero_si512(),
                1 => _mm512_srlv_epi64(_mm512_broadcast_i64x4(load_at(block, 70)), load(&HALVES)),
                _ => load_at(block, 70),
            };
            Words { x: load_at(block, 6), upper, scales: load_at(block, 2) }
        }
        /// A block of `n` sub-blocks.
        fn short_words(self, block: &[u8], n: usize, n_upper: usize) -> Words {
            let at = 2 + n.div_ceil(2);
            assert!(n < 8 && block.len() == at + (8 + 4 * n_upper) * n);
            let (mask, x) = ((1_u32 << n) - 1, block[at..].as_ptr());
            let above = x.wrapping_add(8 * n);
            let upper = match n_upper {
                0 => _mm512_setzero_si512(),
                1 => self.halves_of(_mm512_maskz_loadu_epi32(mask as u16, above.cast()), n),
                _ => _mm512_maskz_loadu_epi64(mask as u8, above.cast()),
            };
            // Bytes of the symbols take the place of missing scales, which are those of zeros.
            let scales = i32::from_le_bytes([block[2], block[3], block[4], block[5]]);
            Words { x: _mm512_maskz_loadu_epi64(mask as u8, x.cast()), upper, scales }
        }
        /// Low nibbles of `n` dwords, then their high ones, above others.
        fn halves_of(self, h: __m512i, n: usize) -> __m512i {
            let (dwords, n) = (load(&DWORDS), _mm512_set1_epi32(n as i32));
            let high = _mm512_cmpge_epi32_mask(dwords, n);
            let from = _mm512_mask_sub_epi32(dwords, high, dwords, n);
            let shift = _mm512_maskz_set1_epi32(high, 4);
            _mm512_srlv_epi32(_mm512_permutexvar_epi32(from, h), shift)
        }

        /// The labels of symbols 4j + f in vector f; what stands above them means nothing.
        fn labels(self, words: Words, n_upper: usize) -> [__m512i; 4] {
            let (x, pairs, nibble) = (words.x, _mm512_set1_epi8(0x33), _mm512_set1_epi8(0x0f));
            let z = _mm512_ternarylogic_epi64::<0x96>(x, _mm512_ror_epi64::<1>(x), _mm512_ror_epi64::<4>(x));
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
                _ => [_mm512_slli_epi64::<4>(u), _mm512_slli_epi64::<2>(u), u, _mm512_srli_epi64::<2>(u)],
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
            let second = _mm512_mask_shuffle_epi8(_mm512_shuffle_epi8(table(2), low), odd, table(3), low);
            _mm512_mask_mov_epi8(first, upper, second)
        }
        /// `isum` of a block in 16 parts.
        fn dot_labels<const VBMI: bool>(
            self, codes: &[u8; 64], words: Words, n_upper: usize, start: __m512i, xs: [__m512i; 4]
        ) -> __m512i {
            let (labels, mut sum) = (self.labels(words, n_upper), start);
            for f in 0..4 {
                let code = if VBMI {
                    _mm512_permutexvar_epi8(labels[f], load(codes))
                } else {
                    self.code_of(codes, labels[f], n_upper)
                };
                sum = _mm512_dpbusd_epi32(sum, code, xs[f]);
            }
            let scales = _mm512_srlv_epi32(_mm512_set1_epi32(words.scales), load(&NIBBLES));
            let scales = _mm512_and_si512(scales, _mm512_set1_epi32(15));
            _mm512_add_epi32(sum, _mm512_mullo_epi32(sum, scales))
        }
        fn no_block(self) -> __m512i { _mm512_setzero_si512() }
        fn scaled_quad(self, k: f32, d: &[u16; 16], isum: __m512, x_scales: [f32; 4]) -> __m512 {
            let d = _mm512_mul_ps(self.halves_16(d), _mm512_set1_ps(k));
            _mm512_mul_ps(self.of_blocks(x_scales), _mm512_mul_ps(d, isum))
        }
    }

    /// What each block adds to the output of each row, lane 4·block + row.
    #[inline(always)]
    fn trellis<F: Leveled<B>, const B: usize, const VBMI: bool>(
        self,
        four: &Four<'_>,
        prefetch: impl Prefetch,
    ) -> __m512 {
        let (mut d, mut scales) = ([0; 16], [0.0; 4]);
        let mut blocks = [self.no_block(); 4];
        let [first, end] = four.blocks;
        for c in 0..end - first {
            let at = four.x.at(first + c, four.t);
            let xs = self.symbol_order(&four.x.codes[at].0);
            let start = self.start_of(xs);
            scales[c] = four.x.scales[at];
            let mut dots = [self.no_block(); 4];
            for r in 0..4 {
                let block = &four.rows[r][(first + c) * B..];
                d[4 * c + r] = u16::from_le_bytes([block[0], block[1]]);
                let words = match block.first_chunk::<B>() {
                    Some(block) => {
                        prefetch.prefetch(self, block, c, r);
                        self.whole_words(block, F::N_UPPER)
                    }
                    None => self.short_words(block, four.n_last, F::N_UPPER),
                };
                dots[r] = self.dot_labels::<VBMI>(&F::CODES, words, F::N_UPPER, start, xs);
            }
            blocks[c] = self.fold_rows(dots);
        }
        self.scaled_quad(F::K, &d, self.fold_blocks(blocks), scales)
    }
}
