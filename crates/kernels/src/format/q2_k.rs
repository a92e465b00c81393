//! Q2_K: 16 sub-blocks of 16 two-bit codes, each with a 4-bit scale and a 4-bit minimum.

use super::{BlockHeader, KQuant, each, half_at, two_words};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout::{self, two_bit_group};

/// The format.
pub(crate) struct Q2_K;

/// Two-bit codes 32·g to 32·g + 31 of Q2_K and Q3_K.
#[inline(always)]
pub(crate) fn two_bit_codes<I: Row>(isa: I, qs: &[u8; 64], g: usize) -> I::V {
    let ((low, shift), (high, _)) = (two_bit_group(qs, 2 * g), two_bit_group(qs, 2 * g + 1));
    isa.and(isa.shr(isa.load_pair(low, high), shift), 3)
}

impl KQuant for Q2_K {
    type Block = [u8; 84];
    const FORMAT: Format = Format::Q2_K;
    const OFFSET: i16 = 0;
    const LARGEST: i16 = 3;
    const GROUPS: usize = 16;
    const MINS: bool = true;
    const HAS_PANEL: bool = true;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 84]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn head(block: &[u8; 84]) -> BlockHeader {
        let block = layout::Q2_K(block);
        let packed = two_words(block.scales());
        let (scale, min) = (
            packed.map(|w| w & each(15)),
            packed.map(|w| (w >> 4) & each(15)),
        );
        BlockHeader {
            scale,
            min,
            d: half_at(block.0, 80),
            dmin: half_at(block.0, 82),
        }
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 84], g: usize) -> I::V {
        two_bit_codes(isa, layout::Q2_K(block).qs(), g)
    }
}
