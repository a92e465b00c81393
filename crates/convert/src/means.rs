//! The mean row of an embedding or a head: taken out of tables in T2, T3 or T4, and put back when
//! such a table becomes another type.
//!
//! It refuses to know how a model adds the row again. The one idea: rows of a table have much in
//! common, a quarter to a half of its energy in small models, and it costs a vector and a product
//! per token to keep that apart, exactly. All-zero rows, which pad a vocabulary, do not count and
//! stay as they are in the sum.

use std::sync::Arc;

use atta_formats::{TensorType, layout::Trellis};

use crate::{Checkpoint, Error, MappedRows, Plan, RowSource, Tensor};

/// The tables, and the tensors of their mean rows.
const MEANS: [(&str, &str); 2] = [
    ("output.weight", "output.mean"),
    ("token_embd.weight", "token_embd.mean"),
];
/// Weights that are read at once.
const CHUNK_WEIGHTS: usize = 1 << 20;

/// The name of the mean row of a table, if its mean may be apart.
pub(crate) fn mean_of(table: &str) -> Option<&'static str> {
    let found = MEANS.iter().find(|(of, _)| *of == table);
    found.map(|(_, mean)| *mean)
}

/// The table that a tensor belongs to: that of a mean row, else itself.
pub(crate) fn table_of(name: &str) -> &str {
    let found = MEANS.iter().find(|(_, mean)| *mean == name);
    found.map_or(name, |(table, _)| table)
}

/// A table plus or less a row.
struct ShiftedRows {
    rows: Box<dyn RowSource>,
    /// Added to every row, `[d_row]`.
    shift: Vec<f32>,
}

impl RowSource for ShiftedRows {
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        self.rows.read(first, out)?;
        for row in out.chunks_exact_mut(self.shift.len()) {
            row.iter_mut().zip(&self.shift).for_each(|(x, m)| *x += m);
        }
        Ok(())
    }
}

/// Takes the mean rows out of tables that `plan` makes T2, T3 or T4, and puts those back that the
/// checkpoint has apart of tables that it makes another type. Returns whether it changed anything,
/// so that another plan must be made.
///
/// # Errors
/// Rows that cannot be read, or weights that are not finite.
pub fn separate_means(checkpoint: &mut Checkpoint, plan: &Plan) -> Result<bool, Error> {
    let mut is_changed = false;
    for (table, mean) in MEANS {
        let Some(at) = position(checkpoint, table) else {
            continue;
        };
        let step = plan.steps.iter().find(|step| step.tensor == at);
        let is_own = step.is_some_and(|step| Trellis::of(step.ty).is_some());
        let is_kept = step.is_some_and(|step| step.ty == checkpoint.tensors[at].ty);
        let of = checkpoint.tensors[at].name.clone();
        let done = match position(checkpoint, mean) {
            None if is_own && !is_kept => take_out(checkpoint, at, mean),
            Some(apart) if !is_own => put_back(checkpoint, [at, apart]),
            _ => continue,
        };
        done.map_err(|error| error.of(&of))?;
        is_changed = true;
    }
    Ok(is_changed)
}

fn position(checkpoint: &Checkpoint, name: &str) -> Option<usize> {
    checkpoint
        .tensors
        .iter()
        .position(|tensor| tensor.name == name)
}

/// Subtracts the mean row of table `at` from it, and adds it as a tensor.
fn take_out(checkpoint: &mut Checkpoint, at: usize, name: &str) -> Result<(), Error> {
    let mean = mean_row(&checkpoint.tensors[at])?;
    let bytes: Vec<u8> = mean.iter().flat_map(|m| m.to_le_bytes()).collect();
    let dims = vec![mean.len() as u64];
    let rows = MappedRows::new(Arc::new(bytes), 0, &dims, TensorType::F32)?;
    shift(
        &mut checkpoint.tensors[at],
        mean.iter().map(|m| -m).collect(),
    );
    checkpoint.tensors.insert(
        at + 1,
        Tensor {
            name: name.to_owned(),
            dims,
            ty: TensorType::F32,
            rows: Box::new(rows),
        },
    );
    Ok(())
}

/// Adds the mean row, the second tensor, to the table, the first one, and removes it.
fn put_back(checkpoint: &mut Checkpoint, [at, apart]: [usize; 2]) -> Result<(), Error> {
    let d = checkpoint.tensors[at].d_row();
    let mean = &checkpoint.tensors[apart];
    if mean.dims != [d] {
        return Err(Error::Shape {
            dims: mean.dims.clone(),
            ty: mean.ty,
        });
    }
    let mut row = vec![0.0; d as usize];
    mean.rows.read(0, &mut row)?;
    shift(&mut checkpoint.tensors[at], row);
    checkpoint.tensors.remove(apart);
    Ok(())
}

