//! Where a node finds the models that coordinators name.

use std::{
    collections::HashMap,
    fs,
    ops::{ControlFlow, Range},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use atta_model::{Share, arch, spec::ModelSpec};
use atta_store::ModelFiles;

use crate::{
    part::{HEADER, PartError, PartIndex, index_of, model_id, share_hash, tensors_of},
    wire::message::{Blocked, Digest, Loading, NodeAddress, WantedFile, WantedModel},
};

/// A stage's wish for a model.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The model.
    pub model: &'a WantedModel,
    /// Its layers.
    pub layers: &'a Range<usize>,
    /// Number of the ring, for connections that bring bytes.
    pub ring: u64,
    /// Nodes that have the model, in the order in which to ask them.
    pub sources: &'a [NodeAddress],
}

/// Hears how far the work is; [`ControlFlow::Break`] ends it.
pub type OnLoading<'a> = &'a mut dyn FnMut(Loading) -> ControlFlow<()>;

/// A model that is open.
#[derive(Debug)]
pub struct OpenModel {
    /// Its architecture.
    pub spec: ModelSpec,
    /// Its files, whole or parts.
    pub files: ModelFiles,
    /// Hash over the tensors of the layers, as [`share_hash`] makes it.
    pub share: Digest,
}

/// Finds models by their content.
pub trait Models: Send + Sync {
    /// Opens a model that has at least the wanted layers, and fetches them if need be.
    ///
    /// # Errors
    /// [`Blocked`]: it is not there and cannot be fetched.
    fn open(&self, wanted: Wanted<'_>, on: OnLoading<'_>) -> Result<OpenModel, Blocked>;

    /// Free bytes for parts of models; `None`: none are kept.
    fn disk_free_bytes(&self) -> Option<u64> {
        None
    }
}

/// Whole models in some directories. A file is hashed when it is first asked for.
#[derive(Debug, Default)]
pub struct ModelDirectories {
    directories: Vec<PathBuf>,
    hashed: Mutex<HashMap<FileKey, Vec<PartIndex>>>,
}

/// A file until it is written to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FileKey {
    path: PathBuf,
    bytes: u64,
    modified: Option<SystemTime>,
}

impl ModelDirectories {
    /// The GGUF files in these directories, not below them.
    pub fn new(directories: Vec<PathBuf>) -> Self {
        Self {
            directories,
            hashed: Mutex::default(),
        }
    }

    /// Files whose lengths are those of the model: the one of its name first.
    fn candidates(&self, model: &WantedModel) -> Vec<PathBuf> {
        let entries = self.directories.iter().filter_map(|d| fs::read_dir(d).ok());
        let paths = entries.flatten().flatten().map(|entry| entry.path());
        let is_like = |path: &PathBuf| {
            let first = model.files.first().map(|file| file.bytes);
            path.extension().is_some_and(|e| e == "gguf")
                && path.metadata().ok().map(|m| m.len()) == first
        };
        let mut paths: Vec<PathBuf> = paths.filter(is_like).collect();
        let is_named = |path: &PathBuf| path.file_name().is_some_and(|n| *n == *model.name);
        paths.sort_by_key(|path| (!is_named(path), path.clone()));
        paths
    }

    /// The hashes of a model's files, from memory where they have not changed.
    fn index(&self, path: &Path, files: &ModelFiles) -> Result<Vec<PartIndex>, PartError> {
        let key = FileKey {
            path: path.to_owned(),
            bytes: files.file_bytes(),
            modified: path.metadata().and_then(|m| m.modified()).ok(),
        };
        let hashed = || self.hashed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = hashed().get(&key) {
            return Ok(index.clone());
        }
        let index = index_of(files)?;
        hashed().insert(key, index.clone());
        Ok(index)
    }

    /// The model in a file, if it is the wanted one.
    fn open_file(
        &self,
        path: &Path,
        wanted: &Wanted<'_>,
        on: OnLoading<'_>,
    ) -> Result<Option<OpenModel>, PartError> {
        let files = ModelFiles::open(path)?;
        if !has_files(&files, wanted.model) {
            return Ok(None);
        }
        let what = format!("checking {}", wanted.model.name);
        let of_bytes = files.file_bytes();
        let loading = Loading {
            done_bytes: 0,
            of_bytes,
            what,
        };
        if on(loading).is_break() {
            return Ok(None);
        }
        let index = self.index(path, &files)?;
        if Digest(model_id(&index)) != wanted.model.id {
            return Ok(None);
        }
        let spec = arch::lower(files.directory().metadata())?;
        let share = share_of(&index, &spec, wanted.layers, &files)?;
        Ok(Some(OpenModel { spec, files, share }))
    }
}

/// The hash over the tensors that a stage with these layers reads.
///
/// # Errors
/// A file that has not exactly the tensors of the model.
pub fn share_of(
    index: &[PartIndex],
    spec: &ModelSpec,
    layers: &Range<usize>,
    files: &ModelFiles,
) -> Result<Digest, PartError> {
    let names = tensors_of(&stage_share(layers), spec, files)?;
    Ok(Digest(share_hash(index, &names)))
}

/// A stage has layers only: embedding and head are the coordinator's.
pub(crate) fn stage_share(layers: &Range<usize>) -> Share {
    Share {
        layers: layers.clone(),
        embed: false,
        head: false,
    }
}

/// The lengths and headers of a model's files.
pub fn wanted_files(index: &[PartIndex]) -> Vec<WantedFile> {
    let files = index.iter().filter_map(|file| {
        let header = file.tensors().first().filter(|t| t.name == HEADER)?;
        Some(WantedFile {
            bytes: file.file_bytes(),
            header: Digest(header.hash),
        })
    });
    files.collect()
}

fn has_files(files: &ModelFiles, model: &WantedModel) -> bool {
    let shards = model.files.iter().zip(0_u16..);
    let total: u64 = model.files.iter().map(|file| file.bytes).sum();
    files.file_bytes() == total
        && shards
            .into_iter()
            .all(|(file, shard)| files.shard_bytes(shard) == file.bytes)
}

impl Models for ModelDirectories {
    fn open(&self, wanted: Wanted<'_>, on: OnLoading<'_>) -> Result<OpenModel, Blocked> {
        let mut why = None;
        for path in self.candidates(wanted.model) {
            match self.open_file(&path, &wanted, on) {
                Ok(Some(open)) => return Ok(open),
                Ok(None) => {}
                Err(error) => why = Some(error.to_string()),
            }
        }
        let name = &wanted.model.name;
        let why = why.unwrap_or_else(|| format!("{name} is not here, or it is another model"));
        Err(Blocked {
            why,
            would_do: Some(format!("a copy of {name} in a directory of models")),
        })
    }
}
