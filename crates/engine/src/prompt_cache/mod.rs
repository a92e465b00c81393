//! The state of prompts on disk: what one process has computed, the next one does not compute
//! again.
//!
//! A state is named by a hash of everything that it depends on (`key.rs`) and written as segments
//! (`segment.rs`), in files that appear whole or not at all (`whole.rs`): one file for one prompt,
//! or a directory of them for many (`directory.rs`, `entry.rs`). Whatever is wrong with a file, it
//! is not used and somebody is told; text is the same with and without a cache.
//!
//! Knows no text and no sampling, and prints nothing.

mod directory;
mod entry;
mod key;
mod segment;
mod single;
mod whole;

use std::{
    io::{self, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use atta_model::{Executor, SeqId};
use atta_store::MappedFile;

pub(crate) use key::Key;
pub use segment::Flaw;

use crate::{Engine, Error, Generate, GenerateOptions, Session, generation::Saver};
use directory::Directory;
use segment::{Draft, Segment};
use single::Single;

/// Tokens that must be new for a session to be saved again while it goes on.
pub(crate) const MIN_NEW: usize = 16;

/// Tokens that a cache must have more than the session for its files to be read.
pub(crate) const MIN_GAIN: usize = 16;

/// How long nothing is saved after that has failed: a full disk would be written to in vain at the
/// end of every text.
const PAUSE: Duration = Duration::from_secs(60);

/// Where states of prompts are kept: a file for one prompt, or a directory for many.
///
/// Several processes may use the same one at the same time, on the same file system.
#[derive(Debug)]
pub struct PromptCache {
    place: Place,
    /// Nothing is saved any more, since something else is there.
    is_closed: AtomicBool,
    /// Until when nothing is saved, since that has failed.
    pause: Mutex<Option<Instant>>,
    /// It was said that its file is of something else.
    is_told: AtomicBool,
    /// It was said that a text is larger than all may be.
    is_too_large_told: AtomicBool,
}

#[derive(Debug)]
enum Place {
    File(Single),
    Directory(Directory),
}

/// What a cache had for a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Tokens of the text that the session holds now.
    pub n_tokens: usize,
    /// How long that took.
    pub time: Duration,
    /// Files that were not used, and why, a line for each.
    pub notes: Vec<String>,
}

/// A prompt in a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedPrompt {
    /// Its name, in hexadecimal digits.
    pub key: String,
    /// Its length.
    pub n_tokens: usize,
    /// Bytes on disk, those that other prompts share included.
    pub bytes: u64,
    /// When it was saved or restored last, as far as the system knows.
    pub last_use: Option<SystemTime>,
    /// The name of its model.
    pub model: String,
}

