//! Parts: sparse copies of a model file that hold some tensors at the original's offsets.
//!
//! A map, direct reads and streaming work on a part as on the whole file, since nothing moves. The
//! sidecar ([`PartIndex`]) knows all tensors by their hashes, and which of them are whole. The one
//! idea: what the sidecar calls whole was hashed and made durable before the sidecar said so, so a
//! crash at any moment loses progress, never the truth.
//!
//! A part gets its bytes from anywhere ([`Part::fill`]); nothing counts before its hash fits. It
//! refuses to know networks and what tensors mean.

mod evict;
mod file;
mod index;
mod kept_hash;
mod library;
mod receive;
mod send;
mod share;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod transfer_tests;

use std::{io, ops::Range, path::PathBuf};

use atta_store::ReadAt;

pub use evict::{PartUse, evict, to_evict};
pub use file::PartFile;
pub use index::{HEADER, PartIndex, PartTensor, Presence, model_id};
pub use library::{HeldAs, HeldModel, Library, LibraryOptions, OnHashed, PartsDirectory};
pub use receive::{Download, PartSink};
pub(crate) use send::part_frame;
pub use send::{FileRange, MAX_RANGES, MAX_STATES, PART_STAGE, PartWish, part_limits, send_parts};
pub use share::{index_of, open_model, share_hash, tensors_of};

/// Bytes that are hashed at a time.
const HASHED_AT_ONCE: usize = 1 << 20;

/// Bytes of new tensors after which the sidecar is written.
const COMMIT_BYTES: u64 = 64 << 20;

