//! A part on disk: `model.gguf`, sparse, and `model.gguf.part` beside it.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::SystemTime,
};

use atta_store::ReadAt;

use super::{Part, PartError, PartIndex, PartStorage};
use crate::disk::sync_directory;

/// Most bytes of a sidecar that is read: some hundred thousand tensors.
const MOST_INDEX_BYTES: u64 = 64 << 20;

/// The file of a part, open.
#[derive(Debug)]
pub struct PartFile {
    file: File,
    n_bytes: u64,
    path: PathBuf,
}

impl PartFile {
    /// The sidecar's path.
    pub fn index_path(path: &Path) -> PathBuf {
        with_suffix(path, ".part")
    }

    /// Reads the sidecar of a part.
    ///
    /// # Errors
    /// The error of the system; a sidecar that is torn or lies.
    pub fn read_index(path: &Path) -> Result<PartIndex, PartError> {
        let path = Self::index_path(path);
        let file = File::open(&path).map_err(|source| at(&path, source))?;
        let mut bytes = Vec::new();
        let read = file.take(MOST_INDEX_BYTES).read_to_end(&mut bytes);
        read.map_err(|source| at(&path, source))?;
        PartIndex::parse(&bytes)
    }

    /// Opens a part, and marks it as used now. If the file was written after its sidecar, all
    /// tensors that the sidecar calls whole are hashed again; changed ones are absent then.
    ///
    /// # Errors
    /// The error of the system; a sidecar that is torn, lies, or is that of a file of another
    /// length.
    pub fn open(path: &Path) -> Result<Part<Self>, PartError> {
        let index = Self::read_index(path)?;
        let mut part = Part::new(Self::open_file(path)?, index)?;
        if is_newer(path, &Self::index_path(path)) {
            part.verify()?;
        }
        // Which part was used last is a hint for eviction; a read-only sidecar is none.
        let _ = OpenOptions::new()
            .write(true)
            .open(Self::index_path(path))
            .and_then(|file| file.set_modified(SystemTime::now()));
        Ok(part)
    }

    /// Makes a part without tensors: a sparse file of the full length, and its sidecar.
    ///
    /// # Errors
    /// The error of the system; a file of this name exists.
    pub fn create(path: &Path, index: &PartIndex) -> Result<Part<Self>, PartError> {
        let io = |source| at(path, source);
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(io)?;
        file.set_len(index.file_bytes()).map_err(io)?;
        drop(file);
        let mut part = Part::new(Self::open_file(path)?, index.emptied())?;
        part.commit()?;
        Ok(part)
    }

    /// Opens the bytes of a whole file or a part, to serve others from.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn open_to_read(path: &Path) -> Result<Self, PartError> {
        Self::open_with(path, OpenOptions::new().read(true))
    }

    fn open_file(path: &Path) -> Result<Self, PartError> {
        Self::open_with(path, OpenOptions::new().read(true).write(true))
    }

    fn open_with(path: &Path, options: &OpenOptions) -> Result<Self, PartError> {
        let io = |source| at(path, source);
        let file = options.open(path).map_err(io)?;
        Ok(Self {
            n_bytes: file.metadata().map_err(io)?.len(),
            file,
            path: path.to_owned(),
        })
    }
}

impl ReadAt for PartFile {
    fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    #[cfg(unix)]
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, buf, offset)
    }

    #[cfg(windows)]
    fn read_exact_at(&self, mut offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
        while !buf.is_empty() {
            let n = std::os::windows::fs::FileExt::seek_read(&self.file, buf, offset)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            buf = &mut buf[n..];
            offset += n as u64;
        }
        Ok(())
    }
}

impl PartStorage for PartFile {
    #[cfg(unix)]
    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(&self.file, bytes, offset)
    }

    #[cfg(windows)]
    fn write_all_at(&self, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let n = std::os::windows::fs::FileExt::seek_write(&self.file, bytes, offset)?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes = &bytes[n..];
            offset += n as u64;
        }
        Ok(())
    }

    fn commit(&self, index: &[u8]) -> io::Result<()> {
        self.file.sync_data()?;
        let path = Self::index_path(&self.path);
        let temporary = with_suffix(&path, ".new");
        let mut file = File::create(&temporary)?;
        file.write_all(index)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&temporary, &path)?;
        sync_directory(&path)
    }
}

/// Whether a file was written after another one, as far as the system tells.
fn is_newer(path: &Path, other: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    match (time(path), time(other)) {
        (Ok(time), Ok(other)) => time > other,
        _ => true,
    }
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(super) fn at(path: &Path, source: io::Error) -> PartError {
    PartError::Io {
        path: path.to_owned(),
        source,
    }
}
