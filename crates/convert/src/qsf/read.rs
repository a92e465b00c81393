//! Reads a file as a checkpoint.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use atta_formats::{
    Contents, Metadata, SharedBytes, TensorInfo, Writer,
    qsf::{self, ASSUMED_KEY, Header, NAMES_KEY, ReadBytes, Sections, Tables, Window, crc32c},
};
use atta_store::MappedFile;

use super::{
    keep,
    layers::{CompressedRows, ExpandedFile},
    order::to_adjacent,
};
use crate::{Checkpoint, Error, MappedRows, RowSource, Tensor, llama2c, vocab::VocabFiles};

/// Opens a file. `tokenizer` is the vocabulary of a plain one, which has none: a `tokenizer.json`,
/// a `tokenizer.model`, a `tokenizer.bin`, or a GGUF file.
///
/// # Errors
/// A file that cannot be read or is damaged, and a vocabulary for a file that has one.
pub fn open(
    path: &Path,
    tokenizer: Option<&Path>,
    notes: &mut Vec<String>,
) -> Result<Checkpoint, Error> {
    let map = MappedFile::open(path).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })?;
    let map = Arc::new(map);
    let wrong = |why: String| Error::File {
        path: path.to_owned(),
        why,
    };
    let mut checkpoint = parse(map.clone()).map_err(|error| wrong(error.to_string()))?;
    checkpoint.files.push((path.to_owned(), map));
    let mut assumed = assumed(&checkpoint)?;
    if let Some(tokenizer) = tokenizer {
        // The last one is about the vocabulary.
        if assumed.pop().is_none() {
            return Err(wrong("has a vocabulary already".to_owned()));
        }
        add_vocabulary(tokenizer, &mut checkpoint)?;
        checkpoint.metadata.set_strs(ASSUMED_KEY, &assumed);
    }
    notes.extend(assumed.iter().map(|text| format!("assumed: {text}")));
    Ok(checkpoint)
}

/// The sentences about a plain file.
fn assumed(checkpoint: &Checkpoint) -> Result<Vec<String>, Error> {
    let metadata = crate::metadata::parsed(&checkpoint.metadata)?;
    let assumed = metadata.strs(ASSUMED_KEY)?;
    let texts = assumed.iter().flat_map(|all| all.iter());
    Ok(texts
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect())
}

/// As [`open`], for bytes at hand.
fn parse(file: SharedBytes) -> Result<Checkpoint, Error> {
    let n_bytes = (*file).as_ref().len() as u64;
    let mut read = |at: u64, n: usize| Window::of(&file, at, n);
    let (header, entries) = qsf::index(n_bytes, &mut read)?;
    let expanded = ExpandedFile::new(file.clone(), entries).map_err(Error::Qsf)?;
    match header.has_table() {
        true if expanded.is_compressed() => Err(Error::Qsf(
            "layers that are compressed do not go with the extension".to_owned(),
        )),
        true => extended(&file),
        false => plain(Arc::new(expanded), header),
    }
}

/// A file with the extension.
fn extended(file: &SharedBytes) -> Result<Checkpoint, Error> {
    let contents = Contents::parse(file.clone(), (**file).as_ref().len() as u64)?;
    let tables = Tables::read(file)?;
    let pairs = contents.tensors.iter().zip(&tables.tensors);
    let tensors = pairs.map(|(info, entry)| checked(file, info, entry.checksum()));
    let mut checkpoint = Checkpoint {
        metadata: writer(&contents.metadata),
        tensors: tensors.collect::<Result<_, _>>()?,
        files: Vec::new(),
    };
    checkpoint.metadata.remove(NAMES_KEY);
    // Other programs read such a file, and do not know the order of its rows.
    if !checkpoint.tensors.iter().any(|tensor| tensor.ty.is_own()) {
        to_adjacent(&mut checkpoint)?;
    }
    Ok(checkpoint)
}

/// A tensor whose bytes have this CRC-32C.
fn checked(file: &SharedBytes, info: &TensorInfo, checksum: u32) -> Result<Tensor, Error> {
    let data = Window::of(file, info.offset, info.n_bytes as usize);
    match data.map(|data| crc32c((*data).as_ref())) == Some(checksum) {
        true => mapped(file, info),
        false => {
            let why = "the checksum does not fit the weights".to_owned();
            Err(Error::Qsf(why).of(&info.name))
        }
    }
}

