//! A read-only map of a whole file.
//!
//! Mapped weights are never copied: the kernel reads pages when they are first accessed and drops
//! them under memory pressure. Pages are read earlier only by [`Map::populate`].

use std::{fs::File, hint::black_box, io};

use super::bus::Watch;

/// A mapped file. Its pages are shared with the page cache and count as file memory, not as private
/// memory.
pub(crate) struct Map {
    /// Declared before the map, so that it is dropped first.
    watch: Watch,
    map: memmap2::Mmap,
}

impl Map {
    /// Maps `file` whole.
    pub(crate) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: the map is read-only and private to this value. The operating system cannot
        // promise that no other process truncates or rewrites the file while it is mapped; that is
        // documented as the user's duty (docs of `ModelFiles::open`), as in every program that maps
        // its input.
        let map = unsafe { memmap2::Mmap::map(file) }?;
        Ok(Self {
            watch: Watch::new(&map),
            map,
        })
    }

    /// Whether a part of it could not be read and was replaced by zeros.
    pub(crate) fn is_damaged(&self) -> bool {
        self.watch.is_damaged()
    }

    /// Reads every page now.
    pub(crate) fn populate(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if self.map.advise(memmap2::Advice::PopulateRead).is_ok() {
            return Ok(());
        }
        // `black_box` keeps the loads: a fold whose result is unused is removed by the optimizer,
        // and nothing is read.
        for page in self.map.chunks(4096) {
            black_box(page[0]);
        }
        Ok(())
    }
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Pages of the map that are in memory, and all of them.
    fn pages_in_memory(map: &Map) -> (usize, usize) {
        let mut pages = vec![0u8; map.as_ref().len().div_ceil(4096)];
        let start = map.as_ref().as_ptr().cast_mut().cast();
        // SAFETY: the map is alive, and the kernel writes one byte for each of its pages.
        let failed = unsafe { libc::mincore(start, map.as_ref().len(), pages.as_mut_ptr()) };
        assert_eq!(failed, 0);
        (
            pages.iter().filter(|&&page| page & 1 == 1).count(),
            pages.len(),
        )
    }

    /// Drops the pages of a file from memory.
    fn forget(file: &File) {
        file.sync_all().unwrap();
        rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri maps no files")]
    fn mapping_reads_nothing_and_populating_reads_everything() {
        let path = std::env::temp_dir().join(format!("atta-map-{}", std::process::id()));
        std::fs::write(&path, vec![7u8; 4 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        forget(&file);
        let before = pages_in_memory(&Map::new(&file).unwrap());
        let map = Map::new(&file).unwrap();
        std::fs::remove_file(&path).unwrap();
        // None, unless the file system is one in memory.
        assert_eq!(pages_in_memory(&map), before);
        map.populate().unwrap();
        assert_eq!(pages_in_memory(&map), (before.1, before.1));
    }
}
