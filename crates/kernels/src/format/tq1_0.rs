//! TQ1_0: 256 digits of base 3, five in a byte, with one scale and an offset of 1.
//!
//! A byte is a fraction whose digits come out by multiplication, so codes are made by plain code, compiled once for all
//! instruction sets.

use super::{Format, Head, KQuant, each, half_at};
use crate::isa::Row;

/// The format.
pub(crate) struct TQ1_0;

/// Digit `n` < 5 of each byte.
#[inline(always)]
fn digits<const N: usize>(bytes: &[u8; N], n: usize) -> [u8; N] {
    let before = [1, 3, 9, 27, 81][n];
    let mut out = [0; N];
    for (out, byte) in out.iter_mut().zip(bytes) {
        *out = ((u16::from(byte.wrapping_mul(before)) * 3) >> 8) as u8;
    }
    out
}

/// Weights 32·g to 32·g + 31: digit g of 32 bytes, then two digits of 16 bytes each, at last one of these and four of 4.
#[inline(never)]
fn unpack(block: &[u8; 54], g: usize) -> [u8; 32] {
    let (wide, rest) = block.split_first_chunk::<32>().expect("54 bytes are more than 32");
    let (narrow, rest) = rest.split_first_chunk::<16>().expect("22 bytes are more than 16");
    let mut out = [0; 32];
    let ([low, high], _) = out.as_chunks_mut::<16>() else { unreachable!("32 are twice 16") };
    match g {
        0..5 => return digits(wide, g),
        5 | 6 => (*low, *high) = (digits(narrow, 2 * g - 10), digits(narrow, 2 * g - 9)),
        _ => {
            *low = digits(narrow, 4);
            let last = rest.first_chunk::<4>().expect("6 bytes are more than 4");
            for (n, high) in high.as_chunks_mut().0.iter_mut().enumerate() {
                *high = digits(last, n);
            }
        }
    }
    out
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
    fn head(block: &[u8; 54]) -> Head {
        Head { scale: [each(1), 0], min: [0; 2], d: half_at(block, 52), dmin: 0 }
    }

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 54], g: usize) -> I::V {
        isa.load(&unpack(block, g))
    }
}
