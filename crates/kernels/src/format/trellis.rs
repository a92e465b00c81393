//! T2, T3 and T4: labels of 4, 5 or 6 bits that stand for the levels of a table, in 8 sub-blocks
//! with a 4-bit scale.
//!
//! The one idea: 32 symbols of a sub-block are one word, whose labels come out by shifts of whole
//! words, eight at a time. The last block of a row may be shorter; [`KQuant::tail`] widens it.
//! Fields: `atta_formats::layout`.

use super::{BlockHeader, KQuant, each, half_at};
use crate::isa::Row;
use crate::registry::Format;
use atta_formats::TensorType;
use atta_formats::layout::{self, T2_LEVELS, T3_LEVELS, T4_LEVELS, Trellis, trellis_parities};

/// Added to the levels, which are at least −63.
pub(crate) const BIAS: i16 = 64;

/// Tables of codes, raised levels, for shuffles of 16 bytes.
const fn raised<const N: usize>(levels: &[i8]) -> [[u8; 16]; N] {
    assert!(levels.len() == 16 * N);
    let (mut tables, mut i) = ([[0; 16]; N], 0);
    while i < levels.len() {
        tables[i / 16][i % 16] = (levels[i] as i16 + BIAS) as u8;
        i += 1;
    }
    tables
}

const T2_CODES: [[u8; 16]; 1] = raised(&T2_LEVELS);
const T3_CODES: [[u8; 16]; 2] = raised(&T3_LEVELS);
const T4_CODES: [[u8; 16]; 4] = raised(&T4_LEVELS);

/// A table of 16·N codes, repeated.
#[cfg(any(
    all(target_arch = "x86_64", feature = "avx512"),
    target_arch = "aarch64"
))]
const fn repeated<const N: usize>(tables: &[[u8; 16]; N]) -> [u8; 64] {
    let (mut codes, mut i) = ([0; 64], 0);
    while i < 64 {
        codes[i] = tables[i / 16 % N][i % 16];
        i += 1;
    }
    codes
}

/// What fused kernels read of a format with blocks of `B` bytes.
#[cfg(any(
    all(target_arch = "x86_64", feature = "avx512"),
    target_arch = "aarch64"
))]
pub(crate) trait Leveled<const B: usize>: KQuant<Block = [u8; B]> {
    /// Bits of a label above its nibble.
    const N_UPPER: usize;
    /// Codes by label, repeated over the bits above it.
    const CODES: [u8; 64];
}

/// The scales of 8 sub-blocks, each in a byte: one more than the nibbles.
#[inline(always)]
fn scales(nibbles: [u8; 4]) -> u64 {
    let v = u64::from(u32::from_le_bytes(nibbles));
    let v = (v | v << 16) & 0x0000_ffff_0000_ffff;
    let v = (v | v << 8) & 0x00ff_00ff_00ff_00ff;
    let v = (v | v << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    v + each(1)
}

/// Word `i` of eight bytes.
#[inline(always)]
fn word(bytes: &[u8], i: usize) -> u64 {
    u64::from_le_bytes(bytes.as_chunks().0[i])
}

/// The low four bits of the labels of a sub-block.
#[inline(always)]
fn low_bits<I: Row>(isa: I, x: u64) -> I::V {
    let symbols = isa.and(isa.spread(x, 2), 3);
    let parities = isa.and(isa.spread(trellis_parities(x), 2), 3);
    isa.or(symbols, isa.shl(parities, 2))
}

macro_rules! trellis {
    ($(
        $(#[$doc:meta])*
        $format:ident, $codes:expr,
        |$isa:ident, $block:ident, $g:ident, $low:ident| $labels:expr;
    )*) => {
        $(
            $(#[$doc])*
            pub(crate) struct $format;

            #[cfg(any(
                all(target_arch = "x86_64", feature = "avx512"),
                target_arch = "aarch64"
            ))]
            impl Leveled<{ layout::$format::BYTES }> for $format {
                const N_UPPER: usize = $codes.len().ilog2() as usize;
                const CODES: [u8; 64] = repeated($codes);
            }

            impl KQuant for $format {
                type Block = [u8; layout::$format::BYTES];
                const FORMAT: Format = Format::$format;
                const OFFSET: i16 = BIAS;
                const LARGEST: i16 = 2 * BIAS - 1;
                const GROUPS: usize = 8;
                const MINS: bool = false;
                const K: f32 = Trellis::K;
                const HAS_TAIL: bool = true;

                #[inline(always)]
                fn blocks(row: &[u8]) -> &[Self::Block] {
                    row.as_chunks().0
                }

                #[inline(always)]
                fn tail(row: &[u8]) -> Option<Self::Block> {
                    let trellis = const { Trellis::of(TensorType::$format).expect("one of them") };
                    let (_, tail) = row.as_chunks::<{ layout::$format::BYTES }>();
                    Some(trellis.block(tail)?.widened())
                }

                #[inline(always)]
                fn head(block: &Self::Block) -> BlockHeader {
                    BlockHeader {
                        scale: [scales(*layout::$format(block).scales()), 0],
                        min: [0; 2],
                        d: half_at(block, 0),
                        dmin: 0,
                    }
                }

                #[inline(always)]
                fn codes<I: Row>($isa: I, block: &Self::Block, $g: usize) -> I::V {
                    let $block = layout::$format(block);
                    let $low = low_bits($isa, word($block.x(), $g));
                    $isa.look_up_of($codes, $labels)
                }
            }
        )*
    };
}

trellis! {
    /// 16 levels.
    T2, &T2_CODES, |isa, block, g, low| low;
    /// 32 levels.
    T3, &T3_CODES, |isa, block, g, low| {
        let h = word(block.h(), g % 4) >> (4 * (g / 4));
        isa.or(low, isa.shl(isa.and(isa.spread(h, 1), 1), 4))
    };
    /// 64 levels.
    T4, &T4_CODES, |isa, block, g, low| {
        isa.or(low, isa.shl(isa.and(isa.spread(word(block.a(), g), 2), 3), 4))
    };
}
