//! Tensors of a checkpoint by name, as the source file stores them.
//!
//! Readers of a file format (safetensors, pickle) fill [`RawTensors`]; readers of a checkpoint
//! layout (Hugging Face, Meta) take tensors out by name, and a tensor that is left is an error.
//! Elements are contiguous, in row-major order.

use std::{collections::BTreeMap, ops::Range, path::PathBuf, sync::Arc};

use atta_formats::{SharedBytes, TensorType, decode};
use atta_store::MappedFile;

use crate::Error;

/// The element type of a raw tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the usual names of element types")]
pub enum Dtype {
    F64,
    F32,
    F16,
    BF16,
    F8E4M3,
    I64,
    I32,
    U32,
    I16,
    I8,
    U8,
    Bool,
}

impl Dtype {
    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            Dtype::F64 | Dtype::I64 => 8,
            Dtype::F32 | Dtype::I32 | Dtype::U32 => 4,
            Dtype::F16 | Dtype::BF16 | Dtype::I16 => 2,
            Dtype::F8E4M3 | Dtype::I8 | Dtype::U8 | Dtype::Bool => 1,
        }
    }

    /// The equivalent GGUF type; `None` for types without one.
    pub fn tensor_type(self) -> Option<TensorType> {
        match self {
            Dtype::F32 => Some(TensorType::F32),
            Dtype::F16 => Some(TensorType::F16),
            Dtype::BF16 => Some(TensorType::BF16),
            _ => None,
        }
    }
}

/// A tensor in a file.
#[derive(Clone)]
pub struct RawTensor {
    name: String,
    dtype: Dtype,
    dims: Vec<u64>,
    file: SharedBytes,
    bytes: Range<usize>,
}

