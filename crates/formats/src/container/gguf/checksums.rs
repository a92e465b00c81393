//! Checksums of a file that streams well: where they are in the header, and which bytes each of
//! them is of.
//!
//! It computes none of them and does no I/O. The one idea: a *piece* is at most 2 MiB of one
//! matrix, so that a read of some rows, of a matrix or of one expert covers whole pieces or few
//! more, and is checked without another read.
//!
//! ```text
//! atta.layout.version   u32          1
//! general.alignment     u32          4096: a disk block
//! atta.crc32c.chunk     u32          bytes of a piece
//! atta.crc32c           [u32]        CRC32C of every piece: tensors in file order, their matrices
//!                                    in order, the last piece of a matrix short
//! atta.crc32c.meta      u32          CRC32C of all bytes before the data, its own value taken as 0
//!                                    and the digits of atta.blake3 as '0'
//! atta.blake3           64 digits    BLAKE3 of the whole file, these digits taken as '0'
//! ```
//! A tensor of more than two dimensions is as many matrices as its outer dimensions multiply to.
//! Bytes between tensors and behind the last one are 0.

use std::ops::Range;

use super::{Layout, Writer};
use crate::{
    Error, ValueType,
    container::{Contents, TensorInfo, metadata::Metadata},
};

/// The version of the layout that is written and understood.
const LAYOUT_VERSION: u32 = 1;
/// The alignment of tensors in files with checksums, bytes.
const STREAM_ALIGNMENT: u32 = 4096;
/// Bytes of a piece in the files that `atta-convert` writes.
pub const PIECE_BYTES: u32 = 2 << 20;

const VERSION: &str = "atta.layout.version";
const PIECE: &str = "atta.crc32c.chunk";
const SUMS: &str = "atta.crc32c";
const HEADER_SUM: &str = "atta.crc32c.meta";
const ROOT: &str = "atta.blake3";

/// The keys of checksums, which hold for one file only.
pub const CHECKSUM_KEYS: [&str; 5] = [VERSION, PIECE, SUMS, HEADER_SUM, ROOT];

/// Digits of the hash of a file.
const ROOT_DIGITS: usize = 64;

/// The checksums that a file holds.
#[derive(Clone, Debug)]
pub struct Checksums {
    /// The pieces.
    pub pieces: Pieces,
    /// The CRC32C of each piece.
    pub sums: Vec<u32>,
    /// The CRC32C of the bytes before the data.
    pub header_sum: u32,
    /// The BLAKE3 hash of the file, as 64 hexadecimal digits.
    pub root: String,
    spans: Spans,
}

/// Where values are in the header, bytes.
#[derive(Clone, Debug)]
struct Spans {
    sums: Range<usize>,
    header_sum: Range<usize>,
    root: Range<usize>,
}

impl Checksums {
    /// The checksums of a file; `None` for a file without them, or with those of a layout that is
    /// not known.
    ///
    /// # Errors
    /// [`Error::MetadataMissing`] and [`Error::MetadataType`] if some of the keys are missing or
    /// have another type, [`Error::Checksums`] if they are those of other tensors.
    pub fn of(file: &Contents) -> Result<Option<Self>, Error> {
        let metadata = &file.metadata;
        let is_known = metadata.u32(VERSION).ok().flatten() == Some(LAYOUT_VERSION);
        if !is_known || metadata.get(SUMS).is_none() {
            return Ok(None);
        }
        let sums = required(metadata.u32s(SUMS)?, SUMS)?;
        Ok(Some(Self {
            spans: Spans::of(metadata)?,
            pieces: pieces_of(file, sums.len() as u64)?,
            sums: sums.iter().collect(),
            header_sum: required(metadata.u32(HEADER_SUM)?, HEADER_SUM)?,
            root: required(metadata.str(ROOT)?, ROOT)?.to_owned(),
        }))
    }

