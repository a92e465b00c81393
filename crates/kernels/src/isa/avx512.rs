//! AVX-512 with byte dot products (VNNI): 16 weight rows per vector.
//!
//! Rows are decoded 256 bits at a time, as 32 codes fill no more; panels and floats are 512 bits
//! wide, and so are the formats of `fused/x86_512`.

use super::avx2::{proven, rows_of_256_bits, wide_of_256_bits};
use super::memory::{load, store};
use super::{Codes, Floats, KeyCodes, Lanes, PairCodes, Pairs, Row, Wide, Words, products_of_four};
use std::arch::x86_64::*;

/// Proof of AVX-512 F, BW, VL, DQ and VNNI, and of AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The CPU must have the features.
    pub(crate) const unsafe fn assume() -> Self {
        Self(())
    }

    proven! {
        /// Transposes the four words of each 128-bit lane: word i of vector r becomes word r of
        /// vector i.
        pub(crate) fn transpose_lanes(self, v: [__m512i; 4]) -> [__m512i; 4] {
            let (a, b) = (_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
            let (c, d) = (_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
            [
                _mm512_unpacklo_epi64(a, c),
                _mm512_unpackhi_epi64(a, c),
                _mm512_unpacklo_epi64(b, d),
                _mm512_unpackhi_epi64(b, d),
            ]
        }
    }
}

rows_of_256_bits!(Avx512);

impl Wide for Avx512 {
    wide_of_256_bits!();

    proven! {
        fn dot_codes(self, acc: __m256i, codes: __m256i, x: &[i8; 32]) -> __m256i {
            _mm256_dpbusd_epi32(acc, codes, load(x))
        }
        fn dot_bytes(self, acc: __m256i, codes: __m256i, x: &[i8; 32]) -> __m256i {
            _mm256_dpbusd_epi32(acc, codes, load(x))
        }
    }
}

/// The register through an empty piece of assembler.
#[inline]
#[target_feature(enable = "avx512f")]
fn opaque(mut w: __m512i) -> __m512i {
    // SAFETY: the text is a comment.
    unsafe {
        std::arch::asm!("/* {0} */", inout(zmm_reg) w, options(nomem, nostack, preserves_flags))
    }
    w
}

impl Lanes for Avx512 {
    const LANES: usize = 16;
    type W = __m512i;
    type N = __m512i;
    type L = __m512;

    products_of_four!();

    #[inline(always)]
    fn columns<const B: usize>(self, rows: &[[u8; B]; 16], c: usize) -> [__m512i; 4] {
        let mut columns = [&[0; 16]; 16];
        for (column, row) in columns.iter_mut().zip(rows) {
            *column = row[16 * c..].first_chunk().expect("16 bytes of a row");
        }
        self.transpose_words(&columns)
    }

    #[inline(always)]
    fn load_from(self, x: &[f32]) -> __m512 {
        load::<_, [f32; 16]>(x.try_into().expect("sixteen lanes"))
    }

    #[inline(always)]
    fn store_to(self, x: __m512, out: &mut [f32]) {
        store::<_, [f32; 16]>(x, out.try_into().expect("sixteen lanes"));
    }

    #[inline(always)]
    fn power_lanes(self, exponents: &[u16; 16]) -> __m512 {
        self.powers_16(exponents)
    }

    proven! {
        fn splat4(self, bytes: &[i8; 4]) -> __m512i {
            _mm512_set1_epi32(i32::from_le_bytes(bytes.map(|byte| byte as u8)))
        }
        fn opaque(self, w: __m512i) -> __m512i { opaque(w) }
        fn scale(self, w: __m512i, j: usize) -> __m512i {
            let top = _mm512_sll_epi32(w, _mm_cvtsi32_si128(24 - 8 * j as i32));
            _mm512_srai_epi32::<24>(top)
        }
        fn splat(self, x: i32) -> __m512i { _mm512_set1_epi32(x) }
        fn dot4(self, acc: __m512i, w: __m512i, x: __m512i) -> __m512i { _mm512_dpbusd_epi32(acc, w, x) }
        fn dot4_bytes(self, acc: __m512i, w: __m512i, x: __m512i) -> __m512i { _mm512_dpbusd_epi32(acc, w, x) }
        fn add(self, x: __m512i, y: __m512i) -> __m512i { _mm512_add_epi32(x, y) }
        fn widen_add_scaled(self, n: __m512i, p: __m512i, scale: __m512i) -> __m512i {
            _mm512_add_epi32(n, _mm512_mullo_epi32(p, scale))
        }
        fn times_256(self, x: __m512i) -> __m512i { _mm512_slli_epi32::<8>(x) }
        fn to_floats(self, x: __m512i) -> __m512 { _mm512_cvtepi32_ps(x) }
        fn widen_lanes(self, bits: &[u16; 16]) -> __m512 { _mm512_cvtph_ps(load(bits)) }
        fn splat_float(self, x: f32) -> __m512 { _mm512_set1_ps(x) }
        fn mul_lanes(self, x: __m512, y: __m512) -> __m512 { _mm512_mul_ps(x, y) }
        fn add_lanes(self, x: __m512, y: __m512) -> __m512 { _mm512_add_ps(x, y) }
        fn sub_lanes(self, x: __m512, y: __m512) -> __m512 { _mm512_sub_ps(x, y) }
    }
}

impl Words for Avx512 {
    proven! {
        fn transpose_words(self, rows: &[&[u8; 16]; 16]) -> [__m512i; 4] {
            let at = |r: usize| load(rows[r]);
            // Rows r, r + 4, r + 8 and r + 12 in the four 128-bit lanes; masked broadcasts need no
            // shuffle port.
            let four = |r: usize| {
                let v = _mm512_castsi128_si512(at(r));
                let v = _mm512_mask_broadcast_i32x4(v, 0x00f0, at(r + 4));
                let v = _mm512_mask_broadcast_i32x4(v, 0x0f00, at(r + 8));
                _mm512_mask_broadcast_i32x4(v, 0xf000, at(r + 12))
            };
            self.transpose_lanes([four(0), four(1), four(2), four(3)])
        }
        fn field(self, w: __m512i, down: i32, mask: u8) -> __m512i {
            let w = match down {
                0 => w,
                1.. => _mm512_srl_epi32(w, _mm_cvtsi32_si128(down)),
                _ => _mm512_sll_epi32(w, _mm_cvtsi32_si128(-down)),
            };
            _mm512_and_si512(w, _mm512_set1_epi8(mask as i8))
        }
        fn join(self, v: __m512i, w: __m512i) -> __m512i { _mm512_or_si512(v, w) }
        fn flip(self, w: __m512i, mask: u8) -> __m512i { _mm512_xor_si512(w, _mm512_set1_epi8(mask as i8)) }
        fn half(self, w: __m512i, upper: bool) -> __m512 {
            let w = if upper { _mm512_srli_epi32::<16>(w) } else { w };
            _mm512_cvtph_ps(_mm512_cvtepi32_epi16(w))
        }
    }
}

/// Lanes 0 to 7 of each vector with 8 to 15, 0 to 3 with 4 to 7, 0 and 1 with 2 and 3, 0 with 1;
/// four vectors, i, i + 4, i + 8 and i + 12, share a register after the second step.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn totals_of_16(x: &[__m512; 16]) -> __m512 {
    let mut eights = [_mm512_setzero_ps(); 8];
    for i in 0..8 {
        let (a, b) = (x[i / 4 * 8 + i % 4], x[i / 4 * 8 + i % 4 + 4]);
        eights[i] = _mm512_add_ps(
            _mm512_shuffle_f32x4::<0x44>(a, b),
            _mm512_shuffle_f32x4::<0xee>(a, b),
        );
    }
    let mut fours = [_mm512_setzero_ps(); 4];
    for i in 0..4 {
        let (a, b) = (eights[i], eights[i + 4]);
        fours[i] = _mm512_add_ps(
            _mm512_shuffle_f32x4::<0x88>(a, b),
            _mm512_shuffle_f32x4::<0xdd>(a, b),
        );
    }
    let mut pairs = [_mm512_setzero_pd(); 2];
    for i in 0..2 {
        let (a, b) = (fours[2 * i], fours[2 * i + 1]);
        pairs[i] = _mm512_castps_pd(_mm512_add_ps(
            _mm512_unpacklo_ps(a, b),
            _mm512_unpackhi_ps(a, b),
        ));
    }
    let (low, high) = (
        _mm512_unpacklo_pd(pairs[0], pairs[1]),
        _mm512_unpackhi_pd(pairs[0], pairs[1]),
    );
    _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high))
}

