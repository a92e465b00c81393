//! Small files in a cache directory beside the prompts: what runs tell later ones about a model.
//!
//! The name of a file is a key and an ending. It only decides about speed: a missing, damaged or
//! wrong one costs some and nothing else, so it is no error.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use super::{Key, atomic_file};
use crate::Error;

/// What a file is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum About {
    /// The usage of experts.
    Experts,
    /// Times of steps.
    Costs,
}

const ALL: [About; 2] = [About::Experts, About::Costs];

/// Most bytes of a file: the usage of a million experts.
const MAX_BYTES: u64 = 4 << 20;

impl About {
    fn ending(self) -> &'static str {
        match self {
            Self::Experts => ".experts",
            Self::Costs => ".costs",
        }
    }

    fn path(self, directory: &Path, Key(key): Key) -> PathBuf {
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        directory.join(digits + self.ending())
    }

    /// Reads the file of a key, if it is there.
    pub(super) fn read(self, directory: &Path, key: Key) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(self.path(directory, key)).ok()?;
        file.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Replaces the file of a key.
    pub(super) fn write(self, directory: &Path, key: Key, bytes: &[u8]) -> Result<(), Error> {
        let path = self.path(directory, key);
        let written = atomic_file::replace(&path, |file| file.write_all(bytes));
        written.map_err(|source| Error::Cache { path, source })
    }
}

/// Removes all small files.
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

/// Whether a file has the name of a small file, or of an unfinished one.
fn is_name(name: &str) -> bool {
    let name = atomic_file::unfinished(name).unwrap_or(name);
    let digits = ALL
        .iter()
        .find_map(|about| name.strip_suffix(about.ending()));
    let digits = digits.unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|c| c.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_are_known_by_their_names() {
        for about in ALL {
            let path = about.path(Path::new("x"), Key([0xa5; 32]));
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(is_name(name) && is_name(&format!(".{name}.12-0.part")));
            for other in ["", about.ending(), "a5.experts", &name[1..], &name[..64]] {
                assert!(!is_name(other), "{other}");
            }
        }
    }
}