impl PromptCache {
    /// A path that ends in a separator or is a directory is one, with states of at most `limit`
    /// bytes in all, of which those go first that were used least recently; any other path is a
    /// file of one state. A directory is created if it is not there.
    ///
    /// # Errors
    /// [`Error::Cache`] for a path at which neither can be.
    pub fn open(path: &Path, limit: u64) -> Result<Self, Error> {
        let place = if names_directory(path) {
            Directory::open(path, limit).map(Place::Directory)
        } else {
            Single::open(path).map(Place::File)
        };
        let place = place.map_err(|source| Error::Cache {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            place,
            is_closed: AtomicBool::new(false),
            pause: Mutex::default(),
            is_told: AtomicBool::default(),
            is_too_large_told: AtomicBool::default(),
        })
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self.place, Place::Directory(_))
    }

    /// The prompts in it, those used last in front.
    ///
    /// # Errors
    /// [`Error::Cache`] if it cannot be read.
    pub fn prompts(&self) -> Result<Vec<SavedPrompt>, Error> {
        let prompts = match &self.place {
            Place::File(file) => file.prompts(),
            Place::Directory(directory) => directory.prompts(),
        };
        let mut prompts = prompts.map_err(|source| self.error(source))?;
        prompts.sort_by(|a, b| (b.last_use, &a.key).cmp(&(a.last_use, &b.key)));
        Ok(prompts)
    }

    /// Removes a prompt, but for what others share; `key` is as many digits of its key as tell it
    /// from the others.
    ///
    /// # Errors
    /// [`Error::Cache`] if there is not exactly one, or it cannot be removed.
    pub fn remove(&self, key: &str) -> Result<(), Error> {
        let keys = self
            .prompts()?
            .into_iter()
            .map(|prompt| prompt.key)
            .filter(|k| k.starts_with(key));
        let keys: Vec<String> = keys.collect();
        match (keys.as_slice(), &self.place) {
            ([_], Place::File(file)) => file.remove(),
            ([key], Place::Directory(directory)) => directory.remove(key),
            ([], _) => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("no prompt has the key {key}"),
            )),
            _ => Err(io::Error::other(format!(
                "{} prompts have a key that begins with {key}",
                keys.len()
            ))),
        }
        .map_err(|source| self.error(source))
    }

    /// Removes all prompts, and nothing else.
    ///
    /// # Errors
    /// [`Error::Cache`] if one cannot be removed.
    pub fn clear(&self) -> Result<(), Error> {
        let cleared = match &self.place {
            Place::File(file) => file.remove(),
            Place::Directory(directory) => directory.clear(),
        };
        cleared.map_err(|source| self.error(source))
    }

    /// What there is of a text, if it is enough.
    pub(crate) fn look_up(&self, lookup: &Lookup<'_>, notes: &mut Vec<String>) -> Vec<Piece> {
        let mut found = Vec::new();
        let pieces = match &self.place {
            Place::File(file) => file.find(lookup, &mut found),
            Place::Directory(directory) => directory.find(lookup, &mut found),
        };
        self.hear(found, notes);
        pieces
    }

    /// Replaces what a sequence holds by pieces of saved states, of which one at a time is mapped:
    /// bus errors are caught in a limited number of maps. Returns how many tokens of the text
    /// it holds then.
    pub(crate) fn fill(
        &self,
        (executor, seq): (&mut dyn Executor, SeqId),
        pieces: Vec<Piece>,
        ids: &[u32],
        notes: &mut Vec<String>,
    ) -> Result<usize, Error> {
        executor.truncate(seq, 0)?;
        let (mut found, mut n_held) = (Vec::new(), 0);
        for Piece { at, parent, n } in pieces {
            let Some(saved) = at.open(&mut found) else {
                break;
            };
            let taken = saved.append((executor, seq), (parent, n_held), &ids[n_held..n_held + n]);
            let Saved { path, map } = saved;
            drop(map);
            match taken {
                Ok(true) => n_held += n,
                Ok(false) => break,
                Err(flaw) => {
                    executor.truncate(seq, n_held)?;
                    self.discard(&path, flaw, &mut found);
                    break;
                }
            }
            whole::touch(&path);
        }
        self.hear(found, notes);
        // Nothing is left if a window is not complete.
        Ok(executor.truncate(seq, n_held)?)
    }

    /// Saves the state of the tokens of a sequence.
    pub(crate) fn save(&self, source: &Source<'_>, root: Key) -> Result<(), Error> {
        match &self.place {
            Place::File(file) => file.save(source, root),
            Place::Directory(directory) => directory.save(source, root),
        }
    }

    /// Saves something, unless it must not be or has just failed; whether it is saved, or what
    /// there is to say if it fails now.
    pub(crate) fn try_to_save(
        &self,
        save: impl FnOnce() -> Result<(), Error>,
    ) -> Result<bool, String> {
        let pause = || self.pause.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_closed.load(Ordering::Relaxed) || pause().is_some_and(|end| Instant::now() < end)
        {
            return Ok(false);
        }
        match save() {
            Ok(()) => Ok(true),
            // Others are smaller.
            Err(error)
                if is_too_large(&error) && self.is_too_large_told.swap(true, Ordering::Relaxed) =>
            {
                Ok(false)
            }
            Err(error) => {
                if !is_too_large(&error) {
                    *pause() = Some(Instant::now() + PAUSE);
                }
                Err(format!("the state of the prompt cannot be kept: {error}"))
            }
        }
    }

    /// Lets the next save be tried, whatever has failed.
    #[cfg(feature = "batch")]
    pub(crate) fn end_pause(&self) {
        *self.pause.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Heeds what was found out about files, and passes on what was not said before.
    fn hear(&self, mut notes: Vec<Note>, lines: &mut Vec<String>) {
        let is_foreign = |note: &Note| {
            note.flaw
                .is_some_and(|flaw| flaw.is_foreign_file() || flaw == Flaw::Foreign)
        };
        if notes
            .iter()
            .any(|note| note.flaw.is_some_and(Flaw::is_foreign_file))
        {
            self.is_closed.store(true, Ordering::Relaxed);
        }
        if notes.iter().any(is_foreign) && self.is_told.swap(true, Ordering::Relaxed) {
            notes.retain(|note| !is_foreign(note));
        }
        lines.extend(notes.into_iter().map(|note| note.line));
    }

    /// Says that a file is damaged, and removes it: it would never be of use.
    fn discard(&self, path: &Path, flaw: Flaw, notes: &mut Vec<Note>) {
        match &self.place {
            Place::Directory(_) => directory::discard(path, flaw, notes),
            Place::File(_) => {
                notes.push(Note::of(path, flaw));
                // It is overwritten if it cannot be removed by us.
                let _ = std::fs::remove_file(path);
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match &self.place {
            Place::File(file) => file.path(),
            Place::Directory(directory) => directory.path(),
        }
    }

    fn error(&self, source: io::Error) -> Error {
        Error::Cache {
            path: self.path().to_owned(),
            source,
        }
    }
}

/// Whether a text is larger than all may be; that a user may not write so much is an error of the
/// system.
fn is_too_large(error: &Error) -> bool {
    matches!(error, Error::Cache { source, .. }
        if source.kind() == io::ErrorKind::QuotaExceeded && source.raw_os_error().is_none())
}

/// An error of the system that names neither of two paths, made one that does.
fn no_folder(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(
            io::ErrorKind::NotFound,
            "the folder that it would be in does not exist",
        ),
        _ => error,
    }
}

fn names_directory(path: &Path) -> bool {
    let ends_in_separator = path
        .as_os_str()
        .as_encoded_bytes()
        .last()
        .is_some_and(|&c| std::path::is_separator(c.into()));
    ends_in_separator || path.is_dir()
}

impl Session {
    /// Makes the session hold the beginning of `ids`, as much of it as it holds already or the
    /// cache knows, and says how much that is. At least the last token is not part of it, so
    /// that to append the rest gives its logits. A cache is of use if it has at least 16 tokens
    /// more than the session.
    ///
    /// # Errors
    /// A model whose file cannot be read. What is wrong with the cache is no error: it is in
    /// [`Restored::notes`].
    pub fn restore(&mut self, cache: &PromptCache, ids: &[u32]) -> Result<Restored, Error> {
        let start = Instant::now();
        let n_min = self.keep_common(ids)? + MIN_GAIN;
        let wanted = &ids[..ids.len().saturating_sub(1).min(self.n_ctx())];
        let mut notes = Vec::new();
        if n_min <= wanted.len() {
            let root = self.root()?;
            let found = cache.look_up(
                &Lookup {
                    root,
                    ids: wanted,
                    n_min,
                },
                &mut notes,
            );
            if !found.is_empty() {
                let n = cache.fill(
                    (self.executor().as_mut(), self.seq),
                    found,
                    wanted,
                    &mut notes,
                )?;
                self.set_tokens(&wanted[..n]);
                self.n_saved = n;
            }
        }
        Ok(Restored {
            n_tokens: self.tokens().len(),
            time: start.elapsed(),
            notes,
        })
    }

    /// The key of an empty text.
    fn root(&self) -> Result<Key, Error> {
        Key::root(self.engine(), self.executor().as_ref(), self.seq)
    }

    /// Saves the state of all tokens of the session, as far as it is not saved yet.
    ///
    /// A session that has shifted its context is not saved: no prompt has its state.
    ///
    /// # Errors
    /// [`Error::Cache`] if it cannot be written, or must not, since something else is there.
    pub fn save(&mut self, cache: &PromptCache) -> Result<(), Error> {
        if self.tokens().is_empty() || self.n_evicted() > 0 {
            return Ok(());
        }
        let root = self.root()?;
        cache.save(
            &Source::new(
                self.engine(),
                (self.executor().as_ref(), self.seq),
                self.tokens(),
            ),
            root,
        )?;
        self.n_saved = self.tokens().len();
        Ok(())
    }

    /// Saves the session if that is worth it; what there is to say if it cannot be saved.
    fn save_new(&mut self, cache: &PromptCache) -> Option<String> {
        if self.tokens().len() < self.n_saved + MIN_NEW {
            return None;
        }
        cache.try_to_save(|| self.save(cache)).err()
    }

    /// Generates as [`generate`](Self::generate) does, and saves the session after prefill, before
    /// the context is shifted for the first time, and at the end, also of an interrupted
    /// generation; each time only if at least 16 tokens are not saved yet. A state that cannot be
    /// saved is an [`Event::Note`](crate::Event::Note), and nothing is saved to that cache for a minute.
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn generate_saving<'a>(
        &'a mut self,
        cache: &'a PromptCache,
        prompt: &'a [u32],
        options: &GenerateOptions,
    ) -> Result<Generate<'a>, Error> {
        let saver = Saver::new(|session| session.save_new(cache));
        self.generate_after(prompt, options, saver)
    }

    /// Writes the tokens of the session and their state, to be read by [`import`](Self::import).
    ///
    /// # Errors
    /// What the writer says; [`Error::Shifted`] for a session that has shifted its context.
    pub fn export(&self, out: &mut impl Write) -> Result<(), Error> {
        if self.n_evicted() > 0 {
            return Err(Error::Shifted(self.n_evicted()));
        }
        let root = self.root()?;
        let executor = self.executor();
        let source = Source::new(self.engine(), (executor.as_ref(), self.seq), self.tokens());
        let draft = source.draft(0, root, self.tokens())?;
        Ok(source.write(&draft, out)?)
    }

    /// Replaces what the session holds by what [`export`](Self::export) wrote in a session of the
    /// same model, version, instruction set, kind of context and type of keys and values, and
    /// returns how many tokens that is. Its logits are there after the next token. The bytes
    /// may come from anywhere.
    ///
    /// # Errors
    /// [`Error::Saved`] with what is wrong with the bytes; the session is empty if that was found
    /// out late.
    pub fn import(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let segment = Segment::read(bytes)?;
        segment.verify()?;
        if segment.parent != self.root()? || segment.start != 0 {
            return Err(Flaw::Foreign.into());
        }
        let (ids, n_vocab): (Vec<u32>, _) =
            (segment.tokens().collect(), self.engine().spec().n_vocab);
        if ids.len() > self.n_ctx() {
            return Err(Error::PromptTooLong {
                n_prompt: ids.len(),
                n_ctx: self.n_ctx(),
            });
        }
        self.truncate(0)?;
        let fits = ids.iter().all(|&id| (id as usize) < n_vocab);
        let mut executor = self.executor();
        let is_in = fits
            && executor
                .append_state(self.seq, segment.state, ids.len())
                .is_ok();
        // Nothing is left if a window is not complete.
        if !is_in || executor.truncate(self.seq, ids.len())? < ids.len() {
            executor.truncate(self.seq, 0)?;
            return Err(Flaw::State.into());
        }
        drop(executor);
        self.set_tokens(&ids);
        Ok(ids.len())
    }
}

