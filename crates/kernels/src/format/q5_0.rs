//! Q5_0: Q4_0 with a fifth bit of each code in a word of its own.

use super::{Quant32, half_at};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout;

/// The format.
pub(crate) struct Q5_0;

impl Quant32 for Q5_0 {
    type Block = [u8; 22];
    const FORMAT: Format = Format::Q5_0;
    const OFFSET: i16 = 16;
    const LARGEST: i16 = 31;
    const HAS_PANEL: bool = true;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 22]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn d(block: &[u8; 22], _: usize) -> u16 {
        half_at(block, 0)
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 22], _: usize) -> I::V {
        let block = layout::Q5_0(block);
        isa.or(isa.nibbles(block.qs()), isa.shl(isa.bits(block.qh()), 4))
    }
}
