//! Row sources that transform tensors of a checkpoint: permuted, stacked, transposed, or with an
//! offset added.

use super::source_tensor::SourceTensor;
use crate::{Error, RowSource};

/// Maps a unit of the result to a unit of the source. A unit is a row, or an element of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowMap {
    /// Identity.
    Same,
    /// From the two halves of each head of `d_head` rows to adjacent pairs.
    Pairs { d_head: u64 },
    /// Of each group of `of` units, `take` units: every `step`th from `first` on.
    Part {
        take: u64,
        of: u64,
        first: u64,
        step: u64,
    },
}

impl RowMap {
    /// The unit of the source for unit `i` of the result.
    pub(super) fn source(self, i: u64) -> u64 {
        match self {
            RowMap::Same => i,
            RowMap::Pairs { d_head } => {
                let head = i / d_head;
                let j = i % d_head;
                head * d_head + (j % 2) * (d_head / 2) + j / 2
            }
            RowMap::Part {
                take,
                of,
                first,
                step,
            } => i / take * of + first + i % take * step,
        }
    }
}

/// Stacks sources of equal shape, permutes their units, and adds an offset.
pub(super) struct GatheredRows {
    pub(super) parts: Vec<SourceTensor>,
    /// Units taken from each part; above 0.
    pub(super) n_each: u64,
    /// Elements of a unit; above 0.
    pub(super) width: usize,
    /// Elements of a row of the result, a whole number of units.
    pub(super) d_row: usize,
    pub(super) order: RowMap,
    /// Added to each weight.
    pub(super) offset: f32,
}

impl RowSource for GatheredRows {
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        let unit = first.saturating_mul((self.d_row / self.width) as u64);
        for (unit, out) in (unit..=u64::MAX).zip(out.chunks_mut(self.width)) {
            let part = usize::try_from(unit / self.n_each)
                .ok()
                .and_then(|part| self.parts.get(part));
            let part = part.ok_or(Error::NoRow { row: first })?;
            part.floats(
                self.order.source(unit % self.n_each) * self.width as u64,
                out,
            )?;
            // Adding 0 would turn -0 into 0.
            if self.offset != 0.0 {
                out.iter_mut().for_each(|x| *x += self.offset);
            }
        }
        Ok(())
    }
}

/// Transposes a source, `[n, d_row, n_columns]` or `[d_row, n_columns]`: columns become rows.
pub(super) struct TransposedRows {
    pub(super) source: SourceTensor,
    pub(super) d_row: usize,
    pub(super) n_columns: u64,
    /// Rows taken from each of the `n` matrices; above 0.
    pub(super) n_each: u64,
    /// Maps rows to columns of the source; ascending.
    pub(super) order: RowMap,
}

impl RowSource for TransposedRows {
    fn read(&self, mut first: u64, mut out: &mut [f32]) -> Result<(), Error> {
        while !out.is_empty() {
            // The rows of one matrix.
            let n = (self.n_each - first % self.n_each).min((out.len() / self.d_row) as u64);
            let (now, rest) = out.split_at_mut(n as usize * self.d_row);
            self.read_some(first, n, now)?;
            (first, out) = (first + n, rest);
        }
        Ok(())
    }
}

impl TransposedRows {
    /// Reads `n` rows of one matrix. Of each source row, only the range of columns that they need
    /// is read.
    fn read_some(&self, first: u64, n: u64, out: &mut [f32]) -> Result<(), Error> {
        let matrix = first / self.n_each;
        let from = first % self.n_each;
        let column = |j: u64| self.order.source(from + j);
        let start = column(0);
        let mut part = vec![0.0; (column(n - 1) + 1 - start) as usize];
        for i in 0..self.d_row {
            let row = matrix * self.d_row as u64 + i as u64;
            self.source
                .floats(row * self.n_columns + start, &mut part)?;
            (0..n).for_each(|j| {
                out[j as usize * self.d_row + i] = part[(column(j) - start) as usize]
            });
        }
        Ok(())
    }
}

