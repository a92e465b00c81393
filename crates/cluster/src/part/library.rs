//! The models of a node: whole files in some directories, and parts in a directory of its own.
//!
//! A model is found by the hash of its content, never by a path that another node names. A whole
//! file is hashed once; a part is named after the hash of its model. The library gives files and
//! makes room for parts; it moves no bytes and knows no network.

use std::{
    collections::HashMap,
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use atta_model::{arch, spec::ModelSpec};
use atta_store::ModelFiles;

use super::{
    HEADER, Part, PartError, PartFile, PartIndex, evict,
    evict::parts_in,
    file::at,
    kept_hash, model_id, open_model,
    share::{index_while, shard_paths},
};
use crate::wire::message::{Digest, WantedModel};

/// Where a node's models are.
#[derive(Clone, Debug)]
pub struct LibraryOptions {
    /// Directories with GGUF files, which are never written to.
    pub models: Vec<PathBuf>,
    /// Where parts are kept; `None`: nowhere.
    pub parts: Option<PartsDirectory>,
    /// A directory for hashes of files.
    pub hashes: PathBuf,
}

/// The directory of parts.
#[derive(Clone, Debug)]
pub struct PartsDirectory {
    /// Its path. Everything in it belongs to this program.
    pub path: PathBuf,
    /// Most bytes that parts may hold.
    pub budget_bytes: u64,
}

/// How a model is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldAs {
    /// A whole file, or all files of a split model.
    Whole,
    /// Parts of the files.
    Part,
}

/// A model of this node.
#[derive(Clone, Debug)]
pub struct HeldModel {
    /// Its first file.
    pub path: PathBuf,
    /// Whole or in part.
    pub held: HeldAs,
    /// The index of each of its files.
    pub index: Vec<PartIndex>,
}

/// Hears hashed bytes, those of all files; [`ControlFlow::Break`] ends the work.
pub type OnHashed<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;

/// The models of a node.
#[derive(Debug)]
pub struct Library {
    options: LibraryOptions,
    /// Whole models by their content, also outside of the directories.
    known: Mutex<HashMap<Digest, PathBuf>>,
}

impl HeldModel {
    /// The hash of its content.
    pub fn id(&self) -> Digest {
        Digest(model_id(&self.index))
    }

    /// Bytes that are here.
    pub fn held_bytes(&self) -> u64 {
        self.index.iter().map(PartIndex::held_bytes).sum()
    }

    /// Opens the model; to touch a tensor that is not here is an error with its name.
    ///
    /// # Errors
    /// A file that cannot be read, and metadata that is refused.
    pub fn open(&self) -> Result<(ModelSpec, ModelFiles), PartError> {
        if self.held == HeldAs::Part {
            return open_model(&self.path);
        }
        let files = ModelFiles::open(&self.path)?;
        let spec = arch::lower(files.directory().metadata())?;
        Ok((spec, files))
    }

    /// Its files, for sending them to others.
    ///
    /// # Errors
    /// A file that cannot be read, or has another length than its index says.
    pub fn files(&self) -> Result<Vec<Part<PartFile>>, PartError> {
        let files = shard_paths(&self.path).into_iter().zip(&self.index);
        files
            .map(|(path, index)| Part::new(PartFile::open_to_read(&path)?, index.clone()))
            .collect()
    }
}

impl Library {
    /// The models in these places. Nothing is read before it is asked for.
    pub fn new(options: LibraryOptions) -> Self {
        Self {
            options,
            known: Mutex::default(),
        }
    }

    /// The model in a file, wherever that is, with its hashes; of a split model any file may be
    /// named. A file that is not hashed yet is read as a whole.
    ///
    /// # Errors
    /// A file that is no model, cannot be read, or whose hashes cannot be kept;
    /// [`PartError::Stopped`].
    pub fn hashed(&self, path: &Path, on: OnHashed<'_>) -> Result<HeldModel, PartError> {
        let index = match self.kept(path) {
            Some(index) => index,
            None => self.hash(path, on)?,
        };
        let model = HeldModel {
            path: path.to_owned(),
            held: HeldAs::Whole,
            index,
        };
        self.known().insert(model.id(), model.path.clone());
        Ok(model)
    }

    /// The kept hashes of all files of a model.
    fn kept(&self, path: &Path) -> Option<Vec<PartIndex>> {
        let paths = shard_paths(path);
        let kept = paths
            .iter()
            .map(|path| kept_hash::read(&self.options.hashes, path));
        kept.collect()
    }

