//! Codes of a few bits in words of 32 bits, as checkpoints pack them.

use crate::{
    Error,
    raw::{Dtype, RawTensor},
};

/// How the codes of a table `[n_lines, n]` lie in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// `[n_lines, n bits / 32]`: a line of words is a stream of bits, lowest first.
    Lines,
    /// `[n bits / 32, n_lines]`: a column of words is such a stream.
    Columns,
    /// As [`Lines`](Self::Lines), but the eight codes of a word lie in the order of [`SLOTS`].
    Interleaved,
}

/// Where the eight codes of a word are in AWQ: code 1 is in the fifth place.
const SLOTS: [u64; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// Codes of at most eight bits.
pub(super) struct Codes {
    words: RawTensor,
    bits: u32,
    packing: Packing,
    n_lines: u64,
    /// Words of a line.
    n_words: u64,
}

impl Codes {
    /// A table of `n_lines` lines of `n` codes.
    ///
    /// # Errors
    /// Words of another type or shape, codes of more than eight bits; with the name of the tensor.
    pub(super) fn new(
        words: RawTensor,
        bits: u32,
        packing: Packing,
        [n_lines, n]: [u64; 2],
    ) -> Result<Self, Error> {
        let n_words = n.saturating_mul(bits.into()).div_ceil(32);
        let expected = match packing {
            Packing::Columns => [n_words, n_lines],
            Packing::Lines | Packing::Interleaved => [n_lines, n_words],
        };
        let fits = matches!(bits, 1..=8) && (packing != Packing::Interleaved || bits == 4);
        match words.dtype() {
            _ if words.dims() != expected || !fits => Err(Error::Dims {
                expected: expected.to_vec(),
                got: words.dims().to_vec(),
            }
            .of(words.name())),
            Dtype::I32 | Dtype::U32 => Ok(Self {
                words,
                bits,
                packing,
                n_lines,
                n_words,
            }),
            dtype => Err(Error::Words { dtype }.of(words.name())),
        }
    }

    /// The name of the tensor.
    pub(super) fn name(&self) -> &str {
        self.words.name()
    }

    /// The largest code that there may be.
    pub(super) fn largest(&self) -> i32 {
        (1 << self.bits) - 1
    }

    /// Code `i` of a line, both within the table.
    pub(super) fn at(&self, line: u64, i: u64) -> i32 {
        let i = match self.packing {
            Packing::Interleaved => i / 8 * 8 + SLOTS[(i % 8) as usize],
            Packing::Lines | Packing::Columns => i,
        };
        let bit = i * u64::from(self.bits);
        let word =
            u64::from(self.word(line, bit / 32)) | u64::from(self.word(line, bit / 32 + 1)) << 32;
        (word >> (bit % 32)) as i32 & self.largest()
    }

    /// Word `k` of a line; 0 behind the end.
    fn word(&self, line: u64, k: u64) -> u32 {
        let at = match self.packing {
            _ if k >= self.n_words => return 0,
            Packing::Columns => k * self.n_lines + line,
            Packing::Lines | Packing::Interleaved => line * self.n_words + k,
        };
        let words = self.words.bytes().as_chunks().0;
        usize::try_from(at)
            .ok()
            .and_then(|at| words.get(at))
            .map_or(0, |&word| u32::from_le_bytes(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn words(dims: &[u64], words: &[u32]) -> RawTensor {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        RawTensor::new("w", Dtype::I32, dims, Arc::new(bytes), 0).unwrap()
    }

    fn all(codes: &Codes, [n_lines, n]: [u64; 2]) -> Vec<Vec<i32>> {
        (0..n_lines)
            .map(|line| (0..n).map(|i| codes.at(line, i)).collect())
            .collect()
    }

    #[test]
    fn a_line_is_a_row_or_a_column_of_words() {
        let stored = [0x7654_3210, 0xfedc_ba98];
        let low: Vec<i32> = (0..8).collect();
        let high: Vec<i32> = (8..16).collect();
        let lines = Codes::new(words(&[1, 2], &stored), 4, Packing::Lines, [1, 16]).unwrap();
        assert_eq!(all(&lines, [1, 16]), [(0..16).collect::<Vec<_>>()]);
        let columns = Codes::new(words(&[1, 2], &stored), 4, Packing::Columns, [2, 8]).unwrap();
        assert_eq!(all(&columns, [2, 8]), [low, high]);
    }

    #[test]
    fn awq_has_the_codes_of_a_word_in_an_order_of_its_own() {
        // Nibble i holds the code 0, 2, 4, 6, 1, 3, 5, 7.
        let stored = words(&[1, 1], &[0x7531_6420]);
        let codes = Codes::new(stored, 4, Packing::Interleaved, [1, 8]).unwrap();
        assert_eq!(all(&codes, [1, 8]), [(0..8).collect::<Vec<_>>()]);
    }

    #[test]
    fn codes_of_three_bits_cross_the_ends_of_words() {
        let stream = (0..32u128).fold(0, |bits, i| bits | (i % 8) << (3 * i));
        let stored: Vec<u32> = (0..3).map(|k| (stream >> (32 * k)) as u32).collect();
        let codes = Codes::new(words(&[1, 3], &stored), 3, Packing::Lines, [1, 32]).unwrap();
        assert_eq!(
            all(&codes, [1, 32])[0],
            (0..32).map(|i| i % 8).collect::<Vec<_>>()
        );
    }

    #[test]
    fn other_shapes_and_types_are_refused() {
        assert!(Codes::new(words(&[1, 2], &[0; 2]), 4, Packing::Lines, [1, 8]).is_err());
        assert!(Codes::new(words(&[1, 1], &[0]), 32, Packing::Lines, [1, 1]).is_err());
        assert!(Codes::new(words(&[1, 1], &[0]), 8, Packing::Interleaved, [1, 4]).is_err());
        let floats = RawTensor::new("w", Dtype::F32, &[1, 1], Arc::new(vec![0; 4]), 0).unwrap();
        assert!(Codes::new(floats, 4, Packing::Lines, [1, 8]).is_err());
    }
}
