//! Merges LoRA adapters into the weights of a checkpoint: `W + s B A`, row by row as rows are read.
//!
//! The sum is f32, whatever the types before and after; the writer quantizes it. This file knows
//! the rows that an adapter changes, and no format of weights.

use std::{collections::HashSet, ops::Range, path::Path, sync::Arc};

use atta_formats::TensorType;
use atta_model::{Adapter, MatrixChange, Role, Sensitivity, TensorReq, arch};
use atta_store::{Budget, MappedFile, ModelFiles};

use crate::{Checkpoint, Error, RowSource, Tensor};

/// The key of the names and scales of the adapters that were merged into a file.
const MERGED: &str = "atta.merged";

/// Merges an adapter, a GGUF file, at a scale. Removes measurements of the model without it. Adds
/// warnings for the user to `notes`.
///
/// # Errors
/// A file that is no adapter for the model, and a matrix that the checkpoint has not alone: a head
/// that is the embedding.
pub fn merge(
    checkpoint: &mut Checkpoint,
    path: &Path,
    scale: f32,
    notes: &mut Vec<String>,
) -> Result<(), Error> {
    let Opened { adapter, reqs } = Opened::open(checkpoint, path)?;
    let mut left: HashSet<_> = adapter.matrices().collect();
    check_tied(checkpoint, &left).map_err(|why| wrong(path, why))?;
    let names: HashSet<String> = checkpoint.tensors.iter().map(|t| t.name.clone()).collect();
    let mut n_quantized = 0;
    for tensor in &mut checkpoint.tensors {
        let parts = parts(tensor, &reqs, &adapter, scale);
        if parts.is_empty() {
            continue;
        }
        check_scale(tensor, &names).map_err(|why| wrong(path, why))?;
        for part in &parts {
            left.remove(&(part.role, part.layer));
        }
        n_quantized += usize::from(!is_float(tensor.ty));
        add_parts(tensor, parts);
    }
    if n_quantized > 0 {
        notes.push(format!(
            "{n_quantized} merged tensors were quantized already, and errors add up: start from \
             F16, BF16 or F32 if you can"
        ));
    }
    Sensitivity::remove(&mut checkpoint.metadata);
    record(checkpoint, path, scale)?;
    match left.iter().map(|(role, _)| role.name()).min() {
        Some(name) => {
            let why = format!("{name}: the model's file has no tensor of its own for it");
            Err(wrong(path, why))
        }
        None => Ok(()),
    }
}

fn wrong(path: &Path, why: impl ToString) -> Error {
    Error::File {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

/// An adapter, and the tensors of its model.
struct Opened {
    adapter: Adapter,
    reqs: Vec<TensorReq>,
}

impl Opened {
    /// Reads an adapter for the model of a checkpoint.
    fn open(checkpoint: &Checkpoint, path: &Path) -> Result<Self, Error> {
        let metadata = checkpoint.describe()?.metadata;
        let spec = arch::lower(&metadata)?;
        let files = ModelFiles::open(path).map_err(|error| wrong(path, error))?;
        let architecture = metadata.shown("general.architecture");
        let adapter = Adapter::load(&spec, &architecture, &files, &Budget::unlimited());
        Ok(Self {
            adapter: adapter.map_err(|error| wrong(path, error))?,
            reqs: spec.tensors(),
        })
    }
}

/// Adds changes to the rows of a tensor.
fn add_parts(tensor: &mut Tensor, parts: Vec<MergedPart>) {
    let nothing: Box<dyn RowSource> = Box::new(NoRows);
    let base = std::mem::replace(&mut tensor.rows, nothing);
    tensor.rows = Box::new(MergedRows {
        base,
        parts,
        d_row: tensor.d_row() as usize,
        n_rows: n_matrix_rows(tensor),
    });
}

/// Rows of the matrix, or of that of each expert.
fn n_matrix_rows(tensor: &Tensor) -> u64 {
    tensor.dims.iter().rev().nth(1).copied().unwrap_or(1)
}

fn is_float(ty: TensorType) -> bool {
    matches!(ty, TensorType::F32 | TensorType::F16 | TensorType::BF16)
}

/// Records the adapter: in the metadata, for people, and among the files that the bytes depend on.
fn record(checkpoint: &mut Checkpoint, path: &Path, scale: f32) -> Result<(), Error> {
    let metadata = checkpoint.describe()?.metadata;
    let before = metadata.strs(MERGED)?;
    let before = before.iter().flat_map(|all| all.iter());
    let mut all: Vec<Vec<u8>> = before.map(<[u8]>::to_vec).collect();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    all.push(format!("{name}:{scale}").into_bytes());
    checkpoint.metadata.set_strs(MERGED, &all);
    let file = MappedFile::open(path).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })?;
    checkpoint.files.push((path.to_owned(), Arc::new(file)));
    Ok(())
}

