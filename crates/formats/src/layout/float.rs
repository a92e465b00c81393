//! F32, F16 and BF16: blocks of one weight.

use crate::f16::{bf16_to_f32, f16_to_f32};

pub(crate) fn f32(block: &[u8; 4], y: &mut [f32; 1]) {
    y[0] = f32::from_le_bytes(*block);
}

pub(crate) fn f16(block: &[u8; 2], y: &mut [f32; 1]) {
    y[0] = f16_to_f32(u16::from_le_bytes(*block));
}

pub(crate) fn bf16(block: &[u8; 2], y: &mut [f32; 1]) {
    y[0] = bf16_to_f32(u16::from_le_bytes(*block));
}
