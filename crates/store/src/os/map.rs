//! A read-only map of a whole file.
//!
//! Weights are never copied: the kernel brings pages in when they are first read and drops them under pressure.
//! No page is read ahead unless the caller asks for it ([`Map::populate`]).

use std::{fs::File, hint::black_box, io};

/// A mapped file. Its pages are shared with the page cache and count as file memory, not as private memory.
pub(crate) struct Map(memmap2::Mmap);

impl Map {
    /// Maps `file` whole.
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the map is read-only and private to this value. What the operating system cannot promise is that no
        // other process truncates or rewrites the file while it is mapped; that is documented as the user's duty
        // (docs of `ModelFiles::open`), as it is for every program that maps its input.
        unsafe { memmap2::Mmap::map(file) }.map(Self)
    }

    /// Reads every page now.
    pub(crate) fn populate(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if self.0.advise(memmap2::Advice::PopulateRead).is_ok() {
            return Ok(());
        }
        // `black_box` keeps the loads: a fold whose result is unused is removed by the optimizer, and nothing is read.
        for page in self.0.chunks(4096) {
            black_box(page[0]);
        }
        Ok(())
    }
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
