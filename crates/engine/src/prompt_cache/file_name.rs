//! File names of a cache directory: `PARENT-OWN-N-HEAD.atta`.
//!
//! PARENT is the key of the text in front of a segment, OWN the key of the text including it, N its
//! number of tokens, and HEAD a short hash of the first tokens. So the tree of segments, and the
//! candidates for a text, are known from the names alone.

use std::{
    collections::HashMap,
    fmt, fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{Key, atomic_file};

const ENDING: &str = ".atta";

/// Number of tokens in the hash HEAD; all tokens of a shorter segment.
const HEAD_LEN: usize = 16;

/// The first half of a key, which is enough for file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ShortKey(u128);

impl Key {
    pub(super) fn id(&self) -> ShortKey {
        ShortKey(u128::from_be_bytes(
            self.0[..16].try_into().expect("half of a key"),
        ))
    }
}

impl fmt::Display for ShortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl ShortKey {
    /// Parses exactly the form that `Display` writes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        u128::from_str_radix(text, 16)
            .ok()
            .map(Self)
            .filter(|id| id.to_string() == text)
    }
}

/// The file name of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileName {
    pub(super) parent: ShortKey,
    pub(super) own: ShortKey,
    pub(super) n_tokens: usize,
    head: u32,
}

impl FileName {
    /// The name of a segment of these tokens.
    pub(super) fn new(parent: &Key, own: &Key, tokens: &[u32]) -> Self {
        Self {
            parent: parent.id(),
            own: own.id(),
            n_tokens: tokens.len(),
            head: head(tokens),
        }
    }

    /// Parses exactly the form that `Display` writes.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_suffix(ENDING)?.split('-');
        let parent = ShortKey::parse(parts.next()?)?;
        let own = ShortKey::parse(parts.next()?)?;
        let n_tokens = parts.next()?.parse().ok()?;
        let head = u32::from_str_radix(parts.next()?, 16).ok()?;
        Some(Self {
            parent,
            own,
            n_tokens,
            head,
        })
        .filter(|name| name.to_string() == text)
    }

    /// Whether a text may begin with the segment, by the hash of the first tokens.
    pub(super) fn may_begin(&self, ids: &[u32]) -> bool {
        ids.get(..self.n_tokens.min(HEAD_LEN))
            .is_some_and(|ids| head(ids) == self.head)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            parent,
            own,
            n_tokens,
            head,
        } = self;
        write!(f, "{parent}-{own}-{n_tokens}-{head:08x}{ENDING}")
    }
}

fn head(tokens: &[u32]) -> u32 {
    let mut hasher = blake3::Hasher::new();
    for id in &tokens[..tokens.len().min(HEAD_LEN)] {
        hasher.update(&id.to_le_bytes());
    }
    u32::from_be_bytes(
        hasher.finalize().as_bytes()[..4]
            .try_into()
            .expect("four bytes"),
    )
}

/// A file of the directory.
#[derive(Clone, Debug)]
pub(super) struct DirectoryEntry {
    pub(super) name: FileName,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) last_use: Option<SystemTime>,
}

impl DirectoryEntry {
    fn new(name: FileName, path: PathBuf, meta: &fs::Metadata) -> Self {
        Self {
            name,
            path,
            bytes: meta.len(),
            last_use: meta.modified().ok(),
        }
    }
}

/// The cache files of a directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) entries: Vec<DirectoryEntry>,
    /// Unfinished files of this and other processes, with their bytes.
    pub(super) unfinished: Vec<(PathBuf, u64)>,
}

impl Listing {
    /// Lists the files of a directory. Removes abandoned ones.
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let mut listing = Self::default();
        for file in fs::read_dir(folder)? {
            let file = file?;
            let Ok(text) = file.file_name().into_string() else {
                continue;
            };
            let unfinished = atomic_file::unfinished(&text).and_then(FileName::parse);
            if unfinished.is_some() {
                atomic_file::remove_abandoned(&file.path());
            }
            // A file without metadata was just removed by another process.
            match (FileName::parse(&text), file.metadata()) {
                (Some(name), Ok(meta)) => {
                    let entry = DirectoryEntry::new(name, file.path(), &meta);
                    listing.entries.push(entry);
                }
                (None, Ok(meta)) if unfinished.is_some() => {
                    listing.unfinished.push((file.path(), meta.len()))
                }
                _ => {}
            }
        }
        Ok(listing)
    }
}

/// The tree of segments: the parent of a segment is the one in front of it.
pub(super) struct Tree<'a> {
    by_own: HashMap<ShortKey, &'a DirectoryEntry>,
    children: HashMap<ShortKey, Vec<&'a DirectoryEntry>>,
    /// Number of `children` that are not removed.
    n_children: HashMap<ShortKey, usize>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(entries: &'a [DirectoryEntry]) -> Self {
        let mut children: HashMap<ShortKey, Vec<&DirectoryEntry>> = HashMap::new();
        entries
            .iter()
            .for_each(|entry| children.entry(entry.name.parent).or_default().push(entry));
        let n_children = children
            .iter()
            .map(|(&id, children)| (id, children.len()))
            .collect();
        Self {
            by_own: entries
                .iter()
                .map(|entry| (entry.name.own, entry))
                .collect(),
            children,
            n_children,
        }
    }

    pub(super) fn get(&self, own: ShortKey) -> Option<&'a DirectoryEntry> {
        self.by_own.get(&own).copied()
    }

    /// The segments behind a segment.
    pub(super) fn children(&self, own: ShortKey) -> &[&'a DirectoryEntry] {
        self.children.get(&own).map_or(&[], Vec::as_slice)
    }

    /// Whether no segment is behind it.
    pub(super) fn is_leaf(&self, own: ShortKey) -> bool {
        self.n_children.get(&own).is_none_or(|&n| n == 0)
    }

    /// Removes a segment from the tree, and returns its parent if that is a leaf now.
    pub(super) fn remove(&mut self, entry: &DirectoryEntry) -> Option<&'a DirectoryEntry> {
        self.by_own.remove(&entry.name.own);
        let n = self.n_children.get_mut(&entry.name.parent)?;
        *n = n.saturating_sub(1);
        if *n == 0 {
            self.get(entry.name.parent)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written_and_no_other_is() {
        let name = FileName::new(&Key([1; 32]), &Key([2; 32]), &[5, 6, 7]);
        let text = name.to_string();
        assert_eq!(FileName::parse(&text), Some(name));
        for other in [
            text.to_uppercase(),
            text.replace("-3-", "-03-"),
            text.replace(".atta", "-1.atta"),
        ] {
            assert_eq!(FileName::parse(&other), None, "{other}");
        }
        for other in [
            "",
            "-",
            "notes.atta",
            "0-1-2-3.atta",
            &text[1..],
            &text[..text.len() - 5],
        ] {
            assert_eq!(FileName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_name_tells_texts_by_their_first_tokens() {
        let ids: Vec<u32> = (0..40).collect();
        let name = |n: usize| FileName::new(&Key([1; 32]), &Key([2; 32]), &ids[..n]);
        assert!(name(40).may_begin(&ids[..20]) && name(3).may_begin(&ids));
        assert!(!name(40).may_begin(&ids[1..]) && !name(3).may_begin(&ids[..2]));
    }
}
