//! A tensor of which each file has a part: some of its rows, some of its columns, or all of it.

use crate::{Error, Rows, raw::RawTensor};

/// A matrix in parts of equal shape.
pub(super) struct Joined {
    pub(super) parts: Vec<RawTensor>,
    pub(super) cut: Cut,
}

/// How a tensor lies in several files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cut {
    /// Each file has all of it.
    Copies,
    /// Each file has some of the rows.
    Rows,
    /// Each file has some of the columns.
    Columns,
}

/// How parts make a tensor of these dimensions, outermost first; `None`: they do not.
pub(super) fn cut(parts: &[RawTensor], dims: &[u64]) -> Option<Cut> {
    let part = parts.first()?.dims();
    let n = parts.len() as u64;
    if parts.iter().any(|other| other.dims() != part) {
        return None;
    }
    match (part, dims) {
        _ if part == dims && (n == 1 || dims.len() == 1) => Some(Cut::Copies),
        (&[rows, columns], &[all_rows, all_columns]) => {
            match (rows.checked_mul(n), columns.checked_mul(n)) {
                (Some(rows), _) if rows == all_rows && columns == all_columns => Some(Cut::Rows),
                (_, Some(columns)) if rows == all_rows && columns == all_columns => {
                    Some(Cut::Columns)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

impl Rows for Joined {
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        let n = self.parts.len() as u64;
        let d_part = self.parts[0].d_row();
        let d_row = if self.cut == Cut::Columns {
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

impl Joined {
    fn read_row(&self, row: u64, d_part: usize, out: &mut [f32]) -> Result<(), Error> {
        let n_rows = self.parts[0].dims()[0];
        let from = |part: &RawTensor, row: u64, out: &mut [f32]| {
            let first = row.checked_mul(d_part as u64).ok_or(Error::NoRow { row })?;
            part.floats(first, out)
        };
        match self.cut {
            Cut::Columns => self
                .parts
                .iter()
                .zip(out.chunks_mut(d_part))
                .try_for_each(|(part, out)| from(part, row, out)),
            Cut::Rows | Cut::Copies => {
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

    /// A part with these elements.
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
    fn shapes_say_how_a_matrix_was_cut() {
        assert_eq!(cut(&two(), &[4, 3]), Some(Cut::Rows));
        assert_eq!(cut(&two(), &[2, 6]), Some(Cut::Columns));
        assert_eq!(
            (cut(&two(), &[2, 3]), cut(&two()[..1], &[2, 3])),
            (None, Some(Cut::Copies))
        );
        assert_eq!(
            (cut(&two(), &[4, 6]), cut(&two(), &[12]), cut(&[], &[12])),
            (None, None, None)
        );
        let vectors = [part(&[3], &[1, 2, 3]), part(&[3], &[1, 2, 3])];
        assert_eq!(
            (cut(&vectors, &[3]), cut(&vectors, &[6])),
            (Some(Cut::Copies), None)
        );
        assert_eq!(
            cut(&[part(&[2, 3], &[0; 6]), part(&[1, 3], &[0; 3])], &[3, 3]),
            None
        );
    }

    #[test]
    fn parts_are_put_below_or_beside_each_other() {
        let read = |cut, first, n| {
            let mut out = vec![0.0; n];
            Joined { parts: two(), cut }
                .read(first, &mut out)
                .map(|()| out)
        };
        assert_eq!(
            read(Cut::Rows, 1, 6).unwrap(),
            [4.0, 5.0, 6.0, 11.0, 12.0, 13.0]
        );
        assert_eq!(
            read(Cut::Columns, 1, 6).unwrap(),
            [4.0, 5.0, 6.0, 14.0, 15.0, 16.0]
        );
        for row in [4, u64::MAX] {
            assert!(read(Cut::Rows, row, 3).is_err() && read(Cut::Columns, row, 6).is_err());
        }
    }
}
