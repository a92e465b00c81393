//! Tensors that are sharded over several files by rows or columns, or replicated in each file.

use crate::{Error, RowSource, raw::RawTensor};

/// A tensor in parts of equal shape.
pub(super) struct ShardedRows {
    pub(super) parts: Vec<RawTensor>,
    pub(super) sharding: Sharding,
}

/// How a tensor is distributed over several files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sharding {
    /// Each file has the whole tensor.
    Replicated,
    /// Each file has some of the rows.
    Rows,
    /// Each file has some of the columns.
    Columns,
}

/// How parts form a tensor of these dimensions, outermost first; `None` if they do not.
pub(super) fn sharding(parts: &[RawTensor], dims: &[u64]) -> Option<Sharding> {
    let part = parts.first()?.dims();
    let n = parts.len() as u64;
    if parts.iter().any(|other| other.dims() != part) {
        return None;
    }
    match (part, dims) {
        _ if part == dims && (n == 1 || dims.len() == 1) => Some(Sharding::Replicated),
        (&[rows, columns], &[all_rows, all_columns]) => {
            match (rows.checked_mul(n), columns.checked_mul(n)) {
                (Some(rows), _) if rows == all_rows && columns == all_columns => {
                    Some(Sharding::Rows)
                }
                (_, Some(columns)) if rows == all_rows && columns == all_columns => {
                    Some(Sharding::Columns)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

impl RowSource for ShardedRows {
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        let n = self.parts.len() as u64;
        let d_part = self.parts[0].d_row();
        let d_row = if self.sharding == Sharding::Columns {
            n.saturating_mul(d_part)
        } else {
            d_part
        };
        for (i, out) in (0..).zip(out.chunks_mut((d_row as usize).max(1))) {
            self.read_row(
                first.checked_add(i).ok_or(Error::NoRow { row: first })?,
                d_part as usize,
                out,
            )?;
        }
        Ok(())
    }
}

impl ShardedRows {
    fn read_row(&self, row: u64, d_part: usize, out: &mut [f32]) -> Result<(), Error> {
        let n_rows = self.parts[0].dims()[0];
        let from = |part: &RawTensor, row: u64, out: &mut [f32]| {
            let first = row.checked_mul(d_part as u64).ok_or(Error::NoRow { row })?;
            part.floats(first, out)
        };
        match self.sharding {
            Sharding::Columns => self
                .parts
                .iter()
                .zip(out.chunks_mut(d_part))
                .try_for_each(|(part, out)| from(part, row, out)),
            Sharding::Rows | Sharding::Replicated => {
                let part = usize::try_from(row / n_rows)
                    .ok()
                    .and_then(|i| self.parts.get(i));
                from(part.ok_or(Error::NoRow { row })?, row % n_rows, out)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::raw::Dtype;

    /// A tensor with these elements.
    fn part(dims: &[u64], elements: &[u8]) -> RawTensor {
        let bytes: Vec<u8> = elements
            .iter()
            .flat_map(|&x| f32::from(x).to_le_bytes())
            .collect();
        RawTensor::new("w", Dtype::F32, dims, Arc::new(bytes), 0).unwrap()
    }

    fn two() -> Vec<RawTensor> {
        vec![
            part(&[2, 3], &[1, 2, 3, 4, 5, 6]),
            part(&[2, 3], &[11, 12, 13, 14, 15, 16]),
        ]
    }

    #[test]
    fn shapes_decide_the_sharding() {
        assert_eq!(sharding(&two(), &[4, 3]), Some(Sharding::Rows));
        assert_eq!(sharding(&two(), &[2, 6]), Some(Sharding::Columns));
        assert_eq!(
            (sharding(&two(), &[2, 3]), sharding(&two()[..1], &[2, 3])),
            (None, Some(Sharding::Replicated))
        );
        assert_eq!(
            (
                sharding(&two(), &[4, 6]),
                sharding(&two(), &[12]),
                sharding(&[], &[12])
            ),
            (None, None, None)
        );
        let vectors = [part(&[3], &[1, 2, 3]), part(&[3], &[1, 2, 3])];
        assert_eq!(
            (sharding(&vectors, &[3]), sharding(&vectors, &[6])),
            (Some(Sharding::Replicated), None)
        );
        assert_eq!(
            sharding(&[part(&[2, 3], &[0; 6]), part(&[1, 3], &[0; 3])], &[3, 3]),
            None
        );
    }

    #[test]
    fn parts_are_joined_by_rows_or_columns() {
        let read = |sharding, first, n| {
            let mut out = vec![0.0; n];
            ShardedRows {
                parts: two(),
                sharding,
            }
            .read(first, &mut out)
            .map(|()| out)
        };
        assert_eq!(
            read(Sharding::Rows, 1, 6).unwrap(),
            [4.0, 5.0, 6.0, 11.0, 12.0, 13.0]
        );
        assert_eq!(
            read(Sharding::Columns, 1, 6).unwrap(),
            [4.0, 5.0, 6.0, 14.0, 15.0, 16.0]
        );
        for row in [4, u64::MAX] {
            assert!(
                read(Sharding::Rows, row, 3).is_err() && read(Sharding::Columns, row, 6).is_err()
            );
        }
    }
}
