//! The usage of experts in earlier runs, in a cache directory beside the prompts: it says which
//! experts of a streamed model to have in memory.
//!
//! One small file for each model, whose name is the key of the model. It only decides about reading
//! ahead: a missing, damaged or wrong one costs speed and nothing else, so it is no error.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use atta_store::ExpertUsage;

use super::{Key, PromptCache, Storage, atomic_file};
use crate::{Engine, Error};

const ENDING: &str = ".experts";

/// Most bytes of a file: a million experts.
const MAX_BYTES: u64 = 4 << 20;

impl PromptCache {
    /// Tells a streamed model which experts were used most in earlier runs, the first time that it
    /// is called for this engine. Only a directory knows.
    pub(crate) fn recall_experts(&self, engine: &Engine) -> Result<(), Error> {
        let weights = engine.model().weights();
        let is_of_experts = weights.io().expert_bytes > 0;
        if let Storage::Directory(directory) = &self.storage
            && is_of_experts
            && engine.recalls_now()
            && let Some(usage) = read(&path(directory.path(), engine.identity()?))
        {
            weights.recall_experts(&usage);
        }
        Ok(())
    }

    /// Saves the usage of the experts of a streamed model for later runs.
    pub(crate) fn save_experts(&self, engine: &Engine) -> Result<(), Error> {
        let usage = engine.model().weights().expert_usage();
        let Storage::Directory(directory) = &self.storage else {
            return Ok(());
        };
        if usage.is_empty() {
            return Ok(());
        }
        let path = path(directory.path(), engine.identity()?);
        let written = atomic_file::replace(&path, |file| file.write_all(&usage.to_bytes()));
        written.map_err(|source| Error::Cache { path, source })
    }
}

/// Removes the usage of all models.
pub(super) fn clear(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(is_name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn path(directory: &Path, Key(model): Key) -> PathBuf {
    let digits: String = model.iter().map(|byte| format!("{byte:02x}")).collect();
    directory.join(digits + ENDING)
}

/// Whether a file has the name of a file of usage, or of an unfinished one.
fn is_name(name: &str) -> bool {
    let name = atomic_file::unfinished(name).unwrap_or(name);
    let digits = name.strip_suffix(ENDING).unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|c| c.is_ascii_hexdigit())
}

fn read(path: &Path) -> Option<ExpertUsage> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    ExpertUsage::from_bytes(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_usage_are_known_by_their_names() {
        let path = path(Path::new("x"), Key([0xa5; 32]));
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(is_name(name) && is_name(&format!(".{name}.12-0.part")));
        for other in ["", ".experts", "a5.experts", &name[1..], &name[..64]] {
            assert!(!is_name(other), "{other}");
        }
    }
}