/// A sequence that is to be written.
pub(crate) struct Source<'a> {
    executor: &'a dyn Executor,
    seq: SeqId,
    /// What it holds.
    tokens: &'a [u32],
    label: String,
}

impl<'a> Source<'a> {
    pub(crate) fn new(
        engine: &Engine,
        (executor, seq): (&'a dyn Executor, SeqId),
        tokens: &'a [u32],
    ) -> Self {
        let metadata = engine.model().weights().files().directory().metadata();
        let text = |key| metadata.str(key).ok().flatten();
        let label = text("general.name")
            .or_else(|| text("general.architecture"))
            .unwrap_or_default();
        Self {
            executor,
            seq,
            tokens,
            label: label.to_owned(),
        }
    }

    /// Bytes of the state of these positions.
    fn state_bytes(&self, positions: Range<usize>) -> Result<u64, Error> {
        let mut counter = Counter(0);
        self.executor.export(self.seq, positions, &mut counter)?;
        Ok(counter.0)
    }

    /// A segment of tokens of the sequence, which begin at position `start`.
    fn draft<'b>(
        &'b self,
        start: usize,
        parent: Key,
        tokens: &'b [u32],
    ) -> Result<Draft<'b>, Error> {
        let state_bytes = self.state_bytes(start..start + tokens.len())?;
        Ok(Draft {
            start,
            parent,
            tokens,
            label: &self.label,
            state_bytes,
        })
    }

    fn write(&self, draft: &Draft<'_>, out: &mut dyn Write) -> Result<(), atta_model::Error> {
        draft.write(out, |out| {
            self.executor
                .export(self.seq, draft.start..draft.start + draft.tokens.len(), out)
        })
    }

    /// Whether the sequence has all of the state of a segment that its own tokens begin with: of
    /// layers with a window one of the two may lack what the other has.
    fn has_all_of(&self, other: &Segment<'_>) -> Result<bool, Error> {
        Ok(self.state_bytes(other.positions())? >= other.state.len() as u64)
    }

    /// Whether a segment goes on after the tokens of a draft, and lacks as little of their state.
    fn is_in(&self, draft: &Draft<'_>, longer: &Segment<'_>) -> Result<bool, Error> {
        let n_tokens = draft.tokens.len();
        let is_same = (longer.parent, longer.start) == (draft.parent, draft.start);
        if !is_same || longer.n_shared(draft.tokens) < n_tokens {
            return Ok(false);
        }
        // Without what layers with a window may lack, every position has as many bytes.
        let head_bytes = self.state_bytes(0..0)?;
        let per_token =
            |state_bytes: u64, n: usize| state_bytes.saturating_sub(head_bytes) as f64 / n as f64;
        Ok(per_token(longer.state.len() as u64, longer.n_tokens())
            >= per_token(draft.state_bytes, n_tokens))
    }

    /// Writes a file in the place of what may be there.
    fn save(&self, path: &Path, draft: &Draft<'_>) -> Result<(), Error> {
        let written = whole::replace(path, |file| match self.write(draft, file) {
            Err(atta_model::Error::Export(error)) => Err(error),
            other => other.map_err(as_text),
        });
        written.map_err(|source| Error::Cache {
            path: path.to_owned(),
            source,
        })
    }
}

