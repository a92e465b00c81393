//! macOS and iOS: reads that leave nothing in the cache (`F_NOCACHE`). What is in the cache already
//! is taken from there.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use rustix::fs::fcntl_nocache;

use super::ReadMethod;

/// A file of which whole blocks are read.
#[derive(Debug)]
pub(super) struct Blocks(File);

impl Blocks {
    pub(super) fn open(path: &Path, method: ReadMethod) -> io::Result<Self> {
        let file = File::open(path)?;
        match method {
            ReadMethod::Direct => fcntl_nocache(&file, true)?,
            ReadMethod::DontCache => return Err(io::ErrorKind::Unsupported.into()),
            ReadMethod::Buffered => {}
        }
        Ok(Self(file))
    }

    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
}

/// Reads through the cache.
pub(super) fn read_at(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    file.read_at(buf, offset)
}

/// Does nothing: the system watches by itself how a file is read.
pub(super) fn advise_random(_: &File) {}
