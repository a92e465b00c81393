//! Loads of the first words of a slice, with zeros behind them: no byte behind the slice is read.
//!
//! Knows no format. The one idea: lengths are compared before, so that callers need no pointer.

use crate::isa::memory::load;
use std::arch::x86_64::*;

const QWORDS: [i64; 4] = [0, 1, 2, 3];
const DWORDS: [i32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

/// The first `n` words of eight bytes, at most 8.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn qwords_512(x: &[u8], n: usize) -> __m512i {
    assert!(n <= 8 && 8 * n <= x.len());
    let mask = ((1_u32 << n) - 1) as u8;
    // SAFETY: the words of the mask, which alone are read, lie in `x`.
    unsafe { _mm512_maskz_loadu_epi64(mask, x.as_ptr().cast()) }
}

/// The first `n` words of four bytes, at most 16.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn dwords_512(x: &[u8], n: usize) -> __m512i {
    assert!(n <= 16 && 4 * n <= x.len());
    let mask = ((1_u32 << n) - 1) as u16;
    // SAFETY: as above.
    unsafe { _mm512_maskz_loadu_epi32(mask, x.as_ptr().cast()) }
}

/// The first `n` words of eight bytes, at most 8.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn qwords_256(x: &[u8], n: usize) -> [__m256i; 2] {
    assert!(n <= 8 && 8 * n <= x.len());
    let words = load(&QWORDS);
    let at = x.as_ptr().cast::<i64>();
    let n = _mm256_set1_epi64x(n as i64);
    let low = _mm256_cmpgt_epi64(n, words);
    let high = _mm256_cmpgt_epi64(n, _mm256_add_epi64(words, _mm256_set1_epi64x(4)));
    // SAFETY: the words of the masks, which alone are read, are the first `n` and lie in `x`.
    unsafe {
        [
            _mm256_maskload_epi64(at, low),
            _mm256_maskload_epi64(at.wrapping_add(4), high),
        ]
    }
}

/// The first `n` words of four bytes, at most 8.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn dwords_256(x: &[u8], n: usize) -> __m256i {
    assert!(n <= 8 && 4 * n <= x.len());
    let mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), load(&DWORDS));
    // SAFETY: as above.
    unsafe { _mm256_maskload_epi32(x.as_ptr().cast(), mask) }
}
