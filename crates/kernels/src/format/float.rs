//! F32, F16 and BF16: no blocks, no scales; each weight widens to f32 exactly.

use super::FloatFormat;
use atta_formats::f16::{bf16_to_f32, f16_to_f32};

/// IEEE binary32.
pub(crate) struct F32;
/// IEEE binary16.
pub(crate) struct F16;
/// The upper half of a binary32.
pub(crate) struct Bf16;

macro_rules! float_format {
    ($name:ident, $bytes:literal, $widen:expr) => {
        impl FloatFormat for $name {
            type Weight = [u8; $bytes];

            #[inline(always)]
            fn weights(row: &[u8]) -> &[[u8; $bytes]] {
                row.as_chunks().0
            }

            #[inline(always)]
            fn widen(weight: &[u8; $bytes]) -> f32 {
                $widen(*weight)
            }
        }
    };
}

float_format!(F32, 4, f32::from_le_bytes);
float_format!(F16, 2, |bytes| f16_to_f32(u16::from_le_bytes(bytes)));
float_format!(Bf16, 2, |bytes| bf16_to_f32(u16::from_le_bytes(bytes)));
