//! Writes a checkpoint as a file: the plain one that it comes from, byte for byte, or one with the
//! extension.

use std::{io::Write as _, ops::ControlFlow, path::Path};

use atta_formats::{
    Metadata,
    f16::f32_to_f16,
    gguf::type_id,
    qsf::{
        Checksum, EmbeddingHeader, Header, LayerEntry, META, NAMES_KEY, SENS, SensitivityTable,
        TENS, TableEntry, TensorEntry, TensorHeader, UNNAMED_ROLE, VECTOR_ROLES, code_of_type,
        crc32c, role_name,
    },
};

use super::{
    copy_rows,
    keep::{self, FilePart},
    order::{layer_and_role, to_halves},
};
use crate::{Checkpoint, Error, Progress, Tensor, atomic_file::AtomicFile, metadata::parsed};

/// Bytes that are copied at once.
const COPY_BYTES: u64 = 1 << 22;
/// Roles of a layer's tensors in the order in which they are used.
const EXECUTION: [u32; 13] = [7, 0, 9, 1, 10, 2, 11, 3, 12, 8, 4, 5, 6];
/// Metadata keys of measured sensitivities, of tensors and of layers.
const SENSITIVITIES: [&str; 2] = ["atta.sensitivity.tensor", "atta.sensitivity.skip"];
/// Codes of what only the extension says.
const SEE_META: u8 = 0xff;

const EMBEDDING: &str = "token_embd.weight";
const NORM: &str = "output_norm.weight";
const HEAD: &str = "output.weight";

/// Writes a checkpoint, whose tensors keep their types, to `dst`. `progress` is called many times a
/// second; if it breaks, no file is left.
///
/// # Errors
/// A model without an embedding or a final norm, a layer of 4 GiB and more, rows that cannot be
/// read, and I/O errors.
pub fn write(
    checkpoint: &mut Checkpoint,
    dst: &Path,
    progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<(), Error> {
    let metadata = parsed(&checkpoint.metadata)?;
    let is_tied = find(checkpoint, HEAD).is_none();
    let total = checkpoint
        .tensors
        .iter()
        .map(n_bytes)
        .sum::<Result<u64, _>>()?;
    let mut out = Output {
        file: AtomicFile::new(dst)?,
        at: 0,
        done: 0,
        total,
        progress,
    };
    match keep::parts_of(&metadata, is_tied)? {
        Some(parts) => replay(checkpoint, &parts, &mut out)?,
        None => extended(checkpoint, &mut out)?,
    }
    checkpoint.check_files()?;
    out.file.commit()
}

fn find<'a>(checkpoint: &'a Checkpoint, name: &str) -> Option<&'a Tensor> {
    checkpoint.tensors.iter().find(|tensor| tensor.name == name)
}

fn expect<'a>(checkpoint: &'a Checkpoint, name: &str) -> Result<&'a Tensor, Error> {
    find(checkpoint, name).ok_or_else(|| Error::Missing.of(name))
}

fn row_bytes(tensor: &Tensor) -> Result<usize, Error> {
    let d = tensor.d_row() as usize;
    tensor.ty.row_bytes(d).ok_or_else(|| Error::Shape {
        dims: tensor.dims.clone(),
        ty: tensor.ty,
    })
}

fn n_bytes(tensor: &Tensor) -> Result<u64, Error> {
    Ok(tensor.n_rows() * row_bytes(tensor)? as u64)
}

/// A part of the extension: its tag and bytes.
type TablePart = ([u8; 4], Vec<u8>);

/// The file being written.
struct Output<'a> {
    file: AtomicFile,
    at: u64,
    /// Bytes of tensors so far.
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
}

