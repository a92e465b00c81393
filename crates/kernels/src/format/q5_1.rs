//! Q5_1: the codes of Q5_0 without an offset, with a scale and a minimum.

use super::{Quant32, Second, half_at};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout;

/// The format.
pub(crate) struct Q5_1;

impl Quant32 for Q5_1 {
    type Block = [u8; 24];
    const FORMAT: Format = Format::Q5_1;
    const OFFSET: i16 = 0;
    const LARGEST: i16 = 31;
    const SECOND: Second = Second::Minimum;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 24]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn d(block: &[u8; 24], _: usize) -> u16 {
        half_at(block, 0)
    }

    #[inline(always)]
    fn second(block: &[u8; 24], _: usize) -> u16 {
        half_at(block, 2)
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 24], _: usize) -> I::V {
        let block = layout::Q5_1(block);
        isa.or(isa.nibbles(block.qs()), isa.shl(isa.bits(block.qh()), 4))
    }
}
