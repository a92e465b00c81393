//! Reading files at given places, past the page cache where the system allows it.
//!
//! A model that does not fit into memory would push everything else out of the page cache, itself
//! first. So its bytes go straight into our memory ([`ReadMethod::Direct`]); where a file system cannot
//! do that, they are dropped from the cache right after reading.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::region::ALIGN;

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

/// A file that is read at given places, from any thread.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    origin: Origin,
    len: u64,
}

#[derive(Debug)]
enum Origin {
    File {
        /// For large reads, by `method`.
        bulk: File,
        method: ReadMethod,
        /// For small ones, through the page cache.
        cached: File,
        modified: Option<SystemTime>,
    },
    /// Part of the program.
    Static(&'static [u8]),
}

impl Source {
    /// Opens `path` by the first method that works for it, or by `method` alone.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn open(path: &Path, method: Option<ReadMethod>) -> io::Result<Self> {
        let cached = File::open(path)?;
        let meta = cached.metadata()?;
        sys::advise_random(&cached);
        let methods = method.map_or(ReadMethod::ALL.to_vec(), |method| vec![method]);
        let mut failure = io::Error::from(io::ErrorKind::Unsupported);
        for method in methods {
            match sys::open(path, method).and_then(|bulk| try_out(bulk, method, meta.len())) {
                Ok(bulk) => {
                    let origin = Origin::File {
                        bulk,
                        method,
                        cached,
                        modified: meta.modified().ok(),
                    };
                    return Ok(Self {
                        path: path.to_owned(),
                        origin,
                        len: meta.len(),
                    });
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Refuses a file that is not the one that had this length and time.
    ///
    /// # Errors
    /// As [`check_unchanged`](Self::check_unchanged).
    pub(crate) fn must_be(&self, len: u64, modified: Option<SystemTime>) -> io::Result<()> {
        match &self.origin {
            Origin::File { cached, .. } => check_unchanged(cached, len, modified),
            Origin::Static(_) => Ok(()),
        }
    }

    /// Bytes of the program itself.
    pub(crate) fn of_program(name: &Path, bytes: &'static [u8]) -> Self {
        Self {
            path: name.to_owned(),
            origin: Origin::Static(bytes),
            len: bytes.len() as u64,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How large reads are done; `None` for bytes of the program.
    pub(crate) fn method(&self) -> Option<ReadMethod> {
        match self.origin {
            Origin::File { method, .. } => Some(method),
            Origin::Static(_) => None,
        }
    }

    /// Fills `buf` from `offset` on; both ends are multiples of [`ALIGN`], but the file may end up
    /// to a block earlier: only the first `needed` bytes have to be there.
    ///
    /// # Errors
    /// What the system says; a file that ends too early has been truncated.
    pub(crate) fn read_bulk(&self, offset: u64, buf: &mut [u8], needed: usize) -> io::Result<()> {
        debug_assert!(offset.is_multiple_of(ALIGN as u64) && buf.len().is_multiple_of(ALIGN));
        match &self.origin {
            Origin::File { bulk, method, .. } => fill(bulk, Some(*method), offset, buf, needed),
            Origin::Static(bytes) => copy(bytes, offset, buf, needed),
        }
    }

    /// Fills `buf` from anywhere, through the page cache: for the few bytes of single rows.
    ///
    /// # Errors
    /// As [`read_bulk`](Self::read_bulk).
    pub(crate) fn read_small(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let needed = buf.len();
        match &self.origin {
            Origin::File { cached, .. } => fill(cached, None, offset, buf, needed),
            Origin::Static(bytes) => copy(bytes, offset, buf, needed),
        }
    }

    /// Whether the file is still what it was when it was opened.
    ///
    /// # Errors
    /// A file that became shorter or was written to.
    pub(crate) fn check_unchanged(&self) -> io::Result<()> {
        match &self.origin {
            Origin::File {
                cached, modified, ..
            } => check_unchanged(cached, self.len, *modified),
            Origin::Static(_) => Ok(()),
        }
    }
}

/// Whether a file still has this length and time.
///
/// # Errors
/// If it does not.
pub(crate) fn check_unchanged(
    file: &File,
    len: u64,
    modified: Option<SystemTime>,
) -> io::Result<()> {
    let meta = file.metadata()?;
    match meta.len() {
        now if now < len => Err(truncated()),
        now if now == len && meta.modified().ok() == modified => Ok(()),
        _ => Err(io::Error::other("the file was changed while it was in use")),
    }
}

/// Reads until the first `needed` bytes of `buf` are there.
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
            // What came short goes on at a whole block, where direct reads have to begin.
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

fn copy(from: &[u8], offset: u64, buf: &mut [u8], needed: usize) -> io::Result<()> {
    let from = usize::try_from(offset)
        .ok()
        .and_then(|at| from.get(at..))
        .ok_or_else(truncated)?;
    let n = buf.len().min(from.len());
    if n < needed {
        return Err(truncated());
    }
    buf[..n].copy_from_slice(&from[..n]);
    Ok(())
}

fn truncated() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the file was truncated while it was in use",
    )
}

/// Some file systems open a file for direct reading and then refuse to read.
fn try_out(file: File, method: ReadMethod, len: u64) -> io::Result<File> {
    if len > 0 {
        let mut slots = super::Slot::carve(&[ALIGN])?;
        let slot = slots.first_mut().ok_or(io::ErrorKind::OutOfMemory)?;
        if sys::read(&file, Some(method), 0, slot)? == 0 {
            return Err(truncated());
        }
    }
    Ok(file)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod sys {
    use std::{fs::OpenOptions, io::IoSliceMut, num::NonZeroU64, os::unix::fs::OpenOptionsExt};

    use rustix::{
        fs::{Advice, OFlags, fadvise},
        io::{ReadWriteFlags, preadv2},
    };

    use super::{File, Path, ReadMethod, io};

    /// Not in the C library yet; see `include/uapi/linux/fs.h`.
    const DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

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
            return Ok(preadv2(
                file,
                &mut [IoSliceMut::new(buf)],
                offset,
                DONTCACHE,
            )?);
        }
        let n = rustix::io::pread(file, &mut *buf, offset)?;
        if method == Some(ReadMethod::Buffered) {
            let _ = fadvise(file, offset, NonZeroU64::new(n as u64), Advice::DontNeed);
        }
        Ok(n)
    }

    /// No reading ahead: what is read is one row here, one row there.
    pub(super) fn advise_random(file: &File) {
        let _ = fadvise(file, 0, None, Advice::Random);
    }
}

/// Systems that read at given places, but always through their cache.
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
