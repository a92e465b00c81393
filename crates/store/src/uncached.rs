//! Reading files at given offsets, past the page cache where the system allows it.
//!
//! A model that does not fit into memory would evict everything else from the page cache, itself
//! first. So its bytes go straight into private memory ([`ReadMethod::Direct`]); where a file
//! system cannot do that, they are dropped from the cache right after reading.

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
    /// Straight from the device (`O_DIRECT`).
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
    blocks: File,
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
            match sys::open(path, method).and_then(|file| try_out(file, method, version.len)) {
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
        fill(&self.blocks, Some(self.method), offset, buf, needed)
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
        fill(&self.cached, None, offset, buf, needed)
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

/// Reads until the first `needed` bytes of `buf` are filled.
fn fill(
    file: &File,
    method: Option<ReadMethod>,
    offset: u64,
    buf: &mut [u8],
    needed: usize,
) -> io::Result<()> {
    let mut done = 0;
    while done < needed {
        match sys::read(file, method, offset + done as u64, &mut buf[done..]) {
            Ok(0) => return Err(truncated()),
            // A short direct read continues at a block border, where direct reads have to begin.
            Ok(n) if method == Some(ReadMethod::Direct) && done + n < needed => {
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
fn try_out(file: File, method: ReadMethod, len: u64) -> io::Result<File> {
    if len > 0 {
        let mut slots = Slot::carve(&[ALIGN])?;
        let slot = slots.first_mut().ok_or(io::ErrorKind::OutOfMemory)?;
        if sys::read(&file, Some(method), 0, slot)? == 0 {
            return Err(truncated());
        }
    }
    Ok(file)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod sys {
    use std::{fs::OpenOptions, num::NonZeroU64, os::unix::fs::OpenOptionsExt};

    use rustix::fs::{Advice, OFlags, fadvise};

    use super::{File, Path, ReadMethod, io};

    pub(super) fn open(path: &Path, method: ReadMethod) -> io::Result<File> {
        let flags = if method == ReadMethod::Direct {
            OFlags::DIRECT.bits()
        } else {
            0
        };
        OpenOptions::new()
            .read(true)
            .custom_flags(flags as i32)
            .open(path)
    }

    pub(super) fn read(
        file: &File,
        method: Option<ReadMethod>,
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<usize> {
        if method == Some(ReadMethod::DontCache) {
            return read_uncached(file, offset, buf);
        }
        let n = rustix::io::pread(file, &mut *buf, offset)?;
        if method == Some(ReadMethod::Buffered) {
            let _ = fadvise(file, offset, NonZeroU64::new(n as u64), Advice::DontNeed);
        }
        Ok(n)
    }

    #[cfg(target_os = "linux")]
    fn read_uncached(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        use rustix::io::{ReadWriteFlags, preadv2};
        /// Missing in the C library so far; see `include/uapi/linux/fs.h`.
        const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);
        let buf = io::IoSliceMut::new(buf);
        Ok(preadv2(file, &mut [buf], offset, DONTCACHE)?)
    }

    /// The C library of Android has no `preadv2`.
    #[cfg(target_os = "android")]
    fn read_uncached(_: &File, _: u64, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Disables read-ahead: rows are read one by one, in any order.
    pub(super) fn advise_random(file: &File) {
        let _ = fadvise(file, 0, None, Advice::Random);
    }
}

/// Systems that read at given offsets, but always through their cache.
#[cfg(any(
    windows,
    all(unix, not(any(target_os = "linux", target_os = "android")))
))]
mod sys {
    #[cfg(unix)]
    use std::os::unix::fs::FileExt;
    #[cfg(windows)]
    use std::os::windows::fs::FileExt;

    use super::{File, Path, ReadMethod, io};

    pub(super) fn open(path: &Path, method: ReadMethod) -> io::Result<File> {
        match method {
            ReadMethod::Buffered => File::open(path),
            ReadMethod::Direct | ReadMethod::DontCache => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(super) fn read(
        file: &File,
        _: Option<ReadMethod>,
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<usize> {
        #[cfg(unix)]
        return file.read_at(buf, offset);
        #[cfg(windows)]
        return file.seek_read(buf, offset);
    }

    pub(super) fn advise_random(_: &File) {}
}

#[cfg(not(any(unix, windows)))]
mod sys {
    use super::{File, Path, ReadMethod, io};

    pub(super) fn open(_: &Path, _: ReadMethod) -> io::Result<File> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn read(_: &File, _: Option<ReadMethod>, _: u64, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn advise_random(_: &File) {}
}
