//! The intermediate form of every conversion: metadata, and tensors whose weights are read row by
//! row on demand.
//!
//! Readers and writers know only this form. What a source format requires to be done to weights
//! (permute rows, add 1 to norms, stack experts) happens in its [`RowSource`].

use std::{ops::Range, path::PathBuf, sync::Arc};

use atta_formats::{Contents, SharedBytes, TensorType, Writer, decode_rows};
use atta_store::MappedFile;

use crate::{Error, metadata};

/// A model with GGUF's metadata keys and tensor names.
pub struct Checkpoint {
    /// The metadata of the file: architecture, sizes, vocabulary, chat template. It has no tensor
    /// infos yet.
    pub metadata: Writer,
    /// The tensors. They are written in this order unless a mix is asked for, which sorts them.
    pub tensors: Vec<Tensor>,
    /// The mapped files that weights are read from.
    pub files: Vec<(PathBuf, Arc<MappedFile>)>,
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpoint")
            .field("n_tensors", &self.tensors.len())
            .field("n_files", &self.files.len())
            .finish_non_exhaustive()
    }
}

impl Checkpoint {
    /// Metadata and tensor infos of a GGUF file with all tensors in their present types.
    ///
    /// # Errors
    /// Names and shapes that GGUF does not allow.
    pub fn describe(&self) -> Result<Contents, Error> {
        let mut writer = self.metadata.clone();
        for tensor in &self.tensors {
            writer.add_tensor(&tensor.name, &tensor.dims, tensor.ty)?;
        }
        metadata::file(writer)
    }

    /// Checks that all reads from the mapped files succeeded.
    ///
    /// # Errors
    /// A read failed, or a file was truncated while it was mapped.
    pub fn check_files(&self) -> Result<(), Error> {
        match self.files.iter().find(|(_, file)| file.is_damaged()) {
            Some((path, _)) => Err(Error::File {
                path: path.clone(),
                why: "a part of it cannot be read".to_owned(),
            }),
            None => Ok(()),
        }
    }
}

/// A tensor to be written.
pub struct Tensor {
    /// GGUF's name.
    pub name: String,
    /// Outermost first: `[d_out, d_in]` for a matrix, `[n_experts, d_out, d_in]` for experts,
    /// `[d]` for a vector.
    pub dims: Vec<u64>,
    /// The present type, which the tensor keeps unless another one is asked for.
    pub ty: TensorType,
    /// Reads the weights.
    pub rows: Box<dyn RowSource>,
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tensor")
            .field("name", &self.name)
            .field("dims", &self.dims)
            .field("ty", &self.ty)
            .finish_non_exhaustive()
    }
}

impl Tensor {
    /// Weights per row: the innermost dimension.
    pub fn d_row(&self) -> u64 {
        self.dims.last().copied().unwrap_or(1)
    }

    /// The number of rows: the product of the outer dimensions.
    pub fn n_rows(&self) -> u64 {
        self.dims.iter().rev().skip(1).product()
    }
}

/// Reads the weights of a tensor row by row.
pub trait RowSource: Send + Sync {
    /// Reads whole rows, from row `first` on, into `out`, `[n_rows, d_row]`.
    ///
    /// # Errors
    /// If rows cannot be read or are invalid.
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error>;

    /// The bytes of all rows in the type of the tensor, if the file has exactly these bytes.
    fn stored(&self) -> Option<&[u8]> {
        None
    }

    /// Reads whole rows, from row `first` on, into `out` in the type of the tensor, if that needs
    /// no requantization. Returns false if rows can only be read as floats.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn packed(&self, first: u64, out: &mut [u8]) -> Result<bool, Error> {
        let _ = (first, out);
        Ok(false)
    }
}

/// Rows that a mapped file stores in a GGUF type.
pub struct MappedRows {
    file: SharedBytes,
    bytes: Range<usize>,
    ty: TensorType,
    d_row: usize,
    row_bytes: usize,
}