/// A part that cannot be read, filled or served.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// A file whose header is not at its start.
    #[error("a QSF file is not divided among machines: convert it to GGUF first")]
    Scattered,
    /// The system refused to read or write.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The storage of a part failed.
    #[error("cannot read or write the part of a model: {0}")]
    Storage(#[from] io::Error),
    /// The sidecar is torn, of another version, or lies.
    #[error("sidecar of a part: {0}")]
    Index(&'static str),
    /// The file has another length than its sidecar says.
    #[error("the part of a model has {found} bytes, its sidecar says {expected}")]
    Length {
        /// Bytes of the file.
        found: u64,
        /// Bytes by the sidecar.
        expected: u64,
    },
    /// Bytes that arrived are not those of the tensor.
    #[error("{tensor}: the bytes that came have another hash; they are fetched again")]
    Hash {
        /// The tensor.
        tensor: String,
    },
    /// A range that is not inside of one tensor.
    #[error("bytes {offset}+{bytes} are not inside of one tensor of the part")]
    Range {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// A range of a tensor that is not whole.
    #[error("{tensor}: this part does not have it")]
    Absent {
        /// The tensor.
        tensor: String,
    },
    /// The disk budget cannot hold the part.
    #[error("the part needs {needed} bytes of disk, {free} of the budget of {budget} can be freed")]
    DiskBudget {
        /// Bytes of the part that are missing.
        needed: u64,
        /// Bytes that are free, or belong to parts that may go.
        free: u64,
        /// The budget.
        budget: u64,
    },
    /// Another model than the wanted one.
    #[error("the index that came is that of another model")]
    OtherModel,
    /// A piece that was not asked for.
    #[error("bytes {offset}+{bytes} of file {file} came, which were not asked for")]
    NotAsked {
        /// Number of the file; the index of all files has another one.
        file: u64,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// This node keeps no parts of models.
    #[error("no directory for parts of models is given")]
    NoParts,
    /// The caller has ended it.
    #[error("stopped")]
    Stopped,
    /// The model's files cannot be opened or bound.
    #[error(transparent)]
    Store(#[from] atta_store::Error),
    /// The model's tensors are not those that it needs.
    #[error(transparent)]
    Model(#[from] atta_model::Error),
}

/// Where a part lies: a file and its sidecar.
pub trait PartStorage: ReadAt {
    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// The error of the system.
    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all written bytes durable, then replaces the sidecar as a whole.
    ///
    /// # Errors
    /// The error of the system; the old sidecar is still in place.
    fn commit(&self, index: &[u8]) -> io::Result<()>;
}

/// A part of one file of a model.
#[derive(Debug)]
pub struct Part<S> {
    storage: S,
    index: PartIndex,
    /// Of each tensor that is not whole, the ranges that have arrived: sorted, apart.
    arrived: Vec<Vec<Range<u64>>>,
    uncommitted_bytes: u64,
}

impl<S: PartStorage> Part<S> {
    /// A part with the sidecar that was read.
    ///
    /// # Errors
    /// [`PartError::Length`].
    pub fn new(storage: S, index: PartIndex) -> Result<Self, PartError> {
        let found = storage.n_bytes();
        if found != index.file_bytes() {
            return Err(PartError::Length {
                found,
                expected: index.file_bytes(),
            });
        }
        Ok(Self {
            arrived: vec![Vec::new(); index.tensors().len()],
            storage,
            index,
            uncommitted_bytes: 0,
        })
    }

    /// All tensors, and which of them are whole.
    pub fn index(&self) -> &PartIndex {
        &self.index
    }

    /// The ranges that are still to be fetched for the tensors that `is_wanted` names, ascending.
    /// The header ([`HEADER`]) is always wanted.
    pub fn missing(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<Range<u64>> {
        let tensors = self.index.tensors().iter().zip(&self.arrived);
        let absent = tensors.filter(|(tensor, _)| {
            tensor.presence == Presence::Absent
                && (tensor.name == HEADER || is_wanted(&tensor.name))
        });
        absent
            .flat_map(|(tensor, arrived)| gaps(&tensor.range(), arrived))
            .collect()
    }

    /// Reads bytes for a peer.
    ///
    /// # Errors
    /// A range that is not inside of one tensor, or of one that is not whole.
    pub fn serve(&self, offset: u64, bytes: &mut [u8]) -> Result<(), PartError> {
        let i = self.tensor_at(offset, bytes.len())?;
        let tensor = &self.index.tensors()[i];
        if tensor.presence == Presence::Absent {
            return Err(PartError::Absent {
                tensor: tensor.name.clone(),
            });
        }
        Ok(self.storage.read_exact_at(offset, bytes)?)
    }

    /// Writes bytes that have arrived. When they complete a tensor, it is hashed; the result is its
    /// index in the sidecar. Bytes of a whole tensor are ignored.
    ///
    /// # Errors
    /// A range that is not inside of one tensor, the error of the system, and bytes with another
    /// hash: the tensor is then missing as before.
    pub fn fill(&mut self, offset: u64, bytes: &[u8]) -> Result<Option<usize>, PartError> {
        let i = self.tensor_at(offset, bytes.len())?;
        let tensor = &self.index.tensors()[i];
        let range = tensor.range();
        if tensor.presence == Presence::Whole || bytes.is_empty() {
            return Ok(None);
        }
        self.storage.write_all_at(offset, bytes)?;
        insert(&mut self.arrived[i], offset..offset + bytes.len() as u64);
        if self.arrived[i] != [range] {
            return Ok(None);
        }
        self.arrived[i].clear();
        self.accept(i)?;
        Ok(Some(i))
    }

    /// Hashes a tensor that has arrived, and marks it.
    fn accept(&mut self, i: usize) -> Result<(), PartError> {
        let tensor = &self.index.tensors()[i];
        if hash(&self.storage, &tensor.range())? != tensor.hash {
            return Err(PartError::Hash {
                tensor: tensor.name.clone(),
            });
        }
        let bytes = tensor.bytes;
        self.index.set(i, Presence::Whole);
        self.uncommitted_bytes = self.uncommitted_bytes.saturating_add(bytes);
        match self.uncommitted_bytes >= COMMIT_BYTES {
            true => self.commit(),
            false => Ok(()),
        }
    }

    /// Makes all filled bytes durable, and writes the sidecar.
    ///
    /// # Errors
    /// The error of the system.
    pub fn commit(&mut self) -> Result<(), PartError> {
        self.storage.commit(&self.index.to_bytes())?;
        self.uncommitted_bytes = 0;
        Ok(())
    }

    /// Hashes all tensors that are called whole; those with other bytes become absent. The result
    /// is their names.
    ///
    /// # Errors
    /// The error of the system.
    pub fn verify(&mut self) -> Result<Vec<String>, PartError> {
        let mut wrong = Vec::new();
        for i in 0..self.index.tensors().len() {
            let tensor = &self.index.tensors()[i];
            if tensor.presence == Presence::Absent {
                continue;
            }
            if hash(&self.storage, &tensor.range())? != tensor.hash {
                wrong.push(tensor.name.clone());
                self.index.set(i, Presence::Absent);
            }
        }
        if !wrong.is_empty() {
            self.commit()?;
        }
        Ok(wrong)
    }

    /// The tensor that a range lies in.
    fn tensor_at(&self, offset: u64, n_bytes: usize) -> Result<usize, PartError> {
        let bytes = n_bytes as u64;
        let tensors = self.index.tensors();
        let next = tensors.partition_point(|tensor| tensor.offset <= offset);
        let end = offset.checked_add(bytes);
        let found = next.checked_sub(1).filter(|i| {
            let range = tensors[*i].range();
            offset < range.end && end.is_some_and(|end| end <= range.end)
        });
        found.ok_or(PartError::Range { offset, bytes })
    }
}

/// The BLAKE3 hash of a range.
fn hash(source: &(impl ReadAt + ?Sized), range: &Range<u64>) -> io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    let most = (range.end - range.start).min(HASHED_AT_ONCE as u64);
    let mut buf = vec![0; most as usize];
    let mut offset = range.start;
    while offset < range.end {
        let n = (range.end - offset).min(most) as usize;
        source.read_exact_at(offset, &mut buf[..n])?;
        hasher.update(&buf[..n]);
        offset += n as u64;
    }
    Ok(*hasher.finalize().as_bytes())
}

/// What of `whole` is not in `parts`, which are sorted and apart.
fn gaps(whole: &Range<u64>, parts: &[Range<u64>]) -> Vec<Range<u64>> {
    let starts = std::iter::once(whole.start).chain(parts.iter().map(|part| part.end));
    let ends = parts.iter().map(|part| part.start).chain([whole.end]);
    starts
        .zip(ends)
        .filter(|(a, b)| a < b)
        .map(|(a, b)| a..b)
        .collect()
}

/// Adds a range; ranges that touch become one.
fn insert(parts: &mut Vec<Range<u64>>, new: Range<u64>) {
    let first = parts.partition_point(|part| part.end < new.start);
    let last = parts.partition_point(|part| part.start <= new.end);
    let start = parts[first..last]
        .first()
        .map_or(new.start, |part| part.start.min(new.start));
    let end = parts[first..last]
        .last()
        .map_or(new.end, |part| part.end.max(new.end));
    parts.splice(first..last, std::iter::once(start..end));
}
