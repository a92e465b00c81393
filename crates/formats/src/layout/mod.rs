//! Block formats: where the fields of each block lie, and the scalar decoder that defines the
//! values of its weights, bit for bit the f32 values of ggml.
//!
//! A block is a view over its bytes, `Q4_K(&[u8; 144])`, with an accessor per field in file order;
//! kernels and quantizers read blocks through it. All numbers are little endian; `d`, `dmin` and
//! `m` are f16. Decoders are plain and keep ggml's order of f32 operations (multiply, then
//! subtract, never fused). Source: `ggml-common.h` and `ggml-quants.c` of the ggml project.
//!
//! Formats whose codes are looked up or computed implement [`Signed`], which has a decoder for all
//! of them.

macro_rules! block {
    (
        $(#[$doc:meta])* $name:ident, $bytes:literal: { $($field:ident: $kind:tt at $at:literal,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<'a>(pub &'a [u8; $bytes]);

        impl<'a> $name<'a> {
            /// Bytes of the block.
            pub const BYTES: usize = $bytes;
            $(block!(@field $field $kind $at);)*
        }
    };
    (@field $field:ident f16 $at:literal) => {
        #[doc = concat!("Scale `", stringify!($field), "`, f16 at byte ", stringify!($at), ".")]
        #[inline(always)]
        pub fn $field(self) -> f32 {
            crate::f16::f16_to_f32($crate::layout::u16_at(self.0, $at))
        }
    };
    (@field $field:ident $n:literal $at:literal) => {
        #[doc = concat!("Field `", stringify!($field), "`, ", stringify!($n), " bytes at byte ", stringify!($at), ".")]
        #[inline(always)]
        pub fn $field(self) -> &'a [u8; $n] {
            self.0[$at..].first_chunk().expect("the field lies inside the block")
        }
    };
}

pub(crate) mod float;
mod grid;
pub mod grids;
pub(crate) mod k_quants;
pub(crate) mod legacy;
pub(crate) mod nonlinear;
pub(crate) mod nvfp4;
pub(crate) mod q1_0;
pub(crate) mod q2_0;
pub(crate) mod qsf;
mod signed;
mod ternary;
pub(crate) mod trellis;

pub use grid::{IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, even_signs, spread_sevens};
pub use k_quants::{Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, four_bit_group, scale_min, two_bit_group};
pub use legacy::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
pub use nonlinear::{IQ4_NL, IQ4_VALUES, IQ4_XS, MXFP4, MXFP4_VALUES, half_power};
pub use nvfp4::NVFP4;
pub use q1_0::Q1_0;
pub use q2_0::Q2_0;
pub use qsf::{QSF2, QSF2S, QSF3, QSF4, QSFT};
pub use signed::Signed;
pub(crate) use signed::signed;
pub use ternary::{TQ1_0, TQ2_0};
pub use trellis::{
    T2, T2_LEVELS, T3, T3_LEVELS, T4, T4_LEVELS, Trellis, TrellisBlock, trellis_parities,
};

/// The u16 at byte `at`.
#[inline(always)]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The u32 at byte `at`.
#[inline(always)]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}
