//! The element types of tensors: ids, names and block sizes. How the bits of a block are read is in
//! [`crate::layout`].
//!
//! One table describes them all. Types that only we cannot decode yet are listed too, so that a
//! file which holds them can be inspected and refused by name.

macro_rules! tensor_types {
    ($($ty:ident = $id:literal, $len:literal, $bytes:literal;)*) => {
        /// The element type of a tensor, with its id in GGUF files.
        #[repr(u32)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(non_camel_case_types, missing_docs, reason = "the names of the format")]
        pub enum TensorType { $($ty = $id,)* }

        impl TensorType {
            /// Every type that a file may name, by ascending id.
            pub const ALL: &[TensorType] = &[$(TensorType::$ty,)*];

            /// The type with this id, or `None` if no such type exists (any more).
            pub fn from_id(id: u32) -> Option<Self> {
                match id { $($id => Some(TensorType::$ty),)* _ => None }
            }

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

// Type = id, weights per block, bytes per block. Source: `ggml.h` and `ggml-common.h` of the ggml
// project. Ids 4, 5, 31 to 33 and 36 to 38 were removed from the format.
tensor_types! {
    F32 = 0, 1, 4;
    F16 = 1, 1, 2;
    Q4_0 = 2, 32, 18;
    Q4_1 = 3, 32, 20;
    Q5_0 = 6, 32, 22;
    Q5_1 = 7, 32, 24;
    Q8_0 = 8, 32, 34;
    Q8_1 = 9, 32, 36;
    Q2_K = 10, 256, 84;
    Q3_K = 11, 256, 110;
    Q4_K = 12, 256, 144;
    Q5_K = 13, 256, 176;
    Q6_K = 14, 256, 210;
    Q8_K = 15, 256, 292;
    IQ2_XXS = 16, 256, 66;
    IQ2_XS = 17, 256, 74;
    IQ3_XXS = 18, 256, 98;
    IQ1_S = 19, 256, 50;
    IQ4_NL = 20, 32, 18;
    IQ3_S = 21, 256, 110;
    IQ2_S = 22, 256, 82;
    IQ4_XS = 23, 256, 136;
    I8 = 24, 1, 1;
    I16 = 25, 1, 2;
    I32 = 26, 1, 4;
    I64 = 27, 1, 8;
    F64 = 28, 1, 8;
    IQ1_M = 29, 256, 56;
    BF16 = 30, 1, 2;
    TQ1_0 = 34, 256, 54;
    TQ2_0 = 35, 256, 66;
    MXFP4 = 39, 32, 17;
    NVFP4 = 40, 64, 36;
    Q1_0 = 41, 128, 18;
    Q2_0 = 42, 64, 18;
}

impl TensorType {
    /// The id in GGUF files.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// Bytes of a row of `d` weights; `None` if `d` is not a whole number of blocks, or on
    /// overflow.
    pub fn row_bytes(self, d: usize) -> Option<usize> {
        if !d.is_multiple_of(self.block_len()) {
            return None;
        }
        (d / self.block_len()).checked_mul(self.block_bytes())
    }

    /// Whether [`crate::decode`] can read this type.
    pub fn has_codec(self) -> bool {
        use TensorType::*;
        match self {
            F32 | F16 | BF16 | Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 | Q2_K | Q3_K | Q4_K | Q5_K
            | Q6_K | MXFP4 => true,
            IQ1_S | IQ1_M | IQ2_XXS | IQ2_XS | IQ2_S | IQ3_XXS | IQ3_S | IQ4_NL | IQ4_XS
            | TQ1_0 | TQ2_0 => true,
            Q8_1 | Q8_K | I8 | I16 | I32 | I64 | F64 | NVFP4 | Q1_0 | Q2_0 => false,
        }
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
    fn ids_lead_back_to_their_types() {
        for &ty in TensorType::ALL {
            assert_eq!(TensorType::from_id(ty.id()), Some(ty));
        }
    }

    #[test]
    fn removed_and_future_ids_are_unknown() {
        for id in [4, 5, 31, 32, 33, 36, 37, 38, 43, 1000, u32::MAX] {
            assert_eq!(TensorType::from_id(id), None, "{id}");
        }
    }

    #[test]
    fn rows_are_whole_blocks() {
        assert_eq!(TensorType::Q4_K.row_bytes(512), Some(288));
        assert_eq!(TensorType::Q4_K.row_bytes(0), Some(0));
        assert_eq!(TensorType::Q4_K.row_bytes(255), None);
        assert_eq!(TensorType::F32.row_bytes(usize::MAX), None);
    }
}
