//! How weights lie in a buffer: the words of a row, made from its bytes in GGUF's layout.
//!
//! Values do not change: codes and scales are those of the file, blocks are padded to words, and
//! formats with groups of 32 have their scales behind their codes.

use crate::ActLayout;
use atta_formats::TensorType;

/// Bytes of a group of Q8_0 and of Q4_0: an f16 scale, then codes.
const Q8_0_BYTES: usize = 34;
const Q4_0_BYTES: usize = 18;

/// A format that has kernels for GPUs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(non_camel_case_types, reason = "formats have the names of their types")]
pub enum WeightFormat {
    /// Four bits, blocks of 256.
    Q4_K,
    /// Six bits, blocks of 256.
    Q6_K,
    /// Eight bits, groups of 32.
    Q8_0,
    /// Four bits, groups of 32.
    Q4_0,
    /// IEEE binary16.
    F16,
    /// IEEE binary32.
    F32,
}

impl WeightFormat {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Q4_K,
        Self::Q6_K,
        Self::Q8_0,
        Self::Q4_0,
        Self::F16,
        Self::F32,
    ];

    /// The format of a tensor type, if GPUs have kernels for it.
    pub fn of(ty: TensorType) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|format| format.tensor_type() == ty)
    }

    /// The tensor type.
    pub fn tensor_type(self) -> TensorType {
        match self {
            Self::Q4_K => TensorType::Q4_K,
            Self::Q6_K => TensorType::Q6_K,
            Self::Q8_0 => TensorType::Q8_0,
            Self::Q4_0 => TensorType::Q4_0,
            Self::F16 => TensorType::F16,
            Self::F32 => TensorType::F32,
        }
    }

    /// The layout of activations that its matrices are multiplied with.
    pub fn acts(self) -> ActLayout {
        match self {
            Self::Q4_K | Self::Q6_K => ActLayout::Q8_256,
            Self::Q8_0 | Self::Q4_0 => ActLayout::Q8_32,
            Self::F16 | Self::F32 => ActLayout::F32,
        }
    }

    /// Words of a row of `d` weights; `d` is a whole number of blocks.
    pub fn row_words(self, d: usize) -> usize {
        let of_groups = |words: usize| d / 32 * words + (d / 32).div_ceil(2);
        match self {
            Self::Q4_K => d / 256 * 36,
            Self::Q6_K => d / 256 * 53,
            Self::Q8_0 => of_groups(8),
            Self::Q4_0 => of_groups(4),
            Self::F16 => d.div_ceil(2),
            Self::F32 => d,
        }
    }

    /// Appends a row, given as in a file, as little-endian words.
    pub fn pack_row(self, row: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        match self {
            Self::Q8_0 => pack_groups(row.as_chunks::<Q8_0_BYTES>().0, out),
            Self::Q4_0 => pack_groups(row.as_chunks::<Q4_0_BYTES>().0, out),
            Self::Q6_K => {
                for block in row.as_chunks::<210>().0 {
                    out.extend_from_slice(block);
                    out.extend_from_slice(&[0; 2]);
                }
            }
            Self::Q4_K | Self::F16 | Self::F32 => out.extend_from_slice(row),
        }
        let padding = (out.len() - start).next_multiple_of(4) - (out.len() - start);
        out.extend_from_slice(&[0; 3][..padding]);
    }
}

/// Codes of all groups, then their scales.
fn pack_groups<const N: usize>(groups: &[[u8; N]], out: &mut Vec<u8>) {
    for group in groups {
        out.extend_from_slice(&group[2..]);
    }
    for group in groups {
        out.extend_from_slice(&group[..2]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_row_has_the_words_of_its_format() {
        for format in WeightFormat::ALL {
            for d in [256, 768] {
                let bytes = vec![1; format.tensor_type().row_bytes(d).unwrap()];
                let mut out = Vec::new();
                format.pack_row(&bytes, &mut out);
                assert_eq!(out.len(), 4 * format.row_words(d), "{format:?}");
            }
        }
    }

    #[test]
    fn an_odd_number_of_groups_ends_in_a_whole_word() {
        let mut row = vec![7; 3 * Q4_0_BYTES];
        row[Q4_0_BYTES..][..2].copy_from_slice(&[1, 2]);
        let mut out = Vec::new();
        WeightFormat::Q4_0.pack_row(&row, &mut out);
        assert_eq!(out.len(), 4 * WeightFormat::Q4_0.row_words(96));
        assert_eq!(out[48..], [7, 7, 1, 2, 7, 7, 0, 0]);
    }

    #[test]
    fn types_without_kernels_have_no_format() {
        assert_eq!(WeightFormat::of(TensorType::Q4_K), Some(WeightFormat::Q4_K));
        assert_eq!(WeightFormat::of(TensorType::IQ2_XS), None);
    }
}
