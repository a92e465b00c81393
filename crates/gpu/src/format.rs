//! How weights lie in a buffer: the words of a row, made from its bytes in GGUF's layout.
//!
//! Values do not change: codes and scales are those of the file, blocks are padded to words, and
//! formats with groups of 32 have their factors behind their codes. Types without a kernel of their
//! own become int8 here (W8), with the integers that the CPU multiplies, so that the bits agree.

use crate::ActLayout;
use atta_formats::TensorType;
use atta_kernels::{GroupSteps, Layouts, Matrix, group_steps, integer_blocks, integer_groups};

/// A format that has kernels for GPUs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(non_camel_case_types, reason = "formats have the names of their types")]
pub enum WeightFormat {
    /// Two bits and a minimum, blocks of 256.
    Q2_K,
    /// Three bits, blocks of 256.
    Q3_K,
    /// Four bits and a minimum, blocks of 256.
    Q4_K,
    /// Five bits and a minimum, blocks of 256.
    Q5_K,
    /// Six bits, blocks of 256.
    Q6_K,
    /// Four bits that stand for values, blocks of 256.
    IQ4_XS,
    /// Eight bits, groups of 32.
    Q8_0,
    /// Four bits, groups of 32.
    Q4_0,
    /// Four bits and a minimum, groups of 32.
    Q4_1,
    /// Five bits, groups of 32.
    Q5_0,
    /// Five bits and a minimum, groups of 32.
    Q5_1,
    /// Four bits that stand for values, groups of 32.
    IQ4_NL,
    /// Floats of four bits, groups of 32.
    MXFP4,
    /// IEEE binary16.
    F16,
    /// The upper half of IEEE binary32.
    BF16,
    /// IEEE binary32.
    F32,
    /// Any other type of integers: int8 codes, with int8 scales of each 16 and an f32 of each 256,
    /// or with f32 factors of each 32. Takes 8.6 to 10 bits a weight.
    W8(TensorType),
}

/// How a row lies in words.
enum RowLayout {
    /// Blocks of 256 as in a file: bytes there, words here.
    Blocks { bytes: usize, words: usize },
    /// Groups of 32: factors in front of codes in a file, and here all factors behind all codes;
    /// bytes of each.
    Groups { factors: usize, codes: usize },
    /// Floats of as many bytes.
    Floats { bytes: usize },
    /// The integers of blocks of 256.
    IntegerBlocks,
    /// The integers of groups of 32 with as many f32, an even number of groups: blocks may have
    /// two.
    IntegerGroups { n_factors: usize },
}

/// Words of the integers of a block of 256: codes, scales, factor.
const INTEGER_WORDS: usize = 64 + 4 + 1;

impl WeightFormat {
    /// Those of one type each.
    pub const NATIVE: [Self; 16] = [
        Self::Q2_K,
        Self::Q3_K,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::IQ4_XS,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::IQ4_NL,
        Self::MXFP4,
        Self::F16,
        Self::BF16,
        Self::F32,
    ];

    /// One of each algorithm of products.
    pub(crate) const OF_EACH_KERNEL: [Self; 3] = [Self::Q4_K, Self::Q4_1, Self::F16];

    /// The format of a tensor type, if atta-kernels multiplies it.
    pub fn of(ty: TensorType) -> Option<Self> {
        let mut native = Self::NATIVE.into_iter();
        let found = native.find(|format| format.tensor_type() == ty);
        found.or_else(|| Matrix::supports(ty).then_some(Self::W8(ty)))
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        TensorType::ALL.iter().copied().filter_map(Self::of)
    }

    /// The tensor type.
    pub fn tensor_type(self) -> TensorType {
        match self {
            Self::Q2_K => TensorType::Q2_K,
            Self::Q3_K => TensorType::Q3_K,
            Self::Q4_K => TensorType::Q4_K,
            Self::Q5_K => TensorType::Q5_K,
            Self::Q6_K => TensorType::Q6_K,
            Self::IQ4_XS => TensorType::IQ4_XS,
            Self::Q8_0 => TensorType::Q8_0,
            Self::Q4_0 => TensorType::Q4_0,
            Self::Q4_1 => TensorType::Q4_1,
            Self::Q5_0 => TensorType::Q5_0,
            Self::Q5_1 => TensorType::Q5_1,
            Self::IQ4_NL => TensorType::IQ4_NL,
            Self::MXFP4 => TensorType::MXFP4,
            Self::F16 => TensorType::F16,
            Self::BF16 => TensorType::BF16,
            Self::F32 => TensorType::F32,
            Self::W8(ty) => ty,
        }
    }

    /// The layout of activations that its matrices are multiplied with.
    pub fn acts(self) -> ActLayout {
        match Matrix::layout_of(self.tensor_type()) {
            Ok(Layouts::Q8_256) => ActLayout::Q8_256,
            Ok(Layouts::Q8_32) => ActLayout::Q8_32,
            _ => ActLayout::F32,
        }
    }

    /// The f32 steps of a format with groups of 32.
    pub(crate) fn steps(self) -> Option<GroupSteps> {
        group_steps(self.tensor_type())
    }