/// An error of the system with the text of another one. The text alone, since what an error may say
/// for debugging is a lot of program.
fn as_text(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

/// Counts what is written.
struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file of a cache, mapped.
struct Saved {
    path: PathBuf,
    map: MappedFile,
}

impl Saved {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            map: MappedFile::open(path)?,
        })
    }

    fn segment(&self) -> Result<Segment<'_>, Flaw> {
        Segment::read(self.map.bytes())
    }

    /// Appends these tokens, which it begins with, to a sequence of so many, if all of it is what
    /// was written. Not if there is no room for them.
    fn append(
        &self,
        (executor, seq): (&mut dyn Executor, SeqId),
        (parent, n_held): (Key, usize),
        ids: &[u32],
    ) -> Result<bool, Flaw> {
        let segment = self.segment()?;
        let is_here = (segment.parent, segment.start) == (parent, n_held);
        if !is_here || segment.n_shared(ids) < ids.len() {
            return Err(Flaw::Misplaced);
        }
        segment.verify()?;
        match executor.append_state(seq, segment.state, ids.len()) {
            Ok(()) if !self.map.is_damaged() => Ok(true),
            Err(atta_model::Error::OutOfBlocks) => Ok(false),
            _ => Err(Flaw::State),
        }
    }

    /// The same; `None` if it cannot be read, which is noted, or is not there any more.
    fn open_noted(path: &Path, notes: &mut Vec<Note>) -> Option<Self> {
        match Self::open(path) {
            Ok(saved) => Some(saved),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                notes.push(Note::of_system(path, &error));
                None
            }
        }
    }
}

