//! A cache that is one file: the state of the last prompt, and of the text after it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{Draft, Flaw, Key, Note, Piece, Saved, SavedPrompt, Segment, Source, as_text, whole};
use crate::Error;

/// The file, which need not be there.
pub(super) struct Single {
    path: PathBuf,
}

impl Single {
    /// Refuses what cannot be a file, and a folder that is not there.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(meta) if !meta.is_file() => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "is neither a regular file nor a directory"))
            }
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::metadata(folder(path)).map(|_| ()).map_err(super::no_folder)
            }
            Err(error) => Err(error),
        }?;
        Ok(Self { path: path.to_owned() })
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

    /// As much of the state as these tokens begin with.
    pub(super) fn find(&self, root: Key, ids: &[u32], notes: &mut Vec<Note>) -> Vec<Piece> {
        let found = match self.saved() {
            Ok(Some(saved)) => piece(saved, root, ids).map_err(|flaw| Note::of(&self.path, flaw)),
            Ok(None) => Ok(None),
            Err(error) => Err(Note::of_system(&self.path, &error)),
        };
        found
            .unwrap_or_else(|note| {
                notes.push(note);
                None
            })
            .into_iter()
            .collect()
    }

    /// Replaces the state, but not one that goes on after ours, and not one that is the beginning of ours and has a part of a window
    /// that we have let go.
    pub(super) fn save(&self, source: &Source<'_>, root: Key) -> Result<(), Error> {
        let blame = |source| Error::Cache { path: self.path.clone(), source };
        self.remove_abandoned();
        let draft = source.draft(0, root, source.session.tokens())?;
        let saved = self.saved().map_err(blame)?;
        match saved.as_ref().map(Saved::segment) {
            Some(Err(flaw)) if flaw.is_foreign_file() => Err(blame(as_text(flaw))),
            Some(Ok(old)) if is_better(&old, &draft, source)? && old.verify().is_ok() => Ok(()),
            _ => source.save(&self.path, &draft),
        }
    }

    fn remove_abandoned(&self) {
        let entries = fs::read_dir(folder(&self.path)).into_iter().flatten().flatten();
        let name = self.path.file_name().unwrap_or_default();
        let is_ours = |other: &str| whole::unfinished(other).is_some_and(|of| of == name);
        entries
            .filter(|e| e.file_name().to_str().is_some_and(is_ours))
            .for_each(|e| whole::remove_abandoned(&e.path()));
    }

    pub(super) fn prompts(&self) -> io::Result<Vec<SavedPrompt>> {
        let Some(saved) = self.saved()? else { return Ok(Vec::new()) };
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

    /// Removes the file, if it is ours.
    pub(super) fn remove(&self) -> io::Result<()> {
        self.remove_abandoned();
        match self.saved()?.map(|saved| saved.segment().err()) {
            None => Ok(()),
            Some(Some(flaw)) if flaw.is_foreign_file() => Err(as_text(flaw)),
            Some(_) => fs::remove_file(&self.path),
        }
    }
}

fn is_better(old: &Segment<'_>, draft: &Draft<'_>, source: &Source<'_>) -> Result<bool, Error> {
    let is_beginning = old.parent == draft.parent && old.n_shared(draft.tokens) == old.n_tokens();
    Ok(source.is_in(draft, old)? || (is_beginning && !source.has_all_of(old)?))
}

fn piece(saved: Saved, root: Key, ids: &[u32]) -> Result<Option<Piece>, Flaw> {
    let segment = saved.segment()?;
    if segment.parent != root || segment.start != 0 {
        // A key that was damaged looks like one of another model.
        return Err(segment.verify().err().unwrap_or(Flaw::Foreign));
    }
    match segment.n_shared(ids) {
        0 => Ok(None),
        n => saved.into_piece(n).map(Some),
    }
}

/// The directory of a file.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
