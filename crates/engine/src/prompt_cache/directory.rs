//! A cache that is a directory: many prompts, in segments of 128 positions, of which those that begin the same way share the first.
//!
//! The name of a file is the key of what stands in front of its segment and the key of the text with it, so that a tree of prompts
//! is a matter of names: `PARENT-OWN.atta`. Only the last segment of a prompt is shorter than the others. What was used least
//! recently goes first, and never before what stands behind it.

use std::{
    cmp::Reverse,
    collections::HashMap,
    fmt, fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{Draft, Flaw, Key, Note, Piece, Saved, SavedPrompt, Source, segment::Segment, whole};
use crate::Error;

/// Positions of a segment: few enough that prompts share most of what they have in common (what they share of the next segment is
/// used as well, but stored twice), and enough that files are not many. At 22 KB per position it has 2.8 MB.
const SEGMENT_LEN: usize = 128;

const ENDING: &str = ".atta";

pub(super) struct Directory {
    path: PathBuf,
    /// Bytes of all segments.
    limit: u64,
}

/// The first half of a key, which is all that names need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(u128);

impl Key {
    pub(super) fn id(&self) -> Id {
        Id(u128::from_be_bytes(self.0[..16].try_into().expect("half of a key")))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Id {
    /// Exactly as it is written.
    fn parse(text: &str) -> Option<Self> {
        let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        let is_id = text.len() == 32 && text.bytes().all(is_digit);
        u128::from_str_radix(text, 16).ok().filter(|_| is_id).map(Self)
    }
}

/// A file of the directory.
#[derive(Clone, Debug)]
struct Entry {
    parent: Id,
    own: Id,
    path: PathBuf,
    bytes: u64,
    last_use: Option<SystemTime>,
}

/// Where in a text a segment is looked for.
struct Wanted<'a> {
    parent: Key,
    start: usize,
    /// The text from there on.
    ids: &'a [u32],
}

impl Directory {
    /// Creates it if it is not there, but not the one that it is in.
    pub(super) fn open(path: &Path, limit: u64) -> io::Result<Self> {
        if !path.is_dir() {
            fs::create_dir(path).or_else(|error| if path.is_dir() { Ok(()) } else { Err(super::no_folder(error)) })?;
        }
        fs::read_dir(path)?;
        Ok(Self { path: path.to_owned(), limit })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// All segments, by their names. What was abandoned is removed on the way.
    fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for file in fs::read_dir(&self.path)? {
            let file = file?;
            let Ok(name) = file.file_name().into_string() else { continue };
            if whole::unfinished(&name).is_some_and(|of| ids(of).is_some()) {
                whole::remove_abandoned(&file.path());
            }
            // One that somebody else has just removed is not there.
            if let (Some((parent, own)), Ok(meta)) = (ids(&name), file.metadata()) {
                let last_use = meta.modified().ok();
                entries.push(Entry { parent, own, path: file.path(), bytes: meta.len(), last_use });
            }
        }
        Ok(entries)
    }

    /// Segments that the text begins with, one after the other, and then the one that goes on with it for longest.
    pub(super) fn find(&self, root: Key, text: &[u32], notes: &mut Vec<Note>) -> Vec<Piece> {
        let entries = self.entries().unwrap_or_else(|error| {
            notes.push(Note::of_system(&self.path, &error));
            Vec::new()
        });
        let (mut pieces, mut wanted) = (Vec::new(), Wanted { parent: root, start: 0, ids: text });
        while let Some((here, rest)) = wanted.ids.split_at_checked(SEGMENT_LEN) {
            let own = wanted.parent.child(here);
            let Some(entry) = entries.iter().find(|e| (e.parent, e.own) == (wanted.parent.id(), own.id())) else {
                break;
            };
            let whole = Wanted { ids: here, ..wanted };
            let Some(piece) = whole.piece(entry, notes).filter(|piece| piece.n == SEGMENT_LEN) else { break };
            pieces.push(piece);
            wanted = Wanted { parent: own, start: wanted.start + SEGMENT_LEN, ids: rest };
        }
        pieces.extend(wanted.best(&entries, notes));
        pieces
    }

    /// Saves a session, as far as the limit allows, and removes what is too much then.
    pub(super) fn save(&self, source: &Source<'_>, root: Key) -> Result<(), Error> {
        let blame = |source| Error::Cache { path: self.path.clone(), source };
        let entries = self.entries().map_err(blame)?;
        let (mut parent, mut bytes) = (root, 0);
        for (i, tokens) in source.session.tokens().chunks(SEGMENT_LEN).enumerate() {
            let (own, draft) = (parent.child(tokens), source.draft(i * SEGMENT_LEN, parent, tokens)?);
            bytes += draft.file_bytes();
            if bytes > self.limit && i == 0 {
                let why = format!("{} tokens take {bytes} bytes, and all may have {}", tokens.len(), self.limit);
                return Err(blame(io::Error::new(io::ErrorKind::QuotaExceeded, why)));
            }
            if bytes > self.limit {
                break;
            }
            let others = entries.iter().filter(|e| e.parent == parent.id()).map(|e| e.path.as_path());
            self.save_segment(source, &draft, (own.id(), &others.collect::<Vec<_>>()))?;
            parent = own;
        }
        self.evict().map_err(blame)
    }

    /// Saves a segment, unless it is there, alone or as the beginning of another; `others` have the same in front of them.
    fn save_segment(&self, source: &Source<'_>, draft: &Draft<'_>, (own, others): (Id, &[&Path])) -> Result<(), Error> {
        let path = self.path.join(format!("{}-{own}{ENDING}", draft.parent.id()));
        // One that is shorter lacks a part of a window.
        let is_whole = |path: &Path| fs::metadata(path).is_ok_and(|meta| meta.len() >= draft.file_bytes());
        let longer = |path: &Path| {
            Saved::open(path).is_ok_and(|s| s.segment().is_ok_and(|s| source.is_in(draft, &s).unwrap_or(false)))
        };
        let there =
            if is_whole(&path) { Some(path.as_path()) } else { others.iter().copied().find(|other| longer(other)) };
        if let Some(there) = there {
            whole::touch(there);
            return Ok(());
        }
        source.save(&path, draft)?;
        others.iter().filter(|&&other| other != path).for_each(|other| remove_beginning(other, source, draft));
        Ok(())
    }

    /// Removes what was used least recently, as long as there is too much.
    fn evict(&self) -> io::Result<()> {
        let mut entries = self.entries()?;
        let mut bytes: u64 = entries.iter().map(|e| e.bytes).sum();
        let mut n_children = n_children(&entries);
        while bytes > self.limit {
            let last = entries.iter().enumerate().filter(|(_, e)| !n_children.contains_key(&e.own));
            let Some((i, _)) = last.min_by_key(|(_, e)| (e.last_use, e.own)) else { break };
            let entry = entries.swap_remove(i);
            // One that cannot be removed stays, and so does what it stands on.
            if removed(&entry.path).is_ok() {
                forget_child(&mut n_children, entry.parent);
            }
            bytes -= entry.bytes;
        }
        Ok(())
    }

    /// Every segment that nothing stands on is the end of a prompt.
    pub(super) fn prompts(&self) -> io::Result<Vec<SavedPrompt>> {
        let entries = self.entries()?;
        let n_children = n_children(&entries);
        let last = entries.iter().filter(|e| !n_children.contains_key(&e.own));
        Ok(last.filter_map(|e| prompt(e, &entries)).collect())
    }

    /// Removes the end of a prompt, and what nothing stands on then.
    pub(super) fn remove(&self, key: &str) -> io::Result<()> {
        let entries = self.entries()?;
        let mut n_children = n_children(&entries);
        let mut next = Id::parse(key).and_then(|id| entries.iter().find(|e| e.own == id));
        while let Some(entry) = next {
            removed(&entry.path)?;
            forget_child(&mut n_children, entry.parent);
            next = entries.iter().find(|e| e.own == entry.parent && !n_children.contains_key(&e.own));
        }
        Ok(())
    }

    pub(super) fn clear(&self) -> io::Result<()> {
        self.entries()?.iter().try_for_each(|entry| removed(&entry.path))
    }
}

impl Wanted<'_> {
    /// The part of a segment that the text goes on with; one that is damaged is removed.
    fn piece(&self, entry: &Entry, notes: &mut Vec<Note>) -> Option<Piece> {
        let saved = open(&entry.path, notes)?;
        let n = saved.segment().and_then(|segment| self.n_shared(&segment));
        let piece = n.and_then(|n| saved.into_piece(n));
        noted(piece, &entry.path, notes)
    }

    /// How many tokens of the text a segment of this place has.
    fn n_shared(&self, segment: &Segment<'_>) -> Result<usize, Flaw> {
        let is_here = (segment.parent, segment.start) == (self.parent, self.start);
        if is_here { Ok(segment.n_shared(self.ids)) } else { Err(Flaw::Misplaced) }
    }

    /// Of all segments of this place the one with most tokens of the text; of several the shortest, since that was saved when the
    /// least of its windows was gone.
    fn best(&self, entries: &[Entry], notes: &mut Vec<Note>) -> Option<Piece> {
        let here = entries.iter().filter(|e| e.parent == self.parent.id());
        let mut candidates: Vec<_> = here
            .filter_map(|entry| {
                let saved = open(&entry.path, notes)?;
                let lengths = saved.segment().and_then(|s| Ok((self.n_shared(&s)?, s.n_tokens())));
                let (n_shared, n_tokens) = noted(lengths, &entry.path, notes)?;
                (n_shared > 0).then_some((Reverse(n_shared), n_tokens, entry))
            })
            .collect();
        // Mostly the first is good, and the others need no order.
        while let Some((i, (_, _, entry))) = candidates.iter().enumerate().min_by_key(|(_, c)| (c.0, c.1, c.2.own)) {
            if let Some(piece) = self.piece(entry, notes) {
                return Some(piece);
            }
            candidates.swap_remove(i);
        }
        None
    }
}

/// A mapped file; `None` if it cannot be read, or is not there any more.
fn open(path: &Path, notes: &mut Vec<Note>) -> Option<Saved> {
    match Saved::open(path) {
        Ok(saved) => Some(saved),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            notes.push(Note::of_system(path, &error));
            None
        }
    }
}

