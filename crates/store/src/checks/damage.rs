//! Bytes of a file that differ from their checksum: where they are.

use std::{fmt, path::PathBuf};

/// Bytes that differ from their checksum, or from 0 where nothing is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The part of the file.
    pub part: DamagedPart,
    /// The first of the bytes that were compared together, from the start of the file.
    pub offset: u64,
    /// Their number.
    pub bytes: u64,
}

/// A part of a file with checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamagedPart {
    /// The bytes before the tensors.
    Header,
    /// A tensor, by its name.
    Tensor(String),
    /// Bytes between tensors.
    Padding,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            part,
            offset,
            bytes,
        } = self;
        write!(f, "{}: ", path.display())?;
        match part {
            DamagedPart::Header => write!(
                f,
                "the {bytes} bytes before the tensors differ from their checksum: the file is \
                 damaged, or another program has changed it and kept the checksums"
            ),
            DamagedPart::Tensor(name) => write!(
                f,
                "{name}: bytes {offset}+{bytes} differ from their checksum: the file is damaged"
            ),
            DamagedPart::Padding => write!(
                f,
                "bytes {offset}+{bytes} between tensors are not 0: the file is damaged"
            ),
        }
    }
}

impl std::error::Error for Damage {}
