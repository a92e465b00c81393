//! The IQ formats with codebooks: an entry is 8 codes (or 4), signs or a shift are stored beside
//! it.
//!
//! Entries are loaded from the codebook as words of 8 (or 4) codes; four (or eight) words make a
//! vector. The signs of a block are put together first. The rest is as for every other format, so a
//! format is a line or two here. Fields: `atta_formats::layout`.

use super::{BlockHeader, KQuant, each};
use crate::isa::{CODE_BIAS, Row};
use crate::registry::Format;
use atta_formats::layout::{self, Signed, grids};

/// Scales of a block. A call where programs must stay small: nothing in it depends on the
/// instruction set.
#[cfg_attr(feature = "avx512", inline(always))]
#[cfg_attr(not(feature = "avx512"), inline(never))]
fn head<B: Signed>(block: B) -> BlockHeader {
    let mut scale = [0; 2];
    for s in 0..B::N_SCALES {
        scale[s / 8] |= u64::from(block.scale(s) as u8) << (8 * (s % 8));
    }
    BlockHeader {
        scale,
        min: [0; 2],
        d: block.d_bits(),
        dmin: 0,
    }
}

/// Eight words; written out, as `array::from_fn` is left as a call.
#[inline(always)]
fn eight(word: impl Fn(usize) -> u32) -> [u32; 8] {
    [
        word(0),
        word(1),
        word(2),
        word(3),
        word(4),
        word(5),
        word(6),
        word(7),
    ]
}

/// Four entries of 8 codes.
#[inline(always)]
pub(crate) fn entries_of_8<I: Row>(isa: I, grid: &[[i8; 8]], entries: [u16; 4]) -> I::V {
    let word = |i: usize| u64::from_le_bytes(grid[usize::from(entries[i])].map(|code| code as u8));
    isa.words_of_64([word(0), word(1), word(2), word(3)])
}

/// Eight entries of 4 codes.
#[inline(always)]
pub(crate) fn entries_of_4<I: Row>(isa: I, grid: &[[i8; 4]], entries: [u16; 8]) -> I::V {
    isa.words_of_32(eight(|i| {
        u32::from_le_bytes(grid[usize::from(entries[i])].map(|code| code as u8))
    }))
}

/// Codes from −8 to 8, each entry with its shift, biased by [`CODE_BIAS`].
#[inline(always)]
fn shifted<I: Row>(isa: I, grid: &[[i8; 8]], entries: [u16; 4], shifts: [i8; 4]) -> I::V {
    let word = |i: usize| {
        let codes = u64::from_le_bytes(grid[usize::from(entries[i])].map(|code| code as u8));
        // Flipping the top bit raises by 128, so that nothing is borrowed from the next byte.
        (codes ^ each(0x80)) - each(128 - CODE_BIAS.wrapping_add_signed(shifts[i]))
    };
    isa.words_of_64([word(0), word(1), word(2), word(3)])
}

macro_rules! grids {
    ($($format:ident: |$isa:ident, $block:ident, $g:ident| $codes:expr $(, |$with:tt, $whole:ident| $signs:expr)?;)*) => {
        $(
            /// The format.
            pub(crate) struct $format;

            impl KQuant for $format {
                type Block = [u8; layout::$format::BYTES];
                const FORMAT: Format = Format::$format;
                const OFFSET: i16 = CODE_BIAS as i16;
                const LARGEST: i16 = 2 * Self::OFFSET - 2;
                const GROUPS: usize = <layout::$format<'static> as Signed>::N_SCALES;
                const MINS: bool = false;
                const K: f32 = <layout::$format<'static> as Signed>::K;

                #[inline(always)]
                fn blocks(row: &[u8]) -> &[[u8; layout::$format::BYTES]] {
                    row.as_chunks().0
                }

                #[inline(always)]
                fn head(block: &[u8; layout::$format::BYTES]) -> BlockHeader {
                    head(layout::$format(block))
                }

                #[inline(always)]
                fn codes<I: Row>($isa: I, block: &[u8; layout::$format::BYTES], $g: usize) -> I::V {
                    let $block = layout::$format(block);
                    $codes
                }

                $(
                    #[inline(always)]
                    fn signs<I: Row>($with: I, block: &[u8; layout::$format::BYTES]) -> Option<[u32; 8]> {
                        let $whole = layout::$format(block);
                        Some($signs)
                    }
                )?
            }
        )*
    };
}

// Format: its codes 32·g to 32·g + 31, and signs that are stored apart.
grids! {
    IQ1_S: |isa, b, g| shifted(isa, &grids::IQ1, b.entries(g), b.deltas(g));
    IQ1_M: |isa, b, g| shifted(isa, &grids::IQ1, b.entries(g), b.deltas(g));
    IQ2_XXS: |isa, b, g| entries_of_8(isa, &grids::IQ2_XXS, b.entries(g)), |isa, b| isa.even_signs::<true>(eight(|g| b.packed_signs(g)));
    IQ2_XS: |isa, b, g| entries_of_8(isa, &grids::IQ2_XS, b.entries(g)), |isa, b| isa.even_signs::<false>(eight(|g| b.sevens(g)));
    IQ2_S: |isa, b, g| entries_of_8(isa, &grids::IQ2_S, b.entries(g)), |_, b| eight(|g| b.group_signs(g));
    IQ3_XXS: |isa, b, g| entries_of_4(isa, &grids::IQ3_XXS, b.entries(g)), |isa, b| isa.even_signs::<true>(eight(|g| b.packed_signs(g)));
    IQ3_S: |isa, b, g| entries_of_4(isa, &grids::IQ3_S, b.entries(g)), |_, b| eight(|g| b.group_signs(g));
}
