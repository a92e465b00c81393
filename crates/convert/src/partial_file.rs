//! An output file that survives an interruption: it grows under a temporary name, and a journal
//! beside it holds the checksum of every piece that is whole, so that the same conversion goes on
//! where the last one ended.
//!
//! It refuses to know weights and types. The one idea: nothing is believed. The journal belongs to
//! one conversion only, by the hash of all that its bytes depend on, and every piece of the file is
//! compared with its checksum before it counts.
//!
//! ```text
//! model.gguf.converting           the bytes so far
//! model.gguf.converting.journal   "attaconv", 32 bytes of hash, CRC32C of each whole piece
//! ```

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use atta_formats::{
    Layout,
    gguf::{Checksums, PIECE_BYTES, Piece, Pieces},
};
use crc32c::{crc32c, crc32c_append};

use crate::{Error, atomic_file::target};

const MAGIC: &[u8; 8] = b"attaconv";
/// Bytes of the journal before the checksums.
const HEAD_BYTES: u64 = 8 + 32;
/// Bytes that are hashed at once.
const HASHED_AT_ONCE: usize = 1 << 20;

/// A file that is being written. If it is dropped, the next conversion goes on with it.
pub(crate) struct PartialFile {
    file: File,
    journal: File,
    names: FileNames,
    layout: Layout,
    pieces: Vec<Piece>,
    /// The checksum of each whole piece.
    sums: Vec<u32>,
    /// The checksum of the bytes of the next piece so far.
    sum: u32,
    /// Where the next byte goes.
    at: u64,
}

/// The names of a file and its journal.
struct FileNames {
    /// The final name.
    path: PathBuf,
    part: PathBuf,
    journal: PathBuf,
}

impl FileNames {
    fn of(path: &Path) -> Result<Self, Error> {
        let path = target(path)?;
        let part = partial_path(&path);
        Ok(Self {
            journal: with_ending(&part, ".journal"),
            part,
            path,
        })
    }
}

/// The file that holds what a conversion to `dst` has written so far.
pub fn partial_path(dst: &Path) -> PathBuf {
    with_ending(dst, ".converting")
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}

impl PartialFile {
    /// Opens the partial file of the conversion with this hash, or begins a new one.
    ///
    /// # Errors
    /// I/O errors, a `path` that exists but is not a regular file, [`Error::Busy`] if another
    /// program is writing it.
    pub(crate) fn open(path: &Path, layout: Layout, hash: [u8; 32]) -> Result<Self, Error> {
        let names = FileNames::of(path)?;
        let journal = open(&names.journal)?;
        match journal.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(Error::Busy { path: names.path }),
            // Not every file system has locks.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        let file = open(&names.part)?;
        let pieces = Pieces::new(&layout.tensors, PIECE_BYTES);
        let mut this = Self {
            file,
            journal,
            pieces: pieces.map_or_else(Vec::new, |all| all.of(0..layout.file_bytes).collect()),
            names,
            at: layout.header.len() as u64,
            layout,
            sums: Vec::new(),
            sum: 0,
        };
        this.resume(hash).map_err(|error| this.io_error(error))?;
        Ok(this)
    }

    /// Removes the partial file of a conversion that failed for good.
    pub(crate) fn remove(path: &Path) {
        if let Ok(names) = FileNames::of(path) {
            let _ = fs::remove_file(names.part);
            let _ = fs::remove_file(names.journal);
        }
    }

    /// Keeps the pieces that have the checksums in the journal, up to the first one that has not.
    fn resume(&mut self, hash: [u8; 32]) -> io::Result<()> {
        let sums = self.journaled(hash)?;
        let mut bytes = Vec::new();
        for (piece, sum) in self.pieces.iter().zip(sums) {
            bytes.clear();
            self.file.seek(SeekFrom::Start(piece.bytes.start))?;
            let len = piece.bytes.end - piece.bytes.start;
            (&mut self.file).take(len).read_to_end(&mut bytes)?;
            if bytes.len() as u64 != len || crc32c(&bytes) != sum {
                break;
            }
            self.sums.push(sum);
            self.at = piece.bytes.end;
        }
        self.file.set_len(self.at)?;
        self.file.rewind()?;
        self.file.write_all(&self.layout.header)?;
        self.file.seek(SeekFrom::Start(self.at))?;
        let head = [&MAGIC[..], &hash].concat();
        self.journal.rewind()?;
        self.journal.write_all(&head)?;
        self.journal
            .set_len(HEAD_BYTES + 4 * self.sums.len() as u64)?;
        self.journal.seek(SeekFrom::End(0)).map(drop)
    }

