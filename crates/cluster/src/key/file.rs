//! The file of the key: its text and a line feed, readable by its owner only.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use super::{ClusterKey, KeyError};
use crate::disk::sync_directory;

/// Bytes that are read at most; a key has 76 with its hyphens.
const MOST_BYTES: u64 = 1024;

impl ClusterKey {
    /// Reads the key of a file.
    ///
    /// # Errors
    /// A file that cannot be read, that others may read (Unix), or that has no key in it.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let file = File::open(path).map_err(|source| at(path, source))?;
        check_mode(path, &file)?;
        let mut bytes = Vec::new();
        let read = file.take(MOST_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|source| at(path, source))?;
        let text = String::from_utf8(bytes).ok();
        let text = text.filter(|text| text.len() as u64 <= MOST_BYTES);
        text.ok_or_else(|| KeyError::NotAKeyFile(path.to_owned()))?
            .parse()
    }

    /// Writes the key to a file with mode 0600, in the place of an older one: the file has the
    /// old key or the new one, whatever happens.
    ///
    /// # Errors
    /// [`KeyError::Io`]; no directory is made.
    pub fn write(&self, path: &Path) -> Result<(), KeyError> {
        let temporary = temporary(path);
        let written = self.write_to(&temporary, path);
        if written.is_err() {
            // The temporary file has no reader; the first error is the one to tell.
            let _ = fs::remove_file(&temporary);
        }
        written.map_err(|source| at(path, source))
    }

    fn write_to(&self, temporary: &Path, path: &Path) -> io::Result<()> {
        let mut file = create_private(temporary)?;
        writeln!(file, "{}", self.text())?;
        file.sync_all()?;
        drop(file);
        fs::rename(temporary, path)?;
        sync_directory(path)
    }
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

/// Creates a file that only its owner may read.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn check_mode(path: &Path, file: &File) -> Result<(), KeyError> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let metadata = file.metadata().map_err(|source| at(path, source))?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let path = path.to_owned();
            return Err(KeyError::Mode { path, mode });
        }
    }
    let _ = (path, file);
    Ok(())
}

fn at(path: &Path, source: io::Error) -> KeyError {
    KeyError::Io {
        path: path.to_owned(),
        source,
    }
}