    fn hash(&self, path: &Path, on: OnHashed<'_>) -> Result<Vec<PartIndex>, PartError> {
        let files = ModelFiles::open(path)?;
        let all = files.file_bytes();
        let mut done = 0;
        let index = index_while(&files, &mut |bytes| {
            done += bytes;
            on(done, all)
        })?;
        for (path, index) in shard_paths(path).iter().zip(&index) {
            kept_hash::write(&self.options.hashes, path, index)?;
        }
        Ok(index)
    }

    /// The wanted model as whole files, if it is here. Files of its lengths and header are hashed
    /// if they have not been.
    ///
    /// # Errors
    /// As [`hashed`](Self::hashed); files that are no models are passed over.
    pub fn whole(
        &self,
        wanted: &WantedModel,
        on: OnHashed<'_>,
    ) -> Result<Option<HeldModel>, PartError> {
        let is_named = |path: &PathBuf| path.file_name().is_some_and(|n| *n == *wanted.name);
        let mut paths = self.model_files();
        paths.sort_by_key(|path| !is_named(path));
        for path in paths.into_iter().filter(|path| is_like(path, wanted)) {
            let model = self.hashed(&path, on)?;
            if model.id() == wanted.id {
                return Ok(Some(model));
            }
        }
        Ok(None)
    }

    /// Whatever is here of a model, without hashing anything.
    ///
    /// # Errors
    /// A part whose sidecar is torn.
    pub fn held(&self, id: Digest) -> Result<Option<HeldModel>, PartError> {
        let known = self.known().get(&id).cloned();
        let paths = known.into_iter().chain(self.model_files());
        for path in paths {
            let model = self.kept(&path).map(|index| HeldModel {
                path,
                held: HeldAs::Whole,
                index,
            });
            if let Some(model) = model.filter(|model| model.id() == id) {
                return Ok(Some(model));
            }
        }
        self.part(id)
    }

