//! Q8_0: 32 signed bytes with one scale. Flipping the top bit makes them unsigned codes with offset 128.

use super::{Format, Quant32, half_at};
use crate::isa::Row;
use atta_formats::layout;

/// The format.
pub(crate) struct Q8_0;

impl Quant32 for Q8_0 {
    type Block = [u8; 34];
    const FORMAT: Format = Format::Q8_0;
    const OFFSET: i16 = 128;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 34]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn d(block: &[u8; 34]) -> u16 {
        half_at(block, 0)
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 34]) -> I::V {
        isa.xor(isa.load(layout::Q8_0(block).qs()), 0x80)
    }
}
