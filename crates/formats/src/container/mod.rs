//! Containers: file formats that hold a whole model, its metadata and its tensors.
//!
//! A container implements [`Container`] and has one line in the list of them; everything else sees
//! [`Contents`] and, for all files of a model together, a [`Directory`]. GGUF is the container of
//! almost all files; QSF is another one.

mod directory;
pub mod gguf;
pub mod metadata;
pub mod qsf;
mod tensor;

pub use directory::Directory;
pub use tensor::TensorInfo;

use crate::{Error, SharedBytes};
use gguf::{Gguf, Split};
use metadata::Metadata;
use qsf::ReadBytes;

/// A file format that holds a model.
pub trait Container {
    /// The first bytes of its files.
    const MAGIC: [u8; 4];

    /// Reads and checks everything but the bytes of the tensors.
    ///
    /// `bytes` is the file, or a prefix that contains everything but tensors; `file_bytes` is the
    /// length of the whole file. Tensor types without a decoder are accepted, so that any file can
    /// be inspected.
    ///
    /// # Errors
    /// [`Error::Truncated`] if `bytes` is too short a prefix of a file that may be in order: read
    /// more. Otherwise the first thing that is wrong with the file.
    fn contents(bytes: SharedBytes, file_bytes: u64) -> Result<Contents, Error>;
}

type ReadContents = fn(SharedBytes, u64) -> Result<Contents, Error>;

/// All containers: the first bytes of their files, and the function that reads them.
const CONTAINERS: &[([u8; 4], ReadContents)] = &[
    (Gguf::MAGIC, Gguf::contents),
    #[cfg(feature = "qsf")]
    (qsf::Qsf::MAGIC, qsf::Qsf::contents),
];

/// Whether a file that begins with `head` is a container, by its first bytes.
pub fn is_model(head: &[u8]) -> bool {
    CONTAINERS.iter().any(|(magic, _)| head.starts_with(magic))
}

/// Whether metadata is spread over a file that begins with `head`, so that
/// [`Contents::scattered`] reads less of it than [`Contents::parse`].
#[inline]
pub fn is_scattered(head: &[u8]) -> bool {
    cfg!(feature = "qsf") && head.starts_with(&qsf::Qsf::MAGIC)
}

/// The metadata and tensors of one file, whatever its container.
#[derive(Clone)]
pub struct Contents {
    /// The metadata, an index into the bytes of the file.
    pub metadata: Metadata,
    /// The tensors in file order.
    pub tensors: Vec<TensorInfo>,
}

impl Contents {
    /// Reads a file of any container, which its first bytes tell.
    ///
    /// # Errors
    /// As [`Container::contents`]; [`Error::UnknownContainer`] for a file of no container.
    pub fn parse(bytes: SharedBytes, file_bytes: u64) -> Result<Self, Error> {
        let head = (*bytes).as_ref().first_chunk();
        let container = CONTAINERS.iter().find(|(magic, _)| head == Some(magic));
        // The reader of GGUF names what a file of no container is.
        let read = container.map_or(Gguf::contents as ReadContents, |(_, read)| *read);
        read(bytes, file_bytes)
    }

    /// Reads a file for which [`is_scattered`] holds, a few bytes here and there.
    ///
    /// # Errors
    /// As [`Container::contents`]; [`Error::Truncated`] for bytes that `read` does not return.
    pub fn scattered(file_bytes: u64, read: &mut ReadBytes<'_>) -> Result<Self, Error> {
        qsf::scattered(file_bytes, read)
    }

    /// Which part of a split model this file is; `None` for a model in one file.
    ///
    /// # Errors
    /// [`Error::MetadataType`], [`Error::MetadataRange`] or [`Error::MetadataMissing`] if the keys
    /// that say so are wrong.
    pub fn split(&self) -> Result<Option<Split>, Error> {
        Split::of(&self.metadata)
    }
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Contents: {} keys, {} tensors",
            self.metadata.len(),
            self.tensors.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{TensorType, Writer};

    #[test]
    fn the_first_bytes_tell_the_container() {
        let mut writer = Writer::new();
        writer.add_tensor("a", &[8], TensorType::F32).unwrap();
        let layout = writer.finish().unwrap();
        let file = Contents::parse(Arc::new(layout.header), layout.file_bytes).unwrap();
        assert_eq!(file.tensors[0].name, "a");
        let error = Contents::parse(Arc::new(*b"PK\x03\x04 and more"), 13).unwrap_err();
        assert!(matches!(error, Error::UnknownContainer { .. }), "{error}");
        let error = Contents::parse(Arc::new(*b"GG"), 2).unwrap_err();
        assert!(matches!(error, Error::PastEnd { .. }), "{error}");
    }
}