    /// Puts the checksums of all pieces into the header.
    pub fn set_sums(&self, header: &mut [u8], sums: &[u32]) {
        let out = &mut header[self.spans.sums.clone()];
        for (out, sum) in out.chunks_exact_mut(4).zip(sums) {
            out.copy_from_slice(&sum.to_le_bytes());
        }
    }

    /// Puts the checksum of the header into it.
    pub fn set_header_sum(&self, header: &mut [u8], sum: u32) {
        header[self.spans.header_sum.clone()].copy_from_slice(&sum.to_le_bytes());
    }

    /// Puts the hash of the file into the header: 64 digits.
    pub fn set_root(&self, header: &mut [u8], root: &str) {
        let out = &mut header[self.spans.root.clone()];
        out.iter_mut()
            .zip(root.bytes())
            .for_each(|(out, digit)| *out = digit);
    }

    /// The header with the digits of the hash as '0', as the hash covers it.
    pub fn without_root(&self, header: &[u8]) -> Vec<u8> {
        let mut header = header.to_vec();
        header[self.spans.root.clone()].fill(b'0');
        header
    }

    /// The header without the hash, and with its own checksum as 0, as the checksum covers it.
    pub fn without_sum(&self, header: &[u8]) -> Vec<u8> {
        let mut header = self.without_root(header);
        self.set_header_sum(&mut header, 0);
        header
    }
}

impl Spans {
    fn of(metadata: &Metadata) -> Result<Self, Error> {
        let span = |key: &str, ty| required(metadata.span(key, ty)?, key);
        let root = span(ROOT, ValueType::Str)?;
        if root.len() != ROOT_DIGITS {
            return Err(Error::MetadataRange {
                key: ROOT.to_owned(),
                expected: "64 digits",
                got: format!("{} bytes", root.len()),
            });
        }
        Ok(Self {
            sums: span(SUMS, ValueType::Array)?,
            header_sum: span(HEADER_SUM, ValueType::U32)?,
            root,
        })
    }
}

/// The pieces of a file with so many checksums.
fn pieces_of(file: &Contents, n_sums: u64) -> Result<Pieces, Error> {
    let piece_bytes = required(file.metadata.u32(PIECE)?, PIECE)?;
    let pieces = Pieces::new(&file.tensors, piece_bytes);
    let expected = pieces.as_ref().map_or(0, Pieces::len);
    let fitting = pieces.filter(|pieces| pieces.len() == n_sums);
    fitting.ok_or(Error::Checksums {
        expected,
        got: n_sums,
    })
}

fn required<T>(value: Option<T>, key: &str) -> Result<T, Error> {
    value.ok_or_else(|| Error::MetadataMissing {
        key: key.to_owned(),
    })
}

/// How the tensors of a file are cut into pieces.
#[derive(Clone, Debug)]
pub struct Pieces {
    piece_bytes: u64,
    /// In file order.
    tensors: Vec<TensorPieces>,
    n: u64,
}

#[derive(Clone, Debug)]
struct TensorPieces {
    offset: u64,
    n_bytes: u64,
    matrix_bytes: u64,
    /// The number of its first piece.
    first: u64,
}

/// A piece: its number in the file, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its number among all pieces of the file.
    pub index: u64,
    /// The tensor, by its position in the file.
    pub tensor: usize,
    /// Its bytes, from the start of the file.
    pub bytes: Range<u64>,
}

impl Pieces {
    /// The pieces of `piece_bytes` of tensors in file order; `None` for pieces of no bytes, and for
    /// tensors whose offsets do not ascend.
    pub fn new(tensors: &[TensorInfo], piece_bytes: u32) -> Option<Self> {
        let piece_bytes = Some(u64::from(piece_bytes)).filter(|&bytes| bytes > 0)?;
        let mut n = 0u64;
        let mut all = Vec::with_capacity(tensors.len());
        for t in tensors {
            let n_matrices = t.shape.dims().iter().rev().skip(2).product::<u64>();
            let matrix_bytes = t.n_bytes.checked_div(n_matrices)?;
            all.push(TensorPieces {
                offset: t.offset,
                n_bytes: t.n_bytes,
                matrix_bytes,
                first: n,
            });
            let in_tensor = n_matrices.checked_mul(matrix_bytes.div_ceil(piece_bytes))?;
            n = n.checked_add(in_tensor)?;
        }
        all.is_sorted_by_key(|t| t.offset).then_some(Self {
            piece_bytes,
            tensors: all,
            n,
        })
    }