    /// The part of a model that is here. One with a torn sidecar, or with files of other lengths
    /// than it says, is none: it will be made anew.
    ///
    /// # Errors
    /// A sidecar that the system cannot read.
    pub fn part(&self, id: Digest) -> Result<Option<HeldModel>, PartError> {
        let Some(path) = self.first_part(id)? else {
            return Ok(None);
        };
        let paths = shard_paths(&path);
        if !paths.iter().all(|path| PartFile::index_path(path).exists()) {
            return Ok(None);
        }
        let index = paths.iter().map(|path| PartFile::read_index(path));
        let index: Vec<PartIndex> = match index.collect() {
            Ok(index) => index,
            Err(PartError::Index(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut files = paths.iter().zip(&index);
        let has_lengths = files.all(|(path, index)| {
            fs::metadata(path).is_ok_and(|file| file.len() == index.file_bytes())
        });
        let model = HeldModel {
            held: HeldAs::Part,
            index,
            path,
        };
        Ok((has_lengths && model.id() == id).then_some(model))
    }

    /// The first file of the part of a model.
    fn first_part(&self, id: Digest) -> Result<Option<PathBuf>, PartError> {
        let Some(parts) = &self.options.parts else {
            return Ok(None);
        };
        let stem = stem(id);
        let is_first = |name: &str| {
            let rest = name.strip_prefix(&stem);
            rest.is_some_and(|rest| rest == ".gguf" || rest.starts_with("-00001-of-"))
        };
        let Ok(entries) = fs::read_dir(&parts.path) else {
            return Ok(None);
        };
        let names = entries.flatten().map(|entry| entry.file_name());
        let names = names.filter_map(|name| name.into_string().ok());
        let first = names
            .filter(|name| name.ends_with(".gguf") && is_first(name))
            .min();
        Ok(first.map(|name| parts.path.join(name)))
    }

    /// Makes empty parts for the files of a model, or keeps those that are there. The index comes
    /// from another node.
    ///
    /// # Errors
    /// [`PartError::OtherModel`], [`PartError::NoParts`], the error of the system.
    pub fn begin_part(
        &self,
        wanted: &WantedModel,
        index: &[PartIndex],
    ) -> Result<HeldModel, PartError> {
        let parts = self.options.parts.as_ref().ok_or(PartError::NoParts)?;
        check_index(wanted, index)?;
        if let Some(model) = self.part(wanted.id)? {
            return Ok(model);
        }
        fs::create_dir_all(&parts.path).map_err(|source| at(&parts.path, source))?;
        let names = part_names(wanted.id, index.len());
        let paths = names.into_iter().map(|name| parts.path.join(name));
        let paths: Vec<PathBuf> = paths.collect();
        for (path, index) in paths.iter().zip(index) {
            // The rest of a part that was deleted half.
            evict::remove(path)?;
            PartFile::create(path, index)?;
        }
        Ok(HeldModel {
            path: paths[0].clone(),
            held: HeldAs::Part,
            index: index.iter().map(PartIndex::emptied).collect(),
        })
    }

    /// Deletes parts of other models so that this one can grow by `needed` bytes.
    ///
    /// # Errors
    /// [`PartError::DiskBudget`], [`PartError::NoParts`], the error of the system.
    pub fn make_room(&self, model: &HeldModel, needed: u64) -> Result<Vec<PathBuf>, PartError> {
        let parts = self.options.parts.as_ref().ok_or(PartError::NoParts)?;
        evict(
            &parts.path,
            needed,
            parts.budget_bytes,
            &shard_paths(&model.path),
        )
    }

    /// Bytes that further parts may take without another part going; `None`: no parts are kept.
    pub fn free_bytes(&self) -> Option<u64> {
        let parts = self.options.parts.as_ref()?;
        let held = parts_in(&parts.path).unwrap_or_default();
        let held = held.iter().map(|part| part.held_bytes).sum();
        Some(parts.budget_bytes.saturating_sub(held))
    }

    /// All models whose hashes are known, and parts. A part that cannot be read is left out.
    pub fn list(&self) -> Vec<HeldModel> {
        let whole = self.model_files().into_iter().filter_map(|path| {
            let index = self.kept(&path)?;
            Some(HeldModel {
                path,
                held: HeldAs::Whole,
                index,
            })
        });
        let parts = self.options.parts.iter();
        let parts = parts.flat_map(|parts| gguf_files(&parts.path));
        let part = |path: PathBuf| {
            let index = shard_paths(&path)
                .into_iter()
                .map(|path| PartFile::read_index(&path));
            Some(HeldModel {
                index: index.collect::<Result<_, _>>().ok()?,
                held: HeldAs::Part,
                path,
            })
        };
        whole.chain(parts.filter_map(part)).collect()
    }

    /// The first files of all models in the directories, sorted.
    fn model_files(&self) -> Vec<PathBuf> {
        self.options
            .models
            .iter()
            .flat_map(|path| gguf_files(path))
            .collect()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Digest, PathBuf>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first files of the models in a directory, sorted; none if it cannot be read.
fn gguf_files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_first = |path: &PathBuf| {
        path.extension().is_some_and(|e| e == "gguf") && shard_paths(path)[0] == *path
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_first).collect();
    paths.sort();
    paths
}

/// Whether the files at a path have the lengths and the first header of a model.
fn is_like(path: &Path, wanted: &WantedModel) -> bool {
    let paths = shard_paths(path);
    let has_lengths = paths.len() == wanted.files.len()
        && paths
            .iter()
            .zip(&wanted.files)
            .all(|(path, file)| path.metadata().is_ok_and(|m| m.len() == file.bytes));
    has_lengths && header_hash(path).is_some_and(|hash| hash == wanted.files[0].header)
}

/// The hash of the header of a model's first file.
fn header_hash(path: &Path) -> Option<Digest> {
    let files = ModelFiles::open(path).ok()?;
    let tensors = files.directory().tensors().iter();
    let first = tensors.filter(|info| info.shard == 0 && info.n_bytes > 0);
    let end = first.map(|info| info.offset).min();
    let bytes = end.unwrap_or_else(|| files.shard_bytes(0));
    let extent = atta_store::Extent {
        shard: 0,
        offset: 0,
        bytes,
    };
    let header = files.read(extent).ok()?;
    Some(Digest(*blake3::hash(&header).as_bytes()))
}

/// Whether an index is that of the wanted model.
fn check_index(wanted: &WantedModel, index: &[PartIndex]) -> Result<(), PartError> {
    let is_file = |index: &PartIndex, i: usize| {
        let file = &wanted.files[i];
        let header = &index.tensors()[0];
        index.file_bytes() == file.bytes
            && header.name == HEADER
            && Digest(header.hash) == file.header
    };
    let is_it = index.len() == wanted.files.len()
        && index.iter().enumerate().all(|(i, index)| is_file(index, i))
        && Digest(model_id(index)) == wanted.id;
    match is_it {
        true => Ok(()),
        false => Err(PartError::OtherModel),
    }
}

/// The beginning of the names of a model's parts.
fn stem(id: Digest) -> String {
    id.to_string()[..32].to_owned()
}

/// The names of a model's parts, as those of a split model where there are several.
fn part_names(id: Digest, n_files: usize) -> Vec<String> {
    let stem = stem(id);
    match n_files {
        1 => vec![format!("{stem}.gguf")],
        n => (1..=n)
            .map(|i| format!("{stem}-{i:05}-of-{n:05}.gguf"))
            .collect(),
    }
}
