//! The element types of tensors: names, block sizes and decoders. How the bits of a block are read
//! is in [`crate::layout`].
//!
//! One table describes them all. Types that atta cannot decode yet are listed too, so that a file
//! which holds them can be inspected and refused by name.

use crate::layout::Trellis;

/// Calls `$callback!` with the type of every tensor, one row for each: its name, weights per block,
/// bytes per block and, if it can be decoded, the decoder of a block. Source: `ggml.h` and
/// `ggml-common.h` of the ggml project; T2, T3 and T4 are atta's, and are decoded by rows; types
/// whose names begin with QSF are those of QSF files.
macro_rules! tensor_types {
    ($callback:ident) => {
        $callback! {
            F32 = 1, 4, float::f32;
            F16 = 1, 2, float::f16;
            Q4_0 = 32, 18, legacy::q4_0;
            Q4_1 = 32, 20, legacy::q4_1;
            Q5_0 = 32, 22, legacy::q5_0;
            Q5_1 = 32, 24, legacy::q5_1;
            Q8_0 = 32, 34, legacy::q8_0;
            Q8_1 = 32, 36;
            Q2_K = 256, 84, k_quants::q2_k;
            Q3_K = 256, 110, k_quants::q3_k;
            Q4_K = 256, 144, k_quants::q4_k;
            Q5_K = 256, 176, k_quants::q5_k;
            Q6_K = 256, 210, k_quants::q6_k;
            Q8_K = 256, 292;
            IQ2_XXS = 256, 66, |block, y| signed(layout::IQ2_XXS(block), y);
            IQ2_XS = 256, 74, |block, y| signed(layout::IQ2_XS(block), y);
            IQ3_XXS = 256, 98, |block, y| signed(layout::IQ3_XXS(block), y);
            IQ1_S = 256, 50, |block, y| signed(layout::IQ1_S(block), y);
            IQ4_NL = 32, 18, nonlinear::iq4_nl;
            IQ3_S = 256, 110, |block, y| signed(layout::IQ3_S(block), y);
            IQ2_S = 256, 82, |block, y| signed(layout::IQ2_S(block), y);
            IQ4_XS = 256, 136, |block, y| signed(layout::IQ4_XS(block), y);
            I8 = 1, 1;
            I16 = 1, 2;
            I32 = 1, 4;
            I64 = 1, 8;
            F64 = 1, 8;
            IQ1_M = 256, 56, |block, y| signed(layout::IQ1_M(block), y);
            BF16 = 1, 2, float::bf16;
            TQ1_0 = 256, 54, |block, y| signed(layout::TQ1_0(block), y);
            TQ2_0 = 256, 66, |block, y| signed(layout::TQ2_0(block), y);
            MXFP4 = 32, 17, nonlinear::mxfp4;
            NVFP4 = 64, 36, nvfp4::nvfp4;
            Q1_0 = 128, 18, q1_0::q1_0;
            Q2_0 = 64, 18, q2_0::q2_0;
            T2 = 256, 70;
            T3 = 256, 102;
            T4 = 256, 134;
            QSF2S = 64, 20, qsf::qsf2s;
            QSF2 = 64, 20, qsf::qsf2;
            QSF3 = 64, 28, qsf::qsf3;
            QSF4 = 64, 36, qsf::qsf4;
            QSFT = 64, 18, qsf::qsft;
        }
    };
}
pub(crate) use tensor_types;

macro_rules! tensor_type {
    ($($ty:ident = $len:literal, $bytes:literal $(, $decoder:expr)?;)*) => {
        /// The element type of a tensor.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(non_camel_case_types, missing_docs, reason = "the names of the format")]
        pub enum TensorType { $($ty,)* }

        impl TensorType {
            /// Every type that a file may name.
            pub const ALL: &[TensorType] = &[$(TensorType::$ty,)*];

            /// The name used by the format and its tools, such as `Q4_K`.
            pub fn name(self) -> &'static str {
                match self { $(TensorType::$ty => stringify!($ty),)* }
            }

            /// Weights per block; 1 for types without blocks.
            pub fn block_len(self) -> usize {
                match self { $(TensorType::$ty => $len,)* }
            }

            /// Bytes per block.
            pub fn block_bytes(self) -> usize {
                match self { $(TensorType::$ty => $bytes,)* }
            }
        }
    };
}
tensor_types!(tensor_type);

