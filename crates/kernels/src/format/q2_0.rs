//! Q2_0: 64 two-bit codes with one scale and an offset of 1.

use super::{Quant32, half_at};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout;

/// The format.
pub(crate) struct Q2_0;

impl Quant32 for Q2_0 {
    type Block = [u8; 18];
    const FORMAT: Format = Format::Q2_0;
    const GROUPS: usize = 2;
    const OFFSET: i16 = 1;
    const LARGEST: i16 = 3;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 18]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn d(block: &[u8; 18], _: usize) -> u16 {
        half_at(block, 0)
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 18], g: usize) -> I::V {
        isa.words_of_64(layout::Q2_0(block).codes(g))
    }
}
