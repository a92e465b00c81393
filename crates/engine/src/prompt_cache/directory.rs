//! A cache directory: many prompts, in segments of 128 positions; prompts share the segments of
//! their common prefix.
//!
//! File names form a tree of segments (`file_name.rs`). Only the last segment of a prompt may be
//! shorter. The least recently used segment is evicted first, but never before those behind it.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    CacheFileError, FileWarning, Key, Lookup, SavedPrompt, SegmentFile, SegmentPrefix,
    SegmentWriter, SequenceExport, atomic_file,
    file_name::{DirectoryEntry, FileName, Listing, ShortKey, Tree},
    segment::Segment,
};
use crate::Error;

/// Positions per segment: few enough that prompts share most of their common prefix (a common part
/// of the next segment is used, too, but stored twice), and enough to keep the number of files low.
/// At 22 KB per position a segment has 2.8 MB.
const SEGMENT_LEN: usize = 128;

/// Maximum number of segments with the same parent that a search opens: first those whose names
/// match the text, then the most recently used.
const MAX_OPENED: usize = 64;

#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// Maximum bytes of all files.
    limit: u64,
}

/// A position of a text at which a segment is searched.
#[derive(Clone, Copy)]
struct Search<'a> {
    parent: Key,
    start: usize,
    /// The text from this position on.
    ids: &'a [u32],
}

impl Directory {
    /// Opens a directory, and creates it, but not its parents, if it is missing.
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

    /// Finds the whole segments at the start of the text, and then the segment with the longest
    /// common prefix with the rest; empty if they are too short together. Reads only file names and
    /// tokens.
    pub(super) fn find(
        &self,
        lookup: &Lookup<'_>,
        notes: &mut Vec<FileWarning>,
    ) -> Vec<SegmentPrefix> {
        let listing = self.list().unwrap_or_else(|error| {
            notes.push(FileWarning::of_system(&self.path, &error));
            Listing::default()
        });
        let tree = Tree::new(&listing.entries);
        let mut prefix = Vec::new();
        let mut search = Search {
            parent: lookup.root,
            start: 0,
            ids: lookup.ids,
        };
        while let Some((here, rest)) = search.ids.split_at_checked(SEGMENT_LEN) {
            let own = search.parent.child(here);
            let Some(entry) = tree
                .get(own.id())
                .filter(|e| e.name.parent == search.parent.id())
            else {
                break;
            };
            prefix.push(search.found(entry, SEGMENT_LEN));
            search = Search {
                parent: own,
                start: search.start + SEGMENT_LEN,
                ids: rest,
            };
        }
        let others = tree.children(search.parent.id());
        prefix.extend(
            search
                .best(others, notes)
                .map(|(entry, n)| search.found(entry, n)),
        );
        lookup.if_enough(prefix)
    }

    /// Saves the state of a sequence, as far as the limit allows, and evicts others.
    pub(super) fn save(&self, export: &SequenceExport<'_>, root: Key) -> Result<(), Error> {
        let blame = |source| Error::Cache {
            path: self.path.clone(),
            source,
        };
        let listing = self.list().map_err(blame)?;
        let tree = Tree::new(&listing.entries);
        let mut parent = root;
        let mut bytes = 0;
        for (i, tokens) in export.tokens.chunks(SEGMENT_LEN).enumerate() {
            let segment = export.segment(i * SEGMENT_LEN, parent, tokens)?;
            bytes += segment.file_bytes();
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
            let name = FileName::new(&parent, &own, tokens);
            self.save_segment(export, &segment, &name, tree.children(parent.id()))?;
            parent = own;
        }
        self.evict().map_err(blame)
    }

    /// Saves a segment, unless it is saved already, alone or as the start of a longer one; `others`
    /// have the same parent.
    fn save_segment(
        &self,
        export: &SequenceExport<'_>,
        segment: &SegmentWriter<'_>,
        name: &FileName,
        others: &[&DirectoryEntry],
    ) -> Result<(), Error> {
        let path = self.path.join(name.to_string());
        let saved = if contains(&path, segment) {
            Some(path.as_path())
        } else {
            longer(others, segment)
        };
        if let Some(saved) = saved {
            atomic_file::touch(saved);
            return Ok(());
        }
        export.save(&path, segment)?;
        let is_shorter = |name: &FileName| {
            name.n_tokens < segment.tokens.len() && name.may_begin(segment.tokens)
        };
        let shorter = others.iter().filter(|e| is_shorter(&e.name));
        shorter.for_each(|e| remove_start(&e.path, export, segment));
        Ok(())
    }

    /// Evicts the least recently used segments until the directory is within its limit.
    fn evict(&self) -> io::Result<()> {
        let Listing {
            entries,
            unfinished,
        } = self.list()?;
        let unfinished = unfinished.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let mut bytes = unfinished + entries.iter().map(|e| e.bytes).sum::<u64>();
        let mut tree = Tree::new(&entries);
        let age = |e: &DirectoryEntry| Reverse((e.last_use, e.name.own));
        let last = entries.iter().filter(|e| tree.is_leaf(e.name.own));
        let mut ends: BinaryHeap<_> = last.map(age).collect();
        while bytes > self.limit
            && let Some(Reverse((_, own))) = ends.pop()
        {
            let Some(entry) = tree.get(own) else { continue };
            // A file that cannot be removed stays, and so do the segments in front of it.
            if removed(&entry.path).is_ok() {
                bytes -= entry.bytes;
                ends.extend(tree.remove(entry).map(age));
            }
        }
        Ok(())
    }

