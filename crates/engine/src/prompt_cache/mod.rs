//! The prompt cache: KV caches of prompts on disk, for later processes.
//!
//! The key of a state is a hash of everything that it depends on (`key.rs`). States are written as
//! segments (`segment.rs`), in files that are replaced atomically (`atomic_file.rs`): one file for
//! one prompt (`single.rs`), or a directory for many (`directory.rs`, `file_name.rs`). A damaged or
//! foreign file is skipped with a warning; text is the same with and without a cache. A directory
//! also remembers which experts a streamed model used (`experts.rs`) and how long steps took
//! (`costs.rs`), in small files (`small_file.rs`).
//!
//! Knows no text and no sampling, and prints nothing.

mod atomic_file;
mod costs;
mod directory;
mod experts;
mod file_name;
mod file_warning;
mod key;
mod segment;
mod single;
mod small_file;
mod suspended;

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

use atta_model::{Executor, SeqId, StateCoverage};
use atta_store::MappedFile;

use file_warning::FileWarning;
pub(crate) use key::Key;
pub use segment::CacheFileError;

use crate::{Engine, Error, Generate, GenerateOptions, Session, generation::Saver};
use directory::Directory;
use segment::{Segment, SegmentWriter};
use single::SingleFile;

/// Minimum number of unsaved tokens for saving a session again.
pub(crate) const MIN_NEW: usize = 16;

/// Minimum number of tokens that a cached prefix must have beyond those of the session.
pub(crate) const MIN_GAIN: usize = 16;

/// Pause of saving after a failure, so that a full disk is not written to after every text.
const PAUSE: Duration = Duration::from_secs(60);

/// A prompt cache on disk: a file for one prompt, or a directory for many.
///
/// Several processes on the same file system may use it at the same time.
#[derive(Debug)]
pub struct PromptCache {
    storage: Storage,
    /// Whether saving is off, because the path holds a foreign file.
    is_closed: AtomicBool,
    /// End of the pause of saving after a failure.
    pause: Mutex<Option<Instant>>,
    /// Whether the warning about a foreign file was given.
    has_warned_foreign: AtomicBool,
    /// Whether the warning about a text beyond the size limit was given.
    has_warned_size: AtomicBool,
}

#[derive(Debug)]
enum Storage {
    File(SingleFile),
    Directory(Directory),
}

/// Result of restoring a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixHit {
    /// Tokens of the text that are in the session now.
    pub n_tokens: usize,
    /// Time of the lookup and of loading.
    pub time: Duration,
    /// Warnings about skipped files, one line each.
    pub notes: Vec<String>,
}

/// A prompt in a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedPrompt {
    /// Its key, in hexadecimal digits.
    pub key: String,
    /// Its number of tokens.
    pub n_tokens: usize,
    /// Bytes on disk, including segments shared with other prompts.
    pub bytes: u64,
    /// Time of the last save or restore, if the system knows it.
    pub last_use: Option<SystemTime>,
    /// Name of its model.
    pub model: String,
}

impl PromptCache {
    /// Opens a cache. A path that ends in a separator, or that is a directory, is a directory of
    /// states with at most `limit` bytes (least recently used evicted first), created if missing;
    /// any other path is a file of one state.
    ///
    /// # Errors
    /// [`Error::Cache`] if the path can be neither.
    pub fn open(path: &Path, limit: u64) -> Result<Self, Error> {
        let storage = if names_directory(path) {
            Directory::open(path, limit).map(Storage::Directory)
        } else {
            SingleFile::open(path).map(Storage::File)
        };
        let storage = storage.map_err(|source| Error::Cache {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self {
            storage,
            is_closed: AtomicBool::new(false),
            pause: Mutex::default(),
            has_warned_foreign: AtomicBool::default(),
            has_warned_size: AtomicBool::default(),
        })
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self.storage, Storage::Directory(_))
    }

    /// Lists the prompts, most recently used first.
    ///
    /// # Errors
    /// [`Error::Cache`] if it cannot be read.
    pub fn prompts(&self) -> Result<Vec<SavedPrompt>, Error> {
        let prompts = match &self.storage {
            Storage::File(file) => file.prompts(),
            Storage::Directory(directory) => directory.prompts(),
        };
        let mut prompts = prompts.map_err(|source| self.error(source))?;
        prompts.sort_by(|a, b| (b.last_use, &a.key).cmp(&(a.last_use, &b.key)));
        Ok(prompts)
    }

