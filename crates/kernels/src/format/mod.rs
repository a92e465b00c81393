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

/// Scales of a block of 256 weights. Bytes, because decoders make eight of them at once in a u64.
pub(crate) struct Head {
    /// Scale of each sub-block, −128 to 127; zeros behind the last one.
    pub(crate) scale: [i8; 16],
    /// What is subtracted per sub-block, 0 to 63; zeros behind the last one and in formats without minima.
    pub(crate) min: [i8; 16],
    pub(crate) d: f32,
    pub(crate) dmin: f32,
}

impl Head {
    pub(crate) const NOTHING: Self = Self { scale: [0; 16], min: [0; 16], d: 0.0, dmin: 0.0 };
}

/// 16 bytes as signed numbers.
#[inline(always)]
fn signed(bytes: u128) -> [i8; 16] {
    bytes.to_le_bytes().map(|byte| byte as i8)
}

/// Blocks of 256 weights with integer scales per 16 or 32: `w = d·scale·(code − OFFSET) − dmin·min`.
pub(crate) trait KQuant: 'static {
    /// Bytes of a block.
    type Block: 'static;
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
    type Block: 'static;
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
