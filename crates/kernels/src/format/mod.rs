//! Weight formats: one short, safe decoder each, generic over the instruction set.
//!
//! A decoder yields the format's own integer codes and sub-block scales and does no arithmetic on them: nothing is
//! requantized or rounded here. Where the fields lie is described once, in `atta_formats::layout`.

pub(crate) mod float;
pub(crate) mod q2_k;
pub(crate) mod q3_k;
pub(crate) mod q4_0;
pub(crate) mod q4_k;
pub(crate) mod q5_0;
pub(crate) mod q5_k;
pub(crate) mod q6_k;
pub(crate) mod q8_0;

use crate::isa::{Floats, Row};
use atta_formats::TensorType;

/// The formats with a kernel; indexes the strip functions of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q5_0,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
}

impl Format {
    /// Number of formats.
    pub(crate) const N: usize = 11;

    pub(crate) fn of(ty: TensorType) -> Option<Self> {
        Some(match ty {
            TensorType::F32 => Self::F32,
            TensorType::F16 => Self::F16,
            TensorType::BF16 => Self::Bf16,
            TensorType::Q4_0 => Self::Q4_0,
            TensorType::Q5_0 => Self::Q5_0,
            TensorType::Q8_0 => Self::Q8_0,
            TensorType::Q2_K => Self::Q2K,
            TensorType::Q3_K => Self::Q3K,
            TensorType::Q4_K => Self::Q4K,
            TensorType::Q5_K => Self::Q5K,
            TensorType::Q6_K => Self::Q6K,
            _ => return None,
        })
    }
}

/// Scales of a block of 256 weights. Bytes of sub-blocks are packed into words, sub-block 0 lowest, because decoders
/// make eight of them at once; the f16 are widened many at a time where the CPU can.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    /// Scale of each sub-block, −128 to 127; zeros behind the last one.
    pub(crate) scale: [u64; 2],
    /// What is subtracted per sub-block, 0 to 63; zeros behind the last one and in formats without minima.
    pub(crate) min: [u64; 2],
    /// f16.
    pub(crate) d: u16,
    /// f16.
    pub(crate) dmin: u16,
}

impl Head {
    pub(crate) const NOTHING: Self = Self { scale: [0; 2], min: [0; 2], d: 0, dmin: 0 };

    /// Scale of sub-block `s`.
    #[inline(always)]
    pub(crate) fn scale_of(&self, s: usize) -> i16 {
        i16::from((self.scale[s / 8] >> (8 * (s % 8))) as i8)
    }
}

/// `byte` in all eight bytes.
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// 16 bytes as two words.
#[inline(always)]
fn two_words(bytes: &[u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(*bytes);
    [both as u64, (both >> 64) as u64]
}

/// The two bytes at `at`: an f16 that stays packed, unlike those that the layout's accessors return.
#[inline(always)]
fn half_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// Blocks of 256 weights with integer scales per 16 or 32: `w = d·scale·(code − OFFSET) − dmin·min`.
pub(crate) trait KQuant: 'static {
    /// Bytes of a block.
    type Block: AsRef<[u8]> + 'static;
    /// The same as a value.
    const FORMAT: Format;
    /// What lowers the unsigned codes, a power of two or 0.
    const OFFSET: i16;
    /// Sub-blocks with a scale of their own: 8 or 16.
    const GROUPS: usize;
    /// Whether the format has minima.
    const MINS: bool;

    /// The blocks of a row of weights.
    fn blocks(row: &[u8]) -> &[Self::Block];
    fn head(block: &Self::Block) -> Head;
    /// Codes 32·g to 32·g + 31, unsigned, at most 63.
    fn codes<I: Row>(isa: I, block: &Self::Block, g: usize) -> I::V;
}

/// Blocks of 32 weights with one f16 scale: `w = d·(code − OFFSET)`.
pub(crate) trait Quant32: 'static {
    /// Bytes of a block.
    type Block: AsRef<[u8]> + 'static;
    /// The same as a value.
    const FORMAT: Format;
    /// What lowers the unsigned codes.
    const OFFSET: i16;

    /// The blocks of a row of weights.
    fn blocks(row: &[u8]) -> &[Self::Block];
    /// The scale, f16: widened 16 at a time where the CPU can.
    fn d(block: &Self::Block) -> u16;
    /// The 32 codes, unsigned.
    fn codes<I: Row>(isa: I, block: &Self::Block) -> I::V;
}

/// Weights that are floats already.
pub(crate) trait FloatFormat: 'static {
    /// Bytes of a weight.
    type Weight: 'static;

    /// The weights of a row.
    fn weights(row: &[u8]) -> &[Self::Weight];
    fn widen(weight: &Self::Weight) -> f32;
    fn load<I: Floats>(isa: I, weights: &[Self::Weight; 16]) -> I::F;
}
