//! The KV journal: states of sequences on the coordinator's disk, layer by layer, so that machines
//! that take over layers load them, and only positions behind the journal are computed again.
//!
//! Knows no executor and no link. The one idea: a *segment* is the state of some positions in all
//! layers, written when its last layer has come; forks share segments, and a change of a text drops
//! those behind it. What the journal lacks is computed again, so a journal may lose anything.

mod file;
mod pieces;

use std::{collections::BTreeMap, ops::Range, path::PathBuf, sync::Arc};

pub(crate) use file::MAX_QUEUED;
use file::{Extent, JournalFile};
pub(crate) use pieces::{Joining, MAX_JOINING, SavedState, join, layers, split};

use crate::wire::{Op, Piece};

/// Segments that may be on their way at once.
const MAX_PENDING: usize = 16;
/// Positions whose states are on their way at once: of segments that are not smaller than a block.
pub(crate) const N_COPIED: usize = MAX_PENDING * JournalOptions::SEGMENT_LEN;

/// Where a journal is, and how large it may become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// Directory of its file, which has no name where the system allows that.
    pub dir: PathBuf,
    /// Bytes at most; what does not fit is not written.
    pub budget_bytes: u64,
    /// Positions that are saved together: as many behind the journal are computed again at most,
    /// besides those on their way.
    pub segment_len: usize,
    /// Whether it is written while texts are computed. Otherwise it is written only before the
    /// machines of a ring change because a caller wants it, and emptied behind that.
    pub is_continuous: bool,
}

impl JournalOptions {
    /// A KV block.
    pub const SEGMENT_LEN: usize = 32;
}

/// The state of some positions in all layers.
#[derive(Debug)]
struct Segment {
    /// Of each layer.
    layers: Vec<Extent>,
}

/// The first `n` positions of a segment, which hold for a sequence.
#[derive(Clone, Debug)]
struct Kept {
    segment: Arc<Segment>,
    first: usize,
    n: usize,
}

/// A segment whose layers are on their way.
#[derive(Debug)]
struct Pending {
    seq: u32,
    first: usize,
    n: usize,
    layers: Vec<Option<Extent>>,
}

/// States of sequences on disk.
#[derive(Debug)]
pub(crate) struct Journal {
    file: JournalFile,
    is_continuous: bool,
    segment_len: usize,
    n_layers: usize,
    texts: BTreeMap<u32, Vec<Kept>>,
    pending: BTreeMap<u64, Pending>,
    /// Names of segments are never used twice.
    next_id: u64,
    /// States that come in pieces, by segment and stage.
    joining: Joining,
}

impl Journal {
    /// An empty journal of a model with so many layers.
    pub(crate) fn new(options: &JournalOptions, n_layers: usize) -> Self {
        Self {
            file: JournalFile::new(options.dir.clone(), options.budget_bytes),
            is_continuous: options.is_continuous,
            segment_len: options.segment_len.max(1),
            n_layers,
            texts: BTreeMap::new(),
            pending: BTreeMap::new(),
            next_id: 1,
            joining: Joining::default(),
        }
    }

    /// Whether it is written while texts are computed.
    pub(crate) fn is_continuous(&self) -> bool {
        self.is_continuous
    }

    /// Why the disk has failed, once.
    pub(crate) fn take_failure(&self) -> Option<String> {
        self.file.take_failure()
    }

    /// Segments on their way.
    pub(crate) fn n_pending(&self) -> usize {
        self.pending.len()
    }

    /// Whether another segment may be on its way, and there is room for more.
    pub(crate) fn has_room(&self) -> bool {
        self.pending.len() < MAX_PENDING && !self.file.is_full()
    }

    /// Positions of a sequence that are kept or on their way.
    pub(crate) fn end(&self, seq: u32) -> usize {
        let pending = self.pending.values().filter(|p| p.seq == seq);
        let pending = pending.map(|p| p.first + p.n).max();
        pending.unwrap_or_else(|| self.kept_end(seq))
    }

    /// Positions of a sequence that are kept.
    pub(crate) fn kept_end(&self, seq: u32) -> usize {
        let last = self.texts.get(&seq).and_then(|kept| kept.last());
        last.map_or(0, |kept| kept.first + kept.n)
    }

    /// The operation that saves the next positions of a sequence, up to `len`.
    pub(crate) fn save(&mut self, seq: u32, len: usize) -> Op {
        let first = self.end(seq);
        let n = len.saturating_sub(first).min(self.segment_len);
        let id = self.next_id();
        let pending = Pending {
            seq,
            first,
            n,
            layers: vec![None; self.n_layers],
        };
        self.pending.insert(id, pending);
        Op::Export {
            seq,
            first: first as u32,
            n: n as u32,
            id,
        }
    }

    /// Positions that a continuous journal saves at once.
    pub(crate) fn segment_len(&self) -> usize {
        self.segment_len
    }

    /// A name for a segment that is saved or loaded.
    pub(crate) fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Takes a piece of a state that a stage has saved. Pieces of segments that nothing waits for
    /// are dropped.
    pub(crate) fn take_piece(&mut self, stage: u16, piece: &Piece, data: &[u8]) {
        if !self.pending.contains_key(&piece.id) {
            self.joining.forget(stage, piece.id);
            return;
        }
        match self.joining.take(stage, piece, data) {
            Ok(Some(bytes)) => self.take(piece.id, &bytes),
            Ok(None) => {}
            Err(_) => self.cancel(piece.id),
        }
    }

