//! The bytes of a model's files, wherever they are.
//!
//! [`ReadAt`] is the interface of all of them, and may be implemented outside of this crate. What
//! only files have (maps, direct reads) is known to [`Source`], which is a mapped file, a file that
//! is read past the page cache, or any other [`ReadAt`]. Refuses to know what the bytes mean.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{MappedFile, ReadMethod, uncached::UncachedFile};

/// Bytes of known length that any thread reads at any offset.
pub trait ReadAt: Send + Sync {
    /// Length in bytes. It must not change.
    fn n_bytes(&self) -> u64;

    /// Fills `buf` from `offset` on.
    ///
    /// # Errors
    /// The error of the source; [`io::ErrorKind::UnexpectedEof`] for bytes that end too early.
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// All bytes, if they are addressable without a read.
    fn bytes(&self) -> Option<&[u8]> {
        None
    }

    /// A number that differs when the bytes differ at equal name and length, such as the time of
    /// the last write. `None` if nothing but the bytes themselves tells them from others: the
    /// fingerprint of the model then reads all of them.
    fn version(&self) -> Option<u128> {
        None
    }

    /// Checks that the bytes are still those at the start, and that all reads so far succeeded.
    ///
    /// # Errors
    /// Bytes that were changed, or could not be read everywhere.
    fn check_unchanged(&self) -> io::Result<()> {
        Ok(())
    }

    /// Whether bytes are still on their way, such as from a server, so that a read may wait for
    /// them. Resident weights of such a source are waited for where they are first used, and its
    /// rate is not measured.
    fn is_arriving(&self) -> bool {
        false
    }
}

/// Bytes in memory.
impl ReadAt for Vec<u8> {
    fn n_bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        copy(self, offset, buf)
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(self)
    }
}

/// Bytes that are built into the program.
impl ReadAt for &'static [u8] {
    fn n_bytes(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        copy(self, offset, buf)
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(self)
    }
}

/// The bytes of one file of a model, with a name for error messages.
#[derive(Clone)]
pub(crate) struct Source {
    name: PathBuf,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Mapped(Arc<MappedFile>),
    Uncached(Arc<UncachedFile>),
    Other(Arc<dyn ReadAt>),
}

impl Source {
    pub(crate) fn mapped(path: &Path, file: MappedFile) -> Self {
        Self {
            name: path.to_owned(),
            kind: Kind::Mapped(Arc::new(file)),
        }
    }

    pub(crate) fn other(name: impl Into<PathBuf>, bytes: Arc<dyn ReadAt>) -> Self {
        Self {
            name: name.into(),
            kind: Kind::Other(bytes),
        }
    }

    fn reader(&self) -> &dyn ReadAt {
        match &self.kind {
            Kind::Mapped(file) => &**file,
            Kind::Uncached(file) => &**file,
            Kind::Other(bytes) => &**bytes,
        }
    }

    /// The path of a file, or another name.
    pub(crate) fn path(&self) -> &Path {
        &self.name
    }

    pub(crate) fn n_bytes(&self) -> u64 {
        self.reader().n_bytes()
    }

    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        self.reader().bytes()
    }

    pub(crate) fn version(&self) -> Option<u128> {
        self.reader().version()
    }

    pub(crate) fn check_unchanged(&self) -> io::Result<()> {
        self.reader().check_unchanged()
    }

    pub(crate) fn is_arriving(&self) -> bool {
        self.reader().is_arriving()
    }

    pub(crate) fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.reader().read_exact_at(offset, buf)
    }

    /// Fills `buf` from `offset` on with whole disk blocks: both are multiples of
    /// [`ALIGN`](crate::os::ALIGN). Only the first `needed` bytes have to exist.
    ///
    /// # Errors
    /// As [`ReadAt::read_exact_at`].
    pub(crate) fn read_blocks_at(
        &self,
        offset: u64,
        buf: &mut [u8],
        needed: usize,
    ) -> io::Result<()> {
        match &self.kind {
            Kind::Uncached(file) => file.read_blocks_at(offset, buf, needed),
            _ => self.read_exact_at(offset, &mut buf[..needed]),
        }
    }

    /// Brings all bytes of a mapped file into memory.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn prewarm(&self) -> io::Result<()> {
        match &self.kind {
            Kind::Mapped(file) => file.prewarm(),
            Kind::Uncached(_) | Kind::Other(_) => Ok(()),
        }
    }

    /// How [`read_blocks_at`](Self::read_blocks_at) reads; `None` if it does not read a file past
    /// the page cache.
    pub(crate) fn method(&self) -> Option<ReadMethod> {
        match &self.kind {
            Kind::Uncached(file) => Some(file.method()),
            Kind::Mapped(_) | Kind::Other(_) => None,
        }
    }

    /// Opens the same file without a map, for reads by `method` (`None`: by the first that works).
    /// Other sources stay as they are.
    ///
    /// # Errors
    /// The error of the system; a file that is no longer the one that was opened.
    pub(crate) fn unmapped(&self, method: Option<ReadMethod>) -> io::Result<Self> {
        let kind = match &self.kind {
            Kind::Mapped(file) => Kind::Uncached(Arc::new(file.unmapped(method)?)),
            Kind::Uncached(file) => match file.with_method(method)? {
                Some(other) => Kind::Uncached(Arc::new(other)),
                None => self.kind.clone(),
            },
            Kind::Other(_) => self.kind.clone(),
        };
        Ok(Self {
            name: self.name.clone(),
            kind,
        })
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
        let bytes: &'static [u8] = &[1, 2, 3, 4, 5];
        let source = Source::other("built in", Arc::new(bytes));
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
