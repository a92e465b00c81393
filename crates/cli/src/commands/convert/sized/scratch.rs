//! Files beside the output that last as long as the work.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Names of files beside an output, which are removed at the end.
pub(super) struct ScratchFiles {
    beside: PathBuf,
    names: Vec<PathBuf>,
}

impl ScratchFiles {
    pub(super) fn beside(path: &Path) -> Self {
        Self {
            beside: path.to_owned(),
            names: Vec::new(),
        }
    }

    /// A path for a file that serves for `purpose`.
    pub(super) fn path(&mut self, purpose: &str) -> PathBuf {
        let mut name = std::ffi::OsString::from(".");
        name.push(self.beside.file_name().unwrap_or_default());
        name.push(format!(".{}.{purpose}.part", std::process::id()));
        let path = self.beside.with_file_name(name);
        self.names.push(path.clone());
        path
    }
}

impl Drop for ScratchFiles {
    fn drop(&mut self) {
        for path in &self.names {
            // One that is not there was not written.
            let _ = fs::remove_file(path);
        }
    }
}
