//! The file of a journal: extents of bytes, each with a checksum, within a budget.
//!
//! Knows no sequences. The one idea: the file loses its name as soon as it is open, so that nothing
//! is left of it however the program ends; freed extents are used again by others of their length.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// Bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    at: u64,
    len: u32,
    checksum: u32,
}

/// A file that is made with the first extent.
#[derive(Debug)]
pub(super) struct JournalFile {
    dir: PathBuf,
    budget_bytes: u64,
    file: Option<File>,
    /// Length of the file.
    end: u64,
    /// Freed extents, by their length.
    free: BTreeMap<u32, Vec<u64>>,
    /// Something did not fit, or could not be written.
    is_full: bool,
}

impl JournalFile {
    pub(super) fn new(dir: PathBuf, budget_bytes: u64) -> Self {
        Self {
            dir,
            budget_bytes,
            file: None,
            end: 0,
            free: BTreeMap::new(),
            is_full: false,
        }
    }

    /// Whether something did not fit since there was last [room](Self::has_room).
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Writes bytes; `None`: they are beyond the budget.
    ///
    /// # Errors
    /// The file cannot be made or written: nothing is written any more.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<Option<Extent>> {
        let Ok(len) = u32::try_from(bytes.len()) else {
            return Ok(None);
        };
        let freed = self.free.get_mut(&len).and_then(Vec::pop);
        let at = freed.unwrap_or(self.end);
        if at + u64::from(len) > self.budget_bytes {
            self.is_full = true;
            return Ok(None);
        }
        let written = self.write_at(at, bytes);
        self.is_full |= written.is_err();
        written?;
        self.end = self.end.max(at + u64::from(len));
        let checksum = crc32c::crc32c(bytes);
        Ok(Some(Extent { at, len, checksum }))
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(create(&self.dir)?),
        };
        file.seek(SeekFrom::Start(at))?;
        file.write_all(bytes)
    }

    /// Reads an extent; `None`: it cannot be read, or has changed.
    pub(super) fn read(&mut self, extent: &Extent) -> Option<Vec<u8>> {
        let file = self.file.as_mut()?;
        let mut bytes = vec![0; extent.len as usize];
        let read = file
            .seek(SeekFrom::Start(extent.at))
            .and_then(|_| file.read_exact(&mut bytes));
        let is_whole = read.is_ok() && crc32c::crc32c(&bytes) == extent.checksum;
        is_whole.then_some(bytes)
    }

    /// Notes that a segment that was kept is freed: another one may fit.
    pub(super) fn has_room(&mut self) {
        self.is_full = false;
    }

    /// Forgets all extents.
    pub(super) fn clear(&mut self) {
        self.end = 0;
        self.free.clear();
        self.is_full = false;
    }

    /// Lets other extents take the place of these.
    pub(super) fn free(&mut self, extents: impl IntoIterator<Item = Extent>) {
        for extent in extents {
            self.free.entry(extent.len).or_default().push(extent.at);
        }
    }
}

/// A file without a name, or one that ends with its handle.
fn create(dir: &Path) -> io::Result<File> {
    static N: AtomicU64 = AtomicU64::new(0);
    std::fs::create_dir_all(dir)?;
    let n = N.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!("journal-{}-{n}", std::process::id()));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // FILE_FLAG_DELETE_ON_CLOSE.
    #[cfg(windows)]
    std::os::windows::fs::OpenOptionsExt::custom_flags(&mut options, 0x0400_0000);
    let file = options.open(&path)?;
    #[cfg(unix)]
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(budget_bytes: u64) -> JournalFile {
        JournalFile::new(std::env::temp_dir(), budget_bytes)
    }

    #[test]
    fn extents_come_back_and_freed_ones_are_used_again() {
        let mut file = file(100);
        let a = file.write(&[1; 40]).unwrap().unwrap();
        let b = file.write(&[2; 40]).unwrap().unwrap();
        assert_eq!(file.read(&a), Some(vec![1; 40]));
        assert_eq!(file.write(&[3; 40]).unwrap(), None, "beyond the budget");
        assert!(file.is_full());
        file.free([a]);
        assert!(file.is_full(), "what did not fit would not fit again");
        file.has_room();
        assert!(!file.is_full());
        let c = file.write(&[3; 40]).unwrap().unwrap();
        assert_eq!(file.read(&c), Some(vec![3; 40]));
        assert_eq!(file.read(&b), Some(vec![2; 40]));
    }

    #[test]
    fn an_extent_that_has_changed_is_not_read() {
        let mut file = file(100);
        let a = file.write(&[1; 40]).unwrap().unwrap();
        file.write_at(7, &[9]).unwrap();
        assert_eq!(file.read(&a), None);
    }

    #[test]
    fn a_directory_that_cannot_be_made_ends_the_journal() {
        let mut file = JournalFile::new("/dev/null/journal".into(), 100);
        assert!(file.write(&[1]).is_err());
        assert!(file.is_full());
    }
}
