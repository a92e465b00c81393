//! Where the fields of each quantized block lie: the one description that decoders and kernels
//! share.
//!
//! A block is a view over its bytes, `Q4K(&[u8; 144])`, with an accessor per field in file order.
//! Nothing is decoded here but scales that are packed in a way not visible from the field, and the
//! place of a sub-block's codes. All numbers are little endian; `d`, `dmin` and `m` are f16.
//! Source: `ggml-common.h` and `ggml-quants.c` of the ggml project.
//!
//! Formats whose codes have to be looked up or computed say them as [`Signed`] integers.

/// Weights in a block of the K family.
pub const QK_K: usize = 256;

macro_rules! block {
    ($(#[$doc:meta])* $name:ident, $bytes:literal: { $($field:ident: $kind:tt at $at:literal,)* }) => {
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
            crate::f16::f16_to_f32(u16_at(self.0, $at))
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

mod grid;
pub mod grids;
mod nonlinear;
mod signed;
mod ternary;

pub use grid::{IQ1M, IQ1S, IQ2S, IQ2XS, IQ2XXS, IQ3S, IQ3XXS, even_signs, spread_sevens};
pub use nonlinear::{IQ4_VALUES, IQ4NL, IQ4XS, MXFP4, MXFP4_VALUES, half_power};
pub use signed::Signed;
pub use ternary::{TQ1_0, TQ2_0};

block! {
    /// 32 weights. Low nibble of `qs[j]` is weight j, high nibble weight j + 16; `y = (q − 8)·d`.
    Q4_0, 18: { d: f16 at 0, qs: 16 at 2, }
}
block! {
    /// 32 weights: the nibbles of [`Q4_0`]; `y = q·d + m`.
    Q4_1, 20: { d: f16 at 0, m: f16 at 2, qs: 16 at 4, }
}
block! {
    /// 32 weights: the nibbles of [`Q4_0`], and bit j of `qh` as the fifth bit of weight j; `y = (q − 16)·d`.
    Q5_0, 22: { d: f16 at 0, qh: 4 at 2, qs: 16 at 6, }
}
block! {
    /// 32 weights: the codes of [`Q5_0`]; `y = q·d + m`.
    Q5_1, 24: { d: f16 at 0, m: f16 at 2, qh: 4 at 4, qs: 16 at 8, }
}
block! {
    /// 32 weights. `qs` are signed bytes; `y = q·d`.
    Q8_0, 34: { d: f16 at 0, qs: 32 at 2, }
}
block! {
    /// 256 weights in 16 sub-blocks of 16; `y = d·sc·q − dmin·mn`. Codes: [`two_bit_group`].
    Q2K, 84: { scales: 16 at 0, qs: 64 at 16, d: f16 at 80, dmin: f16 at 82, }
}
block! {
    /// 256 weights in 16 sub-blocks of 16; `y = d·sc·q`. Low bits of the codes: [`two_bit_group`]; the third one is in
    /// `hmask`, and the code is lowered by 4.
    Q3K, 110: { hmask: 32 at 0, qs: 64 at 32, scales: 12 at 96, d: f16 at 108, }
}
block! {
    /// 256 weights in 8 sub-blocks of 32; `y = d·sc·q − dmin·mn`. Codes: [`four_bit_group`], scales: [`scale_min`].
    Q4K, 144: { d: f16 at 0, dmin: f16 at 2, scales: 12 at 4, qs: 128 at 16, }
}
block! {
    /// As [`Q4K`]; bit s of `qh[j]` is the fifth bit of weight j of sub-block s.
    Q5K, 176: { d: f16 at 0, dmin: f16 at 2, scales: 12 at 4, qh: 32 at 16, qs: 128 at 48, }
}
block! {
    /// 256 weights in 16 sub-blocks of 16; `y = d·sc·q`, `scales` are signed bytes, and the code is lowered by 32.
    Q6K, 210: { ql: 128 at 0, qh: 64 at 128, scales: 16 at 192, d: f16 at 208, }
}

impl Q2K<'_> {
    /// 4-bit scale and minimum of sub-block `s` < 16.
    #[inline(always)]
    pub fn scale_min(self, s: usize) -> (u8, u8) {
        let packed = self.scales()[s];
        (packed & 15, packed >> 4)
    }
}

impl<'a> Q3K<'a> {
    /// The 16 scales, −32 to 31. Each has its low 4 bits in a nibble of bytes 0 to 7 and its high 2
    /// bits in bytes 8 to 11.
    #[inline(always)]
    pub fn unpack_scales(self) -> [i8; 16] {
        let packed = self.scales();
        std::array::from_fn(|s| {
            let low = (packed[s % 8] >> (4 * (s / 8))) & 15;
            let high = (packed[8 + s % 4] >> (2 * (s / 4))) & 3;
            (low | high << 4) as i8 - 32
        })
    }

    /// The bytes of `hmask` that hold the third bits of sub-block `s` < 16, and the shift that
    /// brings them to bit 0.
    #[inline(always)]
    pub fn mask_group(self, s: usize) -> (&'a [u8; 16], usize) {
        (&self.hmask().as_chunks().0[s % 2], s / 2)
    }
}

impl<'a> Q6K<'a> {
    /// The bytes of `ql` that hold the low 4 bits of sub-block `s` < 16, and the shift that brings
    /// them to bit 0.
    #[inline(always)]
    pub fn low_group(self, s: usize) -> (&'a [u8; 16], usize) {
        (&self.ql().as_chunks().0[s / 8 * 4 + s % 4], s % 8 / 4 * 4)
    }

    /// The bytes of `qh` that hold the high 2 bits of sub-block `s` < 16, and the shift that brings
    /// them to bit 0.
    #[inline(always)]
    pub fn high_group(self, s: usize) -> (&'a [u8; 16], usize) {
        (&self.qh().as_chunks().0[s / 8 * 2 + s % 2], s % 8 / 2 * 2)
    }
}

/// 6-bit scale and minimum of sub-block `s` < 8 of [`Q4K`] and [`Q5K`]. Sub-blocks 0 to 3 have them
/// whole in the low bits of bytes 0 to 7; 4 to 7 have their low 4 bits in bytes 8 to 11 and their
/// high 2 bits atop bytes 0 to 7.
#[inline(always)]
pub fn scale_min(scales: &[u8; 12], s: usize) -> (u8, u8) {
    if s < 4 {
        return (scales[s] & 63, scales[s + 4] & 63);
    }
    let low = scales[s + 4];
    (
        low & 15 | scales[s - 4] >> 6 << 4,
        low >> 4 | scales[s] >> 6 << 4,
    )
}

/// The bytes of `qs` that hold the 4-bit codes of sub-block `s` < 8 (of 32 weights), and their
/// shift.
#[inline(always)]
pub fn four_bit_group(qs: &[u8; 128], s: usize) -> (&[u8; 32], usize) {
    (&qs.as_chunks().0[s / 2], s % 2 * 4)
}

/// The bytes of `qs` that hold the 2-bit codes of sub-block `s` < 16 (of 16 weights), and their
/// shift.
#[inline(always)]
pub fn two_bit_group(qs: &[u8; 64], s: usize) -> (&[u8; 16], usize) {
    (&qs.as_chunks().0[s / 8 * 2 + s % 2], s % 8 / 2 * 2)
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorType;

    #[test]
    fn views_are_as_long_as_the_type_says() {
        let views = [
            (TensorType::Q4_0, Q4_0::BYTES),
            (TensorType::Q4_1, Q4_1::BYTES),
            (TensorType::Q5_0, Q5_0::BYTES),
            (TensorType::Q5_1, Q5_1::BYTES),
            (TensorType::Q8_0, Q8_0::BYTES),
            (TensorType::Q2_K, Q2K::BYTES),
            (TensorType::Q3_K, Q3K::BYTES),
            (TensorType::Q4_K, Q4K::BYTES),
            (TensorType::Q5_K, Q5K::BYTES),
            (TensorType::Q6_K, Q6K::BYTES),
            (TensorType::IQ1_S, IQ1S::BYTES),
            (TensorType::IQ1_M, IQ1M::BYTES),
            (TensorType::IQ2_XXS, IQ2XXS::BYTES),
            (TensorType::IQ2_XS, IQ2XS::BYTES),
            (TensorType::IQ2_S, IQ2S::BYTES),
            (TensorType::IQ3_XXS, IQ3XXS::BYTES),
            (TensorType::IQ3_S, IQ3S::BYTES),
            (TensorType::IQ4_NL, IQ4NL::BYTES),
            (TensorType::IQ4_XS, IQ4XS::BYTES),
            (TensorType::TQ1_0, TQ1_0::BYTES),
            (TensorType::TQ2_0, TQ2_0::BYTES),
            (TensorType::MXFP4, MXFP4::BYTES),
        ];
        for (ty, bytes) in views {
            assert_eq!(ty.block_bytes(), bytes, "{ty}");
        }
    }

    #[test]
    fn six_bit_scales_and_minima_are_found_in_twelve_bytes() {
        let expected: [(u8, u8); 8] = std::array::from_fn(|s| (s as u8 * 9, 63 - s as u8 * 7));
        let mut packed = [0; 12];
        for (s, &(sc, mn)) in expected[..4].iter().enumerate() {
            let (high_sc, high_mn) = expected[s + 4];
            packed[s] = sc | high_sc >> 4 << 6;
            packed[s + 4] = mn | high_mn >> 4 << 6;
            packed[s + 8] = high_sc & 15 | high_mn << 4;
        }
        assert_eq!(std::array::from_fn(|s| scale_min(&packed, s)), expected);
    }

    #[test]
    fn two_bit_groups_take_every_bit_pair_once() {
        let qs = std::array::from_fn(|i| i as u8);
        let mut seen: Vec<_> = (0..16)
            .map(|s| two_bit_group(&qs, s))
            .map(|(b, shift)| (b[0], shift))
            .collect();
        assert_eq!(
            (seen[0], seen[1], seen[2], seen[8]),
            ((0, 0), (16, 0), (0, 2), (32, 0))
        );
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 16);
    }
}