impl Output<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(bytes);
        self.at += bytes.len() as u64;
        written.map_err(|error| self.file.io_error(error))
    }

    /// Writes the rows of a tensor; returns the CRC-32C of its bytes.
    fn tensor(&mut self, tensor: &Tensor, section: &mut Checksum) -> Result<u32, Error> {
        let row_bytes = row_bytes(tensor)?;
        let at_once = (COPY_BYTES / row_bytes.max(1) as u64).clamp(1, tensor.n_rows().max(1));
        let mut buffer = vec![0; at_once as usize * row_bytes];
        let mut sum = Checksum::castagnoli();
        let mut first = 0;
        while first < tensor.n_rows() {
            let n = at_once.min(tensor.n_rows() - first);
            let rows = &mut buffer[..n as usize * row_bytes];
            if !copy_rows(&*tensor.rows, first, row_bytes, rows)? {
                return Err(Error::Qsf("its rows have to be quantized first".to_owned()));
            }
            section.add(rows);
            sum.add(rows);
            self.bytes(rows)?;
            self.report(tensor, rows.len())?;
            first += n;
        }
        Ok(sum.value())
    }

    fn report(&mut self, tensor: &Tensor, n: usize) -> Result<(), Error> {
        self.done += n as u64;
        match (self.progress)(Progress {
            tensor: &tensor.name,
            done: self.done,
            total: self.total,
        }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Stopped),
        }
    }
}

/// Writes the plain file that a checkpoint comes from.
fn replay(checkpoint: &Checkpoint, parts: &[FilePart], out: &mut Output<'_>) -> Result<(), Error> {
    let tensors = parts
        .iter()
        .filter(|part| matches!(part, FilePart::Tensor(..)));
    if tensors.count() != checkpoint.tensors.len() {
        return Err(Error::Qsf(
            "qsf.v1 keys: other tensors than in the file".to_owned(),
        ));
    }
    for part in parts {
        match part {
            FilePart::Bytes(bytes) => out.bytes(bytes)?,
            FilePart::Tensor(name, expected) => {
                let tensor = expect(checkpoint, name)?;
                if n_bytes(tensor)? != *expected {
                    return Err(Error::Qsf("qsf.v1 keys: another type".to_owned()).of(name));
                }
                let written = out.tensor(tensor, &mut Checksum::ieee());
                written.map_err(|error| error.of(name))?;
            }
        }
    }
    Ok(())
}

/// A file with the extension, whose parts behind the weights are known once they are written.
struct Extended<'a> {
    checkpoint: &'a Checkpoint,
    header: Header,
    entries: Vec<LayerEntry>,
    tensors: Vec<TensorEntry>,
}

fn extended(checkpoint: &mut Checkpoint, out: &mut Output<'_>) -> Result<(), Error> {
    let is_llama = is_in_the_plan(checkpoint)? && to_halves(checkpoint)?;
    let metadata = parsed(&checkpoint.metadata)?;
    let mut file = Extended {
        checkpoint,
        header: header(&metadata, is_llama)?,
        entries: Vec::new(),
        tensors: vec![TensorEntry::default(); checkpoint.tensors.len()],
    };
    let n_layers = file.header.n_layers() as usize;
    let start = vec![0; Header::BYTES + n_layers * LayerEntry::BYTES];
    out.bytes(&start)?;
    file.embedding(out)?;
    for layer in 0..n_layers {
        file.layer(layer, &metadata, out)?;
    }
    file.last(out)?;
    file.others(out)?;
    file.tables(&metadata, out)?;
    file.start(out)
}

/// Whether the header and the roles of the plan describe a model: a llama without experts, biases
/// of feed-forward blocks, and a rope that is stretched.
fn is_in_the_plan(checkpoint: &Checkpoint) -> Result<bool, Error> {
    let metadata = parsed(&checkpoint.metadata)?;
    let is_llama = metadata.str("general.architecture")? == Some("llama");
    let mut keys = metadata.iter().map(|(key, _)| key);
    let is_more = keys.any(|key| key.contains(".expert") || key.contains(".rope.scal"));
    let is_known = |tensor: &Tensor| match layer_and_role(&tensor.name) {
        Some((_, name)) => role_of(name, tensor.dims.len()) != UNNAMED_ROLE,
        None => [EMBEDDING, NORM, HEAD].contains(&tensor.name.as_str()),
    };
    Ok(is_llama && !is_more && checkpoint.tensors.iter().all(is_known))
}

