//! A cache that is a directory: many prompts, in segments of 128 positions, of which those that
//! begin the same way share the first.
//!
//! A tree of prompts is a matter of names (`entry.rs`). Only the last segment of a prompt is
//! shorter than the others. What was used least recently goes first, and never before what stands
//! behind it.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    Draft, Flaw, Key, Lookup, Note, Piece, Saved, SavedPrompt, Source,
    entry::{Entry, Id, Listing, Name, Tree},
    segment::Segment,
    whole,
};
use crate::Error;

/// Positions of a segment: few enough that prompts share most of what they have in common (what
/// they share of the next segment is used as well, but stored twice), and enough that files are not
/// many. At 22 KB per position it has 2.8 MB.
const SEGMENT_LEN: usize = 128;

/// Of the segments that stand at one place, so many are opened: first those that begin as the text
/// does by their names, then those used last.
const MAX_OPENED: usize = 64;

#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Bytes of all files.
    limit: u64,
}

/// Where in a text a segment is looked for.
#[derive(Clone, Copy)]
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
            fs::create_dir(path).or_else(|error| {
                if path.is_dir() {
                    Ok(())
                } else {
                    Err(super::no_folder(error))
                }
            })?;
        }
        fs::read_dir(path)?;
        Ok(Self {
            path: path.to_owned(),
            limit,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> io::Result<Listing> {
        Listing::read(&self.path)
    }

    /// Segments that the text begins with, one after the other, and then the one that goes on with
    /// it for longest; none if they are too short in all. Nothing but names and tokens is
    /// looked at.
    pub(super) fn find(&self, lookup: &Lookup<'_>, notes: &mut Vec<Note>) -> Vec<Piece> {
        let listing = self.list().unwrap_or_else(|error| {
            notes.push(Note::of_system(&self.path, &error));
            Listing::default()
        });
        let tree = Tree::new(&listing.entries);
        let (mut pieces, mut wanted) = (
            Vec::new(),
            Wanted {
                parent: lookup.root,
                start: 0,
                ids: lookup.ids,
            },
        );
        while let Some((here, rest)) = wanted.ids.split_at_checked(SEGMENT_LEN) {
            let own = wanted.parent.child(here);
            let Some(entry) = tree
                .get(own.id())
                .filter(|e| e.name.parent == wanted.parent.id())
            else {
                break;
            };
            pieces.push(wanted.piece(entry, SEGMENT_LEN));
            wanted = Wanted {
                parent: own,
                start: wanted.start + SEGMENT_LEN,
                ids: rest,
            };
        }
        let others = tree.children(wanted.parent.id());
        pieces.extend(
            wanted
                .best(others, notes)
                .map(|(entry, n)| wanted.piece(entry, n)),
        );
        lookup.if_enough(pieces)
    }

    /// Saves a session, as far as the limit allows, and removes what is too much then.
    pub(super) fn save(&self, source: &Source<'_>, root: Key) -> Result<(), Error> {
        let blame = |source| Error::Cache {
            path: self.path.clone(),
            source,
        };
        let listing = self.list().map_err(blame)?;
        let tree = Tree::new(&listing.entries);
        let (mut parent, mut bytes) = (root, 0);
        for (i, tokens) in source.tokens.chunks(SEGMENT_LEN).enumerate() {
            let draft = source.draft(i * SEGMENT_LEN, parent, tokens)?;
            bytes += draft.file_bytes();
            if bytes > self.limit && i == 0 {
                let why = format!(
                    "{} tokens take {bytes} bytes, and all may have {}",
                    tokens.len(),
                    self.limit
                );
                return Err(blame(io::Error::new(io::ErrorKind::QuotaExceeded, why)));
            }
            if bytes > self.limit {
                break;
            }
            let own = parent.child(tokens);
            let name = Name::new(&parent, &own, tokens);
            self.save_segment(source, &draft, (name, tree.children(parent.id())))?;
            parent = own;
        }
        self.evict().map_err(blame)
    }

    /// Saves a segment, unless it is there, alone or as the beginning of another; `others` have the
    /// same in front of them.
    fn save_segment(
        &self,
        source: &Source<'_>,
        draft: &Draft<'_>,
        (name, others): (Name, &[&Entry]),
    ) -> Result<(), Error> {
        let path = self.path.join(name.to_string());
        // One that is shorter lacks a part of a window.
        let is_whole = fs::metadata(&path).is_ok_and(|meta| meta.len() >= draft.file_bytes());
        let there = if is_whole {
            Some(path.as_path())
        } else {
            longer(others, source, draft)
        };
        if let Some(there) = there {
            whole::touch(there);
            return Ok(());
        }
        source.save(&path, draft)?;
        let is_shorter =
            |name: &Name| name.n_tokens < draft.tokens.len() && name.may_begin(draft.tokens);
        let shorter = others.iter().filter(|e| is_shorter(&e.name));
        shorter.for_each(|e| remove_beginning(&e.path, source, draft));
        Ok(())
    }

    /// Removes what was used least recently, as long as there is too much.
    fn evict(&self) -> io::Result<()> {
        let Listing {
            entries,
            unfinished,
        } = self.list()?;
        let unfinished = unfinished.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let mut bytes = unfinished + entries.iter().map(|e| e.bytes).sum::<u64>();
        let mut tree = Tree::new(&entries);
        let age = |e: &Entry| Reverse((e.last_use, e.name.own));
        let last = entries.iter().filter(|e| tree.is_last(e.name.own));
        let mut ends: BinaryHeap<_> = last.map(age).collect();
        while bytes > self.limit
            && let Some(Reverse((_, own))) = ends.pop()
        {
            let Some(entry) = tree.get(own) else { continue };
            // One that cannot be removed stays, and so does what it stands on.
            if removed(&entry.path).is_ok() {
                bytes -= entry.bytes;
                ends.extend(tree.take_out(entry).map(age));
            }
        }
        Ok(())
    }

    /// Every segment that nothing stands on is the end of a prompt.
    pub(super) fn prompts(&self) -> io::Result<Vec<SavedPrompt>> {
        let entries = self.list()?.entries;
        let tree = Tree::new(&entries);
        let last = entries.iter().filter(|e| tree.is_last(e.name.own));
        Ok(last
            .filter_map(|e| prompt(e, &tree, entries.len()))
            .collect())
    }

    /// Removes the end of a prompt, and what nothing stands on then.
    pub(super) fn remove(&self, key: &str) -> io::Result<()> {
        let entries = self.list()?.entries;
        let mut tree = Tree::new(&entries);
        let mut next = Id::parse(key).and_then(|id| tree.get(id));
        while let Some(entry) = next {
            removed(&entry.path)?;
            next = tree.take_out(entry);
        }
        Ok(())
    }

    /// Removes everything that is ours, what somebody is writing included.
    pub(super) fn clear(&self) -> io::Result<()> {
        let Listing {
            entries,
            unfinished,
        } = self.list()?;
        let paths = entries
            .iter()
            .map(|e| &e.path)
            .chain(unfinished.iter().map(|(path, _)| path));
        paths.into_iter().try_for_each(|path| removed(path))
    }
}

impl<'a> Wanted<'a> {
    fn piece(&self, entry: &Entry, n: usize) -> Piece {
        Piece::of_name(&entry.path, self.parent, n)
    }

    /// How many tokens of the text a segment of this place has.
    fn n_shared(&self, segment: &Segment<'_>) -> Result<usize, Flaw> {
        let is_here = (segment.parent, segment.start) == (self.parent, self.start);
        if is_here {
            Ok(segment.n_shared(self.ids))
        } else {
            Err(Flaw::Misplaced)
        }
    }

    /// Of all segments of this place the one with most tokens of the text, and how many; of several
    /// the shortest, since that was saved when the least of its windows was gone.
    fn best<'e>(&self, here: &[&'e Entry], notes: &mut Vec<Note>) -> Option<(&'e Entry, usize)> {
        let mut here = here.to_vec();
        here.sort_by_cached_key(|e| Reverse((e.name.may_begin(self.ids), e.last_use)));
        here.truncate(MAX_OPENED);
        let shared = here
            .into_iter()
            .filter_map(|entry| Some((entry, self.n_shared_of(entry, notes)?)));
        let shared = shared.filter(|&(_, n)| n > 0);
        shared.min_by_key(|(e, n)| (Reverse(*n), e.name.n_tokens, e.name.own))
    }

    /// How many tokens of the text a file has; one that is damaged is removed.
    fn n_shared_of(&self, entry: &Entry, notes: &mut Vec<Note>) -> Option<usize> {
        let saved = Saved::open_noted(&entry.path, notes)?;
        let n_shared = saved.segment().and_then(|segment| self.n_shared(&segment));
        drop(saved);
        n_shared
            .map_err(|flaw| discard(&entry.path, flaw, notes))
            .ok()
    }
}

