//! Layers of a file as if none of them were compressed: those that are follow the end of the file
//! at offsets of their own, and are decompressed when they are read, the last one kept.

use std::{
    io::Read,
    sync::{Arc, Mutex},
};

use atta_formats::{
    SharedBytes, TensorType, decode_rows,
    qsf::{Compression, LayerEntry, Window, crc32},
};

use crate::{Error, RowSource};

/// The most bytes that a byte of LZ4 can stand for.
const MAX_LZ4_RATIO: u64 = 255;

/// A file with its layers decompressed behind it.
pub(super) struct ExpandedFile {
    file: SharedBytes,
    stored: Vec<LayerEntry>,
    /// The same with new places for layers that are compressed.
    expanded: Vec<LayerEntry>,
    /// Length, with the layers behind its end.
    n_bytes: u64,
    /// The layer that was decompressed last.
    last: Mutex<Option<(usize, SharedBytes)>>,
}

impl ExpandedFile {
    /// Checks the checksums of all layers.
    ///
    /// # Errors
    /// A description of the first layer that is damaged, or compressed in an unknown way.
    pub(super) fn new(file: SharedBytes, stored: Vec<LayerEntry>) -> Result<Self, String> {
        let mut n_bytes = (*file).as_ref().len() as u64;
        let mut expanded = stored.clone();
        for (layer, entry) in expanded.iter_mut().enumerate() {
            check(&file, layer, entry)?;
            if entry.compression() != 0 {
                entry.set_offset(n_bytes);
                n_bytes += u64::from(entry.raw_bytes());
                entry.set_compression(0);
                entry.set_stored_bytes(entry.raw_bytes());
            }
        }
        Ok(Self {
            file,
            stored,
            expanded,
            n_bytes,
            last: Mutex::new(None),
        })
    }

    /// The index of layers as it is in the file, and as it would be without compression.
    pub(super) fn entries(&self) -> [&[LayerEntry]; 2] {
        [&self.stored, &self.expanded]
    }

    /// Length, with the layers behind the end of the file.
    pub(super) fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// Whether any layer is compressed.
    pub(super) fn is_compressed(&self) -> bool {
        self.n_bytes > (*self.file).as_ref().len() as u64
    }

    /// The file itself, if a tensor at byte `at` lies in it.
    pub(super) fn in_file(&self, at: u64) -> Option<SharedBytes> {
        let is_there = at < (*self.file).as_ref().len() as u64;
        is_there.then(|| self.file.clone())
    }

    /// `n` bytes from byte `at` on, which lie in the file or in one layer.
    ///
    /// # Errors
    /// A description of a layer that cannot be decompressed, or of bytes that are nowhere.
    pub(super) fn bytes(&self, at: u64, n: usize) -> Result<SharedBytes, String> {
        let nowhere = || format!("there are no bytes {at}+{n}");
        if let Some(bytes) = Window::of(&self.file, at, n) {
            return Ok(bytes);
        }
        let layer = self.layer_at(at).ok_or_else(nowhere)?;
        let bytes = self.layer(layer)?;
        let start = at - self.expanded[layer].offset();
        Window::of(&bytes, start, n).ok_or_else(nowhere)
    }

    /// The layer behind the end of the file that byte `at` is in.
    fn layer_at(&self, at: u64) -> Option<usize> {
        let n_file_bytes = (*self.file).as_ref().len() as u64;
        let is_there = |entry: &LayerEntry| {
            let end = entry.offset() + u64::from(entry.raw_bytes());
            entry.offset() >= n_file_bytes && (entry.offset()..end).contains(&at)
        };
        self.expanded.iter().position(is_there)
    }

    /// A layer that is compressed, decompressed.
    fn layer(&self, layer: usize) -> Result<SharedBytes, String> {
        let mut last = self.last.lock().unwrap_or_else(|error| error.into_inner());
        if let Some((_, bytes)) = last.as_ref().filter(|(at, _)| *at == layer) {
            return Ok(bytes.clone());
        }
        // Before the next one, so that there are never two.
        *last = None;
        let bytes = decompressed(&self.file, &self.stored[layer]);
        let bytes: SharedBytes = Arc::new(bytes.map_err(|why| format!("layer {layer}: {why}"))?);
        *last = Some((layer, bytes.clone()));
        Ok(bytes)
    }
}

/// The bytes of a layer as they are stored.
fn stored_bytes(file: &SharedBytes, entry: &LayerEntry) -> Result<SharedBytes, String> {
    let bytes = Window::of(file, entry.offset(), entry.stored_bytes() as usize);
    bytes.ok_or_else(|| "it lies outside of the file".to_owned())
}

