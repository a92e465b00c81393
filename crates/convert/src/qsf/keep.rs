//! What a plain file has beside its tensors, as metadata, and the same file from it again.
//!
//! `qsf.v1.header`, `qsf.v1.index` and `qsf.v1.tensors` have the header, the index of layers, and
//! the headers of embedding and tensors; `qsf.v1.rest` has the bytes of no section, in the order of
//! the file. Of a file with compressed layers they are those of the same file without compression.

use atta_formats::{
    Metadata, Writer,
    qsf::{EmbeddingHeader, Header, LayerEntry, Sections, TensorHeader, crc32},
};

use super::{KEPT_KEYS, bytes_at, layers::ExpandedFile};
use crate::Error;

/// The byte behind the final norm of a file whose head is the embedding.
const TIED: u8 = 0xff;

/// A part of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum FilePart {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The tensor with this name and its length in bytes.
    Tensor(String, u64),
}

impl FilePart {
    fn n_bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Tensor(_, n) => *n,
        }
    }
}

/// Sets the keys.
///
/// # Errors
/// A description of a layer that cannot be decompressed.
pub(super) fn set(
    file: &ExpandedFile,
    sections: &Sections,
    metadata: &mut Writer,
) -> Result<(), String> {
    let [stored, expanded] = file.entries();
    let (header, entries) = match file.is_compressed() {
        true => uncompressed(file, sections, expanded)?,
        false => (sections.header, stored.to_vec()),
    };
    let rest = match file.is_compressed() {
        true => Vec::new(),
        false => rest(file, sections)?,
    };
    let mut headers = sections.embedding.0.to_vec();
    let all = sections.layers.iter().flatten();
    headers.extend(all.flat_map(|tensor| tensor.header.0));
    let index: Vec<u8> = entries.iter().flat_map(|entry| entry.0).collect();
    metadata.set_u8s(KEPT_KEYS[0], &header.0);
    metadata.set_u8s(KEPT_KEYS[1], &index);
    metadata.set_u8s(KEPT_KEYS[2], &headers);
    metadata.set_u8s(KEPT_KEYS[3], &rest);
    Ok(())
}

/// Header and index of the same file without compression: header, index, embedding, layers, final
/// section.
fn uncompressed(
    file: &ExpandedFile,
    sections: &Sections,
    expanded: &[LayerEntry],
) -> Result<(Header, Vec<LayerEntry>), String> {
    let mut header = sections.header;
    let mut at = Header::BYTES as u64;
    header.set_index_at(at);
    at += (expanded.len() * LayerEntry::BYTES) as u64;
    header.set_embedding_at(at);
    at += EmbeddingHeader::BYTES as u64 + u64::from(sections.embedding.stored_bytes());
    let mut entries = expanded.to_vec();
    for entry in &mut entries {
        let bytes = file.bytes(entry.offset(), entry.raw_bytes() as usize)?;
        entry.set_checksum(crc32((*bytes).as_ref()));
        entry.set_offset(at);
        at += u64::from(entry.raw_bytes());
    }
    header.set_final_at(at);
    header.seal(at + final_bytes(sections));
    Ok((header, entries))
}

/// Bytes of the final norm and the head.
fn final_bytes(sections: &Sections) -> u64 {
    let tensors = sections.tensors.iter();
    let last = tensors.filter(|tensor| tensor.name.starts_with("output"));
    last.map(|tensor| tensor.n_bytes).sum::<u64>() + u64::from(sections.is_tied)
}

/// The bytes of no section.
fn rest(file: &ExpandedFile, sections: &Sections) -> Result<Vec<u8>, String> {
    let [entries, _] = file.entries();
    let mut rest = Vec::new();
    let mut end = 0;
    let parts = parts(sections, entries);
    let last = (file.n_bytes(), FilePart::Bytes(Vec::new()));
    for (at, part) in parts.into_iter().chain([last]) {
        if at > end {
            let gap = file.bytes(end, (at - end) as usize)?;
            rest.extend_from_slice((*gap).as_ref());
        }
        end = end.max(at + part.n_bytes());
    }
    Ok(rest)
}

/// All parts of a file with their offsets, in order.
fn parts(sections: &Sections, entries: &[LayerEntry]) -> Vec<(u64, FilePart)> {
    let header = &sections.header;
    let index = entries.iter().flat_map(|entry| entry.0).collect();
    let embedding = sections.embedding.0.to_vec();
    let mut parts = vec![
        (0, FilePart::Bytes(header.0.to_vec())),
        (header.index_at(), FilePart::Bytes(index)),
        (header.embedding_at(), FilePart::Bytes(embedding)),
    ];
    parts.extend(tensor_parts(sections));
    if sections.is_tied {
        let norm = 2 * u64::from(header.d_model());
        parts.push((header.final_at() + norm, FilePart::Bytes(vec![TIED])));
    }
    parts.sort_by_key(|(at, _)| *at);
    parts
}