    /// Takes a state that was saved by a stage or here.
    pub(crate) fn take(&mut self, id: u64, bytes: &[u8]) {
        if !self.pending.contains_key(&id) {
            return;
        }
        let Some(layers) = pieces::layers(bytes) else {
            self.cancel(id);
            return;
        };
        for (l, state) in layers {
            // A disk that fails or is slow ends the journal, never the text.
            let extent = self.file.write(state);
            let Some(pending) = self.pending.get_mut(&id) else {
                return;
            };
            let slot = pending.layers.get_mut(l).filter(|slot| slot.is_none());
            match (slot, extent) {
                (Some(slot), Some(extent)) => *slot = Some(extent),
                (_, extent) => {
                    self.file.free(extent);
                    self.cancel(id);
                    return;
                }
            }
        }
        self.finish(id);
    }

    /// Keeps a segment whose layers are all there.
    fn finish(&mut self, id: u64) {
        let is_whole = |p: &Pending| p.layers.iter().all(Option::is_some);
        if !self.pending.get(&id).is_some_and(is_whole) {
            return;
        }
        let Some(pending) = self.pending.remove(&id) else {
            return;
        };
        let Pending { seq, first, n, .. } = pending;
        let layers: Vec<Extent> = pending.layers.into_iter().flatten().collect();
        if self.kept_end(seq) != first {
            self.file.free(layers);
            return;
        }
        let segment = Arc::new(Segment { layers });
        let kept = Kept { segment, first, n };
        self.texts.entry(seq).or_default().push(kept);
    }

    /// Gives up a segment that is on its way.
    fn cancel(&mut self, id: u64) {
        if let Some(pending) = self.pending.remove(&id) {
            self.file.free(pending.layers.into_iter().flatten());
        }
    }

    /// Gives up all segments that are on their way.
    pub(crate) fn cancel_all(&mut self) {
        let ids: Vec<u64> = self.pending.keys().copied().collect();
        ids.into_iter().for_each(|id| self.cancel(id));
        self.joining = Joining::default();
    }

    /// Copies the segments of a sequence to another one.
    pub(crate) fn fork(&mut self, from: u32, to: u32) {
        self.truncate(to, 0);
        if let Some(kept) = self.texts.get(&from).cloned() {
            self.texts.insert(to, kept);
        }
    }

    /// Drops all positions of a sequence but the first `len`.
    pub(crate) fn truncate(&mut self, seq: u32, len: usize) {
        let is_behind = |p: &Pending| p.seq == seq && p.first + p.n > len;
        let pending = self.pending.iter().filter(|(_, p)| is_behind(p));
        let ids: Vec<u64> = pending.map(|(&id, _)| id).collect();
        ids.into_iter().for_each(|id| self.cancel(id));
        let Some(kept) = self.texts.get_mut(&seq) else {
            return;
        };
        let n = kept.partition_point(|kept| kept.first < len);
        let dropped = kept.split_off(n);
        if let Some(last) = kept.last_mut() {
            last.n = last.n.min(len - last.first);
        }
        if kept.is_empty() {
            self.texts.remove(&seq);
        }
        for kept in dropped {
            self.free(kept);
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.cancel_all();
        let seqs: Vec<u32> = self.texts.keys().copied().collect();
        seqs.into_iter().for_each(|seq| self.truncate(seq, 0));
        self.file.clear();
    }

    fn free(&mut self, kept: Kept) {
        if let Ok(segment) = Arc::try_unwrap(kept.segment) {
            self.file.free(segment.layers);
            self.file.has_room();
        }
    }

    /// The first position from `at` on at which a segment begins.
    pub(crate) fn next_start(&self, seq: u32, at: usize) -> Option<usize> {
        let mut kept = self.texts.get(&seq)?.iter();
        kept.find(|kept| kept.first >= at).map(|kept| kept.first)
    }

    /// Reads the segment that begins at `at`, of each layer; positions of a sequence that it has.
    /// A segment that cannot be read, or is not as it was written, is dropped with all behind it.
    pub(crate) fn read(&mut self, seq: u32, at: usize) -> Option<LayerStates> {
        let mut kept = self.texts.get(&seq)?.iter();
        let kept = kept.find(|kept| kept.first == at)?.clone();
        let layers = kept.segment.layers.iter();
        let layers = layers.map(|extent| self.file.read(extent));
        let layers = layers.collect::<Option<Vec<_>>>();
        if layers.is_none() {
            drop(kept);
            self.truncate(seq, at);
            return None;
        }
        Some(LayerStates {
            n: kept.n,
            layers: layers?,
        })
    }
}

/// A segment that was read.
#[derive(Debug)]
pub(crate) struct LayerStates {
    /// Positions that hold.
    pub(crate) n: usize,
    layers: Vec<Vec<u8>>,
}

impl LayerStates {
    /// The bytes of a state of these layers; `None`: the segment lacks some.
    pub(crate) fn of(&self, layers: Range<usize>) -> Option<Vec<u8>> {
        let first = layers.start;
        let states = self.layers.get(layers)?.iter().map(Vec::as_slice);
        Some(pieces::join((first..).zip(states)))
    }
}

#[cfg(test)]
mod tests;
