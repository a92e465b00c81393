//! Reads GGUF files as checkpoints, to quantize, merge, split or convert them.

use std::{path::Path, sync::Arc};

use atta_formats::{
    Contents, Directory, SharedBytes, TensorInfo, Writer,
    gguf::{CHECKSUM_KEYS, shard_file_names},
};
use atta_store::MappedFile;

use crate::{Checkpoint, Error, MappedRows, Tensor};

/// Keys about sharding and alignment, which the writer sets anew.
const FILE_KEYS: [&str; 4] = [
    "general.alignment",
    "split.no",
    "split.count",
    "split.tensors.count",
];

/// Opens a GGUF file. For a split model, `path` may be any of the shards.
///
/// # Errors
/// A file that cannot be opened, a missing shard, invalid GGUF.
pub fn open(path: &Path) -> Result<Checkpoint, Error> {
    let name = path.file_name().and_then(|name| name.to_str());
    let paths = match name.and_then(shard_file_names) {
        Some(names) => names.map(|name| path.with_file_name(name)).collect(),
        None => vec![path.to_owned()],
    };
    let mut files = Vec::new();
    let mut parsed = Vec::new();
    for path in paths {
        let at = |error: &dyn std::fmt::Display| Error::File {
            path: path.clone(),
            why: error.to_string(),
        };
        let file = MappedFile::open(&path).map_err(|source| Error::Io {
            path: path.clone(),
            source,
        })?;
        let file = Arc::new(file);
        parsed.push(Contents::parse(file.clone(), file.bytes().len() as u64).map_err(|e| at(&e))?);
        files.push((path, file));
    }
    let directory = Directory::from_shards(parsed);
    let directory = directory.map_err(|error| Error::File {
        path: path.to_owned(),
        why: error.to_string(),
    })?;
    let tensors = directory
        .tensors()
        .iter()
        .map(|t| tensor(t, files[usize::from(t.shard)].1.clone()));
    let tensors = tensors.collect::<Result<_, _>>()?;
    Ok(Checkpoint {
        metadata: metadata(&directory),
        tensors,
        files,
    })
}

fn tensor(info: &TensorInfo, file: SharedBytes) -> Result<Tensor, Error> {
    let dims = info.shape.dims().to_vec();
    let rows =
        MappedRows::new(file, info.offset, &dims, info.ty).map_err(|error| error.of(&info.name))?;
    Ok(Tensor {
        name: info.name.clone(),
        dims,
        ty: info.ty,
        rows: Box::new(rows),
    })
}

fn metadata(directory: &Directory) -> Writer {
    let mut out = Writer::new();
    for (key, value) in directory
        .metadata()
        .iter()
        .filter(|(key, _)| !FILE_KEYS.contains(key) && !CHECKSUM_KEYS.contains(key))
    {
        out.set_value(key, value);
    }
    out
}
