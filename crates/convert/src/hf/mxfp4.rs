//! MXFP4 in Hugging Face checkpoints: the codes of a block in one tensor, its scale in another.
//!
//! A GGUF block is the scale and 16 bytes: weight `j` in the low half of byte `j`, weight `16 + j`
//! in the high half. A checkpoint has weights `2 j` and `2 j + 1` in byte `j`. Codes and scales
//! have the same values in both (OCP Microscaling 1.0, section 5.3.3), so nothing is rounded.
//! Source: `convert_moe_packed_tensors` of transformers.

use atta_formats::{TensorType, decode};

use super::rows::RowMap;
use crate::{Error, RowSource, raw::RawTensor};

/// Bytes of codes in a block.
const CODES: usize = 16;

/// The rows of a matrix in MXFP4.
pub(super) struct Mxfp4 {
    /// `[n, rows, blocks, 16]`, bytes.
    pub(super) blocks: RawTensor,
    /// `[n, rows, blocks]`, bytes.
    pub(super) scales: RawTensor,
    /// Blocks per row; above 0.
    pub(super) n_blocks: usize,
    /// Maps rows to rows of the source.
    pub(super) order: RowMap,
}

impl Mxfp4 {
    /// Reads row `row` into `out`, `[n_blocks]` GGUF blocks.
    fn row(&self, row: u64, out: &mut [u8]) -> Result<(), Error> {
        let row_at = usize::try_from(self.order.source(row))
            .ok()
            .and_then(|row| row.checked_mul(self.n_blocks));
        let (codes, _) = self.blocks.bytes().as_chunks::<CODES>();
        let rows = row_at.and_then(|at| {
            let blocks = at..at.checked_add(self.n_blocks)?;
            codes
                .get(blocks.clone())
                .zip(self.scales.bytes().get(blocks))
        });
        let (codes, scales) = rows.ok_or_else(|| Error::NoRow { row }.of(self.blocks.name()))?;
        for ((out, codes), &scale) in out.chunks_mut(1 + CODES).zip(codes).zip(scales) {
            out[0] = scale;
            let code = |i: usize| codes[i / 2] >> (4 * (i % 2)) & 15;
            (0..CODES).for_each(|j| out[1 + j] = code(j) | code(CODES + j) << 4);
        }
        Ok(())
    }
}

impl RowSource for Mxfp4 {
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        let mut row = vec![0; self.n_blocks * (1 + CODES)];
        for (r, out) in (first..=u64::MAX).zip(out.chunks_mut(self.n_blocks * 2 * CODES)) {
            self.row(r, &mut row)?;
            decode(TensorType::MXFP4, &row, out)?;
        }
        Ok(())
    }

    fn packed(&self, first: u64, out: &mut [u8]) -> Result<bool, Error> {
        for (r, out) in (first..=u64::MAX).zip(out.chunks_mut(self.n_blocks * (1 + CODES))) {
            self.row(r, out)?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::Dtype;
    use std::sync::Arc;

    #[test]
    fn codes_are_repacked_to_ggufs_order() {
        let bytes = |name: &str, dims: &[u64], bytes: Vec<u8>| {
            RawTensor::new(name, Dtype::U8, dims, Arc::new(bytes), 0).unwrap()
        };
        // Two rows of one block: codes 0, 1, ... 15, 0, ... 15; and all 1.
        let codes = (0..16u8)
            .map(|j| (2 * j % 16) | ((2 * j + 1) % 16) << 4)
            .chain([0x11; 16])
            .collect();
        let rows = Mxfp4 {
            blocks: bytes("b", &[1, 2, 1, 16], codes),
            scales: bytes("s", &[1, 2, 1], vec![127, 128]),
            n_blocks: 1,
            order: RowMap::Same,
        };
        let mut packed = [0; 34];
        assert!(rows.packed(0, &mut packed).unwrap());
        assert_eq!(
            packed[..17],
            [
                127, 0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc,
                0xdd, 0xee, 0xff
            ]
        );
        let mut out = [0.0; 64];
        rows.read(0, &mut out).unwrap();
        let values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        assert_eq!(out[..8], values);
        assert_eq!(out[16..24], values);
        assert_eq!(
            out[9..16],
            values[1..].iter().map(|x| -x).collect::<Vec<_>>()[..]
        );
        assert_eq!(out[32..], [1.0; 32]);
        assert!(rows.read(2, &mut out).is_err() && rows.read(u64::MAX, &mut out[..32]).is_err());
    }
}