    /// Removes the prompt whose key begins with `key`, except segments shared with others.
    ///
    /// # Errors
    /// [`Error::Cache`] if not exactly one key begins so, or the prompt cannot be removed.
    pub fn remove(&self, key: &str) -> Result<(), Error> {
        let keys = self
            .prompts()?
            .into_iter()
            .map(|prompt| prompt.key)
            .filter(|k| k.starts_with(key));
        let keys: Vec<String> = keys.collect();
        match (keys.as_slice(), &self.storage) {
            ([_], Storage::File(file)) => file.remove(),
            ([key], Storage::Directory(directory)) => directory.remove(key),
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

    /// Removes all prompts, in a directory the usage of experts and the times of steps too, and no
    /// other files.
    ///
    /// # Errors
    /// [`Error::Cache`] if one cannot be removed.
    pub fn clear(&self) -> Result<(), Error> {
        let cleared = match &self.storage {
            Storage::File(file) => file.remove(),
            Storage::Directory(directory) => directory
                .clear()
                .and_then(|()| small_file::clear(directory.path())),
        };
        cleared.map_err(|source| self.error(source))
    }

    /// Finds the longest cached prefix of a text; empty if it is too short.
    pub(crate) fn look_up(
        &self,
        lookup: &Lookup<'_>,
        notes: &mut Vec<String>,
    ) -> Vec<SegmentPrefix> {
        let mut warnings = Vec::new();
        let found = match &self.storage {
            Storage::File(file) => file.find(lookup, &mut warnings),
            Storage::Directory(directory) => directory.find(lookup, &mut warnings),
        };
        self.apply_warnings(warnings, notes);
        found
    }

    /// Replaces the state of a sequence by a cached prefix, and returns its number of tokens.
    /// `None` if the first file cannot be used; the sequence keeps its state then. Maps one file at
    /// a time: bus errors are caught in a limited number of maps.
    pub(crate) fn fill(
        &self,
        executor: &mut dyn Executor,
        seq: SeqId,
        prefixes: Vec<SegmentPrefix>,
        ids: &[u32],
        notes: &mut Vec<String>,
    ) -> Result<Option<usize>, Error> {
        let mut warnings = Vec::new();
        let mut n_filled = 0;
        let mut is_replaced = false;
        for SegmentPrefix {
            location,
            parent,
            n,
        } in prefixes
        {
            let Some(file) = location.open(&mut warnings) else {
                break;
            };
            let prefix = &ids[n_filled..n_filled + n];
            let verified = file.verify(parent, n_filled, prefix);
            if verified.is_ok() && !is_replaced {
                executor.truncate(seq, 0)?;
                is_replaced = true;
            }
            let appended = verified.and_then(|()| file.append(executor, seq, n));
            let SegmentFile { path, map } = file;
            drop(map);
            match appended {
                Ok(true) => n_filled += n,
                Ok(false) => break,
                Err(error) => {
                    if is_replaced {
                        executor.truncate(seq, n_filled)?;
                    }
                    self.discard(&path, error, &mut warnings);
                    break;
                }
            }
            atomic_file::touch(&path);
        }
        self.apply_warnings(warnings, notes);
        if !is_replaced {
            return Ok(None);
        }
        // Leaves nothing if a sliding window is incomplete.
        Ok(Some(executor.truncate(seq, n_filled)?))
    }

    /// Saves the state of the tokens of a sequence.
    pub(crate) fn save(&self, source: &SequenceExport<'_>, root: Key) -> Result<(), Error> {
        match &self.storage {
            Storage::File(file) => file.save(source, root),
            Storage::Directory(directory) => directory.save(source, root),
        }
    }

    /// Runs `save` unless saving is off or paused. Returns whether it was saved, or a warning if it
    /// failed now.
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
            // Other texts may be smaller, so saving is not paused.
            Err(error)
                if is_too_large(&error) && self.has_warned_size.swap(true, Ordering::Relaxed) =>
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

    /// Ends the pause of saving.
    #[cfg(feature = "batch")]
    pub(crate) fn end_pause(&self) {
        *self.pause.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Turns saving off at a foreign file, and appends the warnings that were not given before.
    fn apply_warnings(&self, mut warnings: Vec<FileWarning>, notes: &mut Vec<String>) {
        let is_foreign = |warning: &FileWarning| {
            warning
                .error
                .is_some_and(|error| error.is_foreign_file() || error == CacheFileError::Foreign)
        };
        if warnings
            .iter()
            .any(|warning| warning.error.is_some_and(CacheFileError::is_foreign_file))
        {
            self.is_closed.store(true, Ordering::Relaxed);
        }
        if warnings.iter().any(is_foreign) && self.has_warned_foreign.swap(true, Ordering::Relaxed)
        {
            warnings.retain(|warning| !is_foreign(warning));
        }
        notes.extend(warnings.into_iter().map(|warning| warning.line));
    }

    /// Removes a damaged file, with a warning.
    fn discard(&self, path: &Path, error: CacheFileError, warnings: &mut Vec<FileWarning>) {
        match &self.storage {
            Storage::Directory(_) => directory::discard(path, error, warnings),
            Storage::File(_) => {
                warnings.push(FileWarning::of(path, error));
                // If that fails, the next save overwrites it.
                let _ = std::fs::remove_file(path);
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match &self.storage {
            Storage::File(file) => file.path(),
            Storage::Directory(directory) => directory.path(),
        }
    }

    fn error(&self, source: io::Error) -> Error {
        Error::Cache {
            path: self.path().to_owned(),
            source,
        }
    }
}

/// Whether a text exceeds the size limit of the cache. A disk quota is an error of the system.
fn is_too_large(error: &Error) -> bool {
    matches!(error, Error::Cache { source, .. }
        if source.kind() == io::ErrorKind::QuotaExceeded && source.raw_os_error().is_none())
}

/// Names the missing folder in an error of the system.
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
    /// Truncates the session to its common prefix with `ids`, or restores a longer prefix from the
    /// cache. The last of `ids` is never part of it, so that appending the rest computes logits.
    /// The cache is used if its prefix is at least 16 tokens longer.
    ///
    /// # Errors
    /// A model file that cannot be read. A damaged cache file is a warning in
    /// [`PrefixHit::notes`].
    pub fn restore(&mut self, cache: &PromptCache, ids: &[u32]) -> Result<PrefixHit, Error> {
        let start = Instant::now();
        self.recall(cache)?;
        let n_min = self.keep_common(ids)? + MIN_GAIN;
        let wanted = &ids[..ids.len().saturating_sub(1).min(self.n_ctx())];
        let mut notes = Vec::new();
        if n_min <= wanted.len() {
            let lookup = Lookup {
                root: self.root()?,
                ids: wanted,
                n_min,
            };
            self.fill_from(cache, &lookup, &mut notes)?;
        }
        Ok(PrefixHit {
            n_tokens: self.tokens().len(),
            time: start.elapsed(),
            notes,
        })
    }

    /// Recalls what earlier runs have learned about speed.
    fn recall(&mut self, cache: &PromptCache) -> Result<(), Error> {
        let engine = self.engine().clone();
        let numerics = self.executor().info().numerics.clone();
        cache.recall_costs(&engine, &numerics, &mut self.costs)?;
        cache.recall_experts(&engine)
    }

    /// Restores the cached prefix, if there is one that is long enough.
    fn fill_from(
        &mut self,
        cache: &PromptCache,
        lookup: &Lookup<'_>,
        notes: &mut Vec<String>,
    ) -> Result<(), Error> {
        let found = cache.look_up(lookup, notes);
        if found.is_empty() {
            return Ok(());
        }
        let ids = lookup.ids;
        let filled = cache.fill(self.executor().as_mut(), self.seq, found, ids, notes)?;
        if let Some(n) = filled {
            self.set_tokens(&ids[..n]);
            self.n_saved = n;
        }
        Ok(())
    }

    /// Key of the empty text.
    fn root(&self) -> Result<Key, Error> {
        let root = Key::root(self.engine(), self.executor().as_ref(), self.seq)?;
        Ok(root.with_adapters(self.engine(), self.adapters()))
    }

    /// Saves the unsaved part of the session's KV cache.
    ///
    /// A session that has shifted its context, or was [filled in](Session::fill), is not saved: no
    /// prompt has its state.
    ///
    /// # Errors
    /// [`Error::Cache`] if it cannot be written, or if the path holds a foreign file.
    pub fn save(&mut self, cache: &PromptCache) -> Result<(), Error> {
        if self.tokens().is_empty() || self.n_evicted() > 0 || self.n_filled() > 0 {
            return Ok(());
        }
        let root = self.root()?;
        cache.save(
            &SequenceExport::new(
                self.engine(),
                self.executor().as_ref(),
                self.seq,
                self.tokens(),
            ),
            root,
        )?;
        self.n_saved = self.tokens().len();
        let numerics = self.executor().info().numerics.clone();
        cache.save_costs(self.engine(), &numerics, &self.costs)?;
        cache.save_experts(self.engine())
    }

    /// Saves the session if enough tokens are unsaved; returns a warning if that fails.
    fn save_new(&mut self, cache: &PromptCache) -> Option<String> {
        if self.tokens().len() < self.n_saved + MIN_NEW {
            return None;
        }
        cache.try_to_save(|| self.save(cache)).err()
    }

    /// Generates as [`generate`](Self::generate) does, and saves the session after prefill, before
    /// the context is shifted for the first time, and at the end, also of an interrupted
    /// generation; each time only if at least 16 tokens are not saved yet. A state that cannot be
    /// saved is an [`Event::Note`](crate::Event::Note), and nothing is saved to that cache for a
    /// minute.
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

    /// Writes the tokens of the session and their state, for [`import`](Self::import).
    ///
    /// # Errors
    /// Errors of the writer; [`Error::Shifted`] for a session that has shifted its context,
    /// [`Error::Filled`] for one that was filled in.
    pub fn export(&self, out: &mut impl Write) -> Result<(), Error> {
        if self.n_evicted() > 0 {
            return Err(Error::Shifted(self.n_evicted()));
        }
        if self.n_filled() > 0 {
            return Err(Error::Filled);
        }
        let root = self.root()?;
        let executor = self.executor();
        let export = SequenceExport::new(self.engine(), executor.as_ref(), self.seq, self.tokens());
        let segment = export.segment(0, root, self.tokens())?;
        Ok(export.write(&segment, out)?)
    }

    /// Replaces the tokens of the session by those that [`export`](Self::export) wrote in a session
    /// of the same model, version, instruction set, kind of context and KV type, and returns their
    /// number. The session has no logits before the next token. The bytes may be hostile.
    ///
    /// # Errors
    /// [`Error::Saved`] for invalid bytes; the session may be empty then.
    pub fn import(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let segment = Segment::read(bytes)?;
        segment.verify()?;
        if segment.parent != self.root()? || segment.start != 0 {
            return Err(CacheFileError::Foreign.into());
        }
        let ids: Vec<u32> = segment.tokens().collect();
        let n_vocab = self.engine().spec().n_vocab;
        if ids.len() > self.n_ctx() {
            return Err(Error::PromptTooLong {
                n_prompt: ids.len(),
                n_ctx: self.n_ctx(),
            });
        }
        self.truncate(0)?;
        let fits = ids.iter().all(|&id| (id as usize) < n_vocab);
        let mut executor = self.executor();
        let is_appended = fits
            && executor
                .append_state(self.seq, segment.state, ids.len())
                .is_ok();
        // Leaves nothing if a sliding window is incomplete.
        if !is_appended || executor.truncate(self.seq, ids.len())? < ids.len() {
            executor.truncate(self.seq, 0)?;
            return Err(CacheFileError::State.into());
        }
        drop(executor);
        self.set_tokens(&ids);
        Ok(ids.len())
    }
}

/// A sequence whose state is exported.
pub(crate) struct SequenceExport<'a> {
    executor: &'a dyn Executor,
    seq: SeqId,
    /// All of its tokens.
    tokens: &'a [u32],
    /// Name of the model.
    label: String,
}

impl<'a> SequenceExport<'a> {
    pub(crate) fn new(
        engine: &Engine,
        executor: &'a dyn Executor,
        seq: SeqId,
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

    /// Size and coverage of the state of these positions.
    fn measure(&self, positions: Range<usize>) -> Result<(u64, Option<StateCoverage>), Error> {
        let mut gauge = Gauge::default();
        self.executor.export(self.seq, positions, &mut gauge)?;
        Ok((gauge.n_bytes, StateCoverage::parse(&gauge.head)))
    }

    /// The segment of these tokens of the sequence, starting at position `start`.
    fn segment<'b>(
        &'b self,
        start: usize,
        parent: Key,
        tokens: &'b [u32],
    ) -> Result<SegmentWriter<'b>, Error> {
        let (state_bytes, coverage) = self.measure(start..start + tokens.len())?;
        Ok(SegmentWriter {
            start,
            parent,
            tokens,
            label: &self.label,
            state_bytes,
            coverage,
        })
    }

    fn write(
        &self,
        segment: &SegmentWriter<'_>,
        out: &mut dyn Write,
    ) -> Result<(), atta_model::Error> {
        let positions = segment.start..segment.start + segment.tokens.len();
        segment.write(out, |out| self.executor.export(self.seq, positions, out))
    }

    /// Whether the sequence restores all that a segment of its own tokens restores. It may have
    /// freed a part of a sliding window, or a checkpoint of recurrent layers.
    fn covers(&self, segment: &Segment<'_>) -> Result<bool, Error> {
        let (_, coverage) = self.measure(segment.positions())?;
        let other = StateCoverage::parse(segment.state);
        Ok(includes(coverage.as_ref(), other.as_ref()))
    }

    /// Writes a file atomically.
    fn save(&self, path: &Path, segment: &SegmentWriter<'_>) -> Result<(), Error> {
        let written = atomic_file::replace(path, |file| match self.write(segment, file) {
            Err(atta_model::Error::Export(error)) => Err(error),
            other => other.map_err(as_text),
        });
        written.map_err(|source| Error::Cache {
            path: path.to_owned(),
            source,
        })
    }
}

/// An I/O error with the text of another error. `io::Error::other(error)` would need its `Debug`
/// code, which makes the program larger.
fn as_text(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

/// Whether the state with coverage `a` restores all that the one with coverage `b` restores. States
/// of another executor, which have none, are the same for the same text.
fn includes(a: Option<&StateCoverage>, b: Option<&StateCoverage>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.includes(b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

/// Maximum bytes of the header of a state, enough for thousands of layers.
const MAX_STATE_HEAD_BYTES: usize = 1 << 16;

/// Counts written bytes, and keeps the first ones.
#[derive(Default)]
struct Gauge {
    n_bytes: u64,
    head: Vec<u8>,
}

impl Write for Gauge {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.n_bytes += bytes.len() as u64;
        let n_left = MAX_STATE_HEAD_BYTES - self.head.len();
        self.head.extend(&bytes[..bytes.len().min(n_left)]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A mapped file with a segment.
struct SegmentFile {
    path: PathBuf,
    map: MappedFile,
}

impl SegmentFile {
    fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            map: MappedFile::open(path)?,
        })
    }

    fn segment(&self) -> Result<Segment<'_>, CacheFileError> {
        Segment::read(self.map.bytes())
    }

    /// Verifies that the segment is behind the text of `start` tokens with key `parent`, begins
    /// with `ids`, and has the right checksum.
    fn verify(&self, parent: Key, start: usize, ids: &[u32]) -> Result<(), CacheFileError> {
        let segment = self.segment()?;
        let is_here = (segment.parent, segment.start) == (parent, start);
        if !is_here || segment.n_shared(ids) < ids.len() {
            return Err(CacheFileError::Misplaced);
        }
        segment.verify()?;
        if self.map.is_damaged() {
            return Err(CacheFileError::State);
        }
        Ok(())
    }

    /// Appends the first `n` tokens of a verified segment to a sequence. `false` if the KV pool has
    /// no room for them.
    fn append(
        &self,
        executor: &mut dyn Executor,
        seq: SeqId,
        n: usize,
    ) -> Result<bool, CacheFileError> {
        match executor.append_state(seq, self.segment()?.state, n) {
            Ok(()) if !self.map.is_damaged() => Ok(true),
            Err(atta_model::Error::OutOfBlocks) => Ok(false),
            _ => Err(CacheFileError::State),
        }
    }

    /// Opens a file; `None`, with a warning unless it is gone, if it cannot be read.
    fn open_or_warn(path: &Path, warnings: &mut Vec<FileWarning>) -> Option<Self> {
        match Self::open(path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                warnings.push(FileWarning::of_system(path, &error));
                None
            }
        }
    }
}

/// A search for a cached prefix.
pub(crate) struct Lookup<'a> {
    pub(crate) root: Key,
    pub(crate) ids: &'a [u32],
    /// Minimum length of the prefix.
    pub(crate) n_min: usize,
}

impl Lookup<'_> {
    /// The prefix, if it is long enough.
    fn if_enough(&self, prefix: Vec<SegmentPrefix>) -> Vec<SegmentPrefix> {
        if prefix.iter().map(|part| part.n).sum::<usize>() >= self.n_min {
            prefix
        } else {
            Vec::new()
        }
    }
}

/// The first `n` tokens of a segment, whose checksum is not verified yet.
pub(crate) struct SegmentPrefix {
    location: Location,
    /// Key of the text in front of it.
    parent: Key,
    pub(crate) n: usize,
}

/// The file of a segment.
enum Location {
    /// A file whose name identifies its content.
    Named(PathBuf),
    /// A file that is mapped already, since its path may be replaced.
    Mapped(SegmentFile),
}

impl SegmentPrefix {
    fn of_name(path: &Path, parent: Key, n: usize) -> Self {
        Self {
            location: Location::Named(path.to_owned()),
            parent,
            n,
        }
    }

    fn of_map(file: SegmentFile, parent: Key, n: usize) -> Self {
        Self {
            location: Location::Mapped(file),
            parent,
            n,
        }
    }
}

impl Location {
    fn open(self, warnings: &mut Vec<FileWarning>) -> Option<SegmentFile> {
        match self {
            Self::Named(path) => SegmentFile::open_or_warn(&path, warnings),
            Self::Mapped(file) => Some(file),
        }
    }
}
