//! Q6_K: 16 sub-blocks of 16 six-bit codes (4 low bits, 2 high bits apart), each with a signed
//! 8-bit scale.

use super::{BlockHeader, KQuant, half_at, two_words};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout;
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
use {
    super::{PanelColumns, column},
    crate::isa::Words,
};

/// The format.
pub(crate) struct Q6_K;

impl KQuant for Q6_K {
    type Block = [u8; 210];
    const FORMAT: Format = Format::Q6_K;
    const OFFSET: i16 = 32;
    const LARGEST: i16 = 63;
    const GROUPS: usize = 16;
    const MINS: bool = false;
    const HAS_PANEL: bool = true;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 210]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn head(block: &[u8; 210]) -> BlockHeader {
        let block = layout::Q6_K(block);
        BlockHeader {
            scale: two_words(block.scales()),
            min: [0; 2],
            d: half_at(block.0, 208),
            dmin: 0,
        }
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 210], g: usize) -> I::V {
        let block = layout::Q6_K(block);
        let ((low0, shift), (low1, _)) = (block.low_group(2 * g), block.low_group(2 * g + 1));
        let low = isa.and(isa.shr(isa.load_pair(low0, low1), shift), 15);
        let ((high0, shift), (high1, _)) = (block.high_group(2 * g), block.high_group(2 * g + 1));
        let high = isa.and(isa.shr(isa.load_pair(high0, high1), shift), 3);
        isa.or(low, isa.shl(high, 4))
    }

    #[cfg(all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        feature = "avx512"
    ))]
    #[inline(always)]
    fn transposed<I: Words>(
        isa: I,
        blocks: &[&[u8; 210]; 16],
        out: &mut impl PanelColumns<I>,
    ) -> bool {
        let mut halves = [0; 16];
        for (half, block) in halves.iter_mut().zip(blocks) {
            *half = half_at(*block, 208);
        }
        out.factors(isa.widen_lanes(&halves), isa.splat_float(0.0));
        let scales = isa.transpose_words(&column(blocks, 192));
        for (c, word) in scales.into_iter().enumerate() {
            out.scales(c, word);
        }
        for c in 0..4 {
            // Of half a block, 128 weights: 64 bytes of low bits, 32 of high bits.
            let (half, at) = (c / 2, 16 * (c % 2));
            let high = isa.transpose_words(&column(blocks, 128 + 32 * half + at));
            for i in 0..2 {
                let low = isa.transpose_words(&column(blocks, 64 * half + 32 * i + at));
                for j in 0..4 {
                    for nibble in 0..2 {
                        let quarter = 2 * nibble + i;
                        let bits = isa.field(high[j], 2 * quarter as i32 - 4, 0x30);
                        let codes = isa.join(isa.field(low[j], 4 * nibble as i32, 15), bits);
                        out.codes(32 * half + 8 * quarter + 4 * (c % 2) + j, codes);
                    }
                }
            }
        }
        true
    }
}
