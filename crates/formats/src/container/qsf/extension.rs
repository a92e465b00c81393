//! The extension table: metadata, tensors and sensitivities that the plan has no place for.

use super::{
    Header, crc32c,
    header::fields,
    reader::{SectionReader, Window},
    sections::placed,
    wrong,
};
use crate::{
    Error, Gguf, Metadata, SharedBytes, StrArray,
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
    /// A tensor in `TENS`; bytes 12 to 43 are four u64, its dimensions innermost first, zeros
    /// behind the last.
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
        let mut file = SectionReader::new(file_bytes, &mut read);
        let header = Header::read(&mut file)?;
        if !header.has_table() {
            return Ok(Self::default());
        }
        let table = ExtensionTable::read(&mut file, &header)?;
        let (_, tensors) = table.tensors(&mut file)?;
        let n_layers = header.n_layers() as usize;
        let sensitivities = table.sensitivities(&mut file, n_layers)?;
        Ok(Self {
            tensors,
            sensitivities,
        })
    }
}

/// Metadata and tensors by the extension table.
pub(super) fn contents(
    file: &mut SectionReader<'_, '_>,
    header: &Header,
) -> Result<Contents, Error> {
    let table = ExtensionTable::read(file, header)?;
    let metadata = table.metadata(file)?;
    let names = metadata.strs(NAMES_KEY)?;
    let names = names.ok_or_else(|| Error::MetadataMissing {
        key: NAMES_KEY.to_owned(),
    })?;
    let (at, list) = table.tensors(file)?;
    let places = (at..).step_by(TensorEntry::BYTES);
    let tensors = list.iter().zip(places);
    let tensors = tensors.map(|(entry, at)| tensor(entry, &names, at));
    let tensors = tensors.collect::<Result<Vec<_>, _>>()?;
    check_tensors(&tensors, file.file_bytes())?;
    Ok(Contents { metadata, tensors })
}

/// The extension table.
struct ExtensionTable {
    entries: Vec<TableEntry>,
}

impl ExtensionTable {
    fn read(file: &mut SectionReader<'_, '_>, header: &Header) -> Result<Self, Error> {
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
        file: &mut SectionReader<'_, '_>,
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

    /// `META`, parsed.
    fn metadata(&self, file: &mut SectionReader<'_, '_>) -> Result<Metadata, Error> {
        let (at, meta) = self.expect(file, META)?;
        let n_bytes = (*meta).as_ref().len() as u64;
        let meta = Gguf::parse(meta, n_bytes)?;
        match meta.tensors.is_empty() {
            true => Ok(meta.metadata),
            false => wrong(at, "META has tensors"),
        }
    }

    /// Where `TENS` is, and its entries.
    fn tensors(&self, file: &mut SectionReader<'_, '_>) -> Result<(u64, Vec<TensorEntry>), Error> {
        let (at, list) = self.expect(file, TENS)?;
        let (list, rest) = (*list).as_ref().as_chunks();
        if !rest.is_empty() || list.len() as u64 > MAX_TENSORS {
            return wrong(at, "TENS has another length than a list of tensors");
        }
        let entries = list.iter().map(|&entry| TensorEntry(entry));
        Ok((at, entries.collect()))
    }

    /// `SENS`, if it is there.
    fn sensitivities(
        &self,
        file: &mut SectionReader<'_, '_>,
        n_layers: usize,
    ) -> Result<Option<SensitivityTable>, Error> {
        let Some((entry, bytes)) = self.part(file, SENS)? else {
            return Ok(None);
        };
        let bytes = (*bytes).as_ref();
        SensitivityTable::decode(bytes, n_layers, entry.offset()).map(Some)
    }

    /// As [`part`](Self::part), of a tag that has to be there; where, and the bytes.
    fn expect(
        &self,
        file: &mut SectionReader<'_, '_>,
        tag: [u8; 4],
    ) -> Result<(u64, SharedBytes), Error> {
        match self.part(file, tag)? {
            Some((entry, bytes)) => Ok((entry.offset(), bytes)),
            None => wrong(100, format!("the extension lacks {}", tag.escape_ascii())),
        }
    }
}

/// The tensor of an entry, which is at byte `at`.
fn tensor(entry: &TensorEntry, names: &StrArray, at: u64) -> Result<TensorInfo, Error> {
    let Some(name) = name(entry, names) else {
        let why = format!("a tensor has name {}, which is none", entry.name());
        return wrong(at + 4, why);
    };
    let id = entry.type_id();
    let ty = type_of_id(id).ok_or_else(|| Error::UnknownType {
        tensor: name.clone(),
        id,
    })?;
    let n_dims = entry.dims().iter().rposition(|&d| d != 0);
    let mut dims = entry.dims()[..n_dims.map_or(0, |last| last + 1)].to_vec();
    dims.reverse();
    let info = placed(name, &dims, ty, entry.offset())?;
    let [expected, got] = [info.n_bytes, entry.n_bytes()];
    if expected == got {
        return Ok(info);
    }
    let why = format!("{}: expected {expected} bytes, got {got}", info.name);
    wrong(at + 52, why)
}

/// The name of a tensor, if it is one.
fn name(entry: &TensorEntry, names: &StrArray) -> Option<String> {
    let name = std::str::from_utf8(names.get(entry.name() as usize)?).ok()?;
    let is_short = (1..=MAX_NAME_BYTES).contains(&(name.len() as u64));
    let is_name = is_short && !name.contains(char::is_control);
    is_name.then(|| name.to_owned())
}