impl std::fmt::Debug for RawTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawTensor")
            .field("name", &self.name)
            .field("dims", &self.dims)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl RawTensor {
    /// Whether two tensors have the same type, shape and bytes.
    pub fn is_same(&self, other: &Self) -> bool {
        let bytes = |tensor: &Self| tensor.bytes.clone();
        let [ours, theirs] = [self, other].map(|tensor| (*tensor.file).as_ref());
        (self.dtype, &self.dims) == (other.dtype, &other.dims)
            && ours[bytes(self)] == theirs[bytes(other)]
    }

    /// A tensor whose elements begin at byte `at` of the file; `dims` outermost first.
    ///
    /// # Errors
    /// [`Error::OutOfFile`] with the name, if the tensor extends beyond the end of the file or its
    /// size overflows.
    pub fn new(
        name: &str,
        dtype: Dtype,
        dims: &[u64],
        file: SharedBytes,
        at: u64,
    ) -> Result<Self, Error> {
        let file_bytes = (*file).as_ref().len() as u64;
        let len = dims
            .iter()
            .try_fold(dtype.bytes(), |n, &d| n.checked_mul(d))
            .unwrap_or(u64::MAX);
        let Some(end) = at.checked_add(len).filter(|&end| end <= file_bytes) else {
            return Err(Error::OutOfFile {
                at,
                len,
                file_bytes,
            }
            .of(name));
        };
        // Both are at most the length of the file, which is mapped, so they fit usize.
        Ok(Self {
            name: name.to_owned(),
            dtype,
            dims: dims.to_vec(),
            file,
            bytes: at as usize..end as usize,
        })
    }

    /// The name in the checkpoint.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same tensor with another name.
    pub fn named(self, name: String) -> Self {
        Self { name, ..self }
    }

    /// The parts of the outermost dimension, each a tensor without it; none of a scalar.
    pub fn outermost(&self) -> impl Iterator<Item = Self> + '_ {
        let n = self.dims.first().copied().unwrap_or(0) as usize;
        let len = self.bytes.len().checked_div(n).unwrap_or(0);
        (0..n).map(move |i| Self {
            dims: self.dims[1..].to_vec(),
            bytes: self.bytes.start + i * len..self.bytes.start + (i + 1) * len,
            ..self.clone()
        })
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Dimensions, outermost first; none for a scalar.
    pub fn dims(&self) -> &[u64] {
        &self.dims
    }

    /// Elements of the innermost dimension.
    pub fn d_row(&self) -> u64 {
        self.dims.last().copied().unwrap_or(1)
    }

    /// The file that holds the tensor.
    pub fn file(&self) -> SharedBytes {
        self.file.clone()
    }

    /// The byte offset in the file.
    pub fn at(&self) -> u64 {
        self.bytes.start as u64
    }

    /// The elements, little endian.
    pub fn bytes(&self) -> &[u8] {
        &(*self.file).as_ref()[self.bytes.clone()]
    }

    /// Checks that elements are U8.
    ///
    /// # Errors
    /// [`Error::Bytes`] with the name.
    pub fn expect_bytes(&self) -> Result<(), Error> {
        match self.dtype {
            Dtype::U8 => Ok(()),
            dtype => Err(Error::Bytes { dtype }.of(&self.name)),
        }
    }

    /// Checks that elements are floating-point numbers.
    ///
    /// # Errors
    /// [`Error::Numbers`] with the name.
    pub fn expect_floats(&self) -> Result<(), Error> {
        match self.dtype {
            Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16 | Dtype::F8E4M3 => Ok(()),
            dtype => Err(Error::Numbers { dtype }.of(&self.name)),
        }
    }

    /// Reads elements, from `first` on, into `out`.
    ///
    /// # Errors
    /// [`Error::NoRow`] beyond the end, [`Error::Numbers`] if elements are no floats; with the
    /// name.
    pub fn floats(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        let size = self.dtype.bytes() as usize;
        let from = usize::try_from(first)
            .ok()
            .and_then(|first| first.checked_mul(size));
        let bytes = from.and_then(|from| {
            self.bytes()
                .get(from..)?
                .get(..out.len().checked_mul(size)?)
        });
        let bytes = bytes.ok_or_else(|| {
            Error::NoRow {
                row: first / self.d_row().max(1),
            }
            .of(&self.name)
        })?;
        match (self.dtype, self.dtype.tensor_type()) {
            (_, Some(ty)) => decode(ty, bytes, out)?,
            (Dtype::F64, _) => out
                .iter_mut()
                .zip(bytes.as_chunks().0)
                .for_each(|(x, &b)| *x = f64::from_le_bytes(b) as f32),
            (Dtype::F8E4M3, _) => out
                .iter_mut()
                .zip(bytes)
                .for_each(|(x, &b)| *x = f8_e4m3(b)),
            (other, _) => return Err(Error::Numbers { dtype: other }.of(&self.name)),
        }
        Ok(())
    }
}

/// Decodes FP8 E4M3: four bits of exponent with a bias of 7, three of fraction, no infinities
/// (Micikevicius et al. 2022, table 1).
fn f8_e4m3(bits: u8) -> f32 {
    let exponent = i32::from(bits >> 3 & 15);
    let fraction = f32::from(bits & 7);
    let magnitude = match (exponent, bits & 7) {
        (15, 7) => f32::NAN,
        (0, _) => fraction / 512.0,
        _ => (1.0 + fraction / 8.0) * 2f32.powi(exponent - 7),
    };
    if bits & 0x80 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

/// The tensors of a checkpoint by name.
#[derive(Default)]
pub struct RawTensors {
    tensors: BTreeMap<String, RawTensor>,
    /// The mapped files that hold them.
    pub files: Vec<(PathBuf, Arc<MappedFile>)>,
}

impl std::fmt::Debug for RawTensors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawTensors")
            .field("n_tensors", &self.tensors.len())
            .field("n_files", &self.files.len())
            .finish_non_exhaustive()
    }
}

impl RawTensors {
    /// Adds a tensor.
    ///
    /// # Errors
    /// [`Error::Twice`] if the name exists.
    pub fn add(&mut self, tensor: RawTensor) -> Result<(), Error> {
        match self.tensors.contains_key(&tensor.name) {
            true => Err(Error::Twice.of(&tensor.name)),
            false => {
                self.tensors.insert(tensor.name.clone(), tensor);
                Ok(())
            }
        }
    }

