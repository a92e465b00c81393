//! NVFP4 in checkpoints of modelopt and compressed-tensors: codes of four bits, a scale of eight
//! bits for every 16 of them, and one factor for the whole matrix.
//!
//! A GGUF block has four scales, then 8 bytes for each: weight `j` in the low half of byte `j`,
//! weight `8 + j` in the high half. A checkpoint has weights `2 j` and `2 j + 1` in byte `j`. The
//! factor becomes a tensor of its own beside the matrix, so that nothing is rounded. Source:
//! `pack_fp4_to_uint8` of compressed-tensors.

use atta_formats::TensorType;

use super::{expect, two_dims};
use crate::{
    Error,
    raw::{Dtype, RawTensor},
};

/// Weights with a scale.
const GROUP: u64 = 16;

/// Weights of a GGUF block, and its bytes.
const BLOCK: u64 = 64;
const BLOCK_BYTES: usize = 36;

/// The magnitudes of the lower three bits of a code; the fourth is the sign.
const MAGNITUDES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The first byte that is no scale of GGUF: not a number, and above it negative ones.
const NO_SCALE: u8 = 0x7f;

/// `w[r, c] = factor scale[r, c / 16] code[r, c]`.
pub(crate) struct Nvfp4Matrix {
    /// `[n_rows, n_columns / 2]`, bytes.
    codes: RawTensor,
    /// `[n_rows, n_columns / 16]`, floats of 8 bits.
    scales: RawTensor,
    factor: f32,
    n_columns: u64,
    /// Whether blocks of GGUF hold codes and scales.
    fits: bool,
    /// Whether the weights lack the factor, which is elsewhere.
    is_without_factor: bool,
}

impl Nvfp4Matrix {
    /// A matrix of these parts.
    ///
    /// # Errors
    /// Parts of other types or shapes.
    pub(super) fn new(codes: RawTensor, scales: RawTensor, factor: f32) -> Result<Self, Error> {
        codes.expect_bytes()?;
        if scales.dtype() != Dtype::F8E4M3 {
            let dtype = scales.dtype();
            return Err(Error::Words { dtype }.of(scales.name()));
        }
        let [n_rows, n_bytes] = two_dims(&codes)?;
        let n_columns = n_bytes.saturating_mul(2);
        expect(&scales, &[n_rows, n_columns.div_ceil(GROUP)])?;
        let is_whole = n_columns.is_multiple_of(BLOCK);
        Ok(Self {
            fits: is_whole && scales.bytes().iter().all(|&scale| scale < NO_SCALE),
            codes,
            scales,
            factor,
            n_columns,
            is_without_factor: false,
        })
    }

    /// Rows and columns.
    pub(crate) fn dims(&self) -> [u64; 2] {
        [self.codes.dims()[0], self.n_columns]
    }

    /// The name of the tensor with the codes.
    pub(crate) fn name(&self) -> &str {
        self.codes.name()
    }

    /// Takes the factor out of the weights.
    pub(crate) fn split_factor(&mut self) -> f32 {
        self.is_without_factor = true;
        self.factor
    }

    /// The type that holds exactly these weights.
    pub(crate) fn tensor_type(&self) -> TensorType {
        match self.is_without_factor && self.fits {
            true => TensorType::NVFP4,
            false => TensorType::F32,
        }
    }

    /// Reads weights, from `first` on, into `out`.
    pub(crate) fn floats(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        let factor = if self.is_without_factor {
            1.0
        } else {
            self.factor
        };
        let d = self.n_columns.max(1);
        let n_groups = d.div_ceil(GROUP);
        let mut scales = vec![0.0; usize::try_from(n_groups).unwrap_or(0)];
        let mut at = None;
        for (i, x) in (first..=u64::MAX).zip(out) {
            let row = i / d;
            let c = i % d;
            if at != Some(row) {
                self.scales
                    .floats(row.saturating_mul(n_groups), &mut scales)?;
                at = Some(row);
            }
            *x = value(self.code(row, c)?) * scales[(c / GROUP) as usize] * factor;
        }
        Ok(())
    }

