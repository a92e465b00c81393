//! Reads and writes QSF files: as a checkpoint, and from one.
//!
//! A plain file keeps every byte on its way through a GGUF file and back: blocks stay as they are
//! under types of their own, and all else is metadata (`keep`). Other models are written with the
//! extension, by which the GGUF metadata and all tensors come back. Of a llama, rows of queries and
//! keys are in Hugging Face's order in QSF files; they go back to GGUF's where llama.cpp could read
//! the result (`order`). Layers that are compressed are decompressed one at a time (`layers`).

mod cosine;
mod exact;
mod keep;
mod layers;
mod order;
mod read;
mod write;

pub use cosine::{TensorCosine, cosines, raise};
pub use read::open;
pub use write::write;

use atta_formats::{Metadata, NumArray, TensorType, Writer};

use crate::{Checkpoint, Error, NamePattern, RowSource, Tensor, TypeSelection};

/// Metadata keys of what a plain file has beside its tensors.
const KEPT_KEYS: [&str; 4] = [
    "qsf.v1.header",
    "qsf.v1.index",
    "qsf.v1.tensors",
    "qsf.v1.rest",
];

/// Prepares a checkpoint for the choice of types. Where any are chosen, its rows get GGUF's order,
/// and with Q4_1 for all matrices those of QSF's types become types of ggml with the same weights.
///
/// # Errors
/// Metadata or tensors that do not go together.
pub fn for_types(checkpoint: &mut Checkpoint, types: &mut TypeSelection) -> Result<(), Error> {
    if types.mix.is_none() && types.overrides.is_empty() {
        return Ok(());
    }
    order::to_adjacent(checkpoint)?;
    match types.mix.is_some_and(|mix| mix.base == TensorType::Q4_1) {
        true => exact::to_ggml(checkpoint, types),
        false => Ok(()),
    }
}

/// The bytes at a key.
fn bytes_at(metadata: &Metadata, key: &str) -> Result<Option<Vec<u8>>, Error> {
    let bytes = metadata.u8s(key)?;
    Ok(bytes.map(|bytes: NumArray<u8>| bytes.iter().collect()))
}

/// Forgets what only a plain file has.
fn forget(metadata: &mut Writer) {
    KEPT_KEYS.iter().for_each(|key| metadata.remove(key));
}

/// The pattern of one name.
fn only(name: &str) -> NamePattern {
    let pattern = format!("^{}$", regex_lite::escape(name));
    pattern.parse().expect("an escaped name is a pattern")
}

/// Takes the rows out of a tensor, which gets others.
fn take_rows(tensor: &mut Tensor) -> Box<dyn RowSource> {
    std::mem::replace(&mut tensor.rows, Box::new(NoRows))
}

/// Stands in for rows while they are replaced.
struct NoRows;

impl RowSource for NoRows {
    fn read(&self, first: u64, _: &mut [f32]) -> Result<(), Error> {
        Err(Error::NoRow { row: first })
    }
}

/// Copies whole rows, from row `first` on, as they are stored; `row_bytes` of them are one. Returns
/// false if they can only be read as floats.
fn copy_rows(
    rows: &dyn RowSource,
    first: u64,
    row_bytes: usize,
    out: &mut [u8],
) -> Result<bool, Error> {
    let Some(stored) = rows.stored() else {
        return rows.packed(first, out);
    };
    let at = usize::try_from(first)
        .ok()
        .and_then(|first| first.checked_mul(row_bytes));
    let bytes = at.and_then(|at| stored.get(at..)?.get(..out.len()));
    out.copy_from_slice(bytes.ok_or(Error::NoRow { row: first })?);
    Ok(true)
}
