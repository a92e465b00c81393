//! From a model and a share of it to parts, and from parts to a model.

use std::{
    collections::HashSet,
    io,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use atta_formats::{TensorInfo, gguf::shard_file_names};
use atta_model::{Share, arch, spec::ModelSpec};
use atta_store::{Extent, Hole, ModelFiles, ReadAt};

use super::{HEADER, PartError, PartFile, PartIndex, PartTensor, Presence, file::at, hash};

/// Hashes the header and all tensors of a model's files: one index per file, everything present.
/// Reads all bytes.
///
/// # Errors
/// A file that cannot be read; tensors that overlap.
pub fn index_of(files: &ModelFiles) -> Result<Vec<PartIndex>, PartError> {
    index_while(files, &mut |_| ControlFlow::Continue(()))
}

/// As [`index_of`]; `on` hears the bytes of each tensor that has been hashed, and can end it.
///
/// # Errors
/// As [`index_of`], and [`PartError::Stopped`].
pub(super) fn index_while(
    files: &ModelFiles,
    on: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Vec<PartIndex>, PartError> {
    if files.is_scattered() {
        return Err(PartError::Scattered);
    }
    let tensors = files.directory().tensors();
    let n_shards = tensors
        .iter()
        .map(|tensor| tensor.shard)
        .max()
        .map_or(1, |last| last + 1);
    (0..n_shards)
        .map(|shard| index_of_shard(files, shard, on))
        .collect()
}

fn index_of_shard(
    files: &ModelFiles,
    shard: u16,
    on: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<PartIndex, PartError> {
    let source = ShardBytes { files, shard };
    let infos = files.directory().tensors().iter();
    let own = infos.filter(|info| info.shard == shard && info.n_bytes > 0);
    let mut extents: Vec<(u64, u64, &str)> = own
        .map(|info| (info.offset, info.n_bytes, info.name.as_str()))
        .collect();
    extents.sort_unstable();
    let file_bytes = source.n_bytes();
    let header_bytes = extents.first().map_or(file_bytes, |(offset, ..)| *offset);
    extents.insert(0, (0, header_bytes, HEADER));
    let mut tensors = Vec::with_capacity(extents.len());
    for (offset, bytes, name) in extents {
        tensors.push(PartTensor {
            name: name.to_owned(),
            offset,
            bytes,
            hash: hash(&source, &(offset..offset + bytes))?,
            presence: Presence::Whole,
        });
        if on(bytes).is_break() {
            return Err(PartError::Stopped);
        }
    }
    PartIndex::new(file_bytes, tensors)
}

/// The bytes of one file of a model.
struct ShardBytes<'a> {
    files: &'a ModelFiles,
    shard: u16,
}

impl ReadAt for ShardBytes<'_> {
    fn n_bytes(&self) -> u64 {
        self.files.shard_bytes(self.shard)
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = self.files.read(Extent {
            shard: self.shard,
            offset,
            bytes: buf.len() as u64,
        });
        buf.copy_from_slice(&bytes.map_err(io::Error::other)?);
        Ok(())
    }
}

/// The names of the tensors that a share of a model reads.
///
/// # Errors
/// A file that has not exactly the tensors of the model.
pub fn tensors_of(
    share: &Share,
    spec: &ModelSpec,
    files: &ModelFiles,
) -> Result<Vec<String>, PartError> {
    let tensors = share.tensors(spec, files.directory())?;
    Ok(tensors.into_iter().map(|info| info.name.clone()).collect())
}

/// A hash over the hashes of some tensors of a model and of its headers, in the order of the files:
/// nodes that agree on it compute with the same weights.
pub fn share_hash(files: &[PartIndex], names: &[String]) -> [u8; 32] {
    let names: HashSet<&str> = names.iter().map(String::as_str).collect();
    let mut hasher = blake3::Hasher::new_derive_key("atta 2026-11-28 share of a model v1");
    let tensors = files.iter().flat_map(PartIndex::tensors);
    for tensor in tensors.filter(|t| t.name == HEADER || names.contains(t.name.as_str())) {
        hasher.update(&tensor.hash);
    }
    *hasher.finalize().as_bytes()
}

/// Opens the parts at `path` (all of a split model) as a model and its spec: to touch an absent
/// tensor is an error with its name.
///
/// # Errors
/// A sidecar or file that cannot be read, a header that is not whole, and what a model's metadata
/// is refused for.
pub fn open_model(path: &Path) -> Result<(ModelSpec, ModelFiles), PartError> {
    let mut holes = Vec::new();
    let mut indices = Vec::new();
    for (shard, path) in (0..).zip(shard_paths(path)) {
        let index = PartFile::read_index(&path)?;
        check_length(&path, &index)?;
        let absent = index
            .tensors()
            .iter()
            .filter(|t| t.presence == Presence::Absent);
        for tensor in absent {
            if tensor.name == HEADER {
                let tensor = "the header".to_owned();
                return Err(PartError::Absent { tensor });
            }
            let extent = Extent {
                shard,
                offset: tensor.offset,
                bytes: tensor.bytes,
            };
            let tensor = tensor.name.clone();
            holes.push(Hole { extent, tensor });
        }
        indices.push(index);
    }
    let files = ModelFiles::open_part(path, holes)?;
    check_directory(&files, &indices)?;
    let spec = arch::lower(files.directory().metadata())?;
    Ok((spec, files))
}

/// The sidecars came from another node, as the header did: both must name the same places.
fn check_directory(files: &ModelFiles, indices: &[PartIndex]) -> Result<(), PartError> {
    let infos = files.directory().tensors().iter();
    let is_listed = |info: &TensorInfo| {
        let index = indices.get(usize::from(info.shard));
        index.is_some_and(|index| {
            let tensors = index.tensors();
            let at = tensors.binary_search_by_key(&info.offset, |tensor| tensor.offset);
            at.is_ok_and(|i| (&*tensors[i].name, tensors[i].bytes) == (&*info.name, info.n_bytes))
        })
    };
    let mut with_bytes = infos.filter(|info| info.n_bytes > 0);
    match with_bytes.all(is_listed) {
        true => Ok(()),
        false => Err(PartError::Index("its tensors are not those of the header")),
    }
}

fn check_length(path: &Path, index: &PartIndex) -> Result<(), PartError> {
    let found = path.metadata().map_err(|source| at(path, source))?.len();
    let expected = index.file_bytes();
    match found == expected {
        true => Ok(()),
        false => Err(PartError::Length { found, expected }),
    }
}

/// The file itself, or all files of a split model.
pub(super) fn shard_paths(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().and_then(|name| name.to_str());
    let names = name.and_then(shard_file_names);
    let names = names.map(|names| names.map(|name| path.with_file_name(name)).collect());
    names.unwrap_or_else(|| vec![path.to_owned()])
}