/// Removes a damaged file with a note. Its name says that it is ours.
pub(super) fn discard(path: &Path, flaw: Flaw, notes: &mut Vec<Note>) {
    notes.push(Note {
        flaw: None,
        ..Note::of(path, flaw)
    });
    // It is written again when its prompt is saved, if it cannot be removed by us.
    let _ = fs::remove_file(path);
}

/// Another segment that has all of a draft.
fn longer<'e>(others: &[&'e Entry], source: &Source<'_>, draft: &Draft<'_>) -> Option<&'e Path> {
    // Of a draft that is shorter than a head a name cannot say that it does not go on after it.
    let head = |e: &Entry| e.name.may_begin(draft.tokens);
    let mut longer: Vec<_> = others
        .iter()
        .filter(|e| e.name.n_tokens >= draft.tokens.len())
        .collect();
    longer.sort_by_cached_key(|e| Reverse((head(e), e.last_use)));
    let has_all = |path: &Path| {
        Saved::open(path).is_ok_and(|s| {
            s.segment()
                .is_ok_and(|s| source.is_in(draft, &s).unwrap_or(false))
        })
    };
    longer
        .into_iter()
        .take(MAX_OPENED)
        .map(|e| e.path.as_path())
        .find(|path| has_all(path))
}

/// Removes the segment at `path` if what was just saved begins with it and has all of its state.
fn remove_beginning(path: &Path, source: &Source<'_>, draft: &Draft<'_>) {
    let is_beginning = |segment: &Segment<'_>| {
        let is_same = (segment.parent, segment.start) == (draft.parent, draft.start);
        let begins = is_same && segment.n_shared(draft.tokens) == segment.n_tokens();
        begins && source.has_all_of(segment).unwrap_or(false)
    };
    // The map is gone before its file, which some systems insist on.
    if Saved::open(path).is_ok_and(|saved| saved.segment().is_ok_and(|s| is_beginning(&s))) {
        // If it stays, it is a prompt of its own.
        let _ = fs::remove_file(path);
    }
}

/// Removes a file, unless somebody else has.
fn removed(path: &Path) -> io::Result<()> {
    fs::remove_file(path).or_else(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            Ok(())
        } else {
            Err(error)
        }
    })
}

/// The prompt that ends with a segment; `None` for a file that is damaged.
fn prompt(last: &Entry, tree: &Tree<'_>, n_entries: usize) -> Option<SavedPrompt> {
    let saved = Saved::open(&last.path).ok()?;
    let segment = saved.segment().ok()?;
    let n_before = Some(segment.start / SEGMENT_LEN).filter(|&n| n < n_entries)?;
    let (mut bytes, mut entry) = (last.bytes, last);
    for _ in 0..n_before {
        entry = tree.get(entry.name.parent)?;
        bytes += entry.bytes;
    }
    let n_tokens = segment.start + segment.n_tokens();
    let key = last.name.own.to_string();
    Some(SavedPrompt {
        key,
        n_tokens,
        bytes,
        last_use: last.last_use,
        model: segment.label(),
    })
}