    /// The checksums in the journal; none of another conversion.
    fn journaled(&mut self, hash: [u8; 32]) -> io::Result<Vec<u32>> {
        let most = HEAD_BYTES + 4 * self.pieces.len() as u64;
        let mut bytes = Vec::new();
        (&mut self.journal).take(most).read_to_end(&mut bytes)?;
        let sums = bytes
            .strip_prefix(&MAGIC[..])
            .and_then(|rest| rest.strip_prefix(&hash[..]));
        let sums = sums.unwrap_or_default().as_chunks::<4>().0;
        Ok(sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect())
    }

    /// Bytes of tensors that are whole pieces already.
    pub(crate) fn present_bytes(&self) -> u64 {
        let whole = &self.pieces[..self.sums.len()];
        whole
            .iter()
            .map(|piece| piece.bytes.end - piece.bytes.start)
            .sum()
    }

    /// Bytes of tensor `i` that are there already, from its start; the next bytes are those behind
    /// them.
    pub(crate) fn present_of(&self, i: usize) -> u64 {
        let tensor = &self.layout.tensors[i];
        match self.pieces.get(self.sums.len()) {
            Some(next) if next.tensor < i => 0,
            Some(next) if next.tensor == i => next.bytes.start - tensor.offset,
            _ => tensor.n_bytes,
        }
    }

    /// Appends bytes of the tensor that is written.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while let Some(piece) = self.pieces.get(self.sums.len())
            && !bytes.is_empty()
        {
            if self.at < piece.bytes.start {
                self.at = piece.bytes.start;
                let moved = self.file.seek(SeekFrom::Start(self.at));
                moved.map_err(|error| self.io_error(error))?;
            }
            let left = piece.bytes.end - self.at;
            let (now, rest) = bytes.split_at(bytes.len().min(left as usize));
            bytes = rest;
            let is_whole = now.len() as u64 == left;
            self.append(now, is_whole)
                .map_err(|error| self.io_error(error))?;
        }
        Ok(())
    }

    /// Appends bytes of one piece.
    fn append(&mut self, bytes: &[u8], is_whole: bool) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.at += bytes.len() as u64;
        self.sum = crc32c_append(self.sum, bytes);
        if is_whole {
            self.journal.write_all(&self.sum.to_le_bytes())?;
            self.sums.push(std::mem::take(&mut self.sum));
        }
        Ok(())
    }

    /// Ends the file when all tensors are written; `checksums` says where its header holds them.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn finish(&mut self, checksums: Option<&Checksums>) -> Result<(), Error> {
        let ended = self.file.set_len(self.layout.file_bytes);
        ended
            .and_then(|()| checksums.map_or(Ok(()), |checksums| self.sign(checksums)))
            .and_then(|()| self.file.sync_all())
            .map_err(|error| self.io_error(error))
    }

    /// Puts checksums into the header.
    fn sign(&mut self, checksums: &Checksums) -> io::Result<()> {
        let mut header = self.layout.header.clone();
        checksums.set_sums(&mut header, &self.sums);
        let sum = crc32c(&checksums.without_sum(&header));
        checksums.set_header_sum(&mut header, sum);
        let root = self.hash_behind(&checksums.without_root(&header))?;
        checksums.set_root(&mut header, &root);
        self.file.rewind()?;
        self.file.write_all(&header)
    }

    /// The BLAKE3 hash of a header and the bytes of the file behind it.
    fn hash_behind(&mut self, header: &[u8]) -> io::Result<String> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(header);
        self.file.seek(SeekFrom::Start(header.len() as u64))?;
        let mut bytes = vec![0; HASHED_AT_ONCE];
        loop {
            match self.file.read(&mut bytes)? {
                0 => return Ok(hasher.finalize().to_hex().to_string()),
                n => hasher.update(&bytes[..n]),
            };
        }
    }

    /// Gives the finished file its final name.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn commit(self) -> Result<(), Error> {
        let Self {
            file,
            journal,
            names,
            ..
        } = self;
        drop(file);
        let renamed = fs::rename(&names.part, &names.path);
        renamed.map_err(|source| Error::Io {
            path: names.path,
            source,
        })?;
        drop(journal);
        let _ = fs::remove_file(names.journal);
        Ok(())
    }

    fn io_error(&self, source: io::Error) -> Error {
        Error::Io {
            path: self.names.path.clone(),
            source,
        }
    }
}

fn open(path: &Path) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    let opened = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path);
    opened.map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })
}
