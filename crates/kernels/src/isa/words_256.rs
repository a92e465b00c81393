//! [`Words`] of 256-bit registers: fields of eight rows whose blocks are transposed as they lie in
//! memory.
//!
//! It refuses to know formats. Not in the program for boards, which must stay small.

use super::Words;
use super::avx2::{Avx2, AvxVnni, proven, transposed_words};
use super::memory::load;
use std::arch::x86_64::*;

macro_rules! words {
    ($isa:ty) => {
        impl Words for $isa {
            proven! {
                fn transpose_words(self, rows: &[&[u8; 16]; 16]) -> [__m256i; 4] {
                    let at = |r: usize| load(rows[r]);
                    transposed_words([at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)])
                }
                fn field(self, w: __m256i, down: i32, mask: u8) -> __m256i {
                    let w = match down {
                        0 => w,
                        1.. => _mm256_srl_epi32(w, _mm_cvtsi32_si128(down)),
                        _ => _mm256_sll_epi32(w, _mm_cvtsi32_si128(-down)),
                    };
                    _mm256_and_si256(w, _mm256_set1_epi8(mask as i8))
                }
                fn join(self, v: __m256i, w: __m256i) -> __m256i { _mm256_or_si256(v, w) }
                fn flip(self, w: __m256i, mask: u8) -> __m256i {
                    _mm256_xor_si256(w, _mm256_set1_epi8(mask as i8))
                }
                fn half(self, w: __m256i, upper: bool) -> __m256 {
                    let w = if upper {
                        _mm256_srli_epi32::<16>(w)
                    } else {
                        _mm256_and_si256(w, _mm256_set1_epi32(0xffff))
                    };
                    let halves = _mm256_permute4x64_epi64::<0x08>(_mm256_packus_epi32(w, w));
                    _mm256_cvtph_ps(_mm256_castsi256_si128(halves))
                }
            }
        }
    };
}

words!(Avx2);
words!(AvxVnni);
