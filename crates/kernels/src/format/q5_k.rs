//! Q5_K: as Q4_K, with the fifth bits of all sub-blocks in 32 bytes of their own.

use super::q4_k::six_bit_scales;
use super::{Format, Head, KQuant, half_at};
use crate::isa::Row;
use atta_formats::layout::{self, four_bit_group};

/// The format.
pub(crate) struct Q5K;

impl KQuant for Q5K {
    type Block = [u8; 176];
    const FORMAT: Format = Format::Q5K;
    const OFFSET: i16 = 0;
    const GROUPS: usize = 8;
    const MINS: bool = true;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 176]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn head(block: &[u8; 176]) -> Head {
        let block = layout::Q5K(block);
        let (scale, min) = six_bit_scales(block.scales());
        Head { scale, min, d: half_at(block.0, 0), dmin: half_at(block.0, 2) }
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 176], g: usize) -> I::V {
        let block = layout::Q5K(block);
        let (bytes, shift) = four_bit_group(block.qs(), g);
        let low = isa.and(isa.shr(isa.load(bytes), shift), 15);
        let high = isa.and(isa.shr(isa.load(block.qh()), g), 1);
        isa.or(low, isa.shl(high, 4))
    }
}
