//! The adapters of an engine: their files, names and default scales.
//!
//! The file of an adapter is read when the model is loaded. A text names adapters by an
//! [`AdapterSet`]; where it says nothing, the defaults of the engine apply. *model* computes
//! them.

use std::path::PathBuf;

use atta_model::{Adapter, AdapterScale, AdapterSet, AdapterSizes, spec::ModelSpec};
use atta_store::Budget;
#[cfg(feature = "lora")]
use atta_store::ModelFiles;

use crate::{Engine, Error};

/// A LoRA adapter to load with a model.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterFile {
    /// Its name, for texts that choose it; empty: that of the file without its ending.
    pub name: String,
    /// A GGUF file of `general.type` adapter.
    pub path: PathBuf,
    /// Its scale for texts that say nothing of adapters; 0: they do without.
    pub scale: f32,
}

/// A loaded adapter: its name, file and default scale.
#[derive(Clone, Debug)]
pub struct AdapterInfo {
    /// Its name, unique among those of the engine.
    pub name: String,
    /// Its file.
    pub path: PathBuf,
    /// Its scale for texts that say nothing of adapters.
    pub scale: f32,
    /// BLAKE3 of the file, for keys of saved states.
    #[cfg(feature = "cache")]
    pub(crate) hash: [u8; 32],
}

/// The adapters of a model, before they become part of it.
#[derive(Default)]
pub(crate) struct LoadedAdapters {
    pub(crate) adapters: Vec<Adapter>,
    pub(crate) infos: Vec<AdapterInfo>,
    /// Those with a default scale.
    pub(crate) defaults: AdapterSet,
}

impl LoadedAdapters {
    /// Reads the files for a model of this spec and architecture.
    ///
    /// # Errors
    /// A file that cannot be read, that is no adapter for the model, or whose name another one has.
    #[cfg(feature = "lora")]
    pub(crate) fn load(
        files: &[AdapterFile],
        spec: &ModelSpec,
        architecture: &str,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let mut all = Self::default();
        for file in files {
            let opened = ModelFiles::open(&file.path)?;
            let adapter = Adapter::load(spec, architecture, &opened, budget);
            let entered = adapter.and_then(|adapter| all.enter(file, &opened, adapter));
            entered.map_err(|source| Error::Model {
                path: file.path.clone(),
                source,
            })?;
        }
        Ok(all)
    }

    /// Enters an adapter under its name.
    #[cfg(feature = "lora")]
    fn enter(
        &mut self,
        file: &AdapterFile,
        opened: &ModelFiles,
        adapter: Adapter,
    ) -> Result<(), atta_model::Error> {
        let name = file.name();
        if self.infos.iter().any(|info| info.name == name) {
            let why = format!("another adapter is called {name:?}, too");
            return Err(atta_model::Error::Adapter(why));
        }
        self.defaults.push(AdapterScale {
            adapter: self.adapters.len(),
            scale: file.scale,
        })?;
        self.adapters.push(adapter);
        self.infos.push(AdapterInfo {
            name,
            path: file.path.clone(),
            scale: file.scale,
            #[cfg(feature = "cache")]
            hash: hash(opened),
        });
        #[cfg(not(feature = "cache"))]
        let _ = opened;
        Ok(())
    }

    /// Refuses all files: this build cannot read them.
    #[cfg(not(feature = "lora"))]
    pub(crate) fn load(
        files: &[AdapterFile],
        _: &ModelSpec,
        _: &str,
        _: &Budget,
    ) -> Result<Self, Error> {
        let why = "this build has no adapters: it was made without the feature `lora`";
        match files.first() {
            Some(file) => Err(Error::Model {
                path: file.path.clone(),
                source: atta_model::Error::Adapter(why.to_owned()),
            }),
            None => Ok(Self::default()),
        }
    }

    pub(crate) fn sizes(&self) -> AdapterSizes {
        AdapterSizes::of(&self.adapters)
    }
}

/// BLAKE3 of all bytes of an adapter, whose files are mapped.
#[cfg(all(feature = "lora", feature = "cache"))]
fn hash(files: &ModelFiles) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for shard in 0..files.directory().n_shards() {
        let whole = atta_store::Extent {
            shard,
            offset: 0,
            bytes: files.shard_bytes(shard),
        };
        hasher.update(files.bytes(whole).expect("a file that is open is mapped"));
    }
    hasher.finalize().into()
}

impl AdapterFile {
    /// The name that it goes by.
    #[cfg(feature = "lora")]
    fn name(&self) -> String {
        let stem = self.path.file_stem().filter(|_| self.name.is_empty());
        stem.map_or_else(
            || self.name.clone(),
            |stem| stem.to_string_lossy().into_owned(),
        )
    }
}

impl Engine {
    /// The adapters that were loaded with the model, by index.
    pub fn adapters(&self) -> &[AdapterInfo] {
        self.adapter_infos()
    }

    /// The set of some adapters with their scales, in this order; those with a scale of 0 are left
    /// out.
    ///
    /// # Errors
    /// An adapter that is not loaded, or is there twice; more than
    /// [`MAX_ADAPTERS`](atta_model::MAX_ADAPTERS); a scale that is not finite.
    pub fn adapter_set(&self, scales: &[AdapterScale]) -> Result<AdapterSet, Error> {
        let mut set = AdapterSet::EMPTY;
        for &at in scales {
            let n = self.adapters().len();
            let Some(info) = self.adapters().get(at.adapter) else {
                let why = format!("there is no adapter {}: {n} are loaded", at.adapter);
                return Err(atta_model::Error::Adapter(why).into());
            };
            let named = |error| {
                let why = format!("adapter {:?}: {error}", info.name);
                atta_model::Error::Adapter(why)
            };
            set.push(at).map_err(named)?;
        }
        Ok(set)
    }

    /// The index of the adapter of this name.
    ///
    /// # Errors
    /// No such adapter; the error lists those that there are.
    pub fn adapter_named(&self, name: &str) -> Result<usize, Error> {
        let found = self.adapters().iter().position(|info| info.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.adapters().iter().map(|info| &*info.name).collect();
            let known = match names.is_empty() {
                true => "none is loaded".to_owned(),
                false => format!("there are {}", names.join(", ")),
            };
            atta_model::Error::Adapter(format!("there is no adapter {name:?}: {known}")).into()
        })
    }
}
