//! MXFP4: 32 floats of four bits, doubled into integers by a table, whose scale is a power of two.

use super::iq4_nl::biased;
use super::{Quant32, ScaleKind};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout::{self, MXFP4_VALUES};

/// The format.
pub(crate) struct MXFP4;

/// The table, biased by 12.
pub(crate) const CODES: [u8; 16] = biased(&MXFP4_VALUES, MXFP4::OFFSET);

impl Quant32 for MXFP4 {
    type Block = [u8; 17];
    const FORMAT: Format = Format::MXFP4;
    const OFFSET: i16 = 12;
    const LARGEST: i16 = 24;
    const D: ScaleKind = ScaleKind::E8M0;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 17]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn d(block: &[u8; 17], _: usize) -> u16 {
        layout::MXFP4(block).e()[0].into()
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 17], _: usize) -> I::V {
        isa.look_up(&CODES, isa.nibbles(layout::MXFP4(block).qs()))
    }
}
