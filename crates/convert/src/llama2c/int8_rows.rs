//! Matrices of version 2: int8 codes, followed by one f32 scale per group. Groups are counted
//! through all rows.
//!
//! Converted to Q8_0, codes stay unchanged and scales are rounded to f16. For normal weights of
//! mean magnitude 1 in groups of 64, that costs 0.0002 on average, where rounding to int8 cost
//! 0.006. Quantizing the floats again would cost 0.0026, because each block of 32 would get its own
//! scale.

use std::ops::Range;

use atta_formats::{SharedBytes, f16};

use crate::{Error, RowSource};

/// Weights per block of Q8_0, which is an f16 scale and the codes.
const BLOCK: usize = 32;

/// The rows of an int8 matrix.
pub(super) struct Int8Rows {
    pub(super) file: SharedBytes,
    /// Byte range of the codes; the scales follow.
    pub(super) codes: Range<usize>,
    /// Weights per group, a divisor of the number of codes.
    pub(super) group: usize,
    pub(super) d_row: usize,
}

impl Int8Rows {
    /// Codes and scale of each group, or part of a group, in a range of weights.
    fn parts(&self, weights: Range<usize>) -> impl Iterator<Item = (&[u8], f32)> {
        let bytes = (*self.file).as_ref();
        let codes = &bytes[self.codes.clone()];
        let scales = &bytes[self.codes.end..];
        let groups = weights.start / self.group..weights.end.div_ceil(self.group);
        groups.map(move |g| {
            let part = (g * self.group).max(weights.start)..((g + 1) * self.group).min(weights.end);
            let scale = scales[4 * g..]
                .first_chunk()
                .expect("the length of the file was checked");
            (&codes[part], f32::from_le_bytes(*scale))
        })
    }

    /// The range of `n` weights from a row on.
    fn weights(&self, row: u64, n: usize) -> Option<Range<usize>> {
        let start = usize::try_from(row).ok()?.checked_mul(self.d_row)?;
        Some(start..start.checked_add(n)?).filter(|weights| weights.end <= self.codes.len())
    }
}

impl RowSource for Int8Rows {
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        let end = first.saturating_add((out.len() / self.d_row) as u64);
        let mut rest = out;
        for (codes, scale) in self.parts(
            self.weights(first, rest.len())
                .ok_or(Error::NoRow { row: end })?,
        ) {
            let (values, behind) = rest.split_at_mut(codes.len());
            values
                .iter_mut()
                .zip(codes)
                .for_each(|(value, &code)| *value = f32::from(code as i8) * scale);
            rest = behind;
        }
        Ok(())
    }

    fn packed(&self, first: u64, out: &mut [u8]) -> Result<bool, Error> {
        let (blocks, _) = out.as_chunks_mut::<{ 2 + BLOCK }>();
        let n = blocks.len() * BLOCK;
        let weights = self.weights(first, n).ok_or(Error::NoRow {
            row: first.saturating_add((n / self.d_row) as u64),
        })?;
        let codes = self
            .parts(weights)
            .flat_map(|(codes, scale)| codes.chunks(BLOCK).map(move |codes| (codes, scale)));
        for (block, (codes, scale)) in blocks.iter_mut().zip(codes) {
            let half = f16::f32_to_f16(scale);
            if !f16::f16_to_f32(half).is_finite() {
                return Ok(false);
            }
            block[..2].copy_from_slice(&half.to_le_bytes());
            block[2..].copy_from_slice(codes);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn groups_continue_across_rows() {
        let codes: Vec<u8> = (-6..6i8).map(|code| code as u8).collect();
        let scales: Vec<u8> = [1.0f32, 10.0, 100.0]
            .iter()
            .flat_map(|scale| scale.to_le_bytes())
            .collect();
        let file: SharedBytes = Arc::new([&[7][..], &codes, &scales].concat());
        let groups = Int8Rows {
            file,
            codes: 1..13,
            group: 4,
            d_row: 6,
        };
        let mut row = [0.0; 6];
        groups.read(1, &mut row).unwrap();
        assert_eq!(row, [0.0, 10.0, 200.0, 300.0, 400.0, 500.0]);
        assert!(matches!(
            groups.read(2, &mut row),
            Err(Error::NoRow { row: 3 })
        ));
        assert!(matches!(
            groups.read(u64::MAX, &mut row),
            Err(Error::NoRow { .. })
        ));
    }

    #[test]
    fn codes_of_a_group_are_those_of_its_blocks() {
        let codes: Vec<u8> = (0..128u8).collect();
        let scales: Vec<u8> = [0.5f32, 1e6]
            .iter()
            .flat_map(|scale| scale.to_le_bytes())
            .collect();
        let groups = Int8Rows {
            file: Arc::new([&codes[..], &scales].concat()),
            codes: 0..128,
            group: 64,
            d_row: 64,
        };
        let mut blocks = [0; 68];
        assert!(groups.packed(0, &mut blocks).unwrap());
        assert_eq!(
            (&blocks[..5], &blocks[34..38]),
            (&[0x00, 0x38, 0, 1, 2][..], &[0x00, 0x38, 32, 33][..])
        );
        let mut floats = [0.0; 64];
        let mut again = [1.0; 64];
        atta_formats::decode(atta_formats::TensorType::Q8_0, &blocks, &mut floats).unwrap();
        groups.read(0, &mut again).unwrap();
        assert_eq!(floats, again);
        // A scale that overflows f16.
        assert!(!groups.packed(1, &mut blocks).unwrap());
        assert!(groups.packed(2, &mut blocks).is_err());
    }
}
