//! Q4_K: 8 sub-blocks of 32 four-bit codes, each with a 6-bit scale and a 6-bit minimum.

use super::{BlockHeader, KQuant, half_at};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout::{self, four_bit_group};
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
use {
    super::{PanelColumns, column},
    crate::isa::Words,
};

/// The format.
pub(crate) struct Q4_K;

/// Scales and minima of the eight sub-blocks of Q4_K and Q5_K, four at a time: sub-blocks 0 to 3
/// have theirs in the low 6 bits of bytes 0 to 7, the others have 4 bits in bytes 8 to 11 and 2
/// bits atop bytes 0 to 7.
#[inline(always)]
pub(crate) fn six_bit_scales(packed: &[u8; 12]) -> ([u64; 2], [u64; 2]) {
    let word =
        |i: usize| u32::from_le_bytes([packed[i], packed[i + 1], packed[i + 2], packed[i + 3]]);
    let (scale, min, rest) = (word(0), word(4), word(8));
    let both = |low: u32, nibbles: u32, top: u32| {
        let high = (nibbles & 0x0f0f_0f0f) | ((top >> 2) & 0x3030_3030);
        [u64::from(low & 0x3f3f_3f3f) | (u64::from(high) << 32), 0]
    };
    (both(scale, rest, scale), both(min, rest >> 4, min))
}

/// The same, and the factors, of a block of each row: of its first four words, transposed.
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
#[inline(always)]
pub(crate) fn transposed_header<I: Words>(
    isa: I,
    [halves, scale, min, rest]: [I::W; 4],
    out: &mut impl PanelColumns<I>,
) {
    out.factors(isa.half(halves, false), isa.half(halves, true));
    out.scales(0, isa.field(scale, 0, 63));
    out.scales(
        1,
        isa.join(isa.field(rest, 0, 15), isa.field(scale, 2, 0x30)),
    );
    out.minima(0, isa.field(min, 0, 63));
    out.minima(1, isa.join(isa.field(rest, 4, 15), isa.field(min, 2, 0x30)));
}

impl KQuant for Q4_K {
    type Block = [u8; 144];
    const FORMAT: Format = Format::Q4_K;
    const OFFSET: i16 = 0;
    const LARGEST: i16 = 15;
    const GROUPS: usize = 8;
    const MINS: bool = true;
    const HAS_PANEL: bool = true;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 144]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn head(block: &[u8; 144]) -> BlockHeader {
        let block = layout::Q4_K(block);
        let (scale, min) = six_bit_scales(block.scales());
        BlockHeader {
            scale,
            min,
            d: half_at(block.0, 0),
            dmin: half_at(block.0, 2),
        }
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 144], g: usize) -> I::V {
        let (bytes, shift) = four_bit_group(layout::Q4_K(block).qs(), g);
        isa.and(isa.shr(isa.load(bytes), shift), 15)
    }

    #[cfg(all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        feature = "avx512"
    ))]
    #[inline(always)]
    fn transposed<I: Words>(
        isa: I,
        blocks: &[&[u8; 144]; 16],
        out: &mut impl PanelColumns<I>,
    ) -> bool {
        transposed_header(isa, isa.transpose_words(&column(blocks, 0)), out);
        for c in 0..8 {
            let words = isa.transpose_words(&column(blocks, 16 + 16 * c));
            for (j, word) in words.into_iter().enumerate() {
                let k = c / 2 * 16 + c % 2 * 4 + j;
                out.codes(k, isa.field(word, 0, 15));
                out.codes(k + 8, isa.field(word, 4, 15));
            }
        }
        true
    }
}