/// What is not damaged; what is, is removed with a note. Its name says that it is ours.
fn noted<T>(what: Result<T, Flaw>, path: &Path, notes: &mut Vec<Note>) -> Option<T> {
    what.map_err(|flaw| {
        notes.push(Note { is_foreign_file: false, ..Note::of(path, flaw) });
        // It is written again when its prompt is saved, if it cannot be removed by us.
        let _ = fs::remove_file(path);
    })
    .ok()
}

/// Removes the segment at `path` if what was just saved begins with it and has all of its state.
fn remove_beginning(path: &Path, source: &Source<'_>, draft: &Draft<'_>) {
    let Ok(saved) = Saved::open(path) else { return };
    let Ok(segment) = saved.segment() else { return };
    let is_same = (segment.parent, segment.start) == (draft.parent, draft.start);
    let is_beginning = is_same && segment.n_shared(draft.tokens) == segment.n_tokens();
    if is_beginning && source.has_all_of(&segment).unwrap_or(false) {
        // If it stays, it is a prompt of its own.
        let _ = fs::remove_file(path);
    }
}

/// The two keys in the name of a segment.
fn ids(name: &str) -> Option<(Id, Id)> {
    let (parent, own) = name.strip_suffix(ENDING)?.split_once('-')?;
    Id::parse(parent).zip(Id::parse(own))
}

