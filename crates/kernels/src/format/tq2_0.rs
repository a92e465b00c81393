//! TQ2_0: 256 two-bit codes with one scale and an offset of 1.

use super::{BlockHeader, KQuant, each, half_at};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout;

/// The format.
pub(crate) struct TQ2_0;

impl KQuant for TQ2_0 {
    type Block = [u8; 66];
    const FORMAT: Format = Format::TQ2_0;
    const OFFSET: i16 = 1;
    const LARGEST: i16 = 3;
    const GROUPS: usize = 8;
    const MINS: bool = false;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 66]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn head(block: &[u8; 66]) -> BlockHeader {
        BlockHeader {
            scale: [each(1), 0],
            min: [0; 2],
            d: half_at(block, 64),
            dmin: 0,
        }
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 66], g: usize) -> I::V {
        let (bytes, shift) = layout::TQ2_0(block).group(g);
        isa.and(isa.shr(isa.load(bytes), shift), 3)
    }
}
