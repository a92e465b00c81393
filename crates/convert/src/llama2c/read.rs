//! From a model file and its `tokenizer.bin` to a checkpoint.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use atta_formats::{SharedBytes, TensorType, Writer};
use atta_store::MappedFile;

use super::{
    groups::Groups,
    header::Header,
    layout::{self, Place},
    metadata::metadata,
    vocab,
};
use crate::{Checkpoint, Error, Rows, Stored, Tensor, metadata::parsed};

/// Opens a model file, with the vocabulary of `tokenizer`, or of the `tokenizer.bin` beside the
/// model.
///
/// # Errors
/// A file that cannot be read, or is not what it says, to the byte.
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

fn map(path: &Path) -> Result<Arc<MappedFile>, Error> {
    let file = MappedFile::open(path).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })?;
    Ok(Arc::new(file))
}

fn no_vocabulary(model: &Path, beside: &Path) -> Error {
    let why = format!(
        "has no vocabulary in itself, and there is no {}; name its tokenizer file",
        beside.display()
    );
    Error::File {
        path: model.to_owned(),
        why,
    }
}

/// The same for bytes; the paths are for messages.
///
/// # Errors
/// As [`open`].
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
    let (header, places) = directory((*bytes).as_ref()).map_err(in_file(model))?;
    let mut writer = metadata(&header.sizes);
    vocab::read(tokens, header.sizes.n_vocab, &mut writer).map_err(in_file(tokenizer))?;
    let tensors = tensors(&bytes, places, &writer)?;
    Ok(Checkpoint {
        metadata: writer,
        tensors,
        files: Vec::<(PathBuf, _)>::new(),
    })
}

/// What a file says about itself, and where its tensors are.
fn directory(bytes: &[u8]) -> Result<(Header, Vec<Place>), String> {
    let header = Header::parse(bytes)?;
    let (places, end) = layout::places(&header)?;
    let len = bytes.len() as u64;
    let form = header.form;
    match len.cmp(&end) {
        std::cmp::Ordering::Equal => Ok((header, places)),
        std::cmp::Ordering::Less => Err(format!(
            "{form} of its sizes has {end} bytes, {} are missing",
            end - len
        )),
        std::cmp::Ordering::Greater => Err(format!(
            "{form} of its sizes has {end} bytes, {} are left over",
            len - end
        )),
    }
}

/// The tensors in the order in which a forward pass meets them.
fn tensors(file: &SharedBytes, places: Vec<Place>, writer: &Writer) -> Result<Vec<Tensor>, Error> {
    let mut places: HashMap<String, Place> = places
        .into_iter()
        .map(|place| (place.name(), place))
        .collect();
    let spec = atta_model::arch::lower(&parsed(writer)?)?;
    let found = spec
        .tensors()
        .into_iter()
        .filter_map(|wanted| places.remove_entry(&wanted.name()));
    found
        .map(|(name, place)| tensor(file, name, place))
        .collect()
}

fn tensor(file: &SharedBytes, name: String, place: Place) -> Result<Tensor, Error> {
    let ty = ty(&place);
    let rows: Box<dyn Rows> = match place.group {
        None => Box::new(Stored::new(file.clone(), place.at, &place.dims, ty)?),
        // The length of the file was compared with the end of the last tensor, so that all of it is
        // in memory.
        Some(group) => Box::new(Groups {
            file: file.clone(),
            codes: place.at as usize..(place.at + place.n_weights()) as usize,
            group: group as usize,
            d_row: place.d_row() as usize,
        }),
    };
    Ok(Tensor {
        name,
        dims: place.dims,
        ty,
        rows,
    })
}

/// Codes stay codes where rows are whole blocks of GGUF's eight bits, and become floats elsewhere.
fn ty(place: &Place) -> TensorType {
    match place.group {
        Some(group) if group.is_multiple_of(32) && place.d_row().is_multiple_of(32) => {
            TensorType::Q8_0
        }
        _ => TensorType::F32,
    }
}