/// What is looked for.
pub(crate) struct Lookup<'a> {
    pub(crate) root: Key,
    pub(crate) ids: &'a [u32],
    /// Fewer tokens are not worth it.
    pub(crate) n_min: usize,
}

impl Lookup<'_> {
    fn if_enough(&self, pieces: Vec<Piece>) -> Vec<Piece> {
        if pieces.iter().map(|piece| piece.n).sum::<usize>() >= self.n_min {
            pieces
        } else {
            Vec::new()
        }
    }
}

/// The first `n` tokens of a segment, which nobody has checked yet.
pub(crate) struct Piece {
    at: At,
    /// The key of what stands in front of it.
    parent: Key,
    n: usize,
}

/// Where a segment is.
enum At {
    /// In a file whose name says what is in it.
    Name(PathBuf),
    /// In a file in whose place another may be by now.
    Map(Saved),
}

impl Piece {
    fn of_name(path: &Path, parent: Key, n: usize) -> Self {
        Self {
            at: At::Name(path.to_owned()),
            parent,
            n,
        }
    }

    fn of_map(saved: Saved, parent: Key, n: usize) -> Self {
        Self {
            at: At::Map(saved),
            parent,
            n,
        }
    }
}

impl At {
    fn open(self, notes: &mut Vec<Note>) -> Option<Saved> {
        match self {
            Self::Name(path) => Saved::open_noted(&path, notes),
            Self::Map(saved) => Some(saved),
        }
    }
}

/// Why a file is not used.
struct Note {
    line: String,
    /// What is wrong with it, unless that is settled.
    flaw: Option<Flaw>,
}

impl Note {
    fn of(path: &Path, flaw: Flaw) -> Self {
        Self {
            line: format!("{} is not used: {flaw}", path.display()),
            flaw: Some(flaw),
        }
    }

    fn of_system(path: &Path, error: &io::Error) -> Self {
        Self {
            line: format!("{} is not used: {error}", path.display()),
            flaw: None,
        }
    }
}
