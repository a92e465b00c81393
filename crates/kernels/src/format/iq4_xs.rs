//! IQ4_XS: 8 sub-blocks of 32 codes as in IQ4_NL, each with a 6-bit signed scale.

use super::iq4_nl::CODES;
#[cfg(target_arch = "aarch64")]
use super::iq4_nl::SIGNED_CODES;
use super::{BlockHeader, KQuant, half_at, less_32};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout;

/// The format.
pub(crate) struct IQ4_XS;

/// The 8 scales at once: nibble s of `low` and bits 2·s and 2·s + 1 of `high`, spread over bytes,
/// less 32.
#[inline(always)]
fn scales(low: &[u8; 4], high: &[u8; 2]) -> u64 {
    let low = u64::from(u32::from_le_bytes(*low));
    let low = (low | low << 16) & 0x0000_ffff_0000_ffff;
    let low = (low | low << 8) & 0x00ff_00ff_00ff_00ff;
    let low = (low | low << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    let high = u64::from(u16::from_le_bytes(*high));
    let high = (high | high << 24) & 0x0000_00ff_0000_00ff;
    let high = (high | high << 12) & 0x000f_000f_000f_000f;
    let high = (high | high << 6) & 0x0303_0303_0303_0303;
    less_32(low | high << 4)
}

impl KQuant for IQ4_XS {
    type Block = [u8; 136];
    const FORMAT: Format = Format::IQ4_XS;
    const OFFSET: i16 = 128;
    const LARGEST: i16 = 255;
    const GROUPS: usize = 8;
    const MINS: bool = false;
    const HAS_PANEL: bool = true;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 136]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn head(block: &[u8; 136]) -> BlockHeader {
        let view = layout::IQ4_XS(block);
        BlockHeader {
            scale: [scales(view.scales_l(), view.scales_h()), 0],
            min: [0; 2],
            d: half_at(block, 0),
            dmin: 0,
        }
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 136], g: usize) -> I::V {
        isa.look_up(&CODES, isa.nibbles(layout::IQ4_XS(block).group(g)))
    }
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    fn signed_codes<I: Row>(isa: I, block: &[u8; 136], g: usize) -> I::V {
        isa.look_up(&SIGNED_CODES, isa.nibbles(layout::IQ4_XS(block).group(g)))
    }
}