impl TensorType {
    /// Where the f16 factors of a block are, in bytes: its scale and, if there is one, what
    /// multiplies its minima, or its minimum. None where scales are of another type, or divided
    /// among others.
    pub fn f16_factors(self) -> &'static [usize] {
        match self {
            Self::Q2_K => &[80, 82],
            Self::Q3_K => &[108],
            Self::Q4_1 | Self::Q5_1 | Self::Q4_K | Self::Q5_K => &[0, 2],
            Self::QSF2 | Self::QSF3 | Self::QSF4 => &[0, 2],
            Self::Q6_K => &[208],
            Self::TQ1_0 => &[52],
            Self::TQ2_0 => &[64],
            Self::IQ1_M | Self::MXFP4 | Self::NVFP4 => &[],
            _ if self.block_len() == 1 => &[],
            _ => &[0],
        }
    }

    /// Weights that rows are multiples of: those of a block, or of the smallest one where rows may
    /// end in a shorter block.
    pub fn row_unit(self) -> usize {
        match Trellis::of(self) {
            Some(_) => Trellis::SUB_BLOCK,
            None if self.is_qsf() => 32,
            None => self.block_len(),
        }
    }

    /// Whether the type is not one of ggml's, so that other programs refuse files with it.
    pub fn is_own(self) -> bool {
        Trellis::of(self).is_some() || self.is_qsf()
    }

    /// Whether its blocks are those of QSF files, see [`layout::QSF2`](crate::layout::QSF2).
    pub fn is_qsf(self) -> bool {
        use TensorType::{QSF2, QSF2S, QSF3, QSF4, QSFT};
        matches!(self, QSF2S | QSF2 | QSF3 | QSF4 | QSFT)
    }

    /// Bytes of a row of `d` weights; `None` if `d` is not a multiple of
    /// [`row_unit`](Self::row_unit), or on overflow.
    pub fn row_bytes(self, d: usize) -> Option<usize> {
        if let Some(trellis) = Trellis::of(self) {
            return trellis.row_bytes(d);
        }
        if !d.is_multiple_of(self.row_unit()) {
            return None;
        }
        d.div_ceil(self.block_len()).checked_mul(self.block_bytes())
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_whole_blocks() {
        assert_eq!(TensorType::Q4_K.row_bytes(512), Some(288));
        assert_eq!(TensorType::Q4_K.row_bytes(0), Some(0));
        assert_eq!(TensorType::Q4_K.row_bytes(255), None);
        assert_eq!(TensorType::F32.row_bytes(usize::MAX), None);
    }

    #[test]
    fn rows_of_own_types_end_in_a_shorter_block() {
        let bytes =
            |d: usize| [TensorType::T2, TensorType::T3, TensorType::T4].map(|ty| ty.row_bytes(d));
        assert_eq!(bytes(0), [Some(0); 3]);
        assert_eq!(bytes(512), [Some(140), Some(204), Some(268)]);
        assert_eq!(bytes(576), [Some(159), Some(231), Some(303)]);
        assert_eq!(bytes(896), [Some(246), Some(358), Some(470)]);
        assert_eq!(bytes(2880), [Some(789), Some(1149), Some(1509)]);
        assert_eq!(bytes(48), [None; 3]);
        assert!(bytes(usize::MAX - 31).iter().all(Option::is_some));
    }

    #[test]
    fn rows_of_qsf_may_fill_half_of_their_last_block() {
        let types = TensorType::ALL.iter().filter(|ty| ty.is_qsf());
        let bytes = |d| types.clone().map(move |ty| ty.row_bytes(d).unwrap_or(0));
        assert!(bytes(64).eq([20, 20, 28, 36, 18]));
        assert!(bytes(96).eq(bytes(128)) && bytes(48).all(|n| n == 0));
    }
}
