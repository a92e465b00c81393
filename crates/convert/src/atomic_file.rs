//! Atomic file creation: write under a temporary name, then rename.

use std::{
    fs::{self, File},
    io::{self, Seek, Write},
    path::{Path, PathBuf},
};

use crate::Error;

/// How many temporary names are tried.
const MAX_ATTEMPTS: u32 = 100;

/// A file that is being written under a temporary name. If it is dropped before
/// [`commit`](Self::commit), it is removed.
pub(crate) struct AtomicFile {
    file: Option<File>,
    path: PathBuf,
    at: PathBuf,
}

impl AtomicFile {
    /// Creates a temporary file beside `path`, or beside the target of a link at `path`.
    ///
    /// # Errors
    /// I/O errors, and a `path` that exists but is not a regular file.
    pub(crate) fn new(path: &Path) -> Result<Self, Error> {
        let path = target(path)?;
        let mut i = 0;
        loop {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(format!(".{}.{i}.part", std::process::id()));
            let at = path.with_file_name(name);
            // `create_new`, because a process in another container may have the same id.
            match File::options().write(true).create_new(true).open(&at) {
                Ok(file) => {
                    return Ok(Self {
                        file: Some(file),
                        path,
                        at,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && i < MAX_ATTEMPTS => {
                    i += 1
                }
                Err(source) => return Err(Error::Io { path: at, source }),
            }
        }
    }

    /// Writes `bytes` over the first ones; the next write continues at the end.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn overwrite_start(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(file) = self.file.as_mut() else {
            return Ok(());
        };
        file.rewind()?;
        file.write_all(bytes)?;
        file.seek(io::SeekFrom::End(0)).map(|_| ())
    }

    /// Syncs the file to disk and renames it to its final name.
    pub(crate) fn commit(mut self) -> Result<(), Error> {
        let file = self.file.take();
        let done = file
            .map_or(Ok(()), |file| file.sync_all())
            .and_then(|()| fs::rename(&self.at, &self.path));
        if done.is_err() {
            let _ = fs::remove_file(&self.at);
        }
        done.map_err(|source| Error::Io {
            path: self.path.clone(),
            source,
        })
    }

    /// The error of a failed write.
    pub(crate) fn io_error(&self, source: io::Error) -> Error {
        Error::Io {
            path: self.path.clone(),
            source,
        }
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_mut().map_or(Ok(0), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            let _ = fs::remove_file(&self.at);
        }
    }
}

/// The path of the file to write: that of the target of a link at `path`.
///
/// # Errors
/// I/O errors, and a `path` that exists but is not a regular file.
pub(crate) fn target(path: &Path) -> Result<PathBuf, Error> {
    let io = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => Err(io(io::Error::other("exists and is no regular file"))),
        Ok(_) => fs::canonicalize(path).map_err(io),
        Err(_) => Ok(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of this test, empty.
    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("atta-file-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn only_regular_files_are_replaced() {
        let dir = scratch("plain");
        for there in [Path::new("/dev/null"), &dir] {
            let error = AtomicFile::new(there).err().map(|error| error.to_string());
            assert!(
                !there.exists() || error.is_some_and(|error| error.contains("no regular file")),
                "{there:?}"
            );
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn a_link_stays_and_its_target_is_replaced() {
        let dir = scratch("link");
        let link = dir.join("link");
        let file = dir.join("file");
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut output = AtomicFile::new(&link).unwrap();
        output.write_all(b"new").unwrap();
        output.commit().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        fs::remove_dir_all(dir).unwrap();
    }
}
