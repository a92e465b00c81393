//! AVX-512 for one activation row: quads, four blocks of each of four weight rows, 64 bytes of
//! codes at a time.
//!
//! A 4×4 block kernel yields one vector whose lane 4·block + row is what that block adds to the
//! output of that row. What one block needs, 16 blocks share: their headers are transposed and
//! unpacked at once, and their dot products are summed across lanes by one tree. Codes are
//! multiplied as bytes (`vpmaddubsw`) and the pairs by scales that a shuffle spreads over the
//! register (`vpmaddwd`), so nothing but the codes is as wide as the weights; codes of eight bits,
//! whose pairs would not fit, and those of blocks with one scale four at a time (`vpdpbusd`).
//! Fields: `atta_formats::layout`.

// Indices name rows and blocks that several arrays share.
#![allow(clippy::needless_range_loop)]

use crate::activations::Sums;
use crate::format::{IQ4_NL, IQ4_XS, KQuant, MXFP4, Quant32, iq4_nl::CODES, mxfp4, tq1_0};
use crate::isa::avx2::proven;
use crate::isa::avx512::Avx512;
use crate::isa::memory::{load, load_at};
use std::arch::x86_64::*;

/// Up to four blocks of 256 activations; scales that are missing are those of others.
#[derive(Clone, Copy)]
pub(crate) struct Inputs256<'a, const N: usize> {
    pub(crate) codes: [&'a [i8; 256]; N],
    pub(crate) sums: [&'a Sums; N],
    pub(crate) scales: [f32; 4],
}

/// Four blocks of 32 activations.
#[derive(Clone, Copy)]
pub(crate) struct Four32<'a> {
    pub(crate) codes: &'a [i8; 128],
    pub(crate) sums: [i16; 4],
    pub(crate) scales: [f32; 4],
}

/// Prefetches from memory while a 4×4 block product is computed.
pub(crate) trait Prefetch: Copy {
    /// The part of it that is prefetched while `block` is read: block `c` of row `r` of the 4×4
    /// blocks, or, with `c` 0, all blocks of the row.
    fn prefetch(self, isa: Avx512, block: &[u8], c: usize, r: usize);
}

/// Prefetches lines [`NEAR`] behind the block, and lines `.0` bytes behind it.
#[derive(Clone, Copy)]
pub(crate) struct StridedPrefetch(pub(crate) usize);

impl Prefetch for StridedPrefetch {
    #[inline(always)]
    fn prefetch(self, isa: Avx512, block: &[u8], _: usize, _: usize) {
        for line in (0..block.len()).step_by(LINE) {
            isa.prefetch_l1(block, line + NEAR);
            isa.prefetch_l2(block, line + self.0);
        }
    }
}

/// Nothing, where the blocks are multiplied again.
#[derive(Clone, Copy)]
pub(crate) struct NoPrefetch;

impl Prefetch for NoPrefetch {
    #[inline(always)]
    fn prefetch(self, _: Avx512, _: &[u8], _: usize, _: usize) {}
}

/// As many lines as the 4×4 blocks have, in the order of memory, from byte `at` of `bytes` on.
#[derive(Clone, Copy)]
pub(crate) struct LinearPrefetch<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl Prefetch for LinearPrefetch<'_> {
    #[inline(always)]
    fn prefetch(self, isa: Avx512, block: &[u8], c: usize, r: usize) {
        // Some lines twice: what depends on `r` in any other way is not unrolled.
        for line in (0..block.len()).step_by(LINE) {
            isa.prefetch_l1(self.bytes, self.at + (4 * c + r) * block.len() + line);
        }
    }
}

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Bytes from the block that is multiplied to the lines prefetched from the L2.
const NEAR: usize = 1 << 10;

/// Indices for `vpshufb` that widen byte `low` of a word of 8 to all words of the lower half, byte
/// `high` to the upper.
const fn bytes_of_halves(low: u8, high: u8) -> [u8; 64] {
    let mut index = [0x80; 64];
    let mut i = 0;
    while i < 32 {
        index[2 * i] = if i < 16 { low } else { high };
        i += 1;
    }
    index
}

/// Indices for `vpermw`: the words from `first` on, `n` times each.
pub(super) const fn words_from(first: u16, n: usize) -> [u16; 32] {
    let mut index = [0; 32];
    let mut i = 0;
    while i < 32 {
        index[i] = first + (i / n) as u16;
        i += 1;
    }
    index
}

/// Word `low` in the lower half, `high` in the upper one.
const fn halves_of(low: u16, high: u16) -> [u16; 32] {
    let mut words = [low; 32];
    let mut i = 16;
    while i < 32 {
        words[i] = high;
        i += 1;
    }
    words
}

