//! Systems that cannot read at given offsets.

use std::{fs::File, io, path::Path};

use super::ReadMethod;

/// A file of which whole blocks are read.
#[derive(Debug)]
pub(super) struct Blocks;

impl Blocks {
    pub(super) fn open(_: &Path, _: ReadMethod) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Always fails.
pub(super) fn read_at(_: &File, _: u64, _: &mut [u8]) -> io::Result<usize> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Does nothing.
pub(super) fn advise_random(_: &File) {}