fn shift(table: &mut Tensor, shift: Vec<f32>) {
    let rows = std::mem::replace(&mut table.rows, Box::new(NoRows));
    table.rows = Box::new(ShiftedRows { rows, shift });
}

/// In the place of rows that are moved.
struct NoRows;

impl RowSource for NoRows {
    fn read(&self, first: u64, _: &mut [f32]) -> Result<(), Error> {
        Err(Error::NoRow { row: first })
    }
}

/// The mean of all rows that are not all zeros, summed in f64 in order.
fn mean_row(table: &Tensor) -> Result<Vec<f32>, Error> {
    let d = table.d_row() as usize;
    let n_at_once = (CHUNK_WEIGHTS / d.max(1)).max(1) as u64;
    let mut sums = vec![0.0; d];
    let mut n = 0_u64;
    let mut first = 0;
    while first < table.n_rows() {
        let n_rows = n_at_once.min(table.n_rows() - first);
        let mut rows = vec![0.0; n_rows as usize * d];
        table.rows.read(first, &mut rows)?;
        for row in rows
            .chunks_exact(d)
            .filter(|row| row.iter().any(|x| *x != 0.0))
        {
            sums.iter_mut()
                .zip(row)
                .for_each(|(sum, x)| *sum += f64::from(*x));
            n += 1;
        }
        first += n_rows;
    }
    let mean: Vec<f32> = sums
        .iter()
        .map(|sum| (sum / n.max(1) as f64) as f32)
        .collect();
    match mean.iter().position(|m| !m.is_finite()) {
        Some(at) => Err(Error::NotFinite {
            at,
            value: mean[at],
        }),
        None => Ok(mean),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mix, TypeSelection};
    use atta_formats::Writer;

    /// A tied model with an embedding of four rows of 32, the last one of zeros.
    fn checkpoint() -> Checkpoint {
        let weight = |i: usize| (i / 32 * 2 + i % 32 + 1) as f32;
        let weights = (0..128).map(|i| if i < 96 { weight(i) } else { 0.0 });
        let bytes: Vec<u8> = weights.flat_map(f32::to_le_bytes).collect();
        let rows = MappedRows::new(Arc::new(bytes), 0, &[4, 32], TensorType::F32).unwrap();
        Checkpoint {
            metadata: Writer::new(),
            tensors: vec![Tensor {
                name: "token_embd.weight".to_owned(),
                dims: vec![4, 32],
                ty: TensorType::F32,
                rows: Box::new(rows),
            }],
            files: Vec::new(),
        }
    }

    fn plan(checkpoint: &Checkpoint, mix: &str) -> Plan {
        let types = TypeSelection {
            mix: Mix::named(mix),
            ..TypeSelection::default()
        };
        Plan::new(checkpoint, &types, None).unwrap()
    }

    fn row(tensor: &Tensor, i: u64) -> Vec<f32> {
        let mut row = vec![0.0; 32];
        tensor.rows.read(i, &mut row).unwrap();
        row
    }

    #[test]
    fn the_mean_of_a_table_in_an_own_type_is_a_tensor_of_its_own() {
        let mut checkpoint = checkpoint();
        let of_t4 = plan(&checkpoint, "t4");
        assert!(separate_means(&mut checkpoint, &of_t4).unwrap());
        let [table, mean] = &checkpoint.tensors[..] else {
            panic!("{checkpoint:?}")
        };
        assert_eq!(
            (mean.name.as_str(), &mean.dims[..]),
            ("token_embd.mean", &[32][..])
        );
        // The row of zeros does not count.
        assert_eq!(row(mean, 0)[..2], [3.0, 4.0]);
        assert_eq!((row(table, 0)[0], row(table, 2)[31]), (-2.0, 2.0));
        assert_eq!(row(table, 3)[0], -3.0);
        let of_t4 = plan(&checkpoint, "t4");
        assert!(!separate_means(&mut checkpoint, &of_t4).unwrap());
    }

    #[test]
    fn other_types_have_the_mean_in_the_table() {
        let mut checkpoint = checkpoint();
        let before = row(&checkpoint.tensors[0], 1);
        let of_q8 = plan(&checkpoint, "q8_0");
        assert!(!separate_means(&mut checkpoint, &of_q8).unwrap());
        let of_t4 = plan(&checkpoint, "t4");
        assert!(separate_means(&mut checkpoint, &of_t4).unwrap());
        let of_q8 = plan(&checkpoint, "q8_0");
        assert!(separate_means(&mut checkpoint, &of_q8).unwrap());
        assert_eq!(checkpoint.tensors.len(), 1);
        assert_eq!(row(&checkpoint.tensors[0], 1), before);
    }
}
