//! The extension table: metadata, tensors and sensitivities that the plan has no place for.

use super::{Header, crc32c, header::fields, reader::Reader, wrong};
use crate::{
    Error, Gguf, Shape, SharedBytes, StrArray,
    container::{Contents, TensorInfo, tensor::check_tensors},
    gguf::{MAX_NAME_BYTES, MAX_TENSORS, type_of_id},
};

fields! {
    /// An entry of the extension table, whose first four bytes are its tag.
    TableEntry, 32: {
        /// Reserved, 0.
        flags set_flags: u32 = 4;
        /// Where its bytes are.
        offset set_offset: u64 = 8;
        /// How many.
        n_bytes set_n_bytes: u64 = 16;
        /// CRC-32C of them.
        checksum set_checksum: u32 = 24;
    }
}

fields! {
    /// A tensor in `TENS`; bytes 12 to 43 are four u64, its dimensions innermost first, zeros behind
    /// the last.
    TensorEntry, 64: {
        /// Its layer, or [`TensorEntry::NO_LAYER`].
        layer set_layer: u32 = 0;
        /// Index in the strings at [`NAMES_KEY`] of `META`.
        name set_name: u32 = 4;
        /// GGUF's id of its type.
        type_id set_type_id: u32 = 8;
        /// Where its data is.
        offset set_offset: u64 = 44;
        /// Bytes of its data.
        n_bytes set_n_bytes: u64 = 52;
        /// CRC-32C of its data.
        checksum set_checksum: u32 = 60;
    }
}

/// Tag of a GGUF header without tensors.
pub const META: [u8; 4] = *b"META";
/// Tag of a list of [`TensorEntry`].
pub const TENS: [u8; 4] = *b"TENS";
/// Tag of [`SensitivityTable`].
pub const SENS: [u8; 4] = *b"SENS";
/// Metadata key of the names of tensors.
pub const NAMES_KEY: &str = "qsf.tensor.names";

impl TensorEntry {
    /// The layer of tensors of the whole model.
    pub const NO_LAYER: u32 = u32::MAX;

    /// Dimensions, innermost first, zeros behind the last.
    pub fn dims(&self) -> [u64; 4] {
        let dims: &[[u8; 8]] = self.0[12..44].as_chunks().0;
        std::array::from_fn(|i| u64::from_le_bytes(dims[i]))
    }

    /// Sets [`dims`](Self::dims).
    pub fn set_dims(&mut self, dims: [u64; 4]) {
        let bytes = dims.map(u64::to_le_bytes);
        self.0[12..44].copy_from_slice(bytes.as_flattened());
    }
}

/// `SENS`: what errors cost, in KL divergence.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SensitivityTable {
    /// For each tensor of `TENS`, per unit of relative squared error.
    pub tensors: Vec<f32>,
    /// For each layer, without it.
    pub layers: Vec<f32>,
}

impl SensitivityTable {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = (self.tensors.len() as u64).to_le_bytes().to_vec();
        let values = self.tensors.iter().chain(&self.layers);
        bytes.extend(values.flat_map(|value| value.to_le_bytes()));
        bytes
    }

    fn decode(bytes: &[u8], n_layers: usize, at: u64) -> Result<Self, Error> {
        let values: &[[u8; 4]] = bytes.as_chunks().0;
        let n = values
            .first()
            .map_or(0, |n| u32::from_le_bytes(*n) as usize);
        if !bytes.len().is_multiple_of(4) || values.len() as u64 != 2 + n as u64 + n_layers as u64 {
            return wrong(at, "SENS has another length than its counts say");
        }
        let floats = |values: &[[u8; 4]]| values.iter().map(|v| f32::from_le_bytes(*v)).collect();
        Ok(Self {
            tensors: floats(&values[2..2 + n]),
            layers: floats(&values[2 + n..]),
        })
    }
}

/// The parts of the extension that GGUF has no place for.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// The entries of `TENS`, in the order of the tensors of [`Contents`].
    pub tensors: Vec<TensorEntry>,
    /// `SENS`, if it is there.
    pub sensitivities: Option<SensitivityTable>,
}

impl Tables {
    /// Reads them from a whole file; empty for a plain one.
    ///
    /// # Errors
    /// A table that is damaged.
    pub fn read(file: &SharedBytes) -> Result<Self, Error> {
        let file_bytes = (**file).as_ref().len() as u64;
        let mut read = |at: u64, n: usize| Window::of(file, at, n);
        let mut file = Reader::new(file_bytes, &mut read);
        let header = Header::read(&mut file)?;
        if !header.has_table() {
            return Ok(Self::default());
        }
        let table = Table::read(&mut file, &header)?;
        let (_, list) = table.expect(&mut file, TENS)?;
        let entries = (*list).as_ref().as_chunks().0;
        let n_layers = header.n_layers() as usize;
        let sensitivities = match table.part(&mut file, SENS)? {
            Some((entry, bytes)) => {
                let bytes = (*bytes).as_ref();
                Some(SensitivityTable::decode(bytes, n_layers, entry.offset())?)
            }
            None => None,
        };
        Ok(Self {
            tensors: entries.iter().map(|&entry| TensorEntry(entry)).collect(),
            sensitivities,
        })
    }
}