impl Extended<'_> {
    /// Writes a tensor, and notes it.
    fn tensor(
        &mut self,
        tensor: &Tensor,
        section: &mut Checksum,
        out: &mut Output<'_>,
    ) -> Result<(), Error> {
        let at = out.at;
        let sum = out
            .tensor(tensor, section)
            .map_err(|error| error.of(&tensor.name))?;
        self.note(tensor, at, sum)
    }

    fn note(&mut self, tensor: &Tensor, at: u64, sum: u32) -> Result<(), Error> {
        let mut all = self.checkpoint.tensors.iter();
        let i = all.position(|t| t.name == tensor.name).unwrap_or(0);
        let layer = layer_and_role(&tensor.name).map(|(layer, _)| layer as u32);
        let entry = &mut self.tensors[i];
        entry.set_layer(layer.unwrap_or(TensorEntry::NO_LAYER));
        entry.set_name(i as u32);
        entry.set_type_id(type_id(tensor.ty));
        entry.set_dims(innermost_first(tensor)?);
        entry.set_offset(at);
        entry.set_n_bytes(n_bytes(tensor)?);
        entry.set_checksum(sum);
        Ok(())
    }

    fn embedding(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        let embedding = expect(self.checkpoint, EMBEDDING)?;
        self.header.set_embedding_at(out.at);
        let mut header = EmbeddingHeader::default();
        header.set_quant(code(embedding)?.into());
        header.set_stored_bytes(small(n_bytes(embedding)?, EMBEDDING)?);
        header.set_n_rows(small(embedding.n_rows(), EMBEDDING)?);
        header.set_d(small(embedding.d_row(), EMBEDDING)?);
        out.bytes(&header.0)?;
        self.tensor(embedding, &mut Checksum::ieee(), out)
    }

    fn layer(
        &mut self,
        layer: usize,
        metadata: &Metadata,
        out: &mut Output<'_>,
    ) -> Result<(), Error> {
        let mut entry = LayerEntry::default();
        entry.set_offset(out.at);
        let mut section = Checksum::ieee();
        let tensors = tensors_of(self.checkpoint, layer);
        for (role, tensor) in &tensors {
            let header = tensor_header(tensor, *role)?;
            section.add(&header.0);
            out.bytes(&header.0)?;
            self.tensor(tensor, &mut section, out)?;
        }
        let n_bytes = small(out.at - entry.offset(), &format!("layer {layer}"))?;
        entry.set_stored_bytes(n_bytes);
        entry.set_raw_bytes(n_bytes);
        entry.set_quant(shared_code(tensors.iter().map(|(_, tensor)| *tensor)));
        entry.set_n_tensors(tensors.len() as u16);
        entry.set_checksum(section.value());
        entry.set_importance(importance(metadata, layer));
        self.entries.push(entry);
        Ok(())
    }

    /// The final norm, rounded to f16, and the head.
    fn last(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        let norm = expect(self.checkpoint, NORM)?;
        self.header.set_final_at(out.at);
        let mut weights = vec![0.0; norm.d_row() as usize];
        norm.rows.read(0, &mut weights)?;
        let halves = weights.iter().flat_map(|&x| f32_to_f16(x).to_le_bytes());
        out.bytes(&halves.collect::<Vec<_>>())?;
        match find(self.checkpoint, HEAD) {
            Some(head) => self.tensor(head, &mut Checksum::ieee(), out),
            None => out.bytes(&[0xff]),
        }
    }

    /// The tensors of no section, and the final norm as it is.
    fn others(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        let n_layers = self.header.n_layers() as usize;
        let checkpoint = self.checkpoint;
        for tensor in &checkpoint.tensors {
            let layer = layer_and_role(&tensor.name).map(|(layer, _)| layer);
            let is_written = [EMBEDDING, HEAD].contains(&tensor.name.as_str());
            if !is_written && layer.is_none_or(|layer| layer >= n_layers) {
                self.tensor(tensor, &mut Checksum::ieee(), out)?;
            }
        }
        Ok(())
    }

    /// The parts of the extension, and its table.
    fn tables(&mut self, metadata: &Metadata, out: &mut Output<'_>) -> Result<(), Error> {
        let mut table = Vec::new();
        for (tag, bytes) in self.parts(metadata)? {
            let mut entry = TableEntry::default();
            entry.0[..4].copy_from_slice(&tag);
            entry.set_offset(out.at);
            entry.set_n_bytes(bytes.len() as u64);
            entry.set_checksum(crc32c(&bytes));
            table.extend(entry.0);
            out.bytes(&bytes)?;
        }
        self.header.set_table_at(out.at);
        self.header.set_table_bytes(table.len() as u32);
        self.header.set_table_checksum(crc32c(&table));
        out.bytes(&table)
    }

    fn parts(&self, metadata: &Metadata) -> Result<Vec<TablePart>, Error> {
        let mut meta = self.checkpoint.metadata.clone();
        let names = self.checkpoint.tensors.iter().map(|t| t.name.as_str());
        meta.set_strs(NAMES_KEY, &names.collect::<Vec<_>>());
        let list = self.tensors.iter().flat_map(|entry| entry.0).collect();
        let mut parts = vec![(META, meta.finish()?.header), (TENS, list)];
        let table = sensitivities(metadata, self.tensors.len(), self.entries.len());
        parts.extend(table.map(|table| (SENS, table.encode())));
        Ok(parts)
    }

    /// Header and index, which are known last.
    fn start(&mut self, out: &mut Output<'_>) -> Result<(), Error> {
        let matrices = self.checkpoint.tensors.iter();
        self.header.set_quant(shared_code(matrices));
        self.header.set_index_at(Header::BYTES as u64);
        self.header.seal(out.at);
        let mut start = self.header.0.to_vec();
        self.entries.iter().for_each(|entry| start.extend(entry.0));
        let written = out.file.overwrite_start(&start);
        written.map_err(|error| out.file.io_error(error))
    }
}

