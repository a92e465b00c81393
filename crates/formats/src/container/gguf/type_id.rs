//! The ids of tensor types in GGUF files, which are ggml's. Ids 4, 5, 31 to 33 and 36 to 38 were
//! removed from the format.
//!
//! The types of atta have ids far from ggml's, which count up from 0, and from those of its forks:
//! the four bytes of an id in the file read `atT2`, `atT3` and `atT4`. llama.cpp and gguf-py refuse
//! such a file by the number; no program takes them for another type. The blocks of QSF files have
//! ids of the same kind: `SQ`, above the code that QSF has for the type.

use crate::TensorType;

macro_rules! ids {
    ($($ty:ident = $id:literal,)*) => {
        /// The id of a type in GGUF files.
        pub fn type_id(ty: TensorType) -> u32 {
            match ty { $(TensorType::$ty => $id,)* }
        }

        /// The type with an id of GGUF files, or `None` if no such type exists (any more).
        pub fn type_of_id(id: u32) -> Option<TensorType> {
            match id { $($id => Some(TensorType::$ty),)* _ => None }
        }
    };
}

// Source: `ggml.h` of the ggml project.
ids! {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q8_1 = 9,
    Q2_K = 10,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    Q8_K = 15,
    IQ2_XXS = 16,
    IQ2_XS = 17,
    IQ3_XXS = 18,
    IQ1_S = 19,
    IQ4_NL = 20,
    IQ3_S = 21,
    IQ2_S = 22,
    IQ4_XS = 23,
    I8 = 24,
    I16 = 25,
    I32 = 26,
    I64 = 27,
    F64 = 28,
    IQ1_M = 29,
    BF16 = 30,
    TQ1_0 = 34,
    TQ2_0 = 35,
    MXFP4 = 39,
    NVFP4 = 40,
    Q1_0 = 41,
    Q2_0 = 42,
    T2 = 0x3254_7461,
    T3 = 0x3354_7461,
    T4 = 0x3454_7461,
    QSF2S = 0x5153_0000,
    QSF2 = 0x5153_0001,
    QSF3 = 0x5153_0002,
    QSF4 = 0x5153_0003,
    QSFT = 0x5153_0004,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_lead_back_to_their_types() {
        for &ty in TensorType::ALL {
            assert_eq!(type_of_id(type_id(ty)), Some(ty));
        }
    }

    #[test]
    fn ids_of_own_types_read_as_text_and_fit_an_i32() {
        let own = TensorType::ALL.iter().filter(|ty| ty.is_own());
        for (ty, text) in own.zip([b"atT2", b"atT3", b"atT4"]) {
            assert_eq!(&type_id(*ty).to_le_bytes(), text);
            assert!(i32::try_from(type_id(*ty)).is_ok());
        }
    }

    #[test]
    fn removed_and_future_ids_are_unknown() {
        for id in [4, 5, 31, 32, 33, 36, 37, 38, 43, 1000, u32::MAX] {
            assert_eq!(type_of_id(id), None, "{id}");
        }
    }
}
