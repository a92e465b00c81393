//! The IQ formats with codebooks: an entry is 8 codes (or 4), signs or a shift are stored beside it.
//!
//! The one idea: codes are put together eight at a time in ordinary registers, by code that is compiled once for all
//! instruction sets and called for 32 codes; what is done with them afterwards is that of every other format. So a
//! format is two lines here. Fields: `atta_formats::layout`.

use super::{Format, Head, KQuant, each};
use crate::isa::Row;
use atta_formats::layout::{self, Signed, grids};

/// What makes codes from −62 to 62 unsigned; byte products of pairs of them cannot saturate.
const OFFSET: u8 = 64;

/// Scales of a block.
#[inline(always)]
fn head<B: Signed>(block: B) -> Head {
    let mut scale = [0; 2];
    for s in 0..B::N_SCALES {
        scale[s / 8] |= u64::from(block.scale(s) as u8) << (8 * (s % 8));
    }
    Head { scale, min: [0; 2], d: block.d_bits(), dmin: 0 }
}

/// Eight codes in each word; written out, because compilers leave `map` over arrays as a call.
#[inline(always)]
fn words(word: impl Fn(usize) -> u64) -> [u64; 4] {
    [word(0), word(1), word(2), word(3)]
}

/// Four entries of 8 codes.
#[inline(always)]
fn eights(grid: &[[i8; 8]], entries: [u16; 4]) -> [u64; 4] {
    words(|i| {
        let [a, b, c, d, e, f, g, h] = grid[usize::from(entries[i])];
        u64::from_le_bytes([a as u8, b as u8, c as u8, d as u8, e as u8, f as u8, g as u8, h as u8])
    })
}

/// Eight entries of 4 codes.
#[inline(always)]
fn fours(grid: &[[i8; 4]], entries: [u16; 8]) -> [u64; 4] {
    let half = |i: usize| {
        let [a, b, c, d] = grid[usize::from(entries[i])];
        u64::from(u32::from_le_bytes([a as u8, b as u8, c as u8, d as u8]))
    };
    words(|i| half(2 * i) | half(2 * i + 1) << 32)
}

/// Codes from 0 to 62, negative where a bit of `signs` is set, raised by [`OFFSET`].
#[inline(always)]
fn signed(codes: [u64; 4], signs: u32) -> [u64; 4] {
    words(|i| {
        let byte = u64::from(signs.to_le_bytes()[i]);
        // Byte k keeps bit k of the eight; adding 127 carries it to the top.
        let minus = ((((byte * each(1)) & 0x8040_2010_0804_0201) + each(127)) >> 7) & each(1);
        // 64 − code is 128 − (64 + code), and 127 − x is x with all bits flipped.
        ((codes[i] | each(OFFSET)) ^ ((minus << 7) - minus)) + minus
    })
}

/// Codes from −8 to 8, each entry with its shift, raised by [`OFFSET`].
#[inline(always)]
fn shifted(codes: [u64; 4], shifts: [i8; 4]) -> [u64; 4] {
    // Flipping the top bit raises by 128, so that nothing is borrowed from the next byte.
    words(|i| (codes[i] ^ each(0x80)) - each(128 - OFFSET.wrapping_add_signed(shifts[i])))
}

macro_rules! grids {
    ($($format:ident, $bytes:literal: |$block:ident, $g:ident| $codes:expr;)*) => {
        $(
            /// The format.
            pub(crate) struct $format;

            impl KQuant for $format {
                type Block = [u8; $bytes];
                const FORMAT: Format = Format::$format;
                const OFFSET: i16 = OFFSET as i16;
                const LARGEST: i16 = 2 * Self::OFFSET - 2;
                const GROUPS: usize = <layout::$format<'static> as Signed>::N_SCALES;
                const MINS: bool = false;
                const K: f32 = <layout::$format<'static> as Signed>::K;

                #[inline(always)]
                fn blocks(row: &[u8]) -> &[[u8; $bytes]] {
                    row.as_chunks().0
                }

                #[inline(never)]
                fn head(block: &[u8; $bytes]) -> Head {
                    head(layout::$format(block))
                }

                #[inline(always)]
                fn codes<I: Row>(isa: I, block: &[u8; $bytes], g: usize) -> I::V {
                    #[inline(never)]
                    fn unpack(block: &[u8; $bytes], $g: usize) -> [u8; 32] {
                        let $block = layout::$format(block);
                        let (words, mut bytes) = ($codes, [0; 32]);
                        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
                            *bytes = word.to_le_bytes();
                        }
                        bytes
                    }
                    isa.load(&unpack(block, g))
                }
            }
        )*
    };
}

// Format, bytes of a block: its codes 32·g to 32·g + 31.
grids! {
    IQ1S, 50: |b, g| shifted(eights(&grids::IQ1, b.entries(g)), b.deltas(g));
    IQ1M, 56: |b, g| shifted(eights(&grids::IQ1, b.entries(g)), b.deltas(g));
    IQ2XXS, 66: |b, g| signed(eights(&grids::IQ2_XXS, b.entries(g)), b.group_signs(g));
    IQ2XS, 74: |b, g| signed(eights(&grids::IQ2_XS, b.entries(g)), b.group_signs(g));
    IQ2S, 82: |b, g| signed(eights(&grids::IQ2_S, b.entries(g)), b.group_signs(g));
    IQ3XXS, 98: |b, g| signed(fours(&grids::IQ3_XXS, b.entries(g)), b.group_signs(g));
    IQ3S, 110: |b, g| signed(fours(&grids::IQ3_S, b.entries(g)), b.group_signs(g));
}