/// Dimensions, innermost first, zeros behind the last.
fn innermost_first(tensor: &Tensor) -> Result<[u64; 4], Error> {
    let mut dims = [0; 4];
    if tensor.dims.len() > dims.len() {
        return Err(Error::Qsf("more than 4 dimensions".to_owned()).of(&tensor.name));
    }
    let found = tensor.dims.iter().rev();
    dims.iter_mut().zip(found).for_each(|(to, &d)| *to = d);
    Ok(dims)
}

/// What leaving a layer out was measured to cost; 0 if it was not.
fn importance(metadata: &Metadata, layer: usize) -> f32 {
    let all = metadata.f32s(SENSITIVITIES[1]).ok().flatten();
    all.and_then(|all| all.get(layer)).unwrap_or(0.0)
}

/// The header that the metadata of a model says, without the places of sections.
fn header(metadata: &Metadata, is_llama: bool) -> Result<Header, Error> {
    let arch = metadata.str("general.architecture")?.unwrap_or_default();
    let mut header = Header::new();
    set_sizes(&mut header, metadata, arch);
    header.set_n_vocab(n_vocab(metadata, header.n_vocab())?);
    let base = metadata.f32(&format!("{arch}.rope.freq_base"))?;
    header.set_rope_base(base.unwrap_or(10_000.0));
    let [activation, norm, positions] = match is_llama {
        true => [Header::SILU, Header::RMS, Header::ROPE],
        false => [SEE_META; 3],
    };
    header.set_activation(activation);
    header.set_norm(norm);
    header.set_positions(positions);
    header.set_arch(match is_llama {
        true => Header::LLAMA,
        false => Header::CUSTOM,
    });
    set_tokens(&mut header, metadata);
    Ok(header)
}