/// Sub-blocks of 32 whose nibbles are the low ones of the first 64 bytes, the high ones, and those
/// of the other 64.
const NIBBLE_GROUPS: [[usize; 2]; 4] = [[0, 2], [1, 3], [4, 6], [5, 7]];
/// Spread the eight scales of a block over the products of [`NIBBLE_GROUPS`].
const SCALES_OF_32: [[u8; 64]; 4] = [
    bytes_of_halves(0, 2),
    bytes_of_halves(1, 3),
    bytes_of_halves(4, 6),
    bytes_of_halves(5, 7),
];
/// Spread the sixteen scales of a block over the products of 64 weights each.
pub(super) const SCALES_OF_16: [[u16; 32]; 4] = [
    words_from(0, 8),
    words_from(4, 8),
    words_from(8, 8),
    words_from(12, 8),
];
/// Element i/4 in lane i: the factor of block i/4 of 4×4 blocks.
const BLOCK_OF_LANE: [i32; 16] = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3];
/// The same for registers of the blocks 0 and 1, and of 2 and 3.
const BLOCK_OF_HALF: [[i32; 16]; 2] = [
    [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1],
    [2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3],
];
/// Spread eight scales, four at a time, over the four lanes of their sub-blocks.
const SCALES_OF_LANES: [[i32; 16]; 2] = [
    [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3],
    [4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7],
];
/// Indices for `vpshufb`: word c of 128-bit lane c in the first four words of that lane.
const SCALES_OF_ROWS: [u8; 64] = {
    let mut index = [0x80; 64];
    let mut i = 0;
    while i < 32 {
        index[i / 8 * 16 + i % 8] = (i / 8 * 2 + i % 2) as u8;
        i += 1;
    }
    index
};
/// Of TQ1_0, for 64 weights each.
const FACTORS: [[u8; 64]; 4] = {
    let (mut factors, mut i) = ([[0; 64]; 4], 0);
    while i < 256 {
        factors[i / 64][i % 64] = tq1_0::FACTORS[i / 32][i % 32];
        i += 1;
    }
    factors
};
/// The lower half of each 128-bit lane.
const EVEN: [i64; 8] = [0, 2, 4, 6, 0, 2, 4, 6];

/// The scales of four blocks of each of four rows, lane 4·block + row.
#[inline(always)]
fn scales_of_32<F: Quant32<Block = [u8; B]>, const B: usize>(
    rows: [&[[u8; B]; 4]; 4],
) -> [u16; 16] {
    let mut d = [0; 16];
    for r in 0..4 {
        for c in 0..4 {
            d[4 * c + r] = F::d(&rows[r][c], 0);
        }
    }
    d
}

impl Avx512 {
    #[inline(always)]
    pub(crate) fn iq4_nl(
        self,
        rows: [&[[u8; 18]; 4]; 4],
        x: Four32<'_>,
        prefetch: impl Prefetch,
    ) -> __m512 {
        let d = self.halves_16(&scales_of_32::<IQ4_NL, 18>(rows));
        self.nibbles_of_table(rows, x, (&CODES, IQ4_NL::OFFSET), d, prefetch)
    }
    #[inline(always)]
    pub(crate) fn mxfp4(
        self,
        rows: [&[[u8; 17]; 4]; 4],
        x: Four32<'_>,
        prefetch: impl Prefetch,
    ) -> __m512 {
        let d = self.powers_16(&scales_of_32::<MXFP4, 17>(rows));
        self.nibbles_of_table(rows, x, (&mxfp4::CODES, MXFP4::OFFSET), d, prefetch)
    }

