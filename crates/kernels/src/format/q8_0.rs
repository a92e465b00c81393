//! Q8_0: 32 signed bytes with one scale. Flipping the top bit makes them unsigned codes with offset
//! 128.

use super::{Quant32, half_at};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout;
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
use {super::column, crate::isa::Words};

/// The format.
pub(crate) struct Q8_0;

impl Quant32 for Q8_0 {
    type Block = [u8; 34];
    const FORMAT: Format = Format::Q8_0;
    const OFFSET: i16 = 128;
    const LARGEST: i16 = 255;
    const HAS_PANEL: bool = true;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 34]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn d(block: &[u8; 34], _: usize) -> u16 {
        half_at(block, 0)
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 34], _: usize) -> I::V {
        isa.xor(isa.load(layout::Q8_0(block).qs()), 0x80)
    }

    #[cfg(all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        feature = "avx512"
    ))]
    #[inline(always)]
    fn transposed<I: Words>(isa: I, blocks: &[&[u8; 34]; 16]) -> Option<[I::W; 8]> {
        let words = [
            isa.transpose_words(&column(blocks, 2)),
            isa.transpose_words(&column(blocks, 18)),
        ];
        let mut codes = [words[0][0]; 8];
        for k in 0..8 {
            codes[k] = isa.flip(words[k / 4][k % 4], 0x80);
        }
        Some(codes)
    }
}
