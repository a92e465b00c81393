//! A cache file: the state of the last prompt, and of the text after it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    CacheFileError, FileWarning, Key, Lookup, SavedPrompt, SegmentFile, SegmentPrefix,
    SequenceExport, as_text, atomic_file,
};
use crate::Error;

/// A cache file, which may not exist yet.
#[derive(Debug)]
pub(super) struct SingleFile {
    path: PathBuf,
}

impl SingleFile {
    /// Checks that the path is a regular file, or can become one.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(meta) if !meta.is_file() => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "is neither a regular file nor a directory",
            )),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::metadata(folder(path))
                .map(|_| ())
                .map_err(super::no_folder),
            Err(error) => Err(error),
        }?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file, if it exists and is not empty.
    fn saved(&self) -> io::Result<Option<SegmentFile>> {
        match SegmentFile::open(&self.path) {
            Ok(saved) => Ok(Some(saved).filter(|saved| !saved.map.bytes().is_empty())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Finds the common prefix of the file and the text.
    pub(super) fn find(
        &self,
        lookup: &Lookup<'_>,
        notes: &mut Vec<FileWarning>,
    ) -> Vec<SegmentPrefix> {
        let found = match self.saved() {
            Ok(Some(saved)) => {
                prefix(saved, lookup).map_err(|error| FileWarning::of(&self.path, error))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(FileWarning::of_system(&self.path, &error)),
        };
        let found = found.unwrap_or_else(|note| {
            notes.push(note);
            None
        });
        lookup.if_enough(found.into_iter().collect())
    }

    /// Replaces the state, unless the file contains the new one and more.
    pub(super) fn save(&self, export: &SequenceExport<'_>, root: Key) -> Result<(), Error> {
        let blame = |source| Error::Cache {
            path: self.path.clone(),
            source,
        };
        self.unfinished()
            .for_each(|path| atomic_file::remove_abandoned(&path));
        let segment = export.segment(0, root, export.tokens)?;
        if let Some(old) = self.saved().map_err(blame)? {
            match old.segment() {
                Err(error) if error.is_foreign_file() => return Err(blame(as_text(error))),
                Ok(old) if segment.is_in(&old) && old.verify().is_ok() => return Ok(()),
                // `old` is unmapped before its file is replaced, as Windows requires.
                _ => {}
            }
        }
        export.save(&self.path, &segment)
    }

    /// Unfinished versions of this file.
    fn unfinished(&self) -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(folder(&self.path))
            .into_iter()
            .flatten()
            .flatten();
        let name = self.path.file_name().unwrap_or_default().to_owned();
        let is_ours =
            move |other: &str| atomic_file::unfinished(other).is_some_and(|of| name == of);
        entries
            .filter(move |e| e.file_name().to_str().is_some_and(&is_ours))
            .map(|e| e.path())
    }

    pub(super) fn prompts(&self) -> io::Result<Vec<SavedPrompt>> {
        let Some(saved) = self.saved()? else {
            return Ok(Vec::new());
        };
        let segment = saved.segment().map_err(as_text)?;
        let meta = fs::metadata(&self.path)?;
        let tokens: Vec<u32> = segment.tokens().collect();
        Ok(vec![SavedPrompt {
            key: segment.parent.child(&tokens).id().to_string(),
            n_tokens: tokens.len(),
            bytes: meta.len(),
            last_use: meta.modified().ok(),
            model: segment.label(),
        }])
    }

    /// Removes the file, unless it is foreign, and its unfinished versions.
    pub(super) fn remove(&self) -> io::Result<()> {
        for path in self.unfinished() {
            fs::remove_file(path)?;
        }
        match self.saved()?.map(|saved| saved.segment().err()) {
            None => Ok(()),
            Some(Some(error)) if error.is_foreign_file() => Err(as_text(error)),
            Some(_) => fs::remove_file(&self.path),
        }
    }
}

fn prefix(
    saved: SegmentFile,
    lookup: &Lookup<'_>,
) -> Result<Option<SegmentPrefix>, CacheFileError> {
    let segment = saved.segment()?;
    if segment.parent != lookup.root || segment.start != 0 {
        return Err(CacheFileError::Foreign);
    }
    let n = segment.n_shared(lookup.ids);
    Ok((n > 0).then(|| SegmentPrefix::of_map(saved, lookup.root, n)))
}

/// The directory of a file.
fn folder(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
