//! IQ4_NL: 32 four-bit codes that stand for the numbers of a table, with one scale; the nibbles of
//! Q4_0.

use super::{Quant32, half_at};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout::{self, IQ4_VALUES};

/// The format.
pub(crate) struct IQ4_NL;

/// The numbers of a table biased by `offset`.
pub(super) const fn biased(values: &[i8; 16], offset: i16) -> [u8; 16] {
    let (mut codes, mut i) = ([0; 16], 0);
    while i < 16 {
        codes[i] = (values[i] as i16 + offset) as u8;
        i += 1;
    }
    codes
}

/// The table of IQ4_NL and IQ4_XS, biased by 128.
pub(crate) const CODES: [u8; 16] = biased(&IQ4_VALUES, 128);
/// The same as signed bytes.
#[cfg(target_arch = "aarch64")]
pub(super) const SIGNED_CODES: [u8; 16] = biased(&IQ4_VALUES, 0);

impl Quant32 for IQ4_NL {
    type Block = [u8; 18];
    const FORMAT: Format = Format::IQ4_NL;
    const OFFSET: i16 = 128;
    const LARGEST: i16 = 255;
    const HAS_PANEL: bool = true;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 18]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn d(block: &[u8; 18], _: usize) -> u16 {
        half_at(block, 0)
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 18], _: usize) -> I::V {
        isa.look_up(&CODES, isa.nibbles(layout::IQ4_NL(block).qs()))
    }
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    fn signed_codes<I: Row>(isa: I, block: &[u8; 18], _: usize) -> I::V {
        isa.look_up(&SIGNED_CODES, isa.nibbles(layout::IQ4_NL(block).qs()))
    }
}