fn check(file: &SharedBytes, layer: usize, entry: &LayerEntry) -> Result<(), String> {
    let stored = stored_bytes(file, entry).map_err(|why| format!("layer {layer}: {why}"))?;
    if crc32((*stored).as_ref()) != entry.checksum() {
        return Err(format!("layer {layer}: its checksum does not fit it"));
    }
    let raw = u64::from(entry.raw_bytes());
    match Compression::of(entry.compression()) {
        Some(Compression::None) if entry.raw_bytes() != entry.stored_bytes() => Err(format!(
            "layer {layer}: {raw} bytes are stored as {}, but not compressed",
            entry.stored_bytes()
        )),
        Some(Compression::Lz4) if raw > MAX_LZ4_RATIO * u64::from(entry.stored_bytes()) => Err(
            format!("layer {layer}: {raw} bytes are more than LZ4 can have compressed"),
        ),
        Some(_) => Ok(()),
        None => Err(format!(
            "layer {layer}: unknown compression {}",
            entry.compression()
        )),
    }
}

fn decompressed(file: &SharedBytes, entry: &LayerEntry) -> Result<Vec<u8>, String> {
    let stored = stored_bytes(file, entry)?;
    let stored = (*stored).as_ref();
    let n = entry.raw_bytes() as usize;
    let bytes = match Compression::of(entry.compression()) {
        Some(Compression::Lz4) => lz4(stored, n)?,
        _ => zstd(stored, n)?,
    };
    match bytes.len() == n {
        true => Ok(bytes),
        false => Err(format!("expected {n} bytes, got {}", bytes.len())),
    }
}

fn lz4(stored: &[u8], n: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![0; n];
    let n =
        lz4_flex::block::decompress_into(stored, &mut bytes).map_err(|error| error.to_string())?;
    bytes.truncate(n);
    Ok(bytes)
}

/// At most one byte more than `n`, so that a longer frame is seen.
fn zstd(stored: &[u8], n: usize) -> Result<Vec<u8>, String> {
    let decoder = ruzstd::decoding::StreamingDecoder::new(stored);
    let decoder = decoder.map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let read = decoder.take(n as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    Ok(bytes)
}

/// Rows of a tensor in a layer that is compressed.
pub(super) struct CompressedRows {
    pub(super) file: Arc<ExpandedFile>,
    /// Where the tensor is, in the expanded file.
    pub(super) at: u64,
    pub(super) ty: TensorType,
    pub(super) d_row: usize,
    pub(super) row_bytes: usize,
}

impl CompressedRows {
    fn rows(&self, first: u64, n_rows: usize) -> Result<SharedBytes, Error> {
        let at = self.at + first * self.row_bytes as u64;
        let bytes = self.file.bytes(at, n_rows * self.row_bytes);
        bytes.map_err(Error::Qsf)
    }
}

impl RowSource for CompressedRows {
    fn read(&self, first: u64, out: &mut [f32]) -> Result<(), Error> {
        let rows = self.rows(first, out.len() / self.d_row.max(1))?;
        Ok(decode_rows(self.ty, self.d_row, (*rows).as_ref(), out)?)
    }

    fn packed(&self, first: u64, out: &mut [u8]) -> Result<bool, Error> {
        let rows = self.rows(first, out.len() / self.row_bytes.max(1))?;
        out.copy_from_slice((*rows).as_ref());
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of Zstandard with one block of `n` equal bytes (RFC 8878, section 3.1.1).
    fn zstd_run(byte: u8, n: u32) -> Vec<u8> {
        let block = n << 3 | 0b011;
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0b1010_0000];
        frame.extend(n.to_le_bytes());
        frame.extend(&block.to_le_bytes()[..3]);
        frame.push(byte);
        frame
    }

    #[test]
    fn zstandard_stops_one_byte_behind_what_was_asked_for() {
        assert_eq!(zstd(&zstd_run(7, 100), 100).unwrap(), [7; 100]);
        assert_eq!(zstd(&zstd_run(7, 100_000), 10).unwrap(), [7; 11]);
        assert!(zstd(&zstd_run(7, 100)[..9], 100).is_err());
    }

    #[test]
    fn lz4_fills_no_more_than_was_asked_for() {
        // Four literals, then a copy of 16 bytes from 4 before, then five literals.
        let block = [0x4c, 1, 2, 3, 4, 4, 0, 0x50, 9, 9, 9, 9, 9];
        let bytes = lz4(&block, 25).unwrap();
        assert_eq!(bytes[..8], [1, 2, 3, 4, 1, 2, 3, 4]);
        assert_eq!(bytes[20..], [9; 5]);
        assert!(lz4(&block, 24).is_err());
        assert!(lz4(&block[..6], 25).is_err());
    }
}
