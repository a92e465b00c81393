//! The blocks of QSF files: two groups of 32 codes of 2, 3 or 4 bits, or ternary ones, that share a
//! scale and perhaps a minimum.

use super::{Quant32, Second, half_at};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::layout;

/// Codes of 2 bits around 0: they are doubled, and the scale is halved, so that the offset of 1.5
/// is a whole number.
pub(crate) struct QSF2S;
/// Codes of 2 bits with a minimum.
pub(crate) struct QSF2;
/// Codes of 3 bits with a minimum.
pub(crate) struct QSF3;
/// Codes of 4 bits with a minimum.
pub(crate) struct QSF4;
/// −1, 0 and 1.
#[expect(clippy::upper_case_acronyms, reason = "the name of its type")]
pub(crate) struct QSFT;

/// What all of them have in common.
macro_rules! two_groups {
    ($bytes:literal) => {
        const GROUPS: usize = 2;

        #[inline(always)]
        fn blocks(row: &[u8]) -> &[[u8; $bytes]] {
            row.as_chunks().0
        }

        #[inline(always)]
        fn d(block: &[u8; $bytes], _: usize) -> u16 {
            half_at(block, 0)
        }
    };
    ($bytes:literal with minimum) => {
        const OFFSET: i16 = 0;
        const SECOND: Second = Second::Minimum;
        two_groups!($bytes);

        #[inline(always)]
        fn second(block: &[u8; $bytes], _: usize) -> u16 {
            half_at(block, 2)
        }
    };
}

impl Quant32 for QSF2S {
    type Block = [u8; 20];
    const FORMAT: Format = Format::QSF2S;
    const OFFSET: i16 = 3;
    const LARGEST: i16 = 6;
    const K: f32 = 0.5;
    two_groups!(20);

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 20], g: usize) -> I::V {
        isa.shl(isa.words_of_64(layout::QSF2S(block).codes(g)), 1)
    }
}

impl Quant32 for QSF2 {
    type Block = [u8; 20];
    const FORMAT: Format = Format::QSF2;
    const LARGEST: i16 = 3;
    two_groups!(20 with minimum);

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 20], g: usize) -> I::V {
        isa.words_of_64(layout::QSF2(block).codes(g))
    }
}

impl Quant32 for QSF3 {
    type Block = [u8; 28];
    const FORMAT: Format = Format::QSF3;
    const LARGEST: i16 = 7;
    two_groups!(28 with minimum);

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 28], g: usize) -> I::V {
        let block = layout::QSF3(block);
        let high = isa.shl(isa.bits(block.high_bits(g)), 2);
        isa.or(isa.words_of_64(block.low_codes(g)), high)
    }
}

impl Quant32 for QSF4 {
    type Block = [u8; 36];
    const FORMAT: Format = Format::QSF4;
    const LARGEST: i16 = 15;
    two_groups!(36 with minimum);

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 36], g: usize) -> I::V {
        isa.words_of_64(layout::QSF4(block).codes(g))
    }
}

impl Quant32 for QSFT {
    type Block = [u8; 18];
    const FORMAT: Format = Format::QSFT;
    const OFFSET: i16 = 1;
    const LARGEST: i16 = 2;
    two_groups!(18);

    #[inline(always)]
    fn codes<I: Row>(isa: I, block: &[u8; 18], g: usize) -> I::V {
        let [positive, zero] = layout::QSFT(block).positive_and_zero(g);
        isa.or(isa.shl(isa.bits(&positive), 1), isa.bits(&zero))
    }
}