/// Tensors, and the headers of those of layers.
fn tensor_parts(sections: &Sections) -> impl Iterator<Item = (u64, FilePart)> {
    let headers = sections.layers.iter().flatten().map(|tensor| {
        let at = sections.tensors[tensor.tensor].offset - TensorHeader::BYTES as u64;
        (at, FilePart::Bytes(tensor.header.0.to_vec()))
    });
    let tensors = sections.tensors.iter();
    headers.chain(tensors.map(|t| (t.offset, FilePart::Tensor(t.name.clone(), t.n_bytes))))
}

/// The parts of the plain file that the metadata of a GGUF file is from, in order; `None` if it is
/// from none.
///
/// # Errors
/// [`Error::Qsf`] with a description, if the keys contradict each other.
pub(super) fn parts_of(metadata: &Metadata, is_tied: bool) -> Result<Option<Vec<FilePart>>, Error> {
    let wrong = |why: &str| Error::Qsf(format!("qsf.v1 keys: {why}"));
    let [header, index, headers, rest] = KEPT_KEYS.map(|key| bytes_at(metadata, key));
    let Some(header) = header? else {
        return Ok(None);
    };
    let header = header.try_into();
    let header = header.map_err(|_| wrong("a header of another length"))?;
    let index = index?.unwrap_or_default();
    let entries: Vec<LayerEntry> = index.as_chunks().0.iter().map(|&e| LayerEntry(e)).collect();
    let replay = Replay {
        header: Header(header),
        headers: &headers?.unwrap_or_default(),
    };
    let sections = replay.sections(&entries, is_tied);
    let sections = sections.map_err(|why| wrong(&why))?;
    let parts = filled(parts(&sections, &entries), &rest?.unwrap_or_default());
    parts.map(Some).map_err(|why| wrong(&why))
}

/// Fills the gaps between parts, and the end, with the rest.
fn filled(parts: Vec<(u64, FilePart)>, mut rest: &[u8]) -> Result<Vec<FilePart>, String> {
    let mut out = Vec::new();
    let mut end = 0;
    for (at, part) in parts {
        let gap = at.checked_sub(end).ok_or("two sections overlap")?;
        let (now, later) = usize::try_from(gap)
            .ok()
            .and_then(|gap| rest.split_at_checked(gap))
            .ok_or("bytes between sections are missing")?;
        rest = later;
        out.push(FilePart::Bytes(now.to_vec()));
        end = at.saturating_add(part.n_bytes());
        out.push(part);
    }
    out.push(FilePart::Bytes(rest.to_vec()));
    out.retain(|part| part.n_bytes() > 0);
    Ok(out)
}

/// Header and tensor headers of a plain file, without the file.
struct Replay<'a> {
    header: Header,
    headers: &'a [u8],
}

impl Replay<'_> {
    /// The sections of the file, read from bytes that have its headers at their places and zeros
    /// elsewhere.
    fn sections(&self, entries: &[LayerEntry], is_tied: bool) -> Result<Sections, String> {
        let n_bytes = self.n_bytes(entries);
        let mut headers = self.headers.chunks_exact(TensorHeader::BYTES);
        let tied_at = self
            .header
            .final_at()
            .saturating_add(2 * u64::from(self.header.d_model()));
        let mut read = |at: u64, n: usize| -> Option<atta_formats::SharedBytes> {
            let bytes = match n {
                1 if is_tied && at == tied_at => vec![TIED],
                TensorHeader::BYTES => headers.next()?.to_vec(),
                n => vec![0; n],
            };
            Some(std::sync::Arc::new(bytes))
        };
        let sections = Sections::read(n_bytes, &mut read, self.header, [entries, entries]);
        sections.map_err(|error| error.to_string())
    }

    /// The length of the file, whose low half is in the header: the least that holds all sections.
    fn n_bytes(&self, entries: &[LayerEntry]) -> u64 {
        let ends = entries
            .iter()
            .map(|e| e.offset().saturating_add(e.stored_bytes().into()));
        let ends = ends.chain([self.header.final_at(), self.header.embedding_at()]);
        let least = ends.max().unwrap_or(0);
        let low = u64::from(self.header.file_bytes_low());
        let n_bytes = least & !0xffff_ffff | low;
        match n_bytes < least {
            true => n_bytes.saturating_add(1 << 32),
            false => n_bytes,
        }
    }
}
