//! TQ1_0: 256 digits of base 3, five in a byte, with one scale and an offset of 1.
//!
//! A byte is a fraction whose digits come out by multiplication: the digits in front of it
//! are dropped, then three times the rest carries it.

use super::{BlockHeader, KQuant, each, half_at};
use crate::isa::Row;
use crate::registry::Format;

/// The format.
pub(crate) struct TQ1_0;

/// Powers of 3 that drop the digits in front of the wanted ones. Weights 32·g to 32·g + 31 are
/// digit g of 32 bytes, then two digits of 16 bytes each, at last one of these and four of 4.
const fn factors(g: usize) -> [u8; 32] {
    let (mut factors, mut i) = ([0; 32], 0);
    while i < 32 {
        let digit = match (g, i / 16) {
            (0..5, _) => g,
            (5 | 6, half) => 2 * g - 10 + half,
            (_, 0) => 4,
            _ => (i - 16) / 4,
        };
        factors[i] = [1, 3, 9, 27, 81][digit];
        i += 1;
    }
    factors
}

/// Those of all groups.
pub(crate) const FACTORS: [[u8; 32]; 8] = [
    factors(0),
    factors(1),
    factors(2),
    factors(3),
    factors(4),
    factors(5),
    factors(6),
    factors(7),
];

/// Four times four bytes.
#[inline(always)]
fn repeated(bytes: [u8; 4]) -> [u8; 16] {
    (u128::from(u32::from_le_bytes(bytes)) * 0x0000_0001_0000_0001_0000_0001_0000_0001)
        .to_le_bytes()
}

impl KQuant for TQ1_0 {
    type Block = [u8; 54];
    const FORMAT: Format = Format::TQ1_0;
    const OFFSET: i16 = 1;
    const LARGEST: i16 = 2;
    const GROUPS: usize = 8;
    const MINS: bool = false;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 54]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn head(block: &[u8; 54]) -> BlockHeader {
        BlockHeader {
            scale: [each(1), 0],
            min: [0; 2],
            d: half_at(block, 52),
            dmin: 0,
        }
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 54], g: usize) -> I::V {
        let (wide, rest) = block
            .split_first_chunk::<32>()
            .expect("54 bytes are more than 32");
        let (narrow, rest) = rest
            .split_first_chunk::<16>()
            .expect("22 bytes are more than 16");
        let bytes = match g {
            0..5 => isa.load(wide),
            5 | 6 => isa.load_pair(narrow, narrow),
            _ => isa.load_pair(
                narrow,
                &repeated(*rest.first_chunk().expect("6 bytes are more than 4")),
            ),
        };
        isa.digits(bytes, &FACTORS[g])
    }
}