    /// Reads a row into `out` in the blocks of GGUF.
    pub(crate) fn packed(&self, row: u64, out: &mut [u8]) -> Result<(), Error> {
        for (b, block) in (0..).zip(out.chunks_mut(BLOCK_BYTES)) {
            let (scales, codes) = block.split_at_mut(4);
            for (g, (scale, codes)) in (4 * b..).zip(scales.iter_mut().zip(codes.chunks_mut(8))) {
                *scale = self.scale_byte(row, g)?;
                for (c, pair) in (GROUP * g..).zip(codes) {
                    *pair = self.code(row, c)? | self.code(row, c + GROUP / 2)? << 4;
                }
            }
        }
        Ok(())
    }

    fn code(&self, row: u64, column: u64) -> Result<u8, Error> {
        let at = row.saturating_mul(self.n_columns / 2) + column / 2;
        let byte = byte(&self.codes, at).ok_or_else(|| Error::NoRow { row }.of(self.name()))?;
        Ok(byte >> (4 * (column % 2)) & 15)
    }

    fn scale_byte(&self, row: u64, group: u64) -> Result<u8, Error> {
        let at = row.saturating_mul(self.n_columns.div_ceil(GROUP)) + group;
        byte(&self.scales, at).ok_or_else(|| Error::NoRow { row }.of(self.scales.name()))
    }
}

fn byte(raw: &RawTensor, at: u64) -> Option<u8> {
    raw.bytes().get(usize::try_from(at).ok()?).copied()
}

fn value(code: u8) -> f32 {
    let magnitude = MAGNITUDES[usize::from(code & 7)];
    if code < 8 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atta_formats::decode;
    use std::sync::Arc;

    fn tensor(dtype: Dtype, dims: &[u64], bytes: Vec<u8>) -> RawTensor {
        RawTensor::new("w", dtype, dims, Arc::new(bytes), 0).unwrap()
    }

    /// Two rows of one block, with all codes.
    fn matrix(scales: Vec<u8>) -> Nvfp4Matrix {
        let codes = (0..64u8).map(|i| i.wrapping_mul(37)).collect();
        let scales = tensor(Dtype::F8E4M3, &[2, 4], scales);
        Nvfp4Matrix::new(tensor(Dtype::U8, &[2, 32], codes), scales, 0.5).unwrap()
    }

    const SCALES: [u8; 8] = [0x38, 0x40, 1, 0x7e, 0, 8, 0x33, 0x5c];

    fn all(matrix: &Nvfp4Matrix) -> [f32; 128] {
        let mut all = [0.0; 128];
        matrix.floats(0, &mut all).unwrap();
        all
    }

    #[test]
    fn the_factor_is_in_the_weights_until_it_is_split_off() {
        let mut matrix = matrix(SCALES.to_vec());
        assert_eq!(matrix.tensor_type(), TensorType::F32);
        let whole = all(&matrix);
        assert_eq!(matrix.split_factor(), 0.5);
        assert_eq!(matrix.tensor_type(), TensorType::NVFP4);
        assert_eq!(all(&matrix).map(|x| x * 0.5), whole);
    }

    #[test]
    fn blocks_hold_the_weights_without_the_factor() {
        let mut matrix = matrix(SCALES.to_vec());
        matrix.split_factor();
        for (row, floats) in all(&matrix).chunks(64).enumerate() {
            let mut block = [0; BLOCK_BYTES];
            matrix.packed(row as u64, &mut block).unwrap();
            let mut decoded = [0.0; 64];
            decode(TensorType::NVFP4, &block, &mut decoded).unwrap();
            assert_eq!(decoded[..], *floats);
        }
        assert!(matrix.packed(2, &mut [0; BLOCK_BYTES]).is_err());
        assert!(matrix.floats(128, &mut [0.0]).is_err());
    }

    #[test]
    fn scales_below_zero_are_not_for_blocks() {
        let mut matrix = matrix(vec![0x38, 0x40, 0x81, 0x7e, 0, 8, 0x33, 0x5c]);
        matrix.split_factor();
        assert_eq!(matrix.tensor_type(), TensorType::F32);
    }

    #[test]
    fn parts_of_other_shapes_are_refused() {
        let codes = || tensor(Dtype::U8, &[2, 32], vec![0; 64]);
        let scales = tensor(Dtype::F8E4M3, &[2, 2], vec![0; 4]);
        assert!(Nvfp4Matrix::new(codes(), scales, 1.0).is_err());
        let scales = tensor(Dtype::U8, &[2, 4], vec![0; 8]);
        assert!(Nvfp4Matrix::new(codes(), scales, 1.0).is_err());
    }
}
