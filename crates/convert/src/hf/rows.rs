//! Row sources that transform tensors of a checkpoint: permuted, stacked, transposed, or with other
//! values.

use atta_formats::TensorType;

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
    /// Behind `first` units that stay, from heads of `d` units in `n_groups` groups of `n_each` to
    /// the first head of each group, the second of each, and so on.
    InTurn {
        first: u64,
        n_groups: u64,
        n_each: u64,
        d: u64,
    },
    /// From heads of `of` units, which begin with `d_key` of a query, `d_key` of a key and
    /// `d_values` of values, to all queries, all keys, all values.
    QkvOfHeads {
        n_heads: u64,
        d_key: u64,
        d_values: u64,
        of: u64,
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
            RowMap::InTurn { first, .. } if i < first => i,
            RowMap::InTurn {
                first,
                n_groups,
                n_each,
                d,
            } => {
                let head = (i - first) / d;
                let head = head % n_groups * n_each + head / n_groups;
                first + head * d + (i - first) % d
            }
            RowMap::QkvOfHeads {
                n_heads,
                d_key,
                d_values,
                of,
            } => {
                let d_keys = n_heads * d_key;
                let at = |i: u64, d: u64, first: u64| i / d * of + first + i % d;
                match i / d_keys {
                    0 => at(i, d_key, 0),
                    1 => at(i - d_keys, d_key, d_key),
                    _ => at(i - 2 * d_keys, d_values, 2 * d_key),
                }
            }
        }
    }
}

/// A change of each weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    /// Nothing.
    None,
    /// This is added.
    Add(f32),
    /// `-exp(x)`.
    NegExp,
}

impl Change {
    fn apply(self, x: f32) -> f32 {
        match self {
            Change::None => x,
            Change::Add(offset) => x + offset,
            // In f64, whose rounding errors no f32 shows, so that no C library matters.
            Change::NegExp => -f64::from(x).exp() as f32,
        }
    }
}

/// Stacks sources of equal shape, permutes their units, and changes each weight.
pub(super) struct GatheredRows {
    pub(super) parts: Vec<SourceTensor>,
    /// Units taken from each part; above 0.
    pub(super) n_each: u64,
    /// Elements of a unit; above 0.
    pub(super) width: usize,
    /// Elements of a row of the result, a whole number of units.
    pub(super) d_row: usize,
    pub(super) order: RowMap,
    pub(super) change: Change,
    /// The type of the result.
    pub(super) ty: TensorType,
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
            out.iter_mut().for_each(|x| *x = self.change.apply(*x));
        }
        Ok(())
    }

    fn packed(&self, first: u64, out: &mut [u8]) -> Result<bool, Error> {
        let Some(row_bytes) = self.packed_row_bytes() else {
            return Ok(false);
        };
        for (row, out) in (first..=u64::MAX).zip(out.chunks_mut(row_bytes)) {
            let part = usize::try_from(row / self.n_each)
                .ok()
                .and_then(|part| self.parts.get(part));
            let part = part.ok_or(Error::NoRow { row })?;
            if !part.packed(self.order.source(row % self.n_each), out)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl GatheredRows {
    /// Bytes of a row, if rows of the parts are rows of the result.
    fn packed_row_bytes(&self) -> Option<usize> {
        let are_whole = self.change == Change::None && self.width == self.d_row;
        let is_same = |part: &SourceTensor| part.tensor_type() == self.ty;
        let row_bytes = self.ty.row_bytes(self.d_row).filter(|&n| n > 0)?;
        (are_whole && self.parts.iter().all(is_same)).then_some(row_bytes)
    }
}

/// Transposes the first `d_row` rows of each matrix of a source, `[n, n_rows, n_columns]`: columns
/// become rows.
pub(super) struct TransposedRows {
    pub(super) source: SourceTensor,
    pub(super) d_row: usize,
    pub(super) n_rows: u64,
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
            let row = matrix * self.n_rows + i as u64;
            self.source
                .floats(row * self.n_columns + start, &mut part)?;
            (0..n).for_each(|j| {
                out[j as usize * self.d_row + i] = part[(column(j) - start) as usize]
            });
        }
        Ok(())
    }
}