/// Elements j of all vectors in vector j.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn transposed(x: &[__m512; 16]) -> [__m512; 16] {
    // In 128-bit lane l of `fours[i][j]`, element 4l + j of four rows.
    let mut fours = [[_mm512_setzero_pd(); 4]; 4];
    for i in 0..4 {
        let x = &x[4 * i..4 * i + 4];
        let (a, b) = (
            _mm512_unpacklo_ps(x[0], x[1]),
            _mm512_unpackhi_ps(x[0], x[1]),
        );
        let (c, d) = (
            _mm512_unpacklo_ps(x[2], x[3]),
            _mm512_unpackhi_ps(x[2], x[3]),
        );
        let [a, b, c, d] = [
            _mm512_castps_pd(a),
            _mm512_castps_pd(b),
            _mm512_castps_pd(c),
            _mm512_castps_pd(d),
        ];
        fours[i] = [
            _mm512_unpacklo_pd(a, c),
            _mm512_unpackhi_pd(a, c),
            _mm512_unpacklo_pd(b, d),
            _mm512_unpackhi_pd(b, d),
        ];
    }
    let mut out = [_mm512_setzero_ps(); 16];
    for j in 0..4 {
        let even = [
            _mm512_shuffle_f64x2::<0x88>(fours[0][j], fours[1][j]),
            _mm512_shuffle_f64x2::<0x88>(fours[2][j], fours[3][j]),
        ];
        let odd = [
            _mm512_shuffle_f64x2::<0xdd>(fours[0][j], fours[1][j]),
            _mm512_shuffle_f64x2::<0xdd>(fours[2][j], fours[3][j]),
        ];
        out[j] = _mm512_castpd_ps(_mm512_shuffle_f64x2::<0x88>(even[0], even[1]));
        out[4 + j] = _mm512_castpd_ps(_mm512_shuffle_f64x2::<0x88>(odd[0], odd[1]));
        out[8 + j] = _mm512_castpd_ps(_mm512_shuffle_f64x2::<0xdd>(even[0], even[1]));
        out[12 + j] = _mm512_castpd_ps(_mm512_shuffle_f64x2::<0xdd>(odd[0], odd[1]));
    }
    out
}