/// Refuses a change of an embedding that is the head, too: the merged file would change both.
fn check_tied(
    checkpoint: &Checkpoint,
    changed: &HashSet<(Role, Option<usize>)>,
) -> Result<(), String> {
    let has = |name: &str| checkpoint.tensors.iter().any(|tensor| tensor.name == name);
    let is_tied = !has(Role::Output.name());
    match is_tied && changed.contains(&(Role::TokenEmbd, None)) {
        true => Err(format!(
            "{}: the model's head is its embedding, and the adapter changes the embedding alone",
            Role::TokenEmbd.name()
        )),
        false => Ok(()),
    }
}

/// Refuses a matrix whose products are multiplied by a tensor of the file.
fn check_scale(tensor: &Tensor, names: &HashSet<String>) -> Result<(), String> {
    let stem = tensor.name.strip_suffix("weight").unwrap_or(&tensor.name);
    match names.contains(&format!("{stem}scale")) {
        true => Err(format!("{}: the file has a scale for it", tensor.name)),
        false => Ok(()),
    }
}

/// The rows of a tensor that an adapter changes.
struct MergedPart {
    role: Role,
    layer: Option<usize>,
    /// Of each expert.
    rows: Range<u64>,
    change: MatrixChange,
}

/// The changes of a tensor: of the matrix that it is, or of each that is a part of it.
fn parts(tensor: &Tensor, reqs: &[TensorReq], adapter: &Adapter, scale: f32) -> Vec<MergedPart> {
    let n_rows = n_matrix_rows(tensor);
    let rows_of = |req: &TensorReq| {
        let fused = req.fused_in.as_ref().filter(|fused| {
            let is_it = req.fused_name().as_deref() == Some(&tensor.name);
            is_it && n_rows == fused.n_rows as u64
        });
        match fused {
            Some(fused) => Some(fused.rows.start as u64..fused.rows.end as u64),
            None => (req.name() == tensor.name).then_some(0..n_rows),
        }
    };
    let part = |req: &TensorReq| {
        let rows = rows_of(req)?;
        let change = adapter.change(req.role, req.layer, req.shape[0], scale)?;
        Some(MergedPart {
            role: req.role,
            layer: req.layer,
            rows,
            change,
        })
    };
    reqs.iter().filter_map(part).collect()
}

/// The rows of a tensor with the changes added.
struct MergedRows {
    base: Box<dyn RowSource>,
    parts: Vec<MergedPart>,
    d_row: usize,
    /// Of each expert.
    n_rows: u64,
}

impl RowSource for MergedRows {
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        self.base.read(first, out)?;
        for (row, out) in (first..).zip(out.chunks_exact_mut(self.d_row.max(1))) {
            let expert = row / self.n_rows.max(1);
            let row = row % self.n_rows.max(1);
            for part in self.parts.iter().filter(|part| part.rows.contains(&row)) {
                let row = (row - part.rows.start) as usize;
                part.change.add_to_row(expert as usize, row, out);
            }
        }
        Ok(())
    }
}

/// Stands for rows that are moved.
struct NoRows;

impl RowSource for NoRows {
    fn read(&self, row: u64, _: &mut [f32]) -> Result<(), Error> {
        Err(Error::NoRow { row })
    }
}
