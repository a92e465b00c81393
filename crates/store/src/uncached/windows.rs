//! Windows: reads without the cache (`FILE_FLAG_NO_BUFFERING`). The system reads one by one through
//! a handle, so that a file has as many of them as threads read at a time.

use std::{
    fs::{File, OpenOptions},
    io,
    os::windows::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::ReadMethod;
use crate::stream::MAX_READERS;

/// `FILE_FLAG_NO_BUFFERING` of `winbase.h`.
const NO_BUFFERING: u32 = 0x2000_0000;

/// A file that is read in whole blocks, by several threads at a time.
#[derive(Debug)]
pub(super) struct BlockFile {
    handles: Vec<File>,
    /// The read that comes next, counted from 0.
    next: AtomicUsize,
}

impl BlockFile {
    pub(super) fn open(path: &Path, method: ReadMethod) -> io::Result<Self> {
        let flags = match method {
            ReadMethod::Direct => NO_BUFFERING,
            ReadMethod::DontCache => return Err(io::ErrorKind::Unsupported.into()),
            ReadMethod::Buffered => 0,
        };
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags);
        let handles = (0..MAX_READERS).map(|_| options.open(path));
        Ok(Self {
            handles: handles.collect::<io::Result<_>>()?,
            next: AtomicUsize::new(0),
        })
    }

    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.next.fetch_add(1, Ordering::Relaxed);
        self.handles[read % self.handles.len()].seek_read(buf, offset)
    }
}

/// Reads through the cache.
pub(super) fn read_at(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    file.seek_read(buf, offset)
}

/// Does nothing: such advice is given when a file is opened.
pub(super) fn advise_random(_: &File) {}