/// Sizes; 0 for those that differ by layer.
fn set_sizes(header: &mut Header, metadata: &Metadata, arch: &str) {
    let count = |key: &str| -> u32 {
        let value = metadata.u64(&format!("{arch}.{key}")).ok().flatten();
        value.and_then(|value| value.try_into().ok()).unwrap_or(0)
    };
    header.set_n_layers(count("block_count"));
    header.set_d_model(count("embedding_length"));
    header.set_n_heads(count("attention.head_count"));
    header.set_n_kv_heads(count("attention.head_count_kv"));
    header.set_n_vocab(count("vocab_size"));
    header.set_n_ctx(count("context_length"));
    header.set_d_ff(count("feed_forward_length"));
    header.set_d_head(count("attention.key_length"));
}

fn set_tokens(header: &mut Header, metadata: &Metadata) {
    let token = |name: &str| {
        let id = metadata.u32(&format!("tokenizer.ggml.{name}_token_id"));
        id.ok().flatten().unwrap_or(u32::MAX)
    };
    header.set_bos(token("bos"));
    header.set_eos(token("eos"));
    header.set_pad(token("padding"));
}

fn n_vocab(metadata: &Metadata, said: u32) -> Result<u32, Error> {
    let tokens = metadata.strs("tokenizer.ggml.tokens")?;
    Ok(tokens.map_or(said, |tokens| tokens.len() as u32))
}

/// The tensors of a layer with their roles, in the order in which they are used.
fn tensors_of(checkpoint: &Checkpoint, layer: usize) -> Vec<(u32, &Tensor)> {
    let of_layer = checkpoint.tensors.iter().filter_map(|tensor| {
        let (of, name) = layer_and_role(&tensor.name)?;
        (of == layer).then(|| (role_of(name, tensor.dims.len()), tensor))
    });
    let mut tensors: Vec<_> = of_layer.collect();
    let place = |role: u32| EXECUTION.iter().position(|&r| r == role);
    tensors.sort_by_key(|(role, _)| place(*role).unwrap_or(usize::MAX));
    tensors
}

fn role_of(name: &str, n_dims: usize) -> u32 {
    let expected = |role: u32| if VECTOR_ROLES.contains(&role) { 1 } else { 2 };
    let mut roles = 0..EXECUTION.len() as u32;
    let found = roles.find(|&role| role_name(role) == Some(name) && expected(role) == n_dims);
    found.unwrap_or(UNNAMED_ROLE)
}

fn tensor_header(tensor: &Tensor, role: u32) -> Result<TensorHeader, Error> {
    let mut header = TensorHeader::default();
    header.set_role(role);
    header.set_n_rows(small(tensor.n_rows(), &tensor.name)?);
    header.set_n_cols(small(tensor.d_row(), &tensor.name)?);
    header.set_quant(code(tensor)?);
    Ok(header)
}

fn code(tensor: &Tensor) -> Result<u8, Error> {
    let why = || Error::Qsf(format!("QSF has no code for type {}", tensor.ty));
    code_of_type(tensor.ty).ok_or_else(|| why().of(&tensor.name))
}

/// The code of the type of all matrices, or that of several types.
fn shared_code<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> u8 {
    let matrices = tensors.filter(|tensor| tensor.dims.len() > 1);
    let mut codes = matrices.map(|tensor| code_of_type(tensor.ty));
    let first = codes.next().flatten();
    let first = first.filter(|&code| code < Header::MIXED && codes.all(|c| c == Some(code)));
    first.unwrap_or(Header::MIXED)
}

/// A number that the format has 32 bits for.
fn small(n: u64, what: &str) -> Result<u32, Error> {
    let why = || {
        Error::Qsf(format!(
            "{what}: {n} does not fit the 32 bits that QSF has for it"
        ))
    };
    u32::try_from(n).map_err(|_| why())
}

/// Sensitivities that were measured, if all of them were.
fn sensitivities(
    metadata: &Metadata,
    n_tensors: usize,
    n_layers: usize,
) -> Option<SensitivityTable> {
    let [tensors, layers] = SENSITIVITIES.map(|key| metadata.f32s(key).ok().flatten());
    let table = SensitivityTable {
        tensors: tensors?.iter().collect(),
        layers: layers?.iter().collect(),
    };
    let is_whole = [table.tensors.len(), table.layers.len()] == [n_tensors, n_layers];
    is_whole.then_some(table)
}
