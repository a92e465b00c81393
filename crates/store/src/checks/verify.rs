//! Compares whole files with their checksums.
//!
//! Knows no hash: the caller hashes the bytes, each once, in order.

use std::{ops::Range, path::PathBuf};

use atta_formats::TensorInfo;
use crc32c::crc32c;

use super::{Damage, DamagedPart, ShardChecks};
use crate::{Error, ModelFiles, files::at, source::Source};

/// Bytes of padding that are read at once.
const PADDING_BYTES: u64 = 1 << 20;

/// The result of comparing a file with its checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileVerification {
    /// The file.
    pub path: PathBuf,
    /// Its length, bytes.
    pub n_bytes: u64,
    /// Pieces of tensors that were compared.
    pub n_pieces: u64,
    /// All that differs, in the order of the file.
    pub damages: Vec<Damage>,
    /// The BLAKE3 hash that the file says it has, as 64 hexadecimal digits.
    pub root: String,
}

impl ModelFiles {
    /// Compares every byte of all files with the checksums.
    ///
    /// # Errors
    /// The first damage, and as [`verify_file`](Self::verify_file).
    pub fn verify(&self) -> Result<(), Error> {
        for shard in 0..self.directory().n_shards() {
            let report = self.verify_file(shard, |_| ())?;
            if let Some(damage) = report.damages.into_iter().next() {
                return Err(Error::Damaged(Box::new(damage)));
            }
        }
        Ok(())
    }

    /// Compares every byte of a file with its checksums. `each` gets all bytes in order, as the
    /// hash of the file covers them.
    ///
    /// # Errors
    /// [`Error::NoChecksums`], [`Error::Format`] for checksums of other tensors, a file that cannot
    /// be read or changed since it was opened.
    pub fn verify_file(
        &self,
        shard: u16,
        each: impl FnMut(&[u8]),
    ) -> Result<FileVerification, Error> {
        let source = self.source(shard);
        let checks = self.checks_of(shard)?;
        let walk = FileWalk {
            source,
            checks,
            each,
            buffer: Vec::new(),
            damages: Vec::new(),
        };
        let tensors = self.directory().tensors().iter();
        let tensors = tensors.filter(|tensor| tensor.shard == shard);
        let damages = walk.all(self.header(usize::from(shard)), tensors)?;
        self.check_unchanged()?;
        Ok(FileVerification {
            path: source.path().to_owned(),
            n_bytes: source.n_bytes(),
            n_pieces: checks.checksums.pieces.len(),
            damages,
            root: checks.checksums.root.clone(),
        })
    }
}

/// A file that is read from its start to its end.
struct FileWalk<'a, F> {
    source: &'a Source,
    checks: &'a ShardChecks,
    each: F,
    buffer: Vec<u8>,
    damages: Vec<Damage>,
}

impl<F: FnMut(&[u8])> FileWalk<'_, F> {
    /// Compares the whole file; the result is all that differs.
    fn all<'t>(
        mut self,
        header: &[u8],
        tensors: impl Iterator<Item = &'t TensorInfo>,
    ) -> Result<Vec<Damage>, Error> {
        self.header(header);
        let mut end = header.len() as u64;
        for tensor in tensors {
            self.padding(end..tensor.offset)?;
            end = tensor.offset + tensor.n_bytes;
            self.tensor(tensor.offset..end)?;
        }
        self.padding(end..self.source.n_bytes())?;
        Ok(self.damages)
    }

    fn header(&mut self, header: &[u8]) {
        (self.each)(&self.checks.checksums.without_root(header));
        if let Err(Error::Damaged(damage)) = self.checks.check_header(header) {
            self.damages.push(*damage);
        }
    }

    fn tensor(&mut self, bytes: Range<u64>) -> Result<(), Error> {
        let checks = self.checks;
        for piece in checks.checksums.pieces.of(bytes) {
            let sum = crc32c(self.read(piece.bytes.clone())?);
            if sum != checks.checksums.sums[piece.index as usize] {
                self.damages.push(checks.damage(&piece));
            }
        }
        Ok(())
    }

    fn padding(&mut self, mut bytes: Range<u64>) -> Result<(), Error> {
        while bytes.start < bytes.end {
            let end = bytes.end.min(bytes.start + PADDING_BYTES);
            let is_zero = self.read(bytes.start..end)?.iter().all(|&byte| byte == 0);
            if !is_zero {
                self.damages.push(Damage {
                    path: self.checks.path.clone(),
                    part: DamagedPart::Padding,
                    offset: bytes.start,
                    bytes: end - bytes.start,
                });
            }
            bytes.start = end;
        }
        Ok(())
    }

    /// Reads bytes, no more than a piece has, and gives them to `each`.
    fn read(&mut self, bytes: Range<u64>) -> Result<&[u8], Error> {
        let n = (bytes.end - bytes.start) as usize;
        let addressable = self.source.bytes();
        let read = match addressable.and_then(|all| all.get(bytes.start as usize..)?.get(..n)) {
            Some(read) => read,
            None => {
                self.buffer.resize(n, 0);
                let filled = self.source.read_exact_at(bytes.start, &mut self.buffer);
                at(self.source, filled)?;
                &self.buffer[..]
            }
        };
        (self.each)(read);
        Ok(read)
    }
}
