//! The bytes of a model's files, wherever they are.
//!
//! [`ReadAt`] is the one way to a model's bytes: [`MappedFile`](crate::MappedFile) reads a map,
//! `UncachedFile` reads past the page cache, [`StaticBytes`] are built into the program. The trait
//! refuses to know what the bytes mean.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::ReadMethod;

/// Bytes of known length that any thread reads at any offset.
pub(crate) trait ReadAt: Send + Sync {
    /// Names the bytes in error messages.
    fn path(&self) -> &Path;

    /// Length in bytes.
    fn len(&self) -> u64;

    /// A number that differs when the bytes differ at equal path and length, such as the time of
    /// the last write. `None` if nothing but the bytes themselves tells them from others.
    fn version(&self) -> Option<u128>;

    /// Fills `buf` from `offset` on.
    ///
    /// # Errors
    /// The error of the system; bytes that end too early were truncated.
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Fills `buf` from `offset` on with whole disk blocks: both are multiples of
    /// [`ALIGN`](crate::os::ALIGN). Only the first `needed` bytes have to exist.
    ///
    /// # Errors
    /// As [`read_exact_at`](Self::read_exact_at).
    fn read_blocks_at(&self, offset: u64, buf: &mut [u8], needed: usize) -> io::Result<()> {
        self.read_exact_at(offset, &mut buf[..needed])
    }

    /// All bytes, if they are addressable without a read.
    fn bytes(&self) -> Option<&[u8]> {
        None
    }

    /// Brings all addressable bytes into memory.
    ///
    /// # Errors
    /// The error of the system.
    fn prewarm(&self) -> io::Result<()> {
        Ok(())
    }

    /// Checks that the bytes are still those that were opened, and that all reads so far succeeded.
    ///
    /// # Errors
    /// A file that became shorter, was written to, or could not be read everywhere.
    fn check_unchanged(&self) -> io::Result<()> {
        Ok(())
    }

    /// How [`read_blocks_at`](Self::read_blocks_at) reads a file; `None` if it copies from memory.
    fn method(&self) -> Option<ReadMethod> {
        None
    }

    /// Opens the same bytes without a map, for reads by `method` (`None`: by the first that works).
    /// Bytes built into the program stay addressable.
    ///
    /// # Errors
    /// The error of the system; a file that is no longer the one that was opened.
    fn unmapped(self: Arc<Self>, method: Option<ReadMethod>) -> io::Result<Arc<dyn ReadAt>>;
}

/// Bytes that are built into the program.
#[derive(Debug)]
pub(crate) struct StaticBytes {
    /// Stands in for a path in error messages.
    pub(crate) name: PathBuf,
    pub(crate) bytes: &'static [u8],
}

impl ReadAt for StaticBytes {
    fn path(&self) -> &Path {
        &self.name
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn version(&self) -> Option<u128> {
        None
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        copy(self.bytes, offset, buf)
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(self.bytes)
    }

    fn unmapped(self: Arc<Self>, _: Option<ReadMethod>) -> io::Result<Arc<dyn ReadAt>> {
        Ok(self)
    }
}

/// Fills `buf` from `offset` of addressable bytes on.
///
/// # Errors
/// Bytes that end too early.
pub(crate) fn copy(bytes: &[u8], offset: u64, buf: &mut [u8]) -> io::Result<()> {
    let found = usize::try_from(offset)
        .ok()
        .and_then(|start| bytes.get(start..start.checked_add(buf.len())?))
        .ok_or_else(truncated)?;
    buf.copy_from_slice(found);
    Ok(())
}

pub(crate) fn truncated() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the file was truncated while it was in use",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_past_the_end_fail_and_blocks_may_end_early() {
        let source = StaticBytes {
            name: "built in".into(),
            bytes: &[1, 2, 3, 4, 5],
        };
        let mut buf = [0; 3];
        source.read_exact_at(2, &mut buf).unwrap();
        assert_eq!(buf, [3, 4, 5]);
        for offset in [3, 5, 6, u64::MAX] {
            let error = source.read_exact_at(offset, &mut buf).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{offset}");
        }
        let mut block = [0; 8];
        source.read_blocks_at(0, &mut block, 5).unwrap();
        assert_eq!(block[..5], [1, 2, 3, 4, 5]);
        assert!(source.read_blocks_at(0, &mut block, 6).is_err());
    }
}