impl Floats for Avx512 {
    type F = __m512;
    const KEYS: usize = 8;
    const ROWS: usize = 4;
    const VECTORS: usize = 4;

    #[inline(always)]
    fn floats(self, x: &[f32; 16]) -> __m512 {
        load(x)
    }

    #[inline(always)]
    fn singles(self, x: &[[u8; 4]; 16]) -> __m512 {
        load(x)
    }

    #[inline(always)]
    fn to_array(self, x: __m512) -> [f32; 16] {
        load(&x)
    }

    proven! {
        fn zeros(self) -> __m512 { _mm512_setzero_ps() }
        fn splat_all(self, x: f32) -> __m512 { _mm512_set1_ps(x) }
        fn halves(self, x: &[[u8; 2]; 16]) -> __m512 { _mm512_cvtph_ps(load(x)) }
        fn brains(self, x: &[[u8; 2]; 16]) -> __m512 {
            let wide = _mm512_cvtepu16_epi32(load(x));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
        fn totals_of_16(self, x: [__m512; 16]) -> __m512 { totals_of_16(&x) }
        fn sum_f(self, x: __m512, y: __m512) -> __m512 { _mm512_add_ps(x, y) }
        fn max_f(self, x: __m512, y: __m512) -> __m512 { _mm512_max_ps(x, y) }
        fn transposed(self, x: [__m512; 16]) -> [__m512; 16] { transposed(&x) }
        fn product(self, x: __m512, y: __m512) -> __m512 { _mm512_mul_ps(x, y) }
        fn mul_add(self, x: __m512, y: __m512, z: __m512) -> __m512 { _mm512_fmadd_ps(x, y, z) }
    }
}

impl Codes for Avx512 {
    type N = __m512i;

