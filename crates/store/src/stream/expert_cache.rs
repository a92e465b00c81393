//! The experts of a layer: the most recently used ones stay in memory, the others are read when a
//! token is routed to them.
//!
//! The router chooses the experts of a token only when its layer runs, so nothing is read ahead.
//! Each token overwrites a cache of no more entries than a token uses experts; only further entries
//! save reads.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{
    chunk::Chunk,
    readers::{Priority, Readers},
};
use crate::{Error, RowTable, os::Slot};

/// A cache of the experts of one layer; evicts the least recently used ones.
pub(crate) struct ExpertCache {
    tables: Vec<RowTable>,
    entries: Mutex<Vec<CacheEntry>>,
    released: Condvar,
}

/// One expert in memory: the slices of its matrices, and their bytes.
pub(crate) struct Expert {
    chunk: Chunk,
    slot: Slot,
}

struct CacheEntry {
    id: Option<u32>,
    /// The number of the last request for it, counted per layer.
    used: u64,
    /// Shared while a step uses it. `None` only while its slot is being read into or is lent.
    expert: Option<Arc<Expert>>,
}

impl Expert {
    /// The bytes of one of its matrices.
    pub(crate) fn tensor(&self, i: usize) -> &[u8] {
        self.chunk.slices[i].bytes(&self.slot)
    }
}

impl ExpertCache {
    /// A cache with these slots, each large enough for any expert.
    pub(crate) fn new(tables: Vec<RowTable>, slots: Vec<Slot>) -> Self {
        let entry = |slot| CacheEntry {
            id: None,
            used: 0,
            expert: Some(Expert::empty(slot)),
        };
        Self {
            tables,
            entries: Mutex::new(slots.into_iter().map(entry).collect()),
            released: Condvar::new(),
        }
    }

    /// The tables of the experts' matrices.
    pub(crate) fn tables(&self) -> &[RowTable] {
        &self.tables
    }

    /// How many experts it can hold.
    pub(crate) fn n_entries(&self) -> usize {
        self.lock().len()
    }

    /// Appends the experts `ids`, all different, to `out`; reads the missing ones. The caller drops
    /// them and calls [`released`](Self::released) before it acquires others.
    ///
    /// # Errors
    /// The error of a read; [`Error::TooManyExperts`] if the cache has fewer entries than `ids`.
    pub(crate) fn acquire(
        &self,
        readers: &Readers,
        ids: &[u32],
        out: &mut Vec<Arc<Expert>>,
    ) -> Result<(), Error> {
        let mut entries = self.lock();
        if ids.len() > entries.len() {
            return Err(Error::TooManyExperts {
                asked: ids.len(),
                places: entries.len(),
            });
        }
        // Other steps hold experts, but drop them without acquiring more.
        while n_evictable(&entries, ids) < missing(&entries, ids).len() {
            entries = self
                .released
                .wait(entries)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let now = entries.iter().map(|e| e.used).max().unwrap_or(0) + 1;
        entries
            .iter_mut()
            .filter(|e| e.is_one_of(ids))
            .for_each(|e| e.used = now);
        self.read_missing(readers, &mut entries, ids, now)?;
        let expert = |id: &u32| {
            entries
                .iter()
                .find(|e| e.id == Some(*id))
                .and_then(|e| e.expert.clone())
        };
        out.extend(ids.iter().filter_map(expert));
        Ok(())
    }

    /// Reads the missing experts, all at once, into the least recently used entries.
    fn read_missing(
        &self,
        readers: &Readers,
        entries: &mut [CacheEntry],
        ids: &[u32],
        now: u64,
    ) -> Result<(), Error> {
        let mut in_flight = Vec::new();
        for id in missing(entries, ids) {
            let idle =
                (0..entries.len()).filter(|&i| entries[i].is_idle() && entries[i].used < now);
            let Some(i) = idle.min_by_key(|&i| entries[i].used) else {
                continue;
            };
            let Some(evicted) = entries[i].expert.take().and_then(Arc::into_inner) else {
                continue;
            };
            let chunk = self.chunk(id);
            entries[i].id = Some(id);
            entries[i].used = now;
            let ticket = readers.request(&chunk.slices, evicted.slot, Priority::Urgent);
            in_flight.push((i, ticket, chunk));
        }
        let mut outcome = Ok(());
        for (i, ticket, chunk) in in_flight {
            let (slot, result) = readers.wait(ticket);
            entries[i].expert = Some(Arc::new(Expert { chunk, slot }));
            if let Err(error) = result {
                entries[i].id = None;
                outcome = Err(error);
            }
        }
        outcome
    }

    /// The chunk of one expert.
    pub(crate) fn chunk(&self, id: u32) -> Chunk {
        Chunk::expert(&self.tables, id)
    }

    /// Lends the slots of empty entries, for measuring.
    pub(crate) fn lend(&self) -> Vec<Slot> {
        let mut entries = self.lock();
        let empty = entries.iter_mut().filter(|e| e.id.is_none());
        empty
            .filter_map(|e| e.expert.take().and_then(Arc::into_inner))
            .map(|expert| expert.slot)
            .collect()
    }

    /// Takes lent slots back.
    pub(crate) fn take_back(&self, slots: Vec<Slot>) {
        let mut entries = self.lock();
        for (entry, slot) in entries.iter_mut().filter(|e| e.expert.is_none()).zip(slots) {
            entry.expert = Some(Expert::empty(slot));
        }
    }

    /// Wakes the steps that wait for entries, after experts were dropped.
    pub(crate) fn released(&self) {
        drop(self.lock());
        self.released.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CacheEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The experts of `ids` that no entry holds.
fn missing(entries: &[CacheEntry], ids: &[u32]) -> Vec<u32> {
    let is_held = |id: &u32| entries.iter().any(|e| e.id == Some(*id));
    ids.iter().copied().filter(|id| !is_held(id)).collect()
}

/// How many entries can be overwritten to hold the missing experts of `ids`.
fn n_evictable(entries: &[CacheEntry], ids: &[u32]) -> usize {
    let is_evictable = |e: &&CacheEntry| e.is_idle() && !e.is_one_of(ids);
    entries.iter().filter(is_evictable).count()
}

impl Expert {
    /// A slot that holds no expert.
    fn empty(slot: Slot) -> Arc<Self> {
        let chunk = Chunk {
            slices: Arc::new([]),
            len: 0,
        };
        Arc::new(Self { chunk, slot })
    }
}

impl CacheEntry {
    fn is_idle(&self) -> bool {
        self.expert
            .as_ref()
            .is_some_and(|expert| Arc::strong_count(expert) == 1)
    }

    fn is_one_of(&self, ids: &[u32]) -> bool {
        self.id.is_some_and(|id| ids.contains(&id))
    }
}
