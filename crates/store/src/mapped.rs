//! A mapped file: bytes that the system reads when the program first accesses them.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use crate::{
    ReadMethod,
    os::Map,
    source::{ReadAt, copy},
    uncached::{FileVersion, UncachedFile},
};

/// A mapped file of any kind. It takes no private memory.
pub struct MappedFile {
    path: PathBuf,
    /// Kept to ask the system whether the file changed.
    file: File,
    version: FileVersion,
    /// `None` for an empty file, which cannot be mapped.
    map: Option<Map>,
}

impl std::fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MappedFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl MappedFile {
    /// Maps a regular file.
    ///
    /// # Errors
    /// The error of the system.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Checked before opening: opening a pipe may wait for ever, and a device has no length.
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "is not a regular file",
            ));
        }
        let file = File::open(path)?;
        let version = FileVersion::of(&file.metadata()?);
        let map = if version.len > 0 {
            Some(Map::new(&file)?)
        } else {
            None
        };
        Ok(Self {
            path: path.to_owned(),
            file,
            version,
            map,
        })
    }

    /// Its bytes. If another process makes the file shorter, those that are gone read as zeros
    /// where bus errors are caught ([`catch_bus_errors`](crate::catch_bus_errors)), and end the
    /// program elsewhere.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_ref().map_or(&[], |map| map.as_ref())
    }

    /// Brings all bytes into memory.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn prewarm(&self) -> io::Result<()> {
        self.map.as_ref().map_or(Ok(()), Map::populate)
    }

    /// Opens the same file without a map, for reads by `method` (`None`: by the first that works).
    ///
    /// # Errors
    /// The error of the system; a file that is no longer the one that was opened.
    pub(crate) fn unmapped(&self, method: Option<ReadMethod>) -> io::Result<UncachedFile> {
        UncachedFile::reopen(&self.path, method, &self.version)
    }

    /// Whether some of the accessed bytes could not be read and were zeros.
    pub fn is_damaged(&self) -> bool {
        self.map.as_ref().is_some_and(Map::is_damaged)
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl ReadAt for MappedFile {
    fn n_bytes(&self) -> u64 {
        self.version.len
    }

    fn version(&self) -> Option<u128> {
        self.version.number()
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        copy(self.bytes(), offset, buf)
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(self.bytes())
    }

    fn check_unchanged(&self) -> io::Result<()> {
        self.version.check(&self.file)?;
        match self.is_damaged() {
            true => Err(io::Error::other("a part of the file cannot be read")),
            false => Ok(()),
        }
    }
}