    /// Prefetches the line `offset` bytes behind the start of `bytes`, which need not exist, into
    /// the L1.
    #[inline(always)]
    pub(crate) fn prefetch_l1(self, bytes: &[u8], offset: usize) {
        let at = bytes.as_ptr().wrapping_add(offset).cast();
        // SAFETY: a hint, which may name any address; every x86-64 has the instruction.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at) }
    }
    /// Prefetches the line `offset` bytes behind the start of `bytes`, which need not exist, from
    /// memory into the L2.
    #[inline(always)]
    pub(crate) fn prefetch_l2(self, bytes: &[u8], offset: usize) {
        let at = bytes.as_ptr().wrapping_add(offset).cast();
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at) }
    }

    proven! {
        /// `parts[i]` in 128-bit lane i.
        fn four_lanes(self, parts: [&[u8; 16]; 4]) -> __m512i {
            let v = _mm512_castsi128_si512(load(parts[0]));
            let v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load(parts[1]));
            let v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load(parts[2]));
            _mm512_mask_broadcast_i32x4(v, 0xf000, load(parts[3]))
        }
        /// As [`Self::four_lanes`].
        fn four_lanes_signed(self, parts: [&[i8; 16]; 4]) -> __m512i {
            let v = _mm512_castsi128_si512(load(parts[0]));
            let v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load(parts[1]));
            let v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load(parts[2]));
            _mm512_mask_broadcast_i32x4(v, 0xf000, load(parts[3]))
        }
        /// Groups of 32 codes in the lower and the upper half.
        fn two_groups(self, low: &[i8; 32], high: &[i8; 32]) -> __m512i {
            let v = _mm512_castsi256_si512(load(low));
            _mm512_inserti64x4::<1>(v, load(high))
        }
        /// Widens the low f16 of each lane.
        fn low_halves(self, v: __m512i) -> __m512 { _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)) }
        /// Widens sixteen f16.
        pub(crate) fn halves_16(self, bits: &[u16; 16]) -> __m512 { _mm512_cvtph_ps(load(bits)) }
        /// Element i/4 in lane i.
        pub(super) fn of_blocks(self, x: [f32; 4]) -> __m512 {
            let x = _mm512_castps128_ps512(load(&x));
            _mm512_permutexvar_ps(load(&BLOCK_OF_LANE), x)
        }
        /// `acc + Σ scale·code·x`.
        pub(super) fn dot_pairs(self, acc: __m512i, codes: __m512i, x: __m512i, scales: __m512i) -> __m512i {
            plus_pairs(acc, _mm512_maddubs_epi16(codes, x), scales)
        }
        /// The sum of 128-bit lane i of `v[r]` in element r of lane i.
        pub(super) fn fold_rows(self, v: [__m512i; 4]) -> __m512i {
            let a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
            let b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
            _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b))
        }
        /// 128-bit lanes 0 + 1 and 2 + 3 of `a`, then those of `b`.
        fn fold_lanes(self, a: __m512i, b: __m512i) -> __m512i {
            _mm512_add_epi32(_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b))
        }
        /// `isum` of 4×4 blocks from the sums of each of its blocks by [`Self::fold_rows`].
        pub(super) fn fold_blocks(self, v: [__m512i; 4]) -> __m512 {
            let (a, b) = (self.fold_lanes(v[0], v[1]), self.fold_lanes(v[2], v[3]));
            _mm512_cvtepi32_ps(self.fold_lanes(a, b))
        }

        /// Q4_K (blocks of 144 bytes) and Q5_K (of 176).
        pub(crate) fn nibbles_k<const B: usize, const N: usize>(
            self, rows: [&[[u8; B]; N]; 4], x: Inputs256<'_, N>, prefetch: impl Prefetch
        ) -> __m512 {
            let mut headers = [_mm512_setzero_si512(); 4];
            for r in 0..4 {
                let at = |c: usize| header_of(&rows[r][c.min(N - 1)]);
                headers[r] = self.four_lanes([at(0), at(1), at(2), at(3)]);
            }
            // d and dmin, then bytes 0 to 3, 4 to 7 and 8 to 11 of the six-bit scales; see
            // `format/q4_k.rs`.
            let [halves, low_scales, low_mins, rest] = self.transpose_lanes(headers);
            let (low_6, low_4, top_2) =
                (_mm512_set1_epi8(0x3f), _mm512_set1_epi8(0x0f), _mm512_set1_epi8(0x30));
            let both = |nibbles, top| {
                let top = _mm512_and_si512(_mm512_srli_epi32::<2>(top), top_2);
                _mm512_or_si512(_mm512_and_si512(nibbles, low_4), top)
            };
            let scales = [_mm512_and_si512(low_scales, low_6), both(rest, low_scales)];
            let mins = [_mm512_and_si512(low_mins, low_6), both(_mm512_srli_epi32::<4>(rest), low_mins)];
            // Word 2·block + row % 2 of vector row/2: the scales of a block.
            let (even, odd) = (_mm512_unpacklo_epi32(scales[0], scales[1]), _mm512_unpackhi_epi32(scales[0], scales[1]));
            let words: [[i64; 8]; 2] = load(&[even, odd]);

            let sums = |i: usize| &x.sums[i.min(N - 1)].of_32;
            let high = self.four_lanes_signed([&sums(0).high, &sums(1).high, &sums(2).high, &sums(3).high]);
            let low = self.four_lanes_signed([&sums(0).low, &sums(1).low, &sums(2).low, &sums(3).low]);
            let bias = _mm512_dpbusd_epi32(_mm512_setzero_si512(), mins[0], _mm512_shuffle_epi32::<0x00>(high));
            let bias = _mm512_dpbusd_epi32(bias, mins[1], _mm512_shuffle_epi32::<0x55>(high));
            let bias = _mm512_slli_epi32::<8>(bias);
            let bias = _mm512_dpbusd_epi32(bias, mins[0], _mm512_shuffle_epi32::<0x00>(low));
            let bias = _mm512_dpbusd_epi32(bias, mins[1], _mm512_shuffle_epi32::<0x55>(low));

            let mut blocks = [_mm512_setzero_si512(); 4];
            for c in 0..N {
                let groups = x.codes[c].as_chunks::<32>().0;
                let mut xs = [_mm512_setzero_si512(); 4];
                for i in 0..4 {
                    let [low, high] = NIBBLE_GROUPS[i];
                    xs[i] = self.two_groups(&groups[low], &groups[high]);
                }
                let mut dots = [_mm512_setzero_si512(); 4];
                for r in 0..4 {
                    prefetch.prefetch(self, &rows[r][c], c, r);
                    let codes = self.codes_of_nibbles(&rows[r][c]);
                    let word = _mm512_set1_epi64(words[r / 2][2 * c + r % 2]);
                    let mut sum = _mm512_setzero_si512();
                    for i in 0..4 {
                        let scales = _mm512_shuffle_epi8(word, load(&SCALES_OF_32[i]));
                        sum = self.dot_pairs(sum, codes[i], xs[i], scales);
                    }
                    dots[r] = sum;
                }
                blocks[c] = self.fold_rows(dots);
            }
            let v = _mm512_mul_ps(self.low_halves(halves), self.fold_blocks(blocks));
            let dmin = self.low_halves(_mm512_srli_epi32::<16>(halves));
            let v = _mm512_sub_ps(v, _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(bias)));
            _mm512_mul_ps(self.of_blocks(x.scales), v)
        }
        /// Codes of Q4_K or Q5_K in the order of [`NIBBLE_GROUPS`].
        fn codes_of_nibbles<const B: usize>(self, block: &[u8; B]) -> [__m512i; 4] {
            let nibbles: &[u8; 128] = block.last_chunk().expect("the nibbles end the block");
            let (low_4, [a, b]) = (_mm512_set1_epi8(15), load(nibbles));
            let codes = [
                _mm512_and_si512(a, low_4),
                _mm512_and_si512(_mm512_srli_epi16::<4>(a), low_4),
                _mm512_and_si512(b, low_4),
                _mm512_and_si512(_mm512_srli_epi16::<4>(b), low_4),
            ];
            if B == 144 {
                return codes;
            }
            // Bit s of byte j is the fifth bit of weight j of sub-block s.
            let v = self.twice(block[16..].first_chunk().expect("the fifth bits follow the header"));
            let bit = _mm512_set1_epi8(16);
            let with = |codes, shifted| _mm512_or_si512(codes, _mm512_and_si512(shifted, bit));
            [
                with(codes[0], _mm512_sllv_epi16(v, load(const { &halves_of(4, 2) }))),
                with(codes[1], _mm512_sllv_epi16(v, load(const { &halves_of(3, 1) }))),
                with(codes[2], _mm512_srlv_epi16(v, load(const { &halves_of(0, 2) }))),
                with(codes[3], _mm512_srlv_epi16(v, load(const { &halves_of(1, 3) }))),
            ]
        }

        pub(crate) fn q6_k<const N: usize>(
            self, rows: [&[[u8; 210]; N]; 4], x: Inputs256<'_, N>, prefetch: impl Prefetch
        ) -> __m512 {
            let (low_4, top_2) = (_mm512_set1_epi8(0x0f), _mm512_set1_epi8(0x30));
            let (left, right) = (load(const { &halves_of(4, 2) }), load(const { &halves_of(0, 2) }));
            let (mut d, mut blocks) = ([0; 16], [_mm512_setzero_si512(); 4]);
            for c in 0..N {
                let xs = x.codes[c].as_chunks::<64>().0;
                let sums = load(&x.sums[c].of_16.whole);
                let mut dots = [_mm512_setzero_si512(); 4];
                for r in 0..4 {
                    prefetch.prefetch(self, &rows[r][c], c, r);
                    let block = &rows[r][c];
                    d[4 * c + r] = u16::from_le_bytes([block[208], block[209]]);
                    let scales = _mm256_cvtepi8_epi16(load_at(block, 192));
                    // 32 is subtracted from the codes.
                    let offset = _mm256_slli_epi32::<5>(_mm256_madd_epi16(scales, sums));
                    let mut sum = _mm512_zextsi256_si512(_mm256_sub_epi32(_mm256_setzero_si256(), offset));
                    let scales = _mm512_castsi256_si512(scales);
                    for h in 0..2 {
                        let low = load_at(block, 64 * h);
                        let high = load_at(block, 128 + 32 * h);
                        let high = _mm512_broadcast_i64x4(high);
                        let top = [_mm512_sllv_epi16(high, left), _mm512_srlv_epi16(high, right)];
                        let low = [low, _mm512_srli_epi16::<4>(low)];
                        for i in 0..2 {
                            let top = _mm512_and_si512(top[i], top_2);
                            let codes = _mm512_or_si512(_mm512_and_si512(low[i], low_4), top);
                            let spread = _mm512_permutexvar_epi16(load(&SCALES_OF_16[2 * h + i]), scales);
                            sum = self.dot_pairs(sum, codes, load(&xs[2 * h + i]), spread);
                        }
                    }
                    dots[r] = sum;
                }
                blocks[c] = self.fold_rows(dots);
            }
            let v = _mm512_mul_ps(self.halves_16(&d), self.fold_blocks(blocks));
            _mm512_mul_ps(self.of_blocks(x.scales), v)
        }

        pub(crate) fn iq4_xs<const N: usize>(
            self, rows: [&[[u8; 136]; N]; 4], x: Inputs256<'_, N>, prefetch: impl Prefetch
        ) -> __m512 {
            let (low_4, table) = (_mm512_set1_epi8(15), _mm512_broadcast_i32x4(load(&CODES)));
            let (mut d, mut blocks) = ([0; 16], [_mm512_setzero_si512(); 4]);
            for c in 0..N {
                let xs = x.codes[c].as_chunks::<128>().0;
                let xs = [self.halves_of_groups(&xs[0]), self.halves_of_groups(&xs[1])];
                let sums = load_at(&x.sums[c].of_32.whole, 0);
                let mut dots = [_mm512_setzero_si512(); 4];
                for r in 0..4 {
                    prefetch.prefetch(self, &rows[r][c], c, r);
                    let (block, head) = (&rows[r][c], IQ4_XS::head(&rows[r][c]));
                    d[4 * c + r] = head.d;
                    let scales = _mm_cvtsi64_si128(head.scale[0] as i64);
                    // 128 is subtracted from the codes.
                    let offset = _mm_slli_epi32::<7>(_mm_madd_epi16(_mm_cvtepi8_epi16(scales), sums));
                    let mut sum = _mm512_zextsi128_si512(_mm_sub_epi32(_mm_setzero_si128(), offset));
                    let scales = _mm512_castsi256_si512(_mm256_cvtepi8_epi32(scales));
                    for h in 0..2 {
                        let nibbles = load_at(block, 8 + 64 * h);
                        let low = _mm512_and_si512(nibbles, low_4);
                        let high = _mm512_and_si512(_mm512_srli_epi16::<4>(nibbles), low_4);
                        let dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_shuffle_epi8(table, low), xs[h][0]);
                        let dot = _mm512_dpbusd_epi32(dot, _mm512_shuffle_epi8(table, high), xs[h][1]);
                        let spread = _mm512_permutexvar_epi32(load(&SCALES_OF_LANES[h]), scales);
                        sum = _mm512_add_epi32(sum, _mm512_mullo_epi32(dot, spread));
                    }
                    dots[r] = sum;
                }
                blocks[c] = self.fold_rows(dots);
            }
            let v = _mm512_mul_ps(self.halves_16(&d), self.fold_blocks(blocks));
            _mm512_mul_ps(self.of_blocks(x.scales), v)
        }

        pub(crate) fn q2_k<const N: usize>(
            self, rows: [&[[u8; 84]; N]; 4], x: Inputs256<'_, N>, prefetch: impl Prefetch
        ) -> __m512 {
            let low_4 = _mm512_set1_epi8(15);
            let mut headers = [_mm512_setzero_si512(); 4];
            for r in 0..4 {
                let at = |c: usize| header_of(&rows[r][c.min(N - 1)]);
                headers[r] = self.four_lanes([at(0), at(1), at(2), at(3)]);
            }
            let mut mins = self.transpose_lanes(headers);
            // The upper nibbles. A loop: `map` would be a call.
            for words in &mut mins {
                *words = _mm512_and_si512(_mm512_srli_epi16::<4>(*words), low_4);
            }
            let sums = |i: usize| &x.sums[i.min(N - 1)].of_16;
            let high = self.four_lanes_signed([&sums(0).high, &sums(1).high, &sums(2).high, &sums(3).high]);
            let low = self.four_lanes_signed([&sums(0).low, &sums(1).low, &sums(2).low, &sums(3).low]);
            let bias = _mm512_slli_epi32::<8>(self.dot_words(_mm512_setzero_si512(), mins, high));
            let bias = self.dot_words(bias, mins, low);

            let (mut halves, mut blocks) = ([0; 16], [_mm512_setzero_si512(); 4]);
            for c in 0..N {
                let xs = x.codes[c].as_chunks::<64>().0;
                let mut dots = [_mm512_setzero_si512(); 4];
                for r in 0..4 {
                    prefetch.prefetch(self, &rows[r][c], c, r);
                    let block = &rows[r][c];
                    halves[4 * c + r] = i32::from_le_bytes(*block.last_chunk().expect("d and dmin end the block"));
                    let scales = load(header_of(block));
                    let scales = _mm_and_si128(scales, _mm512_castsi512_si128(low_4));
                    let scales = _mm512_castsi256_si512(_mm256_cvtepi8_epi16(scales));
                    let codes = self.pairs_of_bits(block[16..].first_chunk().expect("the codes follow the scales"));
                    let mut sum = _mm512_setzero_si512();
                    for i in 0..4 {
                        let spread = _mm512_permutexvar_epi16(load(&SCALES_OF_16[i]), scales);
                        sum = self.dot_pairs(sum, codes[i], load(&xs[i]), spread);
                    }
                    dots[r] = sum;
                }
                blocks[c] = self.fold_rows(dots);
            }
            let halves = load(&halves);
            let v = _mm512_mul_ps(self.low_halves(halves), self.fold_blocks(blocks));
            let dmin = self.low_halves(_mm512_srli_epi32::<16>(halves));
            let v = _mm512_sub_ps(v, _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(bias)));
            _mm512_mul_ps(self.of_blocks(x.scales), v)
        }
        pub(crate) fn tq1_0<const N: usize>(
            self, rows: [&[[u8; 54]; N]; 4], x: Inputs256<'_, N>, prefetch: impl Prefetch
        ) -> __m512 {
            let (odd, three) = (_mm512_set1_epi16(-256), _mm512_set1_epi16(3));
            let (mut d, mut blocks) = ([0; 16], [_mm512_setzero_si512(); 4]);
            for c in 0..N {
                let xs = x.codes[c].as_chunks::<64>().0;
                // 1 is subtracted from the digits.
                let sums = load_at(&x.sums[c].of_32.whole, 0);
                let start = _mm512_zextsi128_si512(_mm_madd_epi16(sums, _mm_set1_epi16(-1)));
                let mut dots = [_mm512_setzero_si512(); 4];
                for r in 0..4 {
                    prefetch.prefetch(self, &rows[r][c], c, r);
                    let block = &rows[r][c];
                    d[4 * c + r] = u16::from_le_bytes([block[52], block[53]]);
                    // What the four times 64 digits are in; see `format/tq1_0.rs`.
                    let narrow = load_at(block, 32);
                    let last = i32::from_le_bytes([block[48], block[49], block[50], block[51]]);
                    let wide = self.twice(block.first_chunk().expect("54 bytes are more than 32"));
                    let narrow = _mm512_broadcast_i32x4(narrow);
                    let both = _mm512_mask_mov_epi64(wide, 0xf0, narrow);
                    let bytes = [wide, wide, both, _mm512_mask_set1_epi32(narrow, 0xf000, last)];
                    let mut sum = start;
                    for i in 0..4 {
                        // Even and odd bytes apart, each in the upper half of a word.
                        let (x, factors) = (load(&xs[i]), load(&FACTORS[i]));
                        let digits = _mm512_mullo_epi16(bytes[i], _mm512_slli_epi16::<8>(factors));
                        sum = _mm512_dpbusd_epi32(sum, _mm512_mulhi_epu16(digits, three), x);
                        let factors = _mm512_srli_epi16::<8>(factors);
                        let digits = _mm512_mullo_epi16(_mm512_and_si512(bytes[i], odd), factors);
                        let x = _mm512_srli_epi16::<8>(x);
                        sum = _mm512_dpbusd_epi32(sum, _mm512_mulhi_epu16(digits, three), x);
                    }
                    dots[r] = sum;
                }
                blocks[c] = self.fold_rows(dots);
            }
            let v = _mm512_mul_ps(self.halves_16(&d), self.fold_blocks(blocks));
            _mm512_mul_ps(self.of_blocks(x.scales), v)
        }
        /// `acc + Σ word k of v[k]·word k of the 128-bit lane of x`, as bytes, those of `x` signed.
        fn dot_words(self, acc: __m512i, v: [__m512i; 4], x: __m512i) -> __m512i {
            let acc = _mm512_dpbusd_epi32(acc, v[0], _mm512_shuffle_epi32::<0x00>(x));
            let acc = _mm512_dpbusd_epi32(acc, v[1], _mm512_shuffle_epi32::<0x55>(x));
            let acc = _mm512_dpbusd_epi32(acc, v[2], _mm512_shuffle_epi32::<0xaa>(x));
            _mm512_dpbusd_epi32(acc, v[3], _mm512_shuffle_epi32::<0xff>(x))
        }
        /// 32 bytes in the lower and the upper half.
        fn twice(self, bytes: &[u8; 32]) -> __m512i {
            _mm512_broadcast_i64x4(load(bytes))
        }
        /// The two-bit codes of a block, 64 at a time: bits 2·j and 2·j + 1 of 32 bytes are 32
        /// weights.
        fn pairs_of_bits(self, bytes: &[u8; 64]) -> [__m512i; 4] {
            let (bytes, two) = (bytes.as_chunks::<32>().0, _mm512_set1_epi8(3));
            let (first, second) = (self.twice(&bytes[0]), self.twice(&bytes[1]));
            let (low, high) = (load(const { &halves_of(0, 2) }), load(const { &halves_of(4, 6) }));
            [
                _mm512_and_si512(_mm512_srlv_epi16(first, low), two),
                _mm512_and_si512(_mm512_srlv_epi16(first, high), two),
                _mm512_and_si512(_mm512_srlv_epi16(second, low), two),
                _mm512_and_si512(_mm512_srlv_epi16(second, high), two),
            ]
        }

        pub(crate) fn q8_0(self, rows: [&[[u8; 34]; 4]; 4], x: Four32<'_>, prefetch: impl Prefetch) -> __m512 {
            let sums = _mm_cvtepi16_epi32(_mm_cvtsi64_si128(load(&x.sums)));
            // Flipping the top bit adds 128 to the codes.
            let offsets = _mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32::<7>(sums));
            let offsets = _mm512_castsi128_si512(offsets);
            let flip = _mm512_set1_epi8(-128);
            let (xs, mut d) = (x.codes.as_chunks::<64>().0, [0; 16]);
            let mut dots = [[_mm512_setzero_si512(); 4]; 2];
            for r in 0..4 {
                prefetch.prefetch(self, rows[r].as_flattened(), 0, r);
                let blocks = rows[r];
                for c in 0..4 {
                    d[4 * c + r] = u16::from_le_bytes([blocks[c][0], blocks[c][1]]);
                }
                for i in 0..2 {
                    let at = |c: usize| load_at(&blocks[2 * i + c], 2);
                    let codes = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(at(0)), at(1));
                    let start = _mm512_maskz_permutexvar_epi32(0x0101, load(&BLOCK_OF_HALF[i]), offsets);
                    dots[i][r] = _mm512_dpbusd_epi32(start, _mm512_xor_si512(codes, flip), load(&xs[i]));
                }
            }
            let isum = _mm512_cvtepi32_ps(self.fold_lanes(self.fold_rows(dots[0]), self.fold_rows(dots[1])));
            _mm512_mul_ps(_mm512_mul_ps(self.halves_16(&d), self.of_blocks(x.scales)), isum)
        }

        pub(crate) fn q4_0(self, rows: [&[[u8; 18]; 4]; 4], x: Four32<'_>, prefetch: impl Prefetch) -> __m512 {
            let (start, [first, second]) = (self.offsets(x.sums, 8), self.halves_of_groups(x.codes));
            let (low_4, mut d, mut dots) = (_mm512_set1_epi8(15), _mm512_setzero_si512(), [_mm512_setzero_si512(); 4]);
            for r in 0..4 {
                prefetch.prefetch(self, rows[r].as_flattened(), 0, r);
                let blocks = rows[r];
                let at = |c: usize| blocks[c].last_chunk().expect("the nibbles end the block");
                let nibbles = self.four_lanes([at(0), at(1), at(2), at(3)]);
                let sum = _mm512_dpbusd_epi32(start, _mm512_and_si512(nibbles, low_4), first);
                let high = _mm512_and_si512(_mm512_srli_epi16::<4>(nibbles), low_4);
                dots[r] = _mm512_dpbusd_epi32(sum, high, second);
                // The scale of block c begins at byte 18·c, which is byte 2·c of 128-bit lane c.
                // Loaded last, or the compiler makes the nibbles of this by shifts.
                let head = load_at(blocks.as_flattened().first_chunk::<72>().expect("4 times 18"), 0);
                d = _mm512_mask_shuffle_epi8(d, 0x0003_0003_0003_0003 << (2 * r), head, load(&SCALES_OF_ROWS));
            }
            let d = _mm512_castsi512_si256(_mm512_permutexvar_epi64(load(&EVEN), d));
            let isum = _mm512_cvtepi32_ps(self.fold_rows(dots));
            _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtph_ps(d), self.of_blocks(x.scales)), isum)
        }

        /// Formats whose nibbles stand for the numbers of a table, biased by `offset`. `d`
        /// has their scales, lane 4·block + row.
        fn nibbles_of_table<const B: usize>(
            self, rows: [&[[u8; B]; 4]; 4], x: Four32<'_>, table: (&[u8; 16], i16), d: __m512, prefetch: impl Prefetch
        ) -> __m512 {
            let (table, offset) = (_mm512_broadcast_i32x4(load(table.0)), i32::from(table.1));
            let (start, [first, second]) = (self.offsets(x.sums, offset), self.halves_of_groups(x.codes));
            let (low_4, mut dots) = (_mm512_set1_epi8(15), [_mm512_setzero_si512(); 4]);
            for r in 0..4 {
                prefetch.prefetch(self, rows[r].as_flattened(), 0, r);
                let blocks = rows[r];
                let at = |c: usize| blocks[c].last_chunk().expect("the nibbles end the block");
                let nibbles = self.four_lanes([at(0), at(1), at(2), at(3)]);
                let low = _mm512_shuffle_epi8(table, _mm512_and_si512(nibbles, low_4));
                let high = _mm512_and_si512(_mm512_srli_epi16::<4>(nibbles), low_4);
                let sum = _mm512_dpbusd_epi32(start, low, first);
                dots[r] = _mm512_dpbusd_epi32(sum, _mm512_shuffle_epi8(table, high), second);
            }
            let isum = _mm512_cvtepi32_ps(self.fold_rows(dots));
            _mm512_mul_ps(_mm512_mul_ps(d, self.of_blocks(x.scales)), isum)
        }
        /// [`half_power`](atta_formats::layout::half_power) of sixteen exponents.
        pub(crate) fn powers_16(self, exponents: &[u16; 16]) -> __m512 {
            let e = _mm512_cvtepu16_epi32(load(exponents));
            let one = _mm512_set1_epi32(1);
            let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(e, one));
            let subnormal = _mm512_slli_epi32::<21>(_mm512_add_epi32(_mm512_and_si512(e, one), one));
            _mm512_castsi512_ps(_mm512_max_epi32(normal, subnormal))
        }

        pub(crate) fn q5_0(self, rows: [&[[u8; 22]; 4]; 4], x: Four32<'_>, prefetch: impl Prefetch) -> __m512 {
            let (start, [first, second]) = (self.offsets(x.sums, 16), self.halves_of_groups(x.codes));
            let (low_4, bit) = (_mm512_set1_epi8(15), _mm512_set1_epi8(16));
            let (mut d, mut dots) = ([0; 16], [_mm512_setzero_si512(); 4]);
            for r in 0..4 {
                prefetch.prefetch(self, rows[r].as_flattened(), 0, r);
                let blocks = rows[r];
                // The fifth bits of the low and the high nibbles.
                let mut fifth = [0, 0];
                for c in 0..4 {
                    let half = |at: usize| u16::from_le_bytes([blocks[c][at], blocks[c][at + 1]]);
                    d[4 * c + r] = half(0);
                    fifth[0] |= u64::from(half(2)) << (16 * c);
                    fifth[1] |= u64::from(half(4)) << (16 * c);
                }
                let at = |c: usize| blocks[c].last_chunk().expect("the nibbles end the block");
                let nibbles = self.four_lanes([at(0), at(1), at(2), at(3)]);
                let low = _mm512_and_si512(nibbles, low_4);
                let high = _mm512_and_si512(_mm512_srli_epi16::<4>(nibbles), low_4);
                let sum = _mm512_dpbusd_epi32(start, _mm512_mask_add_epi8(low, fifth[0], low, bit), first);
                dots[r] = _mm512_dpbusd_epi32(sum, _mm512_mask_add_epi8(high, fifth[1], high, bit), second);
            }
            let isum = _mm512_cvtepi32_ps(self.fold_rows(dots));
            _mm512_mul_ps(_mm512_mul_ps(self.halves_16(&d), self.of_blocks(x.scales)), isum)
        }
        /// The first halves of four groups of 32 codes, and the second ones: what low and high
        /// nibbles are multiplied with.
        fn halves_of_groups(self, codes: &[i8; 128]) -> [__m512i; 2] {
            let [a, b] = load(codes);
            [_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b)]
        }
        /// Where the sums of four blocks start from whose codes `offset` is subtracted,
        /// in the first element of a 128-bit lane each.
        fn offsets(self, sums: [i16; 4], offset: i32) -> __m512i {
            let sums = _mm_cvtepi16_epi32(_mm_cvtsi64_si128(load(&sums)));
            let start = _mm512_castsi128_si512(_mm_mullo_epi32(sums, _mm_set1_epi32(-offset)));
            _mm512_maskz_permutexvar_epi32(0x1111, load(&BLOCK_OF_LANE), start)
        }

        /// `out` of four rows plus the first `n` blocks of 4×4 blocks, in order.
        pub(crate) fn add_quad(self, out: __m128, quad: __m512, n: usize) -> __m128 {
            let out = _mm_add_ps(out, _mm512_castps512_ps128(quad));
            if n == 1 {
                return out;
            }
            let out = _mm_add_ps(out, _mm512_extractf32x4_ps::<1>(quad));
            if n == 2 {
                return out;
            }
            let out = _mm_add_ps(out, _mm512_extractf32x4_ps::<2>(quad));
            if n == 3 {
                return out;
            }
            _mm_add_ps(out, _mm512_extractf32x4_ps::<3>(quad))
        }
        pub(crate) fn no_quad(self) -> __m128 { _mm_setzero_ps() }
    }
}

/// `acc` and the sums of two products of words each, by one instruction: the compiler makes two of
/// its intrinsic.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn plus_pairs(mut acc: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: registers only; the features are those of this function.
    unsafe {
        std::arch::asm!("vpdpwssd {0}, {1}, {2}", inout(zmm_reg) acc, in(zmm_reg) a, in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    acc
}

/// The 16 bytes of scales and minima.
#[inline(always)]
fn header_of<const B: usize>(block: &[u8; B]) -> &[u8; 16] {
    block
        .first_chunk()
        .expect("a block is longer than its header")
}
