//! A file that is there whole or not at all.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::Error;

/// How many names of other people's files are passed by.
const MAX_ATTEMPTS: u32 = 100;

/// A file that is being written under another name. Dropped before [`keep`](Self::keep), it never
/// was.
pub(crate) struct Draft {
    file: Option<File>,
    path: PathBuf,
    at: PathBuf,
}

impl Draft {
    /// Begins a file that is to lie at `path`, or where a link there leads. What is there and is no
    /// plain file is not replaced.
    pub(crate) fn new(path: &Path) -> Result<Self, Error> {
        let blame = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        let path = match fs::metadata(path) {
            Ok(there) if !there.is_file() => {
                return Err(blame(io::Error::other(
                    "this is there and is no plain file",
                )));
            }
            Ok(_) => fs::canonicalize(path).map_err(blame)?,
            Err(_) => path.to_owned(),
        };
        let mut i = 0;
        loop {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(format!(".{}.{i}.part", std::process::id()));
            let at = path.with_file_name(name);
            // Nobody else's: another process may have the same number in another container.
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

    /// Gives the file its name, once it is on the disk.
    pub(crate) fn keep(mut self) -> Result<(), Error> {
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

    /// The error of a write.
    pub(crate) fn failed(&self, source: io::Error) -> Error {
        Error::Io {
            path: self.path.clone(),
            source,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of this test, empty.
    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("atta-draft-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn what_is_no_plain_file_is_not_replaced() {
        let dir = scratch("plain");
        for there in [Path::new("/dev/null"), &dir] {
            let error = Draft::new(there).err().map(|error| error.to_string());
            assert!(
                !there.exists() || error.is_some_and(|error| error.contains("no plain file")),
                "{there:?}"
            );
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn a_link_stays_and_what_is_behind_it_is_replaced() {
        let dir = scratch("link");
        let link = dir.join("link");
        let file = dir.join("file");
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut draft = Draft::new(&link).unwrap();
        draft.write_all(b"new").unwrap();
        draft.keep().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
        fs::remove_dir_all(dir).unwrap();
    }
}
