//! Reading files at given offsets, past the page cache where the system allows it.
//!
//! A model that does not fit into memory would evict everything else from the page cache, itself
//! first. So its bytes go straight into private memory ([`ReadMethod::Direct`]); where a file
//! system cannot do that, they are dropped from the cache right after reading.

#[cfg_attr(any(target_os = "linux", target_os = "android"), path = "linux.rs")]
#[cfg_attr(windows, path = "windows.rs")]
#[cfg_attr(
    not(any(target_os = "linux", target_os = "android", windows)),
    path = "portable.rs"
)]
mod sys;

use std::{
    fs::{File, Metadata},
    io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    os::{ALIGN, Slot},
    source::{ReadAt, truncated},
};

/// How bytes get from a file into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMethod {
    /// Straight from the device (`O_DIRECT`, `FILE_FLAG_NO_BUFFERING`), or without being kept
    /// (`F_NOCACHE`).
    Direct,
    /// Through the page cache, which forgets them at once (`RWF_DONTCACHE`, Linux 6.14).
    DontCache,
    /// Through the page cache, which is told to forget them.
    Buffered,
}

impl ReadMethod {
    /// In the order in which they are tried.
    pub const ALL: [Self; 3] = [Self::Direct, Self::DontCache, Self::Buffered];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::DontCache => "uncached",
            Self::Buffered => "buffered",
        }
    }
}

/// A file that is read without a map, from any thread.
#[derive(Debug)]
pub(crate) struct UncachedFile {
    path: PathBuf,
    /// For whole disk blocks, by `method`.
    blocks: sys::BlockFile,
    method: ReadMethod,
    /// For small reads, through the page cache.
    cached: File,
    version: FileVersion,
}

impl UncachedFile {
    /// Opens `path` by `method` alone, or by the first method that works for it.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn open(path: &Path, method: Option<ReadMethod>) -> io::Result<Self> {
        let cached = File::open(path)?;
        let version = FileVersion::of(&cached.metadata()?);
        sys::advise_random(&cached);
        let methods = method.map_or(ReadMethod::ALL.to_vec(), |method| vec![method]);
        let mut failure = io::Error::from(io::ErrorKind::Unsupported);
        for method in methods {
            match sys::BlockFile::open(path, method).and_then(|file| try_out(file, version.len)) {
                Ok(blocks) => {
                    return Ok(Self {
                        path: path.to_owned(),
                        blocks,
                        method,
                        cached,
                        version,
                    });
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Opens the file at `path`, which must still have this version.
    ///
    /// # Errors
    /// The error of the system; a file that became shorter or was written to.
    pub(crate) fn reopen(
        path: &Path,
        method: Option<ReadMethod>,
        version: &FileVersion,
    ) -> io::Result<Self> {
        let file = Self::open(path, method)?;
        version.check(&file.cached)?;
        Ok(file)
    }

    /// How it reads whole disk blocks.
    pub(crate) fn method(&self) -> ReadMethod {
        self.method
    }

    /// Opens the same file for reads by `method`; `None` if it is read so, or for no method.
    ///
    /// # Errors
    /// As [`reopen`](Self::reopen).
    pub(crate) fn with_method(&self, method: Option<ReadMethod>) -> io::Result<Option<Self>> {
        match method {
            Some(method) if method != self.method => {
                Self::reopen(&self.path, Some(method), &self.version).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Fills `buf` from `offset` on with whole disk blocks: both are multiples of [`ALIGN`]. Only
    /// the first `needed` bytes have to exist.
    ///
    /// # Errors
    /// As [`ReadAt::read_exact_at`].
    pub(crate) fn read_blocks_at(
        &self,
        offset: u64,
        buf: &mut [u8],
        needed: usize,
    ) -> io::Result<()> {
        debug_assert!(offset.is_multiple_of(ALIGN as u64) && buf.len().is_multiple_of(ALIGN));
        let read = |offset, buf: &mut [u8]| self.blocks.read_at(offset, buf);
        fill(
            &read,
            self.method == ReadMethod::Direct,
            offset,
            buf,
            needed,
        )
    }
}

impl ReadAt for UncachedFile {
    fn n_bytes(&self) -> u64 {
        self.version.len
    }

    fn version(&self) -> Option<u128> {
        self.version.number()
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let needed = buf.len();
        let read = |offset, buf: &mut [u8]| sys::read_at(&self.cached, offset, buf);
        fill(&read, false, offset, buf, needed)
    }

    fn check_unchanged(&self) -> io::Result<()> {
        self.version.check(&self.cached)
    }
}

/// Tells the version of a file that was opened from later ones.
#[derive(Clone, Debug)]
pub(crate) struct FileVersion {
    /// Bytes.
    pub(crate) len: u64,
    /// When it was written, if the system knows.
    modified: Option<SystemTime>,
}

impl FileVersion {
    pub(crate) fn of(meta: &Metadata) -> Self {
        Self {
            len: meta.len(),
            modified: meta.modified().ok(),
        }
    }

    /// The time of the last write, nanoseconds since 1970; `None` if the system does not know, or
    /// for an earlier one.
    pub(crate) fn number(&self) -> Option<u128> {
        let since_epoch = self.modified?.duration_since(UNIX_EPOCH).ok()?;
        Some(since_epoch.as_nanos())
    }

    /// Checks that `file` still has this version.
    ///
    /// # Errors
    /// A file that became shorter or was written to.
    pub(crate) fn check(&self, file: &File) -> io::Result<()> {
        let meta = file.metadata()?;
        match meta.len() {
            len if len < self.len => Err(truncated()),
            len if len == self.len && meta.modified().ok() == self.modified => Ok(()),
            _ => Err(io::Error::other("the file was changed while it was in use")),
        }
    }
}

/// Reads at an offset; the number of bytes.
type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> io::Result<usize>;

/// Reads until the first `needed` bytes of `buf` are filled.
fn fill(
    read: Read<'_>,
    is_direct: bool,
    offset: u64,
    buf: &mut [u8],
    needed: usize,
) -> io::Result<()> {
    let mut done = 0;
    while done < needed {
        match read(offset + done as u64, &mut buf[done..]) {
            Ok(0) => return Err(truncated()),
            // A short direct read continues at a block border, where direct reads have to begin.
            Ok(n) if is_direct && done + n < needed => {
                let whole = (done + n) / ALIGN * ALIGN;
                if whole == done {
                    return Err(truncated());
                }
                done = whole;
            }
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads a block: some file systems open a file for direct reads and then refuse to read.
fn try_out(file: sys::BlockFile, len: u64) -> io::Result<sys::BlockFile> {
    if len > 0 {
        let mut slots = Slot::carve(&[ALIGN])?;
        let slot = slots.first_mut().ok_or(io::ErrorKind::OutOfMemory)?;
        if file.read_at(0, slot)? == 0 {
            return Err(truncated());
        }
    }
    Ok(file)
}
