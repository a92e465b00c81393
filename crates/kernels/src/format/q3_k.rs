//! Q3_K: 16 sub-blocks of 16 three-bit codes (2 low bits, the third in a mask), each with a 6-bit
//! signed scale.

use super::q2_k::two_bit_codes;
use super::{BlockHeader, KQuant, each, half_at, less_32};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout;

/// The format.
pub(crate) struct Q3_K;

/// The 16 scales, eight at a time: low 4 bits in the nibbles of bytes 0 to 7, high 2 bits in bytes
/// 8 to 11, less 32.
#[inline(always)]
fn scales(packed: &[u8; 12]) -> [u64; 2] {
    let (low, high) = packed.split_first_chunk().expect("12 bytes are 8 and 4");
    let low = u64::from_le_bytes(*low);
    let high = u64::from(u32::from_le_bytes(
        *high.first_chunk().expect("12 bytes are 8 and 4"),
    ));
    let eight = |low: u64, high: u64| {
        let bits = (low & each(15)) | (((high | high << 30) & each(3)) << 4);
        less_32(bits)
    };
    [
        eight(low, high & 0x0f0f_0f0f),
        eight(low >> 4, (high >> 4) & 0x0f0f_0f0f),
    ]
}

impl KQuant for Q3_K {
    type Block = [u8; 110];
    const FORMAT: Format = Format::Q3_K;
    const OFFSET: i16 = 4;
    const LARGEST: i16 = 7;
    const GROUPS: usize = 16;
    const MINS: bool = false;
    const HAS_PANEL: bool = true;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 110]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn head(block: &[u8; 110]) -> BlockHeader {
        let block = layout::Q3_K(block);
        BlockHeader {
            scale: scales(block.scales()),
            min: [0; 2],
            d: half_at(block.0, 108),
            dmin: 0,
        }
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 110], g: usize) -> I::V {
        let block = layout::Q3_K(block);
        let high = isa.and(isa.shr(isa.load(block.hmask()), g), 1);
        isa.or(two_bit_codes(isa, block.qs(), g), isa.shl(high, 2))
    }
}
