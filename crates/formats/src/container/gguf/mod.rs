//! GGUF files: a header, metadata, a tensor directory, and the tensors' bytes, in this order.
//!
//! [`Gguf::parse`] reads the first three and checks the whole file's geometry; it never reads
//! weights, so a prefix of the file is enough. Versions 2 and 3 are the same bytes (3 only
//! added big-endian files, which we refuse). Nothing is allocated for a count before the bytes it
//! counts are known to be there: the heap grows by at most 16 times the bytes parsed, strings and
//! arrays are not copied, and at most [`MAX_KEYS`] keys and [`MAX_TENSORS`] tensors are accepted,
//! which take 2 MB and 20 MB.

mod checksums;
mod split;
mod tensors;
mod type_id;
mod write;

pub use checksums::{CHECKSUM_KEYS, Checksums, PIECE_BYTES, Piece, Pieces};
pub use split::{Split, shard_file_name, shard_file_names, shard_of_file_name};
pub use type_id::{type_id, type_of_id};
pub use write::{Layout, Writer};

use super::{
    Container, Contents, TensorInfo,
    metadata::{Cursor, Metadata},
};
use crate::{Error, SharedBytes};

/// The most metadata keys that are accepted; real files have fewer than 100.
pub const MAX_KEYS: u64 = 1 << 14;
/// The most tensors that are accepted in one file; the largest known models have a few thousand.
pub const MAX_TENSORS: u64 = 1 << 17;
/// The longest tensor name in bytes: ggml keeps 64 with the closing zero.
pub const MAX_NAME_BYTES: u64 = 63;
/// The largest alignment of tensor data that is accepted, in bytes.
pub const MAX_ALIGNMENT: u64 = 1 << 20;
/// The alignment of tensor data in a file that does not state one, in bytes.
pub const DEFAULT_ALIGNMENT: u64 = 32;

const ALIGNMENT_KEY: &str = "general.alignment";
/// The fewest bytes that a metadata entry takes: key length, one byte of key, type, one byte of
/// value.
const MIN_ENTRY_BYTES: u64 = 8 + 1 + 4 + 1;
/// The fewest bytes that a tensor's entry takes: name length, one byte of name, count of
/// dimensions, type, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 1 + 4 + 4 + 8;

/// A parsed file: its metadata and where its tensors are.
#[derive(Clone)]
pub struct Gguf {
    /// 2 or 3.
    pub version: u32,
    /// The metadata, an index into the file.
    pub metadata: Metadata,
    /// The tensors in file order.
    pub tensors: Vec<TensorInfo>,
    /// Offsets of tensors are multiples of this, bytes.
    pub alignment: u64,
    /// Where tensor data begins, in bytes from the start of the file.
    pub data_offset: u64,
}

impl Gguf {
    /// Reads and checks header, metadata and tensor directory; see [`Container::contents`].
    ///
    /// # Errors
    /// As [`Container::contents`].
    pub fn parse(bytes: SharedBytes, file_bytes: u64) -> Result<Self, Error> {
        let held = bytes.clone();
        let mut cursor = Cursor::new((*bytes).as_ref(), file_bytes);
        let version = read_version(&mut cursor, (*bytes).as_ref())?;
        let n_tensors = cursor.u64("the tensor count")?;
        let n_keys = cursor.u64("the metadata count")?;
        check_count(
            "metadata keys",
            n_keys,
            MAX_KEYS,
            cursor.left_in_file() / MIN_ENTRY_BYTES,
        )?;
        check_count(
            "tensors",
            n_tensors,
            MAX_TENSORS,
            cursor.left_in_file() / MIN_TENSOR_BYTES,
        )?;
        let metadata = Metadata::parse(held, &mut cursor, n_keys)?;
        let alignment = read_alignment(&metadata)?;
        let entries = tensors::parse_entries(&mut cursor, n_tensors)?;
        let data_offset = cursor.position().next_multiple_of(alignment);
        let tensors = tensors::place(entries, data_offset, alignment, file_bytes)?;
        Ok(Self {
            version,
            metadata,
            tensors,
            alignment,
            data_offset,
        })
    }
}

impl Container for Gguf {
    const MAGIC: [u8; 4] = *b"GGUF";

    fn contents(bytes: SharedBytes, file_bytes: u64) -> Result<Contents, Error> {
        Self::parse(bytes, file_bytes).map(Contents::from)
    }
}

impl From<Gguf> for Contents {
    fn from(file: Gguf) -> Self {
        Self {
            metadata: file.metadata,
            tensors: file.tensors,
        }
    }
}

impl std::fmt::Debug for Gguf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Gguf v{}: {} keys, {} tensors",
            self.version,
            self.metadata.len(),
            self.tensors.len()
        )
    }
}

fn read_version(cursor: &mut Cursor<'_>, file: &[u8]) -> Result<u32, Error> {
    if cursor.array("the magic number")? != Gguf::MAGIC {
        let mut got = [0; 9];
        got.iter_mut()
            .zip(file)
            .for_each(|(got, &byte)| *got = byte);
        return Err(Error::UnknownContainer { got });
    }
    let version = cursor.u32("the version")?;
    match version {
        2 | 3 => Ok(version),
        // A small number with its bytes swapped.
        _ if version & 0xffff == 0 && version != 0 => Err(Error::BigEndian {
            version: version.swap_bytes(),
        }),
        got => Err(Error::Version { got }),
    }
}

fn check_count(what: &'static str, got: u64, cap: u64, room: u64) -> Result<(), Error> {
    let max = cap.min(room);
    if got > max {
        Err(Error::Count { what, got, max })
    } else {
        Ok(())
    }
}

fn read_alignment(metadata: &Metadata) -> Result<u64, Error> {
    let got = metadata
        .u32(ALIGNMENT_KEY)?
        .map_or(DEFAULT_ALIGNMENT, u64::from);
    if got.is_power_of_two() && got <= MAX_ALIGNMENT {
        return Ok(got);
    }
    Err(Error::Alignment {
        got,
        max: MAX_ALIGNMENT,
    })
}