    /// Lists the prompts. Every leaf of the tree is the end of a prompt.
    pub(super) fn prompts(&self) -> io::Result<Vec<SavedPrompt>> {
        let entries = self.list()?.entries;
        let tree = Tree::new(&entries);
        let last = entries.iter().filter(|e| tree.is_leaf(e.name.own));
        Ok(last
            .filter_map(|e| prompt(e, &tree, entries.len()))
            .collect())
    }

    /// Removes the last segment of a prompt, and those in front of it that become leaves.
    pub(super) fn remove(&self, key: &str) -> io::Result<()> {
        let entries = self.list()?.entries;
        let mut tree = Tree::new(&entries);
        let mut next = ShortKey::parse(key).and_then(|id| tree.get(id));
        while let Some(entry) = next {
            removed(&entry.path)?;
            next = tree.remove(entry);
        }
        Ok(())
    }

    /// Removes all cache files, including unfinished ones.
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

impl<'a> Search<'a> {
    fn found(&self, entry: &DirectoryEntry, n: usize) -> SegmentPrefix {
        SegmentPrefix::of_name(&entry.path, self.parent, n)
    }

    /// Length of the common prefix of the text and a segment at this position.
    fn n_shared(&self, segment: &Segment<'_>) -> Result<usize, CacheFileError> {
        let is_here = (segment.parent, segment.start) == (self.parent, self.start);
        if is_here {
            Ok(segment.n_shared(self.ids))
        } else {
            Err(CacheFileError::Misplaced)
        }
    }

    /// The segment with the longest common prefix with the text, and its length. Of several the
    /// shortest, which was saved when the least of its sliding windows was freed.
    fn best<'e>(
        &self,
        here: &[&'e DirectoryEntry],
        notes: &mut Vec<FileWarning>,
    ) -> Option<(&'e DirectoryEntry, usize)> {
        let mut here = here.to_vec();
        here.sort_by_cached_key(|e| Reverse((e.name.may_begin(self.ids), e.last_use)));
        here.truncate(MAX_OPENED);
        let shared = here
            .into_iter()
            .filter_map(|entry| Some((entry, self.n_shared_of(entry, notes)?)));
        let shared = shared.filter(|&(_, n)| n > 0);
        shared.min_by_key(|(e, n)| (Reverse(*n), e.name.n_tokens, e.name.own))
    }

    /// Length of the common prefix of the text and a file. Removes a damaged file.
    fn n_shared_of(&self, entry: &DirectoryEntry, notes: &mut Vec<FileWarning>) -> Option<usize> {
        let file = SegmentFile::open_or_warn(&entry.path, notes)?;
        let n_shared = file.segment().and_then(|segment| self.n_shared(&segment));
        drop(file);
        n_shared
            .map_err(|error| discard(&entry.path, error, notes))
            .ok()
    }
}

/// Removes a damaged cache file, with a warning.
pub(super) fn discard(path: &Path, error: CacheFileError, notes: &mut Vec<FileWarning>) {
    notes.push(FileWarning {
        error: None,
        ..FileWarning::of(path, error)
    });
    // If that fails, the next save of its prompt overwrites it.
    let _ = fs::remove_file(path);
}

/// Finds another segment that contains all of `segment`.
fn longer<'e>(others: &[&'e DirectoryEntry], segment: &SegmentWriter<'_>) -> Option<&'e Path> {
    // Names of longer segments cannot match a `segment` with fewer tokens than HEAD covers.
    let head = |e: &DirectoryEntry| e.name.may_begin(segment.tokens);
    let mut longer: Vec<_> = others
        .iter()
        .filter(|e| e.name.n_tokens >= segment.tokens.len())
        .collect();
    longer.sort_by_cached_key(|e| Reverse((head(e), e.last_use)));
    longer
        .into_iter()
        .take(MAX_OPENED)
        .map(|e| e.path.as_path())
        .find(|path| contains(path, segment))
}

/// Whether the file at `path` contains all of `segment`. The checksum is not verified: a damaged
/// file is removed when its prompt is restored.
fn contains(path: &Path, segment: &SegmentWriter<'_>) -> bool {
    SegmentFile::open(path).is_ok_and(|file| file.segment().is_ok_and(|s| segment.is_in(&s)))
}

/// Removes the segment at `path` if the segment that was just saved contains it.
fn remove_start(path: &Path, export: &SequenceExport<'_>, saved: &SegmentWriter<'_>) {
    let is_start = |segment: &Segment<'_>| {
        let is_same = (segment.parent, segment.start) == (saved.parent, saved.start);
        let begins = is_same && segment.n_shared(saved.tokens) == segment.n_tokens();
        begins && export.covers(segment).unwrap_or(false)
    };
    // The file is unmapped before it is removed, as Windows requires.
    if SegmentFile::open(path).is_ok_and(|file| file.segment().is_ok_and(|s| is_start(&s))) {
        // If that fails, it stays as a prompt of its own.
        let _ = fs::remove_file(path);
    }
}

/// Removes a file; no error if it is gone.
fn removed(path: &Path) -> io::Result<()> {
    fs::remove_file(path).or_else(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            Ok(())
        } else {
            Err(error)
        }
    })
}

/// The prompt that ends with a segment; `None` if the file is damaged.
fn prompt(last: &DirectoryEntry, tree: &Tree<'_>, n_entries: usize) -> Option<SavedPrompt> {
    let saved = SegmentFile::open(&last.path).ok()?;
    let segment = saved.segment().ok()?;
    let n_before = Some(segment.start / SEGMENT_LEN).filter(|&n| n < n_entries)?;
    let mut bytes = last.bytes;
    let mut entry = last;
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
