//! Q5_K: as Q4_K, with the fifth bits of all sub-blocks in 32 bytes of their own.

use super::q4_k::six_bit_scales;
use super::{BlockHeader, KQuant, half_at};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout::{self, four_bit_group};
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
use {
    super::{PanelColumns, column, q4_k::transposed_header},
    crate::isa::Words,
};

/// The format.
pub(crate) struct Q5_K;

impl KQuant for Q5_K {
    type Block = [u8; 176];
    const FORMAT: Format = Format::Q5_K;
    const OFFSET: i16 = 0;
    const LARGEST: i16 = 31;
    const GROUPS: usize = 8;
    const MINS: bool = true;
    const HAS_PANEL: bool = true;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 176]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn head(block: &[u8; 176]) -> BlockHeader {
        let block = layout::Q5_K(block);
        let (scale, min) = six_bit_scales(block.scales());
        BlockHeader {
            scale,
            min,
            d: half_at(block.0, 0),
            dmin: half_at(block.0, 2),
        }
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 176], g: usize) -> I::V {
        let block = layout::Q5_K(block);
        let (bytes, shift) = four_bit_group(block.qs(), g);
        let low = isa.and(isa.shr(isa.load(bytes), shift), 15);
        let high = isa.and(isa.shr(isa.load(block.qh()), g), 1);
        isa.or(low, isa.shl(high, 4))
    }

    #[cfg(all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        feature = "avx512"
    ))]
    #[inline(always)]
    fn transposed<I: Words>(
        isa: I,
        blocks: &[&[u8; 176]; 16],
        out: &mut impl PanelColumns<I>,
    ) -> bool {
        transposed_header(isa, isa.transpose_words(&column(blocks, 0)), out);
        let high = [
            isa.transpose_words(&column(blocks, 16)),
            isa.transpose_words(&column(blocks, 32)),
        ];
        for c in 0..8 {
            let words = isa.transpose_words(&column(blocks, 48 + 16 * c));
            for j in 0..4 {
                for half in 0..2 {
                    let (g, high) = (c / 2 * 2 + half, high[c % 2][j]);
                    let codes = isa.join(
                        isa.field(words[j], 4 * half as i32, 15),
                        isa.field(high, g as i32 - 4, 16),
                    );
                    out.codes(8 * g + c % 2 * 4 + j, codes);
                }
            }
        }
        true
    }
}
