//! The sidecar of a part, as bytes.
//!
//! ```text
//! 0   "ATP1"
//! 4   u32  number of tensors
//! 8   u64  bytes of the file
//! 16  per tensor, by offset: u64 offset, u64 bytes, 32 hash, u8 0 absent 1 whole,
//!     u16 bytes of the name, the name in UTF-8
//! end 32 BLAKE3 of all before
//! ```
//! Little-endian. The first tensor is the header: no name, offset 0.

use std::ops::Range;

use super::PartError;

const MAGIC: &[u8; 4] = b"ATP1";
const N_FIXED: usize = 16;
const N_HASH: usize = 32;

/// Bytes of a tensor without its name.
const N_TENSOR: usize = 8 + 8 + N_HASH + 1 + 2;

/// The name under which a file's header is listed: metadata and directory.
pub const HEADER: &str = "";

/// Whether a part has a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Its bytes are a hole, or not all there.
    Absent,
    /// All bytes are there, and had the right hash.
    Whole,
}

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartTensor {
    /// Its name; [`HEADER`] for the bytes before all tensors.
    pub name: String,
    /// First byte in the file.
    pub offset: u64,
    /// Length, bytes.
    pub bytes: u64,
    /// BLAKE3 of the bytes.
    pub hash: [u8; 32],
    /// Whether this part has it.
    pub presence: Presence,
}

impl PartTensor {
    /// Its bytes in the file.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }
}

/// All tensors of one file of a model, and which of them a part has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartIndex {
    file_bytes: u64,
    tensors: Vec<PartTensor>,
}

impl PartIndex {
    /// An index of tensors by offset, the header first.
    ///
    /// # Errors
    /// [`PartError::Index`]: no header, tensors that overlap, are outside of the file, or empty.
    pub fn new(file_bytes: u64, tensors: Vec<PartTensor>) -> Result<Self, PartError> {
        let is_header = |first: &PartTensor| first.name == HEADER && first.offset == 0;
        if !tensors.first().is_some_and(is_header) {
            return Err(PartError::Index("it does not begin with the header"));
        }
        let mut end = 0;
        for tensor in &tensors {
            let next = tensor.offset.checked_add(tensor.bytes);
            let next = next.filter(|next| *next <= file_bytes && tensor.bytes > 0);
            if tensor.offset < end {
                return Err(PartError::Index("tensors overlap or are not in order"));
            }
            end = next.ok_or(PartError::Index("a tensor is empty or outside of the file"))?;
            if tensor.name.len() > usize::from(u16::MAX) {
                return Err(PartError::Index("a name is too long"));
            }
        }
        let mut names: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(PartError::Index("two tensors have one name"));
        }
        Ok(Self {
            file_bytes,
            tensors,
        })
    }

    /// Reads a sidecar.
    ///
    /// # Errors
    /// [`PartError::Index`] for every sequence of bytes that [`to_bytes`](Self::to_bytes) does not
    /// write.
    pub fn parse(bytes: &[u8]) -> Result<Self, PartError> {
        let torn = || PartError::Index("it is torn");
        let n_body = bytes.len().checked_sub(N_HASH).ok_or_else(torn)?;
        let (body, checksum) = bytes.split_at(n_body);
        if body.get(..4) != Some(MAGIC) {
            return Err(PartError::Index("it does not begin with ATP1"));
        }
        if blake3::hash(body).as_bytes()[..] != *checksum {
            return Err(torn());
        }
        let mut rest = Reader(body.get(4..).ok_or_else(torn)?);
        let n_tensors = u32::from_le_bytes(rest.array().ok_or_else(torn)?) as usize;
        let file_bytes = rest.number().ok_or_else(torn)?;
        if n_tensors > rest.0.len() / N_TENSOR {
            return Err(PartError::Index(
                "it lists more tensors than it has bytes for",
            ));
        }
        let tensors = (0..n_tensors).map(|_| rest.tensor());
        let tensors = tensors.collect::<Option<Vec<_>>>();
        let tensors = tensors.ok_or(PartError::Index("a tensor is cut short or no tensor"))?;
        match rest.0.is_empty() {
            true => Self::new(file_bytes, tensors),
            false => Err(PartError::Index("bytes follow its last tensor")),
        }
    }

    /// The bytes of the sidecar.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(N_FIXED + self.tensors.len() * (N_TENSOR + 24) + N_HASH);
        bytes.extend(MAGIC);
        bytes.extend((self.tensors.len() as u32).to_le_bytes());
        bytes.extend(self.file_bytes.to_le_bytes());
        for tensor in &self.tensors {
            bytes.extend(tensor.offset.to_le_bytes());
            bytes.extend(tensor.bytes.to_le_bytes());
            bytes.extend(tensor.hash);
            bytes.push(match tensor.presence {
                Presence::Absent => 0,
                Presence::Whole => 1,
            });
            bytes.extend((tensor.name.len() as u16).to_le_bytes());
            bytes.extend(tensor.name.as_bytes());
        }
        let checksum = blake3::hash(&bytes);
        bytes.extend(checksum.as_bytes());
        bytes
    }

    /// Bytes of the whole file.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// The header and all tensors, by offset.
    pub fn tensors(&self) -> &[PartTensor] {
        &self.tensors
    }

    /// Bytes of the tensors that are whole.
    pub fn held_bytes(&self) -> u64 {
        let whole = self
            .tensors
            .iter()
            .filter(|t| t.presence == Presence::Whole);
        whole.map(|tensor| tensor.bytes).sum()
    }

    /// The index of a part that has nothing yet.
    pub fn emptied(&self) -> Self {
        let mut empty = self.clone();
        for tensor in &mut empty.tensors {
            tensor.presence = Presence::Absent;
        }
        empty
    }

    #[cfg(test)]
    pub(super) fn tensors_mut(&mut self) -> &mut Vec<PartTensor> {
        &mut self.tensors
    }

    pub(super) fn set(&mut self, i: usize, presence: Presence) {
        self.tensors[i].presence = presence;
    }
}

/// The identity of a model: a hash over the headers and the hashes of all tensors of its files. It
/// does not depend on which of them are present.
pub fn model_id(files: &[PartIndex]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("atta 2026-11-28 model id v1");
    for file in files {
        hasher.update(&file.file_bytes.to_le_bytes());
        hasher.update(&(file.tensors.len() as u64).to_le_bytes());
        for tensor in &file.tensors {
            hasher.update(&tensor.hash);
        }
    }
    *hasher.finalize().as_bytes()
}

/// Bytes that are taken from the front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn tensor(&mut self) -> Option<PartTensor> {
        let offset = self.number()?;
        let bytes = self.number()?;
        let hash = self.array()?;
        let presence = match self.array()? {
            [0] => Presence::Absent,
            [1] => Presence::Whole,
            _ => return None,
        };
        let n_name = usize::from(u16::from_le_bytes(self.array()?));
        let (name, rest) = self.0.split_at_checked(n_name)?;
        self.0 = rest;
        Some(PartTensor {
            name: std::str::from_utf8(name).ok()?.to_owned(),
            offset,
            bytes,
            hash,
            presence,
        })
    }
}
