//! The files that a command reads, which its outputs must not replace: a model is a download of
//! gigabytes.
//!
//! Files are compared by identity, not by name.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use crate::failure::Failure;

/// The files that a command reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct InputFiles(Vec<PathBuf>);

impl InputFiles {
    /// The files that were named.
    pub(crate) fn of<'a>(named: impl IntoIterator<Item = Option<&'a PathBuf>>) -> Self {
        Self(named.into_iter().flatten().cloned().collect())
    }

    /// Refuses an output that is one of the inputs, or any model.
    pub(crate) fn protect_from(&self, output: &Path) -> Result<(), Failure> {
        self.protect_own_from(output)?;
        if begins_a_model(output) {
            let why = "it is a model (GGUF), which only --force of `atta convert` and \
                       `atta imatrix` overwrites: give another name";
            return Err(Failure::at(output, why));
        }
        Ok(())
    }

    /// Refuses an output that is one of the inputs.
    pub(crate) fn protect_own_from(&self, output: &Path) -> Result<(), Failure> {
        match self.0.iter().find(|input| is_same_file(input, output)) {
            Some(_) => Err(Failure::at(
                output,
                "this command reads it, and would overwrite it: give another name",
            )),
            None => Ok(()),
        }
    }
}

/// Whether a path is a plain file that begins like a model. A file that cannot be read cannot be an
/// input.
fn begins_a_model(path: &Path) -> bool {
    let mut head = [0; 4];
    let is_file = fs::metadata(path).is_ok_and(|meta| meta.is_file());
    is_file
        && File::open(path)
            .and_then(|mut file| file.read_exact(&mut head))
            .is_ok()
        && atta::is_model(&head)
}

/// Whether two paths lead to one plain file.
#[cfg(unix)]
fn is_same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |path| {
        fs::metadata(path)
            .ok()
            .filter(fs::Metadata::is_file)
            .map(|meta| (meta.dev(), meta.ino()))
    };
    id(a).is_some_and(|id_a| id(b) == Some(id_a))
}

/// Whether two paths lead to one plain file.
#[cfg(windows)]
fn is_same_file(a: &Path, b: &Path) -> bool {
    a.is_file() && same_file::is_same_file(a, b).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("atta-inputs-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn an_output_is_refused_if_it_is_an_input_by_any_name() {
        let directory = directory("same");
        let text = directory.join("text");
        let link = directory.join("link");
        let other = directory.join("other");
        fs::write(&text, "x").unwrap();
        fs::write(&other, "x").unwrap();
        fs::hard_link(&text, &link).unwrap();
        let inputs = InputFiles::of([Some(&text), None]);
        for same in [&text, &directory.join(".").join("text"), &link] {
            assert!(inputs.protect_from(same).is_err(), "{same:?}");
        }
        assert!(inputs.protect_from(&other).is_ok());
        assert!(inputs.protect_from(&directory.join("new")).is_ok());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_model_is_refused_though_no_input() {
        let directory = directory("model");
        let model = directory.join("a");
        fs::write(&model, "GGUF and more").unwrap();
        assert!(InputFiles::default().protect_from(&model).is_err());
        assert!(InputFiles::default().protect_own_from(&model).is_ok());
        fs::write(&model, "GGU").unwrap();
        assert!(InputFiles::default().protect_from(&model).is_ok());
        fs::remove_dir_all(directory).unwrap();
    }
}
