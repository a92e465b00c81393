//! NVFP4: 64 floats of four bits, doubled into integers by the table of MXFP4, with a scale for
//! each 16 of them.

use super::mxfp4::CODES;
use super::{Quant32, Second};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout;

/// The format.
pub(crate) struct NVFP4;

impl Quant32 for NVFP4 {
    type Block = [u8; 36];
    const FORMAT: Format = Format::NVFP4;
    const GROUPS: usize = 2;
    const OFFSET: i16 = 12;
    const LARGEST: i16 = 24;
    const SECOND: Second = Second::Scale;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 36]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn d(block: &[u8; 36], g: usize) -> u16 {
        layout::NVFP4(block).d_bits(2 * g)
    }

    #[inline(always)]
    fn second(block: &[u8; 36], g: usize) -> u16 {
        layout::NVFP4(block).d_bits(2 * g + 1)
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 36], g: usize) -> I::V {
        let nibbles = isa.words_of_64(layout::NVFP4(block).nibbles(g));
        isa.look_up(&CODES, isa.and(nibbles, 15))
    }
}