    #[inline(always)]
    fn arranged(self, keys: &KeyCodes) -> KeyCodes {
        load(&self.columns::<16>(keys, 0))
    }

    proven! {
        fn no_sums(self) -> __m512i { _mm512_setzero_si512() }
        // One factor must be unsigned: where the code is negative, x changes its sign.
        fn dots<const R: usize>(self, sums: [__m512i; R], keys: &KeyCodes, x: [&[i8; 16]; R]) -> [__m512i; R] {
            let (mut sums, zero) = (sums, _mm512_setzero_si512());
            for j in 0..4 {
                let keys = load(&keys.as_chunks::<4>().0[j]);
                let (sizes, negative) = (_mm512_abs_epi8(keys), _mm512_movepi8_mask(keys));
                for r in 0..R {
                    let x = _mm512_set1_epi32(load(&x[r].as_chunks::<4>().0[j]));
                    sums[r] = _mm512_dpbusd_epi32(sums[r], sizes, _mm512_mask_sub_epi8(x, negative, zero, x));
                }
            }
            sums
        }
        fn dots_of_nibbles<const R: usize>(self, sums: [__m512i; R], keys: &KeyCodes, x: [&[i8; 16]; R]) -> [__m512i; R] {
            let mut sums = sums;
            for j in 0..4 {
                let keys = load(&keys.as_chunks::<4>().0[j]);
                for r in 0..R {
                    let x = _mm512_set1_epi32(load(&x[r].as_chunks::<4>().0[j]));
                    sums[r] = _mm512_dpbusd_epi32(sums[r], keys, x);
                }
            }
            sums
        }
        fn as_floats(self, x: __m512i) -> __m512 { _mm512_cvtepi32_ps(x) }
        fn signed(self, codes: &[u8; 16]) -> __m512 {
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load(codes)))
        }
        fn low_nibbles(self, bytes: &[u8; 16]) -> __m512 {
            let codes = _mm_and_si128(load(bytes), _mm_set1_epi8(15));
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes))
        }
        fn high_nibbles(self, bytes: &[u8; 16]) -> __m512 {
            let codes = _mm_srli_epi16::<4>(load(bytes));
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_and_si128(codes, _mm_set1_epi8(15))))
        }
    }
}

impl Pairs for Avx512 {
    type Pair = __m512i;
    type Sums = __m512i;
    const TILE: usize = 4;

    #[inline(always)]
    fn lane_totals(self, sums: __m512i) -> __m512i {
        sums
    }

    #[inline(always)]
    fn pairs(self, x: &PairCodes) -> __m512i {
        load(x)
    }

    #[inline(always)]
    fn bits_of(self, x: __m512) -> PairCodes {
        load(&x)
    }

    proven! {
        fn pair(self, x: i32) -> __m512i { _mm512_set1_epi32(x) }
        fn no_products(self) -> __m512i { _mm512_setzero_si512() }
        fn dot_pairs(self, sums: __m512i, x: __m512i, y: __m512i) -> __m512i {
            _mm512_dpwssd_epi32(sums, x, y)
        }
    }
}
