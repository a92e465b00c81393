//! A directory of one test, and its files.

use std::{
    fs,
    path::{Path, PathBuf},
};

#[path = "../../../cluster/tests/scratch/mod.rs"]
mod scratch;

pub(crate) use scratch::Scratch as TempDir;

impl TempDir {
    pub(crate) fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// The names of its files, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}
