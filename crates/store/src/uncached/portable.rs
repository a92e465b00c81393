//! Systems other than Linux, Android and Windows. macOS and iOS keep nothing of such reads
//! (`F_NOCACHE`), but take from their cache the pages that are there already; others read through
//! it, and some cannot read at given offsets.

#[cfg(unix)]
use std::os::unix::fs::FileExt;
use std::{fs::File, io, path::Path};

use super::ReadMethod;

/// A file that is read in whole blocks.
#[derive(Debug)]
pub(super) struct BlockFile(File);

impl BlockFile {
    pub(super) fn open(path: &Path, method: ReadMethod) -> io::Result<Self> {
        let file = File::open(path)?;
        match method {
            ReadMethod::Direct => bypass_cache(&file)?,
            ReadMethod::DontCache => return Err(io::ErrorKind::Unsupported.into()),
            ReadMethod::Buffered => {}
        }
        Ok(Self(file))
    }

    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        read_at(&self.0, offset, buf)
    }
}

#[cfg(target_vendor = "apple")]
fn bypass_cache(file: &File) -> io::Result<()> {
    Ok(rustix::fs::fcntl_nocache(file, true)?)
}

#[cfg(not(target_vendor = "apple"))]
fn bypass_cache(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Reads through the cache.
#[cfg(unix)]
pub(super) fn read_at(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    file.read_at(buf, offset)
}

#[cfg(not(unix))]
pub(super) fn read_at(_: &File, _: u64, _: &mut [u8]) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Does nothing: the system watches by itself how a file is read.
pub(super) fn advise_random(_: &File) {}
