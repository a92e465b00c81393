//! QSF files, version 1: a header of 128 bytes, an index of layers, and sections with the weights.
//!
//! All numbers are little endian. The sections of layers, of the embedding and of the final norm
//! and head lie anywhere behind the header, so a reader goes from one to the next instead of
//! through a prefix of the file ([`Contents::scattered`]); a tensor's header stands right before
//! its data, without padding. An extension table, which readers of the plan do not see, says the
//! rest: `META`, a GGUF header without tensors; `TENS`, the tensors by their GGUF names; and
//! `SENS`, measured sensitivities. A file with the table is read by it; [`Sections::metadata`]
//! assumes the rest of a plain one.
//!
//! It decompresses nothing and reads no weights: checksums of sections are the converter's
//! business, those of the header and of the tables are checked here. Source: the plan of QSF,
//! completed where it is silent.

mod checksum;
mod extension;
mod header;
mod plain;
mod reader;
mod sections;

pub use checksum::{Checksum, crc32, crc32c};
pub use extension::{
    META, NAMES_KEY, SENS, SensitivityTable, TENS, TableEntry, Tables, TensorEntry,
};
pub use header::Header;
pub use plain::{ASSUMED_KEY, PAIRING_KEY};
pub use reader::{ReadBytes, Window};
pub use sections::{
    Compression, EmbeddingHeader, LAYER_DEFAULT, LayerEntry, Section, SectionTensor, Sections,
    TensorHeader, UNNAMED_ROLE, VECTOR_ROLES, code_of_type, role_name, type_of_code,
};

use super::{Container, Contents};
use crate::{Error, SharedBytes};
use reader::SectionReader;

/// The container.
#[derive(Clone, Copy, Debug)]
pub struct Qsf;

impl Container for Qsf {
    const MAGIC: [u8; 4] = *b"QSF1";

    fn contents(bytes: SharedBytes, file_bytes: u64) -> Result<Contents, Error> {
        let mut read = |at: u64, n: usize| Window::of(&bytes, at, n);
        scattered(file_bytes, &mut read)
    }
}

/// Metadata and tensors of a file whose bytes `read` returns.
pub(super) fn scattered(file_bytes: u64, read: &mut ReadBytes<'_>) -> Result<Contents, Error> {
    let mut file = SectionReader::new(file_bytes, read);
    let header = Header::read(&mut file)?;
    match header.has_table() {
        true => extension::contents(&mut file, &header),
        false => plain_contents(&mut file, header),
    }
}

/// The header and the index of layers of a file whose bytes `read` returns.
///
/// # Errors
/// As [`Container::contents`].
pub fn index(
    file_bytes: u64,
    read: &mut ReadBytes<'_>,
) -> Result<(Header, Vec<LayerEntry>), Error> {
    let mut file = SectionReader::new(file_bytes, read);
    let header = Header::read(&mut file)?;
    let entries = header.entries(&mut file)?;
    Ok((header, entries))
}

fn plain_contents(file: &mut SectionReader<'_, '_>, header: Header) -> Result<Contents, Error> {
    let entries = header.entries(file)?;
    if let Some(layer) = entries.iter().position(|entry| entry.compression() != 0) {
        return Err(Error::QsfCompressed { layer });
    }
    let sections = Sections::new(file, header, &entries, &entries)?;
    Ok(Contents {
        metadata: sections.metadata()?,
        tensors: sections.tensors,
    })
}

/// The error of a byte of the file.
fn wrong<T>(at: u64, why: impl Into<String>) -> Result<T, Error> {
    let why = why.into();
    Err(Error::Qsf { at, why })
}

/// Checks a number at a byte of the file.
fn expect<T: PartialEq + std::fmt::Debug>(
    at: u64,
    what: &str,
    expected: T,
    got: T,
) -> Result<(), Error> {
    match expected == got {
        true => Ok(()),
        false => wrong(at, format!("{what}: expected {expected:?}, got {got:?}")),
    }
}