impl std::fmt::Debug for MappedRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MappedRows")
            .field("bytes", &self.bytes)
            .field("ty", &self.ty)
            .field("d_row", &self.d_row)
            .finish_non_exhaustive()
    }
}

impl MappedRows {
    /// A tensor of `ty` that begins at byte `at` of the file, `dims` outermost first.
    ///
    /// # Errors
    /// [`Error::Shape`] if a row is not a whole number of blocks, [`Error::OutOfFile`] if the file
    /// is too short.
    pub fn new(file: SharedBytes, at: u64, dims: &[u64], ty: TensorType) -> Result<Self, Error> {
        let shape = || Error::Shape {
            dims: dims.to_vec(),
            ty,
        };
        let file_bytes = (*file).as_ref().len() as u64;
        let d_row = usize::try_from(dims.last().copied().unwrap_or(1)).map_err(|_| shape())?;
        let row_bytes = ty.row_bytes(d_row).ok_or_else(shape)?;
        let n_rows = dims
            .iter()
            .rev()
            .skip(1)
            .try_fold(1u64, |n, &d| n.checked_mul(d))
            .ok_or_else(shape)?;
        let len = n_rows.checked_mul(row_bytes as u64).ok_or_else(shape)?;
        let end = at.checked_add(len).filter(|&end| end <= file_bytes);
        let end = end.ok_or(Error::OutOfFile {
            at,
            len,
            file_bytes,
        })?;
        // Both are at most the length of the file, which is mapped, so they fit usize.
        Ok(Self {
            file,
            bytes: at as usize..end as usize,
            ty,
            d_row,
            row_bytes,
        })
    }

    fn bytes(&self) -> &[u8] {
        &(*self.file).as_ref()[self.bytes.clone()]
    }
}

impl RowSource for MappedRows {
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        let rows = out.len() / self.d_row.max(1);
        let from = usize::try_from(first)
            .ok()
            .and_then(|first| first.checked_mul(self.row_bytes));
        let bytes = from.and_then(|from| self.bytes().get(from..)?.get(..rows * self.row_bytes));
        decode_rows(
            self.ty,
            self.d_row,
            bytes.ok_or(Error::NoRow {
                row: first + rows as u64,
            })?,
            out,
        )?;
        Ok(())
    }

    fn stored(&self) -> Option<&[u8]> {
        Some(self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> SharedBytes {
        let weights: Vec<u8> = (0..6u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
        Arc::new([&[9, 9], &weights[..]].concat())
    }

    #[test]
    fn rows_are_read_from_any_row_on() {
        let stored = MappedRows::new(file(), 2, &[3, 2], TensorType::F32).unwrap();
        let mut out = [0.0; 4];
        stored.read(1, &mut out).unwrap();
        assert_eq!(out, [2.0, 3.0, 4.0, 5.0]);
        assert_eq!(stored.stored().unwrap().len(), 24);
        assert!(matches!(
            stored.read(2, &mut out),
            Err(Error::NoRow { row: 4 })
        ));
        assert!(matches!(
            stored.read(u64::MAX - 9, &mut out),
            Err(Error::NoRow { .. })
        ));
    }

    #[test]
    fn a_tensor_that_the_file_does_not_hold_is_refused() {
        let new = |at, dims: &[u64], ty| MappedRows::new(file(), at, dims, ty).err().unwrap();
        assert!(matches!(
            new(3, &[3, 2], TensorType::F32),
            Error::OutOfFile {
                at: 3,
                len: 24,
                file_bytes: 26
            }
        ));
        assert!(matches!(
            new(u64::MAX, &[1], TensorType::F32),
            Error::OutOfFile { .. }
        ));
        assert!(matches!(
            new(0, &[2, 31], TensorType::Q8_0),
            Error::Shape { .. }
        ));
        assert!(matches!(
            new(0, &[u64::MAX, u64::MAX, 1], TensorType::F32),
            Error::Shape { .. }
        ));
    }
}
