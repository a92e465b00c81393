//! Q4_K: 8 sub-blocks of 32 four-bit codes, each with a 6-bit scale and a 6-bit minimum.

use super::{Head, KQuant};
use crate::isa::Row;
use atta_formats::layout::{self, four_bit_group};

/// The format.
pub(crate) struct Q4K;

/// Scales and minima of the eight sub-blocks of Q4_K and Q5_K, repeated for each 16 weights.
#[inline(always)]
pub(crate) fn six_bit_scales(packed: &[u8; 12]) -> ([i16; 16], [i16; 16]) {
    let (mut scale, mut min) = ([0; 16], [0; 16]);
    for s in 0..8 {
        let (sc, mn) = layout::scale_min(packed, s);
        scale[2 * s..2 * s + 2].fill(i16::from(sc));
        min[2 * s..2 * s + 2].fill(i16::from(mn));
    }
    (scale, min)
}

impl KQuant for Q4K {
    type Block = [u8; 144];
    const OFFSET: i16 = 0;
    const MINS: bool = true;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 144]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn head(block: &[u8; 144]) -> Head {
        let block = layout::Q4K(block);
        let (scale, min) = six_bit_scales(block.scales());
        Head { scale, min, d: block.d(), dmin: block.dmin() }
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 144], g: usize) -> I::V {
        let (bytes, shift) = four_bit_group(layout::Q4K(block).qs(), g);
        isa.and(isa.shr(isa.load(bytes), shift), 15)
    }
}
