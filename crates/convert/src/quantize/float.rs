//! F32, F16 and BF16: rounding to nearest.

use atta_formats::f16::{f32_to_bf16, f32_to_f16};

pub(super) fn f32(x: &[f32; 1], block: &mut [u8; 4]) {
    *block = x[0].to_le_bytes();
}

pub(super) fn f16(x: &[f32; 1], block: &mut [u8; 2]) {
    *block = f32_to_f16(x[0]).to_le_bytes();
}

pub(super) fn bf16(x: &[f32; 1], block: &mut [u8; 2]) {
    *block = f32_to_bf16(x[0]).to_le_bytes();
}
