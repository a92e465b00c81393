//! A file of which only the caller knows what it means, as bytes that are read when they are looked
//! at.

use std::{fs::File, io, path::Path};

use crate::os::Map;

/// A mapped file of any kind. It takes no private memory.
pub struct MappedFile {
    /// An empty file cannot be mapped.
    map: Option<Map>,
}

impl std::fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MappedFile").finish_non_exhaustive()
    }
}

impl MappedFile {
    /// Maps a regular file.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Asked before it is opened, since opening a pipe may wait for ever.
        let meta = std::fs::metadata(path)?;
        if !meta.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "is not a regular file",
            ));
        }
        let map = if meta.len() > 0 {
            Some(Map::new(&File::open(path)?)?)
        } else {
            None
        };
        Ok(Self { map })
    }

    /// Its bytes. If another process makes the file shorter, those that are gone read as zeros
    /// where bus errors are caught ([`catch_bus_errors`](crate::catch_bus_errors)), and end the
    /// program elsewhere.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_ref().map_or(&[], |map| map.as_ref())
    }

    /// Whether a part of what was looked at could not be read and was zeros.
    pub fn is_damaged(&self) -> bool {
        self.map.as_ref().is_some_and(Map::is_damaged)
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}
