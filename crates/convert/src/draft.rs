//! A file that is there whole or not at all.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::Error;

/// How many names of other people's files are passed by.
const MAX_ATTEMPTS: u32 = 100;

/// A file that is being written under another name. Dropped before [`keep`](Self::keep), it never was.
pub(crate) struct Draft {
    file: Option<File>,
    path: PathBuf,
    at: PathBuf,
}

impl Draft {
    /// Begins a file that is to lie at `path`.
    pub(crate) fn new(path: &Path) -> Result<Self, Error> {
        let mut i = 0;
        loop {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(format!(".{}.{i}.part", std::process::id()));
            let at = path.with_file_name(name);
            // Nobody else's: another process may have the same number in another container.
            match File::options().write(true).create_new(true).open(&at) {
                Ok(file) => return Ok(Self { file: Some(file), path: path.to_owned(), at }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && i < MAX_ATTEMPTS => i += 1,
                Err(source) => return Err(Error::Io { path: at, source }),
            }
        }
    }

    /// Gives the file its name, once it is on the disk.
    pub(crate) fn keep(mut self) -> Result<(), Error> {
        let file = self.file.take();
        let done = file.map_or(Ok(()), |file| file.sync_all()).and_then(|()| fs::rename(&self.at, &self.path));
        if done.is_err() {
            let _ = fs::remove_file(&self.at);
        }
        done.map_err(|source| Error::Io { path: self.path.clone(), source })
    }

    /// The error of a write.
    pub(crate) fn failed(&self, source: io::Error) -> Error {
        Error::Io { path: self.path.clone(), source }
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_mut().map_or(Ok(0), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            let _ = fs::remove_file(&self.at);
        }
    }
}
