//! The files of a directory, by their names: `PARENT-OWN-N-HEAD.atta`.
//!
//! PARENT is the key of what stands in front of a segment, OWN that of the text with it, N how many
//! tokens it has, and HEAD a short hash of the first of them. So names alone say which segments
//! stand on which, and which ones a text may go on with.

use std::{
    collections::HashMap,
    fmt, fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{Key, whole};

const ENDING: &str = ".atta";

/// Tokens of a head; of a segment that has fewer, all of them.
const HEAD_LEN: usize = 16;

/// The first half of a key, which is all that names need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(u128);

impl Key {
    pub(super) fn id(&self) -> Id {
        Id(u128::from_be_bytes(
            self.0[..16].try_into().expect("half of a key"),
        ))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl Id {
    /// Exactly as it is written.
    pub(super) fn parse(text: &str) -> Option<Self> {
        u128::from_str_radix(text, 16)
            .ok()
            .map(Self)
            .filter(|id| id.to_string() == text)
    }
}

/// What the name of a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) parent: Id,
    pub(super) own: Id,
    pub(super) n_tokens: usize,
    head: u32,
}

impl Name {
    /// Of a segment of these tokens.
    pub(super) fn new(parent: &Key, own: &Key, tokens: &[u32]) -> Self {
        Self {
            parent: parent.id(),
            own: own.id(),
            n_tokens: tokens.len(),
            head: head(tokens),
        }
    }

    /// Exactly as it is written.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_suffix(ENDING)?.split('-');
        let (parent, own) = (Id::parse(parts.next()?)?, Id::parse(parts.next()?)?);
        let (n_tokens, head) = (
            parts.next()?.parse().ok()?,
            u32::from_str_radix(parts.next()?, 16).ok()?,
        );
        Some(Self {
            parent,
            own,
            n_tokens,
            head,
        })
        .filter(|name| name.to_string() == text)
    }

    /// Whether a text begins as the segment does, as far as its name says.
    pub(super) fn may_begin(&self, ids: &[u32]) -> bool {
        ids.get(..self.n_tokens.min(HEAD_LEN))
            .is_some_and(|ids| head(ids) == self.head)
    }
}

impl fmt::Display for Name {
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
pub(super) struct Entry {
    pub(super) name: Name,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) last_use: Option<SystemTime>,
}

/// All files of a directory that are ours.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) entries: Vec<Entry>,
    /// Files that somebody is writing, and their bytes.
    pub(super) unfinished: Vec<(PathBuf, u64)>,
}

impl Listing {
    /// Reads names. What was abandoned is removed on the way.
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let mut listing = Self::default();
        for file in fs::read_dir(folder)? {
            let file = file?;
            let Ok(text) = file.file_name().into_string() else {
                continue;
            };
            let unfinished = whole::unfinished(&text).and_then(Name::parse);
            if unfinished.is_some() {
                whole::remove_abandoned(&file.path());
            }
            // One that somebody else has just removed is not there.
            match (Name::parse(&text), file.metadata()) {
                (Some(name), Ok(meta)) => {
                    let last_use = meta.modified().ok();
                    listing.entries.push(Entry {
                        name,
                        path: file.path(),
                        bytes: meta.len(),
                        last_use,
                    });
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

/// Which segment stands on which.
pub(super) struct Tree<'a> {
    by_own: HashMap<Id, &'a Entry>,
    children: HashMap<Id, Vec<&'a Entry>>,
    /// Those of `children` that were not removed.
    n_children: HashMap<Id, usize>,
}

impl<'a> Tree<'a> {
    pub(super) fn new(entries: &'a [Entry]) -> Self {
        let mut children: HashMap<Id, Vec<&Entry>> = HashMap::new();
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

    pub(super) fn get(&self, own: Id) -> Option<&'a Entry> {
        self.by_own.get(&own).copied()
    }

    /// What stands on a segment.
    pub(super) fn children(&self, own: Id) -> &[&'a Entry] {
        self.children.get(&own).map_or(&[], Vec::as_slice)
    }

    /// Whether nothing stands on it.
    pub(super) fn is_last(&self, own: Id) -> bool {
        self.n_children.get(&own).is_none_or(|&n| n == 0)
    }

    /// Takes out a segment that was removed, and returns the one that it stood on if nothing else
    /// does.
    pub(super) fn take_out(&mut self, entry: &Entry) -> Option<&'a Entry> {
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
        let name = Name::new(&Key([1; 32]), &Key([2; 32]), &[5, 6, 7]);
        let text = name.to_string();
        assert_eq!(Name::parse(&text), Some(name));
        for other in [
            text.to_uppercase(),
            text.replace("-3-", "-03-"),
            text.replace(".atta", "-1.atta"),
        ] {
            assert_eq!(Name::parse(&other), None, "{other}");
        }
        for other in [
            "",
            "-",
            "notes.atta",
            "0-1-2-3.atta",
            &text[1..],
            &text[..text.len() - 5],
        ] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_name_tells_texts_by_their_first_tokens() {
        let ids: Vec<u32> = (0..40).collect();
        let name = |n: usize| Name::new(&Key([1; 32]), &Key([2; 32]), &ids[..n]);
        assert!(name(40).may_begin(&ids[..20]) && name(3).may_begin(&ids));
        assert!(!name(40).may_begin(&ids[1..]) && !name(3).may_begin(&ids[..2]));
    }
}
