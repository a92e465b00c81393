//! Q6_K: 16 sub-blocks of 16 six-bit codes (4 low bits, 2 high bits apart), each with a signed 8-bit scale.

use super::{Format, Head, KQuant, half_at, two_words};
use crate::isa::Row;
use atta_formats::layout;

/// The format.
pub(crate) struct Q6K;

impl KQuant for Q6K {
    type Block = [u8; 210];
    const FORMAT: Format = Format::Q6K;
    const OFFSET: i16 = 32;
    const GROUPS: usize = 16;
    const MINS: bool = false;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 210]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn head(block: &[u8; 210]) -> Head {
        let block = layout::Q6K(block);
        Head { scale: two_words(block.scales()), min: [0; 2], d: half_at(block.0, 208), dmin: 0 }
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 210], g: usize) -> I::V {
        let block = layout::Q6K(block);
        let ((low0, shift), (low1, _)) = (block.low_group(2 * g), block.low_group(2 * g + 1));
        let low = isa.and(isa.shr(isa.load_pair(low0, low1), shift), 15);
        let ((high0, shift), (high1, _)) = (block.high_group(2 * g), block.high_group(2 * g + 1));
        let high = isa.and(isa.shr(isa.load_pair(high0, high1), shift), 3);
        isa.or(low, isa.shl(high, 4))
    }
}