    fn layout(self) -> RowLayout {
        match self {
            Self::Q2_K => blocks(84),
            Self::Q3_K => blocks(110),
            Self::Q4_K => blocks(144),
            Self::Q5_K => blocks(176),
            Self::Q6_K => blocks(210),
            Self::IQ4_XS => blocks(136),
            Self::Q8_0 => groups(2, 32),
            Self::Q4_0 | Self::IQ4_NL => groups(2, 16),
            Self::Q4_1 => groups(4, 16),
            Self::Q5_0 => groups(2, 20),
            Self::Q5_1 => groups(4, 20),
            Self::MXFP4 => groups(1, 16),
            Self::F16 | Self::BF16 => RowLayout::Floats { bytes: 2 },
            Self::F32 => RowLayout::Floats { bytes: 4 },
            Self::W8(_) => self.layout_of_integers(),
        }
    }

    fn layout_of_integers(self) -> RowLayout {
        match self.steps() {
            None => RowLayout::IntegerBlocks,
            Some(GroupSteps::Scale) => RowLayout::IntegerGroups { n_factors: 1 },
            Some(GroupSteps::Minimum | GroupSteps::Scales) => {
                RowLayout::IntegerGroups { n_factors: 2 }
            }
        }
    }

    /// Words of a row of `d` weights; `d` is a whole number of blocks, or of what the type allows
    /// at the end of a row.
    pub fn row_words(self, d: usize) -> usize {
        match self.layout() {
            RowLayout::Blocks { words, .. } => d / 256 * words,
            RowLayout::Groups { factors, codes } => {
                d / 32 * codes / 4 + (d / 32 * factors).div_ceil(4)
            }
            RowLayout::Floats { bytes } => (d * bytes).div_ceil(4),
            RowLayout::IntegerBlocks => d.div_ceil(256) * INTEGER_WORDS,
            RowLayout::IntegerGroups { n_factors } => d.div_ceil(64) * 2 * (8 + n_factors),
        }
    }

    /// Appends a row, given as in a file, as little-endian words.
    pub fn pack_row(self, row: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        match self.layout() {
            RowLayout::Blocks { bytes, words } => {
                for block in row.chunks_exact(bytes) {
                    out.extend_from_slice(block);
                    out.extend_from_slice(&[0; 3][..4 * words - bytes]);
                }
            }
            RowLayout::Groups { factors, codes } => {
                let groups = || row.chunks_exact(factors + codes);
                groups().for_each(|group| out.extend_from_slice(&group[factors..]));
                groups().for_each(|group| out.extend_from_slice(&group[..factors]));
            }
            RowLayout::Floats { .. } => out.extend_from_slice(row),
            RowLayout::IntegerBlocks => self.pack_integer_blocks(row, out),
            RowLayout::IntegerGroups { n_factors } => self.pack_integer_groups(row, n_factors, out),
        }
        let padding = (out.len() - start).next_multiple_of(4) - (out.len() - start);
        out.extend_from_slice(&[0; 3][..padding]);
    }

    fn pack_integer_blocks(self, row: &[u8], out: &mut Vec<u8>) {
        integer_blocks(self.tensor_type(), row, &mut |block| {
            out.extend(block.codes.iter().map(|code| *code as u8));
            out.extend(block.scales.iter().map(|scale| *scale as u8));
            out.extend_from_slice(&block.d.to_le_bytes());
        });
    }

    fn pack_integer_groups(self, row: &[u8], n_factors: usize, out: &mut Vec<u8>) {
        let has_minima = self.steps() == Some(GroupSteps::Minimum);
        let mut factors = Vec::new();
        integer_groups(self.tensor_type(), row, &mut |group| {
            out.extend(group.codes.iter().map(|code| *code as u8));
            let [d, last] = group.d;
            let second = if has_minima { group.minimum } else { last };
            let both = [d, second].map(f32::to_le_bytes);
            factors.extend_from_slice(&both.as_flattened()[..4 * n_factors]);
        });
        if (factors.len() / (4 * n_factors)) % 2 == 1 {
            out.extend_from_slice(&[0; 32]);
            factors.extend_from_slice(&[0; 8][..4 * n_factors]);
        }
        out.extend_from_slice(&factors);
    }
}

fn blocks(bytes: usize) -> RowLayout {
    let words = bytes.div_ceil(4);
    RowLayout::Blocks { bytes, words }
}

fn groups(factors: usize, codes: usize) -> RowLayout {
    RowLayout::Groups { factors, codes }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a group of Q4_0.
    const Q4_0_BYTES: usize = 18;

    #[test]
    fn a_packed_row_has_the_words_of_its_format() {
        for format in WeightFormat::all() {
            for d in [256, 768] {
                let bytes = vec![1; format.tensor_type().row_bytes(d).unwrap()];
                let mut out = Vec::new();
                format.pack_row(&bytes, &mut out);
                assert_eq!(out.len(), 4 * format.row_words(d), "{format:?}");
            }
        }
    }

    #[test]
    fn a_row_may_end_in_a_shorter_block() {
        let format = WeightFormat::of(TensorType::T3).unwrap();
        let bytes = vec![1; TensorType::T3.row_bytes(288).unwrap()];
        let mut out = Vec::new();
        format.pack_row(&bytes, &mut out);
        assert_eq!(out.len(), 4 * format.row_words(288));
        assert_eq!(format.row_words(288), 2 * INTEGER_WORDS);
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
    fn every_type_that_the_cpu_multiplies_has_a_format() {
        for &ty in TensorType::ALL {
            assert_eq!(WeightFormat::of(ty).is_some(), Matrix::supports(ty), "{ty}");
        }
        assert_eq!(WeightFormat::of(TensorType::Q4_K), Some(WeightFormat::Q4_K));
        let ty = TensorType::IQ2_XS;
        assert_eq!(WeightFormat::of(ty), Some(WeightFormat::W8(ty)));
    }
}
