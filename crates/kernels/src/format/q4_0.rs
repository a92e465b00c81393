//! Q4_0: 32 four-bit codes with one scale; low nibbles are weights 0 to 15, high nibbles 16 to 31.

use super::{Quant32, half_at};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout;
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
use {super::column, crate::isa::Words};

/// The format.
pub(crate) struct Q4_0;

/// Codes of the low nibbles, then of the high ones.
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
#[inline(always)]
pub(super) fn four_bit_words<I: Words>(isa: I, words: [I::W; 4]) -> [I::W; 8] {
    let mut codes = [words[0]; 8];
    for k in 0..8 {
        codes[k] = isa.field(words[k % 4], k as i32 / 4 * 4, 15);
    }
    codes
}

impl Quant32 for Q4_0 {
    type Block = [u8; 18];
    const FORMAT: Format = Format::Q4_0;
    const OFFSET: i16 = 8;
    const LARGEST: i16 = 15;
    const HAS_PANEL: bool = true;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 18]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn d(block: &[u8; 18], _: usize) -> u16 {
        half_at(block, 0)
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 18], _: usize) -> I::V {
        isa.nibbles(layout::Q4_0(block).qs())
    }

    #[cfg(all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        feature = "avx512"
    ))]
    #[inline(always)]
    fn transposed<I: Words>(isa: I, blocks: &[&[u8; 18]; 16]) -> Option<[I::W; 8]> {
        Some(four_bit_words(isa, isa.transpose_words(&column(blocks, 2))))
    }
}