/// Permutes the columns of a matrix.
pub(super) struct ReorderedColumns {
    pub(super) source: SourceTensor,
    pub(super) d_row: usize,
    pub(super) order: RowMap,
}

impl RowSource for ReorderedColumns {
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        let mut stored = vec![0.0; self.d_row];
        for (row, out) in (first..=u64::MAX).zip(out.chunks_mut(self.d_row)) {
            self.source
                .floats(row.saturating_mul(self.d_row as u64), &mut stored)?;
            for (j, x) in out.iter_mut().enumerate() {
                *x = stored[self.order.source(j as u64) as usize];
            }
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
            change: Change::Add(0.5),
            ty: TensorType::F32,
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
            change: Change::None,
            ty: TensorType::F32,
        };
        assert_eq!(
            all(&rows, 4, 3),
            [0., 1., 2., 3., 4., 5., 0., 1., 2., 3., 4., 5.]
        );
    }

    /// Two heads of keys, three heads of two values for each: a0 a1 a2 b0 b1 b2 become a0 b0 a1 b1
    /// a2 b2.
    const IN_TURN: RowMap = RowMap::InTurn {
        first: 1,
        n_groups: 2,
        n_each: 3,
        d: 2,
    };

    #[test]
    fn heads_of_values_come_in_turn() {
        let rows = GatheredRows {
            parts: vec![source(&[13, 1])],
            n_each: 13,
            width: 1,
            d_row: 1,
            order: IN_TURN,
            change: Change::None,
            ty: TensorType::F32,
        };
        assert_eq!(
            all(&rows, 13, 1),
            [0., 1., 2., 7., 8., 3., 4., 9., 10., 5., 6., 11., 12.]
        );
    }

    #[test]
    fn columns_are_reordered() {
        let rows = ReorderedColumns {
            source: source(&[2, 13]),
            d_row: 13,
            order: IN_TURN,
        };
        assert_eq!(all(&rows, 2, 13)[13..18], [13., 14., 15., 20., 21.]);
    }

    #[test]
    fn queries_keys_and_values_of_heads_are_sorted() {
        // Two heads: q, k, two of v, two of the gate.
        let rows = GatheredRows {
            parts: vec![source(&[12, 1])],
            n_each: 8,
            width: 1,
            d_row: 1,
            order: RowMap::QkvOfHeads {
                n_heads: 2,
                d_key: 1,
                d_values: 2,
                of: 6,
            },
            change: Change::None,
            ty: TensorType::F32,
        };
        assert_eq!(all(&rows, 8, 1), [0., 6., 1., 7., 2., 3., 8., 9.]);
    }

    #[test]
    fn logarithms_become_negative_factors() {
        let rows = GatheredRows {
            parts: vec![source(&[3])],
            n_each: 3,
            width: 1,
            d_row: 3,
            order: RowMap::Same,
            change: Change::NegExp,
            ty: TensorType::F32,
        };
        assert_eq!(all(&rows, 1, 3), [-1.0, -2.7182817, -7.389056]);
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
            change: Change::None,
            ty: TensorType::F32,
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
            change: Change::None,
            ty: TensorType::F32,
        };
        assert_eq!(all(&rows, 2, 2), [1.0, 3.0, 5.0, 7.0]);
    }

    #[test]
    fn columns_become_rows() {
        let rows = TransposedRows {
            source: source(&[2, 3]),
            d_row: 2,
            n_rows: 2,
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
            n_rows: 2,
            n_columns: 4,
            n_each: 2,
            order,
        };
        assert_eq!(
            all(&rows, 4, 2),
            [1.0, 5.0, 3.0, 7.0, 9.0, 13.0, 11.0, 15.0]
        );
        let rows = TransposedRows {
            source: source(&[2, 3, 2]),
            d_row: 2,
            n_rows: 3,
            n_columns: 2,
            n_each: 2,
            order: RowMap::Same,
        };
        assert_eq!(all(&rows, 4, 2), [0., 2., 1., 3., 6., 8., 7., 9.]);
    }
}
