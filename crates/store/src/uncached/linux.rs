//! Linux and Android: `O_DIRECT`, then reads that leave nothing in the cache, then reads that the
//! cache is told to forget.

use std::{
    fs::{File, OpenOptions},
    io,
    num::NonZeroU64,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::{Advice, OFlags, fadvise};

use super::ReadMethod;

/// A file that is read in whole blocks.
#[derive(Debug)]
pub(super) struct BlockFile {
    file: File,
    method: ReadMethod,
}

impl BlockFile {
    pub(super) fn open(path: &Path, method: ReadMethod) -> io::Result<Self> {
        let flags = if method == ReadMethod::Direct {
            OFlags::DIRECT.bits()
        } else {
            0
        };
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(flags as i32).open(path)?;
        Ok(Self { file, method })
    }

    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let file = &self.file;
        if self.method == ReadMethod::DontCache {
            return read_uncached(file, offset, buf);
        }
        let n = read_at(file, offset, buf)?;
        if self.method == ReadMethod::Buffered {
            let _ = fadvise(file, offset, NonZeroU64::new(n as u64), Advice::DontNeed);
        }
        Ok(n)
    }
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

/// Reads through the cache.
pub(super) fn read_at(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::pread(file, buf, offset)?)
}

/// Disables read-ahead: rows are read one by one, in any order.
pub(super) fn advise_random(file: &File) {
    let _ = fadvise(file, 0, None, Advice::Random);
}
