//! A cache that is one file: the state of the last prompt, and of the text after it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{Flaw, Key, Lookup, Note, Piece, Saved, SavedPrompt, Source, as_text, whole};
use crate::Error;

/// The file, which need not be there.
#[derive(Debug)]
pub(super) struct Single {
    path: PathBuf,
}

impl Single {
    /// Refuses what cannot be a file, and a folder that is not there.
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

    /// The file, if there is one with something in it.
    fn saved(&self) -> io::Result<Option<Saved>> {
        match Saved::open(&self.path) {
            Ok(saved) => Ok(Some(saved).filter(|saved| !saved.map.bytes().is_empty())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As much of the state as the text begins with.
    pub(super) fn find(&self, lookup: &Lookup<'_>, notes: &mut Vec<Note>) -> Vec<Piece> {
        let found = match self.saved() {
            Ok(Some(saved)) => piece(saved, lookup).map_err(|flaw| Note::of(&self.path, flaw)),
            Ok(None) => Ok(None),
            Err(error) => Err(Note::of_system(&self.path, &error)),
        };
        let found = found.unwrap_or_else(|note| {
            notes.push(note);
            None
        });
        lookup.if_enough(found.into_iter().collect())
    }

    /// Replaces the state, but not one that goes on after ours.
    pub(super) fn save(&self, source: &Source<'_>, root: Key) -> Result<(), Error> {
        let blame = |source| Error::Cache {
            path: self.path.clone(),
            source,
        };
        self.unfinished()
            .for_each(|path| whole::remove_abandoned(&path));
        let draft = source.draft(0, root, source.tokens)?;
        if let Some(old) = self.saved().map_err(blame)? {
            match old.segment() {
                Err(flaw) if flaw.is_foreign_file() => return Err(blame(as_text(flaw))),
                Ok(old) if source.is_in(&draft, &old)? && old.verify().is_ok() => return Ok(()),
                // The map is gone before its file is replaced, which some systems insist on.
                _ => {}
            }
        }
        source.save(&self.path, &draft)
    }

    /// Files that were to become this one.
    fn unfinished(&self) -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(folder(&self.path))
            .into_iter()
            .flatten()
            .flatten();
        let name = self.path.file_name().unwrap_or_default().to_owned();
        let is_ours = move |other: &str| whole::unfinished(other).is_some_and(|of| name == of);
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

    /// Removes the file, if it is ours, and what was to become it.
    pub(super) fn remove(&self) -> io::Result<()> {
        for path in self.unfinished() {
            fs::remove_file(path)?;
        }
        match self.saved()?.map(|saved| saved.segment().err()) {
            None => Ok(()),
            Some(Some(flaw)) if flaw.is_foreign_file() => Err(as_text(flaw)),
            Some(_) => fs::remove_file(&self.path),
        }
    }
}

fn piece(saved: Saved, lookup: &Lookup<'_>) -> Result<Option<Piece>, Flaw> {
    let segment = saved.segment()?;
    if segment.parent != lookup.root || segment.start != 0 {
        return Err(Flaw::Foreign);
    }
    let n = segment.n_shared(lookup.ids);
    Ok((n > 0).then(|| Piece::of_map(saved, lookup.root, n)))
}

/// The directory of a file.
fn folder(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
