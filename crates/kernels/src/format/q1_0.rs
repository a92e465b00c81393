//! Q1_0: 128 one-bit codes with one scale. Bits are doubled, so that an offset of 1 makes them −1
//! and 1.

use super::{Quant32, half_at};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout;

/// The format.
pub(crate) struct Q1_0;

impl Quant32 for Q1_0 {
    type Block = [u8; 18];
    const FORMAT: Format = Format::Q1_0;
    const GROUPS: usize = 4;
    const OFFSET: i16 = 1;
    const LARGEST: i16 = 2;

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
        isa.shl(isa.bits(layout::Q1_0(block).group(g)), 1)
    }
}