/// A computed vector.
pub(super) struct ConstantRows(pub(super) Vec<f32>);

impl RowSource for ConstantRows {
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        if first > 0 || out.len() != self.0.len() {
            return Err(Error::NoRow { row: first.max(1) });
        }
        out.copy_from_slice(&self.0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::{Dtype, RawTensor};
    use std::sync::Arc;

    /// A tensor of 0, 1, 2 ...
    fn source(dims: &[u64]) -> SourceTensor {
        let n = dims.iter().product::<u64>() as u16;
        let bytes: Vec<u8> = (0..n).flat_map(|i| f32::from(i).to_le_bytes()).collect();
        SourceTensor::Plain(RawTensor::new("w", Dtype::F32, dims, Arc::new(bytes), 0).unwrap())
    }

    /// Reads all rows at once, and checks that reading them one by one gives the same.
    fn all(rows: &dyn RowSource, n_rows: usize, d_row: usize) -> Vec<f32> {
        let mut whole = vec![0.0; n_rows * d_row];
        let mut ones = vec![0.0; n_rows * d_row];
        rows.read(0, &mut whole).unwrap();
        ones.chunks_mut(d_row)
            .enumerate()
            .for_each(|(r, row)| rows.read(r as u64, row).unwrap());
        assert_eq!(whole, ones);
        assert!(rows.read(n_rows as u64, &mut ones[..d_row]).is_err());
        whole
    }

    #[test]
    fn halves_of_heads_become_pairs() {
        let parts = vec![source(&[8, 1])];
        let rows = GatheredRows {
            parts,
            n_each: 8,
            width: 1,
            d_row: 1,
            order: RowMap::Pairs { d_head: 4 },
            offset: 0.5,
        };
        assert_eq!(all(&rows, 8, 1), [0.5, 2.5, 1.5, 3.5, 4.5, 6.5, 5.5, 7.5]);
    }

    #[test]
    fn experts_are_stacked() {
        let parts = vec![source(&[2, 3]), source(&[2, 3])];
        let rows = GatheredRows {
            parts,
            n_each: 2,
            width: 3,
            d_row: 3,
            order: RowMap::Same,
            offset: 0.0,
        };
        assert_eq!(
            all(&rows, 4, 3),
            [0., 1., 2., 3., 4., 5., 0., 1., 2., 3., 4., 5.]
        );
    }

    #[test]
    fn gate_or_up_is_taken_from_a_joined_tensor() {
        let up = RowMap::Part {
            take: 2,
            of: 4,
            first: 2,
            step: 1,
        };
        let rows = GatheredRows {
            parts: vec![source(&[2, 4, 1])],
            n_each: 4,
            width: 1,
            d_row: 1,
            order: up,
            offset: 0.0,
        };
        assert_eq!(all(&rows, 4, 1), [2.0, 3.0, 6.0, 7.0]);
        let every_second = RowMap::Part {
            take: 2,
            of: 4,
            first: 1,
            step: 2,
        };
        let rows = GatheredRows {
            parts: vec![source(&[2, 4])],
            n_each: 4,
            width: 1,
            d_row: 2,
            order: every_second,
            offset: 0.0,
        };
        assert_eq!(all(&rows, 2, 2), [1.0, 3.0, 5.0, 7.0]);
    }

    #[test]
    fn columns_become_rows() {
        let rows = TransposedRows {
            source: source(&[2, 3]),
            d_row: 2,
            n_columns: 3,
            n_each: 3,
            order: RowMap::Same,
        };
        assert_eq!(all(&rows, 3, 2), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let order = RowMap::Part {
            take: 2,
            of: 4,
            first: 1,
            step: 2,
        };
        let rows = TransposedRows {
            source: source(&[2, 2, 4]),
            d_row: 2,
            n_columns: 4,
            n_each: 2,
            order,
        };
        assert_eq!(
            all(&rows, 4, 2),
            [1.0, 5.0, 3.0, 7.0, 9.0, 13.0, 11.0, 15.0]
        );
    }
}
