//! Compares bytes that are read with the checksums that their file holds.
//!
//! It refuses to know where bytes are read to and what they are used for. The one idea: a read that
//! covers a piece is compared with its checksum at once; the checksums of parts of a piece are kept
//! until all parts were read, combined, and then each part is compared with its own, read by read.
//! A pass over whole matrices thus ends with every byte compared.
//!
//! ```text
//! file     |      piece 0       |      piece 1       |  piece 2 |
//! reads    |    rows 0..64    |   rows 64..128   |  rows 128.. |
//! compared          kept ───► both parts       ──► both parts
//! ```
//! Not compared: single rows of an embedding, which are far smaller than a piece, and parts of a
//! piece whose other parts are never read.

mod damage;
mod verify;

use std::{
    collections::BTreeMap,
    ops::Range,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use atta_formats::gguf::{Checksums, Piece};
use crc32c::{crc32c, crc32c_combine};

use crate::{Error, Extent};
pub use damage::{Damage, DamagedPart};
pub use verify::FileVerification;

/// The checksums of all files of a model.
#[derive(Default)]
pub(crate) struct Checks {
    /// `None` for a file without checksums.
    pub(crate) shards: Vec<Option<ShardChecks>>,
}

/// The checksums of one file.
pub(crate) struct ShardChecks {
    path: PathBuf,
    checksums: Checksums,
    /// Names of the tensors, in file order.
    names: Vec<String>,
    /// The pieces that are read in parts, by number.
    parts: Mutex<BTreeMap<u64, PieceParts>>,
}

/// The parts of a piece that were read.
#[derive(Debug, Default)]
struct PieceParts {
    /// In order, apart.
    list: Vec<PiecePart>,
    /// Whether all of them together had the checksum of the piece.
    is_verified: bool,
}

/// Some bytes of a piece, from its start, and their checksum.
#[derive(Clone, Debug)]
struct PiecePart {
    bytes: Range<u64>,
    sum: u32,
}

impl Checks {
    /// Compares the bytes of an extent that were read.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the tensor and the piece.
    pub(crate) fn check(&self, extent: Extent, bytes: &[u8]) -> Result<(), Error> {
        match self.shards.get(usize::from(extent.shard)) {
            Some(Some(shard)) => shard.check(extent.offset, bytes),
            _ => Ok(()),
        }
    }
}

impl ShardChecks {
    pub(crate) fn new(path: PathBuf, checksums: Checksums, names: Vec<String>) -> Self {
        Self {
            path,
            checksums,
            names,
            parts: Mutex::default(),
        }
    }

    /// Compares the bytes from `offset` on.
    fn check(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let end = offset + bytes.len() as u64;
        self.checksums.pieces.of(offset..end).try_for_each(|piece| {
            let from = piece.bytes.start.max(offset);
            let to = piece.bytes.end.min(end);
            let read = &bytes[(from - offset) as usize..(to - offset) as usize];
            match self.fits(&piece, from, read) {
                true => Ok(()),
                false => Err(Error::Damaged(Box::new(self.damage(&piece)))),
            }
        })
    }

    /// Whether bytes of a piece, from `from` of the file on, are not known to be wrong.
    fn fits(&self, piece: &Piece, from: u64, read: &[u8]) -> bool {
        let sum = crc32c(read);
        let expected = self.checksums.sums[piece.index as usize];
        let n_bytes = piece.bytes.end - piece.bytes.start;
        if read.len() as u64 == n_bytes {
            return sum == expected;
        }
        let start = from - piece.bytes.start;
        let part = PiecePart {
            bytes: start..start + read.len() as u64,
            sum,
        };
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_piece = parts.entry(piece.index).or_default();
        of_piece.add(part);
        of_piece.fits(n_bytes, expected)
    }

    /// Checks the bytes before the tensors.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub(crate) fn check_header(&self, header: &[u8]) -> Result<(), Error> {
        let covered = self.checksums.without_sum(header);
        match crc32c(&covered) == self.checksums.header_sum {
            true => Ok(()),
            false => Err(Error::Damaged(Box::new(Damage {
                path: self.path.clone(),
                part: DamagedPart::Header,
                offset: 0,
                bytes: header.len() as u64,
            }))),
        }
    }

    fn damage(&self, piece: &Piece) -> Damage {
        Damage {
            path: self.path.clone(),
            part: DamagedPart::Tensor(self.names[piece.tensor].clone()),
            offset: piece.bytes.start,
            bytes: piece.bytes.end - piece.bytes.start,
        }
    }
}

impl PieceParts {
    /// Adds a part that was read, or read again. Bytes that are read in other parts than before are
    /// left out.
    fn add(&mut self, part: PiecePart) {
        let before = |known: &PiecePart| known.bytes.end <= part.bytes.start;
        let i = self.list.partition_point(before);
        match self.list.get_mut(i) {
            Some(known) if known.bytes == part.bytes => {
                self.is_verified &= known.sum == part.sum;
                known.sum = part.sum;
            }
            Some(known) if known.bytes.start < part.bytes.end => {}
            _ => self.list.insert(i, part),
        }
    }

    /// Whether the parts, if they are all there, have the checksum of the piece.
    fn fits(&mut self, n_bytes: u64, expected: u32) -> bool {
        if self.is_verified {
            return true;
        }
        let mut end = 0;
        let mut sum = 0;
        for part in &self.list {
            if part.bytes.start != end {
                return true;
            }
            end = part.bytes.end;
            sum = crc32c_combine(sum, part.sum, (end - part.bytes.start) as usize);
        }
        self.is_verified = end == n_bytes && sum == expected;
        self.is_verified || end < n_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(bytes: &[u8], range: Range<u64>) -> PiecePart {
        PiecePart {
            sum: crc32c(&bytes[range.start as usize..range.end as usize]),
            bytes: range,
        }
    }

    #[test]
    fn parts_in_any_order_have_the_checksum_of_the_piece() {
        let bytes: Vec<u8> = (0..100).collect();
        let expected = crc32c(&bytes);
        let mut parts = PieceParts::default();
        for range in [40..70, 0..40, 70..100] {
            parts.add(part(&bytes, range.clone()));
            assert!(parts.fits(100, expected), "{range:?}");
        }
        assert!(parts.is_verified);
    }

    #[test]
    fn a_wrong_part_is_found_with_the_last_one_and_then_at_once() {
        let bytes: Vec<u8> = (0..100).collect();
        let expected = crc32c(&bytes);
        let mut wrong = bytes.clone();
        wrong[33] ^= 1;
        let mut parts = PieceParts::default();
        parts.add(part(&wrong, 0..40));
        assert!(parts.fits(100, expected));
        parts.add(part(&bytes, 40..100));
        assert!(!parts.fits(100, expected));
        // Read again, the first part is right; later it is wrong.
        parts.add(part(&bytes, 0..40));
        assert!(parts.fits(100, expected));
        parts.add(part(&wrong, 0..40));
        assert!(!parts.fits(100, expected));
    }

    #[test]
    fn bytes_in_other_parts_than_before_change_nothing() {
        let bytes: Vec<u8> = (0..100).collect();
        let mut parts = PieceParts::default();
        parts.add(part(&bytes, 10..50));
        for range in [0..20, 40..60, 10..40, 0..100] {
            parts.add(part(&bytes, range));
        }
        assert_eq!(parts.list.len(), 1);
    }
}