/// How many segments stand on each.
fn n_children(entries: &[Entry]) -> HashMap<Id, usize> {
    let mut n_children = HashMap::new();
    entries.iter().for_each(|e| *n_children.entry(e.parent).or_default() += 1);
    n_children
}

fn forget_child(n_children: &mut HashMap<Id, usize>, parent: Id) {
    if let Some(n) = n_children.get_mut(&parent) {
        *n -= 1;
        if *n == 0 {
            n_children.remove(&parent);
        }
    }
}

/// Removes a file, unless somebody else has.
fn removed(path: &Path) -> io::Result<()> {
    fs::remove_file(path).or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

/// The prompt that ends with a segment; `None` for a file that is damaged.
fn prompt(last: &Entry, entries: &[Entry]) -> Option<SavedPrompt> {
    let saved = Saved::open(&last.path).ok()?;
    let segment = saved.segment().ok()?;
    let (mut bytes, mut entry) = (last.bytes, last);
    for _ in 0..segment.start / SEGMENT_LEN {
        entry = entries.iter().find(|e| e.own == entry.parent)?;
        bytes += entry.bytes;
    }
    let n_tokens = segment.start + segment.n_tokens();
    Some(SavedPrompt { key: last.own.to_string(), n_tokens, bytes, last_use: last.last_use, model: segment.label() })
}