/// Metadata and tensors by the extension table.
pub(super) fn contents(file: &mut Reader<'_, '_>, header: &Header) -> Result<Contents, Error> {
    let table = Table::read(file, header)?;
    let (at, meta) = table.expect(file, META)?;
    let n_bytes = (*meta).as_ref().len() as u64;
    let meta = Gguf::parse(meta, n_bytes)?;
    if !meta.tensors.is_empty() {
        return wrong(at, "META has tensors");
    }
    let metadata = meta.metadata;
    let names = metadata.strs(NAMES_KEY)?;
    let names = names.ok_or_else(|| Error::MetadataMissing {
        key: NAMES_KEY.to_owned(),
    })?;
    let (at, list) = table.expect(file, TENS)?;
    let (list, rest) = (*list).as_ref().as_chunks();
    if !rest.is_empty() || list.len() as u64 > MAX_TENSORS {
        return wrong(at, "TENS has another length than a list of tensors");
    }
    let tensor =
        |(i, entry): (usize, &[u8; 64])| tensor(&TensorEntry(*entry), &names, at + 64 * i as u64);
    let tensors: Vec<_> = list
        .iter()
        .enumerate()
        .map(tensor)
        .collect::<Result<_, _>>()?;
    check_tensors(&tensors, file.file_bytes())?;
    Ok(Contents { metadata, tensors })
}

/// The extension table.
struct Table {
    entries: Vec<TableEntry>,
}

impl Table {
    fn read(file: &mut Reader<'_, '_>, header: &Header) -> Result<Self, Error> {
        let at = header.table_at();
        let bytes = file.bytes(at, header.table_bytes().into(), "the extension table")?;
        let bytes = (*bytes).as_ref();
        let (entries, rest) = bytes.as_chunks();
        if crc32c(bytes) != header.table_checksum() || !rest.is_empty() {
            return wrong(at, "the checksum of the extension table does not fit it");
        }
        let entries = entries.iter().map(|&entry| TableEntry(entry)).collect();
        Ok(Self { entries })
    }

    /// The bytes of a tag, checked, with their entry.
    fn part(
        &self,
        file: &mut Reader<'_, '_>,
        tag: [u8; 4],
    ) -> Result<Option<(TableEntry, SharedBytes)>, Error> {
        let Some(entry) = self.entries.iter().find(|entry| entry.0[..4] == tag) else {
            return Ok(None);
        };
        let bytes = file.bytes(entry.offset(), entry.n_bytes(), "a part of the extension")?;
        match crc32c((*bytes).as_ref()) == entry.checksum() {
            true => Ok(Some((*entry, bytes))),
            false => wrong(
                entry.offset(),
                "the checksum of a part of the extension does not fit it",
            ),
        }
    }

    /// As [`part`](Self::part), of a tag that has to be there; where, and the bytes.
    fn expect(&self, file: &mut Reader<'_, '_>, tag: [u8; 4]) -> Result<(u64, SharedBytes), Error> {
        match self.part(file, tag)? {
            Some((entry, bytes)) => Ok((entry.offset(), bytes)),
            None => wrong(100, format!("the extension lacks {}", tag.escape_ascii())),
        }
    }
}

/// The tensor of an entry, which is at byte `at`.
fn tensor(entry: &TensorEntry, names: &StrArray, at: u64) -> Result<TensorInfo, Error> {
    let name = names.get(entry.name() as usize);
    let name = name.and_then(|name| std::str::from_utf8(name).ok());
    let is_name = |name: &&str| {
        (1..=MAX_NAME_BYTES).contains(&(name.len() as u64)) && !name.contains(char::is_control)
    };
    let Some(name) = name.filter(is_name) else {
        return wrong(
            at + 4,
            format!("a tensor has name {}, which is none", entry.name()),
        );
    };
    let id = entry.type_id();
    let Some(ty) = type_of_id(id) else {
        let tensor = name.to_owned();
        return Err(Error::UnknownType { tensor, id });
    };
    let mut dims = entry.dims().to_vec();
    while dims.last() == Some(&0) {
        dims.pop();
    }
    dims.reverse();
    let Some(shape) = Shape::new(&dims) else {
        let tensor = name.to_owned();
        return Err(Error::ShapeOverflow { tensor, dims });
    };
    let info = TensorInfo {
        offset: entry.offset(),
        ..TensorInfo::new(name.to_owned(), shape, ty)?
    };
    match info.n_bytes == entry.n_bytes() {
        true => Ok(info),
        false => wrong(
            at + 52,
            format!(
                "{name}: expected {} bytes, got {}",
                info.n_bytes,
                entry.n_bytes()
            ),
        ),
    }
}
