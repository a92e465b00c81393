//! A directory of one test. It goes with this value, which must be dropped after all that have
//! files of it open or mapped: Windows keeps those.

use std::{
    fs,
    path::{Path, PathBuf},
};

pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// An empty directory; the name is that of one test of a program.
    pub(crate) fn new(name: &str) -> Self {
        let stem = module_path!().replace("::", "-");
        let path =
            std::env::temp_dir().join(format!("atta-test-{stem}-{name}-{}", std::process::id()));
        // Of a process with the same number that was killed.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
