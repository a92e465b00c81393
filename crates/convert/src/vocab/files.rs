//! The files of a vocabulary, in memory.
//!
//! Knows their names and no formats. The one idea: a file creates the errors about it, so every
//! message names the file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Error, git_lfs};

/// Largest vocabulary file.
const MAX_VOCAB_BYTES: u64 = 256 << 20;
/// Largest other file. Its JSON tree takes some twenty times as much memory.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The most additional chat templates that are read.
const MAX_TEMPLATES: usize = 64;

const TEMPLATES: &str = "additional_chat_templates";

/// The vocabulary of SentencePiece, or of tiktoken.
pub(super) const MODEL: &str = "tokenizer.model";

const NAMES: &[&str] = &[
    "tokenizer.json",
    MODEL,
    "tokenizer_config.json",
    "config.json",
    "generation_config.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "tekken.json",
    "vocab.json",
    "merges.txt",
];

/// Whether a file holds the tokens or merges.
fn is_vocabulary(name: &str) -> bool {
    let names = [
        "tokenizer.json",
        MODEL,
        "tekken.json",
        "vocab.json",
        "merges.txt",
    ];
    names.contains(&name) || name.ends_with(".tiktoken")
}

/// The files of a directory that describe the vocabulary.
#[derive(Clone, Default, Debug)]
pub struct VocabFiles {
    dir: PathBuf,
    contents: BTreeMap<String, Vec<u8>>,
}

impl VocabFiles {
    /// Reads the files that exist.
    ///
    /// # Errors
    /// [`Error::Io`] if a file cannot be read, [`Error::File`] if it is too large or is a Git LFS
    /// pointer.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let mut files = Self {
            dir: dir.to_owned(),
            contents: BTreeMap::new(),
        };
        for name in NAMES {
            files.load(name, &dir.join(name))?;
        }
        for name in names_in(dir)?
            .iter()
            .filter(|name| name.ends_with(".tiktoken"))
            .take(1)
        {
            files.load(name, &dir.join(name))?;
        }
        let templates = names_in(&dir.join(TEMPLATES))?;
        for name in templates
            .iter()
            .filter(|name| name.ends_with(".jinja"))
            .take(MAX_TEMPLATES)
        {
            let name = format!("{TEMPLATES}/{name}");
            files.load(&name, &dir.join(&name))?;
        }
        Ok(files)
    }

    /// Reads one file, as the `tokenizer.model` of a directory without other files.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and a file that is not there.
    pub fn of_model(path: &Path) -> Result<Self, Error> {
        Self::alone(MODEL, path)
    }

    /// Reads one file of a directory without other files: by its name if that says its format, else
    /// as a `tokenizer.model`.
    ///
    /// # Errors
    /// As [`of_model`](Self::of_model).
    pub fn of_file(path: &Path) -> Result<Self, Error> {
        let named = |name: &&&str| path.file_name().is_some_and(|found| found == **name);
        Self::alone(NAMES.iter().find(named).unwrap_or(&MODEL), path)
    }

    fn alone(name: &str, path: &Path) -> Result<Self, Error> {
        let mut files = Self {
            dir: path.parent().unwrap_or(Path::new("")).to_owned(),
            contents: BTreeMap::new(),
        };
        files.load(name, path)?;
        match files.contents.is_empty() {
            false => Ok(files),
            true => Err(Error::Io {
                path: path.to_owned(),
                source: ErrorKind::NotFound.into(),
            }),
        }
    }

    /// Adds or replaces a file, by its path relative to the directory.
    pub fn insert(&mut self, name: &str, bytes: Vec<u8>) {
        self.contents.insert(name.to_owned(), bytes);
    }

    fn load(&mut self, name: &str, path: &Path) -> Result<(), Error> {
        let io = |source| Error::Io {
            path: path.to_owned(),
            source,
        };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(io(error)),
        };
        let mut bytes = Vec::new();
        let max = if is_vocabulary(name) {
            MAX_VOCAB_BYTES
        } else {
            MAX_FILE_BYTES
        };
        file.take(max + 1).read_to_end(&mut bytes).map_err(io)?;
        let wrong = |why| {
            Err(Error::File {
                path: path.to_owned(),
                why,
            })
        };
        if bytes.len() as u64 > max {
            return wrong(format!("expected at most {max} bytes"));
        }
        git_lfs::refuse_pointer(path, &bytes)?;
        self.insert(name, bytes);
        Ok(())
    }

    pub(super) fn get(&self, name: &str) -> Option<VocabFile<'_>> {
        let bytes = self.contents.get(name)?;
        Some(VocabFile {
            path: self.dir.join(name),
            bytes,
        })
    }

    /// The first file with this suffix.
    pub(super) fn with_extension(&self, suffix: &str) -> Option<VocabFile<'_>> {
        let name = self.contents.keys().find(|name| name.ends_with(suffix))?;
        self.get(name)
    }

    /// The additional chat templates, with their names.
    pub(super) fn additional_templates(&self) -> impl Iterator<Item = (&str, VocabFile<'_>)> {
        self.contents.keys().filter_map(|name| {
            let stem = name
                .strip_prefix(TEMPLATES)?
                .strip_prefix('/')?
                .strip_suffix(".jinja")?;
            Some((stem, self.get(name)?))
        })
    }

    /// An error about the directory as a whole.
    pub(super) fn wrong(&self, why: impl Into<String>) -> Error {
        Error::File {
            path: self.dir.clone(),
            why: why.into(),
        }
    }
}

/// Names of the files in a directory, sorted; none if there is no such directory.
fn names_in(dir: &Path) -> Result<Vec<String>, Error> {
    let io = |source| Error::Io {
        path: dir.to_owned(),
        source,
    };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.map_err(io)?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

/// One file.
pub(super) struct VocabFile<'a> {
    path: PathBuf,
    pub(super) bytes: &'a [u8],
}

impl<'a> VocabFile<'a> {
    pub(super) fn wrong(&self, why: impl Into<String>) -> Error {
        Error::File {
            path: self.path.clone(),
            why: why.into(),
        }
    }

    /// An error for a file whose pre-tokenizer is unknown.
    pub(super) fn unknown_pre_tokenizer(&self, why: impl Into<String>) -> Error {
        Error::PreTokenizer {
            path: self.path.clone(),
            why: why.into(),
        }
    }

    pub(super) fn text(&self) -> Result<&'a str, Error> {
        let text = str::from_utf8(self.bytes);
        text.map_err(|error| self.wrong(format!("byte {} is not UTF-8", error.valid_up_to())))
    }

    pub(super) fn json(&self) -> Result<Value, Error> {
        serde_json::from_slice(self.bytes).map_err(|error| self.wrong(error.to_string()))
    }
}