    /// The number of pieces.
    pub fn len(&self) -> u64 {
        self.n
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// The pieces that some bytes of the file are in, in order.
    pub fn of(&self, bytes: Range<u64>) -> impl Iterator<Item = Piece> {
        let next = self.tensors.partition_point(|t| t.offset <= bytes.start);
        let mut tensor = next.saturating_sub(1);
        let mut at = bytes.start;
        std::iter::from_fn(move || {
            loop {
                let t = self.tensors.get(tensor)?;
                at = at.max(t.offset);
                if at >= bytes.end {
                    return None;
                }
                if at < t.offset + t.n_bytes {
                    let piece = self.piece(tensor, at - t.offset);
                    at = piece.bytes.end;
                    return Some(piece);
                }
                tensor += 1;
            }
        })
    }

    /// The piece of byte `at` of a tensor.
    fn piece(&self, tensor: usize, at: u64) -> Piece {
        let t = &self.tensors[tensor];
        let matrix = at / t.matrix_bytes;
        let in_matrix = at % t.matrix_bytes / self.piece_bytes;
        let start = matrix * t.matrix_bytes + in_matrix * self.piece_bytes;
        let end = (start + self.piece_bytes).min((matrix + 1) * t.matrix_bytes);
        Piece {
            index: t.first + matrix * t.matrix_bytes.div_ceil(self.piece_bytes) + in_matrix,
            tensor,
            bytes: t.offset + start..t.offset + end,
        }
    }
}

impl Writer {
    /// Builds a header as [`finish`](Self::finish) does, with room for checksums of pieces of
    /// `piece_bytes`, and places the tensors in order, each at a disk block. [`Checksums::of`] the
    /// header says where checksums go.
    ///
    /// # Errors
    /// As [`finish`](Self::finish); [`Error::Count`] for more pieces than a header can hold.
    pub fn finish_with_checksums(mut self, piece_bytes: u32) -> Result<Layout, Error> {
        /// Far above the pieces of any model: those of two petabytes.
        const MAX_PIECES: u64 = 1 << 30;
        let pieces = Pieces::new(self.tensors(), piece_bytes);
        let n = pieces.map_or(u64::MAX, |pieces| pieces.len());
        if n > MAX_PIECES {
            return Err(Error::Count {
                what: "pieces",
                got: n,
                max: MAX_PIECES,
            });
        }
        self.set_alignment(STREAM_ALIGNMENT)?;
        self.set_u32(VERSION, LAYOUT_VERSION);
        self.set_u32(PIECE, piece_bytes);
        self.set_u32s(SUMS, &vec![0; n as usize]);
        self.set_u32(HEADER_SUM, 0);
        self.set_str(ROOT, &"0".repeat(ROOT_DIGITS));
        self.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::TensorType;

    fn layout() -> Layout {
        let mut writer = Writer::new();
        writer.set_str("general.architecture", "llama");
        let mut add = |name, dims: &[u64]| writer.add_tensor(name, dims, TensorType::F32).unwrap();
        add("vector", &[100]);
        add("matrix", &[1000, 1024]);
        add("experts", &[3, 300, 1024]);
        writer.finish_with_checksums(PIECE_BYTES).unwrap()
    }

    fn checksums(layout: &Layout) -> Result<Option<Checksums>, Error> {
        let header = Arc::new(layout.header.clone());
        Checksums::of(&Contents::parse(header, layout.file_bytes).unwrap())
    }

    fn all_pieces(layout: &Layout) -> Vec<Piece> {
        let pieces = checksums(layout).unwrap().unwrap().pieces;
        let all: Vec<Piece> = pieces.of(0..layout.file_bytes).collect();
        assert_eq!(pieces.len(), all.len() as u64);
        all
    }

    #[test]
    fn pieces_cover_every_byte_of_tensors_once() {
        let layout = layout();
        let all = all_pieces(&layout);
        assert!(all.iter().zip(0..).all(|(piece, i)| piece.index == i));
        for (i, t) in layout.tensors.iter().enumerate() {
            let mut at = t.offset;
            for piece in all.iter().filter(|piece| piece.tensor == i) {
                assert_eq!(piece.bytes.start, at);
                at = piece.bytes.end;
            }
            assert_eq!(at, t.offset + t.n_bytes);
        }
    }

    #[test]
    fn pieces_are_of_one_matrix_and_begin_at_a_disk_block() {
        let layout = layout();
        assert!(layout.tensors.iter().all(|t| t.offset.is_multiple_of(4096)));
        let all = all_pieces(&layout);
        assert_eq!(all.len(), 1 + 2 + 3);
        let expert = &all[4].bytes;
        assert_eq!(expert.end - expert.start, 300 * 1024 * 4);
        let pieces = checksums(&layout).unwrap().unwrap().pieces;
        let two = pieces.of(expert.end - 1..expert.end + 1);
        assert_eq!(two.map(|piece| piece.index).collect::<Vec<_>>(), [4, 5]);
        let padding = layout.tensors[0].offset + 400;
        assert_eq!(pieces.of(padding..padding + 1).count(), 0);
    }

    #[test]
    fn checksums_come_back_as_they_were_set() {
        let mut layout = layout();
        let empty = checksums(&layout).unwrap().unwrap();
        empty.set_header_sum(&mut layout.header, 77);
        empty.set_root(&mut layout.header, &"ab".repeat(32));
        empty.set_sums(&mut layout.header, &[1, 2, 3, 4, 5, 6]);
        let found = checksums(&layout).unwrap().unwrap();
        assert_eq!(
            (&found.sums[..], found.header_sum),
            (&[1, 2, 3, 4, 5, 6][..], 77)
        );
        assert_eq!(found.root, "ab".repeat(32));
    }

    #[test]
    fn the_covered_header_depends_on_all_but_its_own_checksum_and_the_hash() {
        let mut layout = layout();
        let checksums = checksums(&layout).unwrap().unwrap();
        let covered = checksums.without_sum(&layout.header);
        checksums.set_header_sum(&mut layout.header, 77);
        checksums.set_root(&mut layout.header, &"ab".repeat(32));
        assert_eq!(checksums.without_sum(&layout.header), covered);
        checksums.set_sums(&mut layout.header, &[1, 2, 3, 4, 5, 6]);
        assert_ne!(checksums.without_sum(&layout.header), covered);
    }

    fn small() -> Writer {
        let mut writer = Writer::new();
        writer.add_tensor("a", &[8], TensorType::F32).unwrap();
        writer
    }

    fn get(writer: &Writer) -> Result<Option<Checksums>, Error> {
        checksums(&writer.clone().finish().unwrap())
    }

    #[test]
    fn a_plain_file_has_no_checksums() {
        assert!(get(&small()).unwrap().is_none());
    }

    #[test]
    fn checksums_of_other_tensors_are_an_error() {
        let mut writer = small();
        writer.set_u32(VERSION, LAYOUT_VERSION);
        writer.set_u32(PIECE, PIECE_BYTES);
        writer.set_u32s(SUMS, &[1, 2]);
        assert!(matches!(get(&writer), Err(Error::MetadataMissing { .. })));
        writer.set_u32(HEADER_SUM, 1);
        writer.set_str(ROOT, &"0".repeat(64));
        let error = get(&writer).unwrap_err();
        assert_eq!(
            error,
            Error::Checksums {
                expected: 1,
                got: 2
            }
        );
        writer.set_u32(PIECE, 0);
        assert!(matches!(get(&writer), Err(Error::Checksums { .. })));
    }
}