    /// Adds the tensors of another file.
    ///
    /// # Errors
    /// [`Error::Twice`] if a name exists.
    pub fn append(&mut self, other: Self) -> Result<(), Error> {
        self.files.extend(other.files);
        other
            .tensors
            .into_values()
            .try_for_each(|tensor| self.add(tensor))
    }

    /// The tensor with this name.
    pub fn get(&self, name: &str) -> Option<&RawTensor> {
        self.tensors.get(name)
    }

    /// Removes and returns the tensor with this name.
    pub fn take(&mut self, name: &str) -> Option<RawTensor> {
        self.tensors.remove(name)
    }

    /// All names, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Drops the tensors for whose names `keep` is false. Returns how many were dropped.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) -> usize {
        let before = self.tensors.len();
        self.tensors.retain(|name, _| keep(name));
        before - self.tensors.len()
    }

    /// Renames all tensors.
    ///
    /// # Errors
    /// [`Error::Twice`] if two get the same name.
    pub fn rename(&mut self, new: impl Fn(&str) -> String) -> Result<(), Error> {
        for (name, tensor) in std::mem::take(&mut self.tensors) {
            self.add(RawTensor {
                name: new(&name),
                ..tensor
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(dtype: Dtype, dims: &[u64], bytes: &[u8]) -> Result<RawTensor, Error> {
        RawTensor::new("w", dtype, dims, Arc::new(bytes.to_vec()), 1)
    }

    #[test]
    fn a_tensor_beyond_the_end_of_the_file_is_refused() {
        for (dims, n_bytes) in [
            (&[3, 2][..], 12),
            (&[u64::MAX, u64::MAX], 12),
            (&[1 << 62, 2], 12),
            (&[], 1),
        ] {
            let error = tensor(Dtype::F16, dims, &vec![0; n_bytes])
                .err()
                .unwrap()
                .to_string();
            assert!(error.starts_with("w: bytes 1+"), "{error}");
        }
        assert!(tensor(Dtype::F16, &[3, 2], &[0; 13]).is_ok());
        assert!(RawTensor::new("w", Dtype::U8, &[1], Arc::new(vec![0u8]), u64::MAX).is_err());
    }

    #[test]
    fn elements_are_read_from_any_on() {
        let bytes: Vec<u8> = [0]
            .into_iter()
            .chain((0..4u8).flat_map(|i| f64::from(i).to_le_bytes()))
            .collect();
        let w = tensor(Dtype::F64, &[2, 2], &bytes).unwrap();
        let mut out = [0.0; 2];
        w.floats(1, &mut out).unwrap();
        assert_eq!(out, [1.0, 2.0]);
        assert_eq!(
            w.floats(3, &mut out).unwrap_err().to_string(),
            "w: there is no row 1"
        );
        assert!(w.floats(u64::MAX, &mut out).is_err());
    }

    #[test]
    fn integers_are_no_weights() {
        let w = tensor(Dtype::I8, &[1], &[0, 1]).unwrap();
        assert_eq!(
            w.floats(0, &mut [0.0]).unwrap_err().to_string(),
            "w: elements of type I8, expected floating-point numbers"
        );
    }

    #[test]
    fn eight_bits_are_a_float() {
        let all: Vec<f32> = [0x00, 0x01, 0x08, 0x38, 0x40, 0x7e, 0xc4]
            .into_iter()
            .map(f8_e4m3)
            .collect();
        assert_eq!(all, [0.0, 0.001953125, 0.015625, 1.0, 2.0, 448.0, -3.0]);
        assert!(f8_e4m3(0x7f).is_nan() && f8_e4m3(0xff).is_nan());
    }

    #[test]
    fn a_name_is_given_once() {
        let w = tensor(Dtype::U8, &[1], &[0, 1]).unwrap();
        let mut all = RawTensors::default();
        all.add(w.clone()).unwrap();
        assert_eq!(all.add(w).unwrap_err().to_string(), "w: is there twice");
        assert_eq!(all.names().collect::<Vec<_>>(), ["w"]);
        assert!(all.take("w").is_some() && all.take("w").is_none());
    }
}
