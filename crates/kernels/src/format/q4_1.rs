//! Q4_1: the nibbles of Q4_0 without an offset, with a scale and a minimum.

use super::{Quant32, Second, half_at};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout;
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
use {
    super::{column, q4_0::four_bit_words},
    crate::isa::Words,
};

/// The format.
pub(crate) struct Q4_1;

impl Quant32 for Q4_1 {
    type Block = [u8; 20];
    const FORMAT: Format = Format::Q4_1;
    const OFFSET: i16 = 0;
    const LARGEST: i16 = 15;
    const SECOND: Second = Second::Minimum;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 20]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn d(block: &[u8; 20], _: usize) -> u16 {
        half_at(block, 0)
    }

    #[inline(always)]
    fn second(block: &[u8; 20], _: usize) -> u16 {
        half_at(block, 2)
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 20], _: usize) -> I::V {
        isa.nibbles(layout::Q4_1(block).qs())
    }

    #[cfg(all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        feature = "avx512"
    ))]
    #[inline(always)]
    fn transposed<I: Words>(isa: I, blocks: &[&[u8; 20]; 16]) -> Option<[I::W; 8]> {
        Some(four_bit_words(isa, isa.transpose_words(&column(blocks, 4))))
    }
}