fn mapped(file: &SharedBytes, info: &TensorInfo) -> Result<Tensor, Error> {
    let rows = MappedRows::new(file.clone(), info.offset, info.shape.dims(), info.ty);
    Ok(tensor(
        info,
        Box::new(rows.map_err(|error| error.of(&info.name))?),
    ))
}

/// A file of the plan.
fn plain(file: Arc<ExpandedFile>, header: Header) -> Result<Checkpoint, Error> {
    let mut why = None;
    let mut read = |at: u64, n: usize| -> Option<SharedBytes> {
        let bytes = file.bytes(at, n);
        bytes.map_err(|error| why = Some(error)).ok()
    };
    let read: &mut ReadBytes<'_> = &mut read;
    let sections = Sections::read(file.n_bytes(), read, header, file.entries());
    if let Some(why) = why {
        return Err(Error::Qsf(why));
    }
    let sections = sections?;
    let mut metadata = writer(&sections.metadata()?);
    keep::set(&file, &sections, &mut metadata).map_err(Error::Qsf)?;
    let tensors = sections.tensors.iter();
    Ok(Checkpoint {
        metadata,
        tensors: tensors
            .map(|info| expanded_tensor(&file, info))
            .collect::<Result<_, _>>()?,
        files: Vec::<(PathBuf, _)>::new(),
    })
}

fn expanded_tensor(file: &Arc<ExpandedFile>, info: &TensorInfo) -> Result<Tensor, Error> {
    if let Some(file) = file.in_file(info.offset) {
        return mapped(&file, info);
    }
    let d_row = info.shape.dims().last().map_or(1, |&d| d as usize);
    let rows = CompressedRows {
        file: file.clone(),
        at: info.offset,
        ty: info.ty,
        d_row,
        row_bytes: info.ty.row_bytes(d_row).unwrap_or(0),
    };
    Ok(tensor(info, Box::new(rows)))
}

fn tensor(info: &TensorInfo, rows: Box<dyn RowSource>) -> Tensor {
    Tensor {
        name: info.name.clone(),
        dims: info.shape.dims().to_vec(),
        ty: info.ty,
        rows,
    }
}

fn writer(metadata: &Metadata) -> Writer {
    let mut out = Writer::new();
    let keys = metadata
        .iter()
        .filter(|(key, _)| *key != "general.alignment");
    keys.for_each(|(key, value)| out.set_value(key, value));
    out
}

/// Replaces the placeholders of a plain file by a vocabulary.
fn add_vocabulary(path: &Path, checkpoint: &mut Checkpoint) -> Result<(), Error> {
    let embedding = checkpoint
        .tensors
        .iter()
        .find(|t| t.name == "token_embd.weight");
    let n_vocab = embedding.map_or(0, Tensor::n_rows);
    let out = &mut checkpoint.metadata;
    for key in ["model", "tokens", "scores"] {
        out.remove(&format!("tokenizer.ggml.{key}"));
    }
    let ends = |end: &str| path.extension().is_some_and(|found| found == end);
    if ends("gguf") {
        return copy_vocabulary(path, n_vocab, out);
    }
    if ends("bin") {
        return llama2c::add_vocabulary(path, n_vocab, out);
    }
    let files = VocabFiles::of_file(path)?;
    crate::vocab::write(&files, n_vocab, &Default::default(), out).map(|_| ())
}

/// Copies the vocabulary of a GGUF file.
fn copy_vocabulary(path: &Path, n_vocab: u64, out: &mut Writer) -> Result<(), Error> {
    let from = crate::gguf::open(path)?;
    let from = crate::metadata::parsed(&from.metadata)?;
    let n_tokens = from
        .strs("tokenizer.ggml.tokens")?
        .map_or(0, |all| all.len());
    if n_tokens as u64 != n_vocab {
        let why = format!("has {n_tokens} tokens, the model {n_vocab}");
        let path = path.to_owned();
        return Err(Error::File { path, why });
    }
    let keys = from.iter().filter(|(key, _)| key.starts_with("tokenizer."));
    keys.for_each(|(key, value)| out.set_value(key, value));
    Ok(())
}
