//! Reads a model file and its `tokenizer.bin` as a checkpoint.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use atta_formats::{SharedBytes, TensorType, Writer};
use atta_store::MappedFile;

use super::{
    header::Header,
    int8_rows::Int8Rows,
    layout::{self, FileTensor},
    metadata::metadata,
    vocab,
};
use crate::{Checkpoint, Error, MappedRows, RowSource, Tensor, metadata::parsed};

/// Opens a model file, with the vocabulary in `tokenizer`, or in the `tokenizer.bin` beside the
/// model.
///
/// # Errors
/// A file that cannot be read, has an invalid header, or does not have exactly the length that
/// follows from its header.
pub fn open(model: &Path, tokenizer: Option<&Path>) -> Result<Checkpoint, Error> {
    let beside = model.with_file_name("tokenizer.bin");
    let file = map(model)?;
    let tokens = match tokenizer {
        None if !beside.exists() => return Err(no_vocabulary(model, &beside)),
        _ => map(tokenizer.unwrap_or(&beside))?,
    };
    let mut checkpoint = parse(
        model,
        file.clone(),
        tokenizer.unwrap_or(&beside),
        tokens.bytes(),
    )?;
    checkpoint.files.push((model.to_owned(), file));
    Ok(checkpoint)
}

/// Adds the vocabulary in a `tokenizer.bin` to the metadata of a model with `n_vocab` tokens.
///
/// # Errors
/// A file that cannot be read, or is no vocabulary of so many tokens.
pub(crate) fn add_vocabulary(path: &Path, n_vocab: u64, out: &mut Writer) -> Result<(), Error> {
    let tokens = map(path)?;
    vocab::read(tokens.bytes(), n_vocab, out).map_err(|why| Error::File {
        path: path.to_owned(),
        why,
    })
}

fn map(path: &Path) -> Result<Arc<MappedFile>, Error> {
    let file = MappedFile::open(path).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })?;
    Ok(Arc::new(file))
}

fn no_vocabulary(model: &Path, beside: &Path) -> Error {
    let why = format!(
        "contains no vocabulary, and there is no {}; name its tokenizer file",
        beside.display()
    );
    Error::File {
        path: model.to_owned(),
        why,
    }
}

/// Parses a model from bytes; the paths are for messages.
///
/// # Errors
/// Those of [`open`], except I/O errors.
pub fn parse(
    model: &Path,
    bytes: SharedBytes,
    tokenizer: &Path,
    tokens: &[u8],
) -> Result<Checkpoint, Error> {
    let in_file = |path: &Path| {
        let path = path.to_owned();
        move |why| Error::File { path, why }
    };
    let (header, slots) = directory((*bytes).as_ref()).map_err(in_file(model))?;
    let mut writer = metadata(&header.sizes);
    vocab::read(tokens, header.sizes.n_vocab, &mut writer).map_err(in_file(tokenizer))?;
    let tensors = tensors(&bytes, slots, &writer)?;
    Ok(Checkpoint {
        metadata: writer,
        tensors,
        files: Vec::<(PathBuf, _)>::new(),
    })
}

/// The header and the tensors of a file.
fn directory(bytes: &[u8]) -> Result<(Header, Vec<FileTensor>), String> {
    let header = Header::parse(bytes)?;
    let (slots, end) = layout::file_tensors(&header)?;
    let len = bytes.len() as u64;
    let version = header.version;
    match len.cmp(&end) {
        std::cmp::Ordering::Equal => Ok((header, slots)),
        std::cmp::Ordering::Less => Err(format!(
            "{version} of its sizes has {end} bytes, {} are missing",
            end - len
        )),
        std::cmp::Ordering::Greater => Err(format!(
            "{version} of its sizes has {end} bytes, {} are left over",
            len - end
        )),
    }
}

/// The tensors in the order of the model spec.
fn tensors(
    file: &SharedBytes,
    slots: Vec<FileTensor>,
    writer: &Writer,
) -> Result<Vec<Tensor>, Error> {
    let mut slots: HashMap<String, FileTensor> =
        slots.into_iter().map(|slot| (slot.name(), slot)).collect();
    let spec = atta_model::arch::lower(&parsed(writer)?)?;
    let found = spec
        .tensors()
        .into_iter()
        .filter_map(|wanted| slots.remove_entry(&wanted.name()));
    found.map(|(name, slot)| tensor(file, name, slot)).collect()
}

fn tensor(file: &SharedBytes, name: String, slot: FileTensor) -> Result<Tensor, Error> {
    let ty = ty(&slot);
    let rows: Box<dyn RowSource> = match slot.group {
        None => Box::new(MappedRows::new(file.clone(), slot.at, &slot.dims, ty)?),
        // The file has the length that follows from its header, so the offsets fit usize.
        Some(group) => Box::new(Int8Rows {
            file: file.clone(),
            codes: slot.at as usize..(slot.at + slot.n_weights()) as usize,
            group: group as usize,
            d_row: slot.d_row() as usize,
        }),
    };
    Ok(Tensor {
        name,
        dims: slot.dims,
        ty,
        rows,
    })
}

/// Q8_0 if groups and rows are whole blocks of 32, else F32.
fn ty(slot: &FileTensor) -> TensorType {
    match slot.group {
        Some(group) if group.is_multiple_of(32) && slot.d_row().is_multiple_of(32) => {
            TensorType::Q8_0
        }
        _ => TensorType::F32,
    }
}
