//! Q3_K: 16 sub-blocks of 16 three-bit codes (2 low bits, the third in a mask), each with a 6-bit signed scale.

use super::q2_k::two_bit_codes;
use super::{Head, KQuant};
use crate::isa::Row;
use atta_formats::layout;

/// The format.
pub(crate) struct Q3K;

impl KQuant for Q3K {
    type Block = [u8; 110];
    const OFFSET: i16 = 4;
    const GROUPS: usize = 16;
    const MINS: bool = false;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 110]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn head(block: &[u8; 110]) -> Head {
        let block = layout::Q3K(block);
        Head { scale: block.unpack_scales(), min: [0; 16], d: block.d(), dmin: 0.0 }
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 110], g: usize) -> I::V {
        let block = layout::Q3K(block);
        let high = isa.and(isa.shr(isa.load(block.hmask()), g), 1);
        isa.or(two_bit_codes(isa, block.qs(), g), isa.shl(high, 2))
    }
}
