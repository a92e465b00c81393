//! Systems that read at given offsets, but always through their cache.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use super::ReadMethod;

/// A file of which whole blocks are read.
#[derive(Debug)]
pub(super) struct Blocks(File);

impl Blocks {
    pub(super) fn open(path: &Path, method: ReadMethod) -> io::Result<Self> {
        match method {
            ReadMethod::Buffered => File::open(path).map(Self),
            ReadMethod::Direct | ReadMethod::DontCache => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
}

/// Reads through the cache.
pub(super) fn read_at(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    file.read_at(buf, offset)
}

/// Does nothing.
pub(super) fn advise_random(_: &File) {}
