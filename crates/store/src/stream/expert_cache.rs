//! The experts of a layer: those of most value stay in memory, the others are read when tokens are
//! routed to them.
//!
//! The router chooses the experts of a token only when its layer runs. Then all that are missing
//! are requested at once, and a step takes them in the order in which they arrive. A prompt uses
//! nearly all experts of a layer, so those of its next layer are read ahead, into empty entries
//! only (`expert_ahead.rs`). The entry of least value is evicted first (`expert_usage.rs`), never
//! one that the step still wants; a prompt's rare experts pass through a few entries.

use std::{
    mem::{replace, take},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use super::{
    chunk::Chunk,
    expert_usage::LayerUsage,
    readers::{MAX_READERS, Priority, ReadTicket, Readers},
};
use crate::{Amount, Error, RowTable, os::Slot};

/// A cache of the experts of one layer.
pub(crate) struct ExpertCache {
    tables: Vec<RowTable>,
    state: Mutex<CacheState>,
    released: Condvar,
}

struct CacheState {
    entries: Vec<CacheEntry>,
    usage: LayerUsage,
    /// By expert: whether the step at hand wants it.
    is_wanted: Vec<bool>,
}

/// One expert in memory: the slices of its matrices, and their bytes.
pub(crate) struct Expert {
    chunk: Chunk,
    slot: Slot,
}

struct CacheEntry {
    id: Option<u32>,
    content: Content,
    /// The size of its slot.
    n_bytes: usize,
}

enum Content {
    /// The expert, or a slot with none if the entry has no id; shared while a step uses it.
    Held(Arc<Expert>),
    /// A reader has the slot.
    Reading(ReadTicket, Chunk),
    /// The slot is elsewhere.
    Lent,
}

/// All of the wanted experts at once.
pub(crate) const ALL: Amount = Amount {
    least: usize::MAX,
    most: usize::MAX,
};

impl Expert {
    /// The bytes of one of its matrices.
    pub(crate) fn tensor(&self, i: usize) -> &[u8] {
        self.chunk.slices[i].bytes(&self.slot)
    }

    /// A slot that holds no expert.
    fn empty(slot: Slot) -> Arc<Self> {
        let chunk = Chunk {
            slices: Arc::new([]),
            len: 0,
        };
        Arc::new(Self { chunk, slot })
    }
}

impl ExpertCache {
    /// A cache with these slots, each large enough for any expert.
    pub(crate) fn new(tables: Vec<RowTable>, slots: Vec<Slot>) -> Self {
        let n_experts = super::n_experts(&tables);
        Self {
            tables,
            state: Mutex::new(CacheState {
                entries: slots.into_iter().map(CacheEntry::empty).collect(),
                usage: LayerUsage::new(n_experts),
                is_wanted: vec![false; n_experts],
            }),
            released: Condvar::new(),
        }
    }

    /// The tables of the experts' matrices.
    pub(crate) fn tables(&self) -> &[RowTable] {
        &self.tables
    }

    /// How many experts it can hold.
    pub(crate) fn n_entries(&self) -> usize {
        self.lock().entries.len()
    }

    /// Counts the uses of a step of `n_rows` tokens: expert `ids[i]` by `uses[i]` of them. Returns
    /// how many of the experts are neither in memory nor being read.
    pub(crate) fn count(&self, ids: &[u32], uses: &[u32], n_rows: usize) -> usize {
        let mut state = self.lock();
        state.usage.count(ids, uses, n_rows);
        ids.iter().filter(|id| !state.has(**id)).count()
    }

    /// Requests the missing ones of the experts that a step wants, as many as there are entries
    /// for.
    pub(crate) fn request(&self, readers: &Readers, wanted: &[u32]) {
        self.lock().request(readers, &self.tables, wanted);
    }

    /// Requests experts that a step may want, while there are empty entries.
    pub(crate) fn read_ahead(
        &self,
        readers: &Readers,
        ids: impl Iterator<Item = u32>,
        priority: Priority,
    ) {
        let mut state = self.lock();
        for id in ids {
            let Some(i) = state.empty_entry() else { break };
            if !state.has(id) {
                state.entries[i].read(readers, id, self.chunk(id), priority);
            }
        }
    }

    /// Appends the first of the experts `wanted`, all different, that are in memory to `out`, and
    /// moves their ids to the front; waits until they are enough. The others are being read, as far
    /// as there are entries. Returns the number of those appended. The caller drops them and calls
    /// [`released`](Self::released) before it takes others.
    ///
    /// # Errors
    /// The error of a read; [`Error::TooManyExperts`] if the cache has fewer entries than are to be
    /// taken at once.
    pub(crate) fn take(
        &self,
        readers: &Readers,
        wanted: &mut [u32],
        amount: Amount,
        out: &mut Vec<Arc<Expert>>,
    ) -> Result<usize, Error> {
        let mut state = self.lock();
        let amount = within(amount, wanted.len(), state.entries.len())?;
        loop {
            state.request(readers, &self.tables, wanted);
            state.settle(readers)?;
            let n = state.hold(wanted, amount, out);
            if n >= amount.least {
                return Ok(n);
            }
            if !state.wait_for_reads(readers) {
                // Other steps hold the entries; they drop them without taking more.
                state = self
                    .released
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// The chunk of one expert.
    pub(crate) fn chunk(&self, id: u32) -> Chunk {
        Chunk::expert(&self.tables, id)
    }

    /// Lends the slots of empty entries, for measuring.
    pub(crate) fn lend(&self) -> Vec<Slot> {
        let mut state = self.lock();
        let empty = state.entries.iter_mut().filter(|e| e.id.is_none());
        empty.filter_map(CacheEntry::take_slot).collect()
    }

    /// Takes lent slots back.
    pub(crate) fn take_back(&self, slots: Vec<Slot>) {
        let mut state = self.lock();
        let lent = state.entries.iter_mut().filter(|e| e.is_lent());
        lent.zip(slots)
            .for_each(|(entry, slot)| entry.content = Content::Held(Expert::empty(slot)));
    }

    /// Adds empty entries.
    pub(crate) fn attach(&self, slots: Vec<Slot>) {
        let entries = slots.into_iter().map(CacheEntry::empty);
        self.lock().entries.extend(entries);
    }

    /// Removes up to `n` entries whose slots have `n_bytes`, those of least value first, and
    /// returns their slots.
    pub(crate) fn detach(&self, readers: &Readers, n: usize, n_bytes: usize) -> Vec<Slot> {
        let mut state = self.lock();
        let mut slots = Vec::with_capacity(n);
        while slots.len() < n
            && let Some((i, slot)) = state.evict(readers, f32::INFINITY, |e| e.n_bytes == n_bytes)
        {
            state.entries.swap_remove(i);
            slots.push(slot);
        }
        slots
    }

    /// The decayed number of uses of each expert.
    pub(crate) fn uses(&self) -> Vec<f32> {
        self.lock().usage.uses()
    }

    /// Continues from the uses of an earlier run. Returns the experts that were used, most used
    /// first.
    pub(crate) fn restore(&self, uses: &[f32]) -> Vec<u32> {
        let mut state = self.lock();
        state.usage.restore(uses);
        state.usage.ranking()
    }

    /// Wakes the steps that wait for entries, after experts were dropped.
    pub(crate) fn released(&self) {
        drop(self.lock());
        self.released.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What of `n_wanted` experts can be taken from a cache. Of more than it holds a step takes half of
/// it at once, so that the other half is read meanwhile.
fn within(amount: Amount, n_wanted: usize, n_entries: usize) -> Result<Amount, Error> {
    let least = amount.least.min(n_wanted);
    if least > n_entries {
        return Err(Error::TooManyExperts {
            asked: least,
            places: n_entries,
        });
    }
    let most = match n_wanted > n_entries {
        true => amount.most.min(n_entries.div_ceil(2)),
        false => amount.most,
    };
    Ok(Amount {
        least,
        most: most.max(least),
    })
}

impl CacheState {
    /// Whether an expert is in memory or being read.
    fn has(&self, id: u32) -> bool {
        self.entries.iter().any(|e| e.id == Some(id))
    }

    fn empty_entry(&self) -> Option<usize> {
        let is_empty = |e: &CacheEntry| e.id.is_none() && e.is_idle();
        self.entries.iter().position(is_empty)
    }

    fn request(&mut self, readers: &Readers, tables: &[RowTable], wanted: &[u32]) {
        self.is_wanted.fill(false);
        wanted
            .iter()
            .for_each(|&id| self.is_wanted[id as usize] = true);
        // While the readers are busy, a prompt waits for entries rather than evict more valuable
        // ones.
        let is_many = 2 * wanted.len() > self.entries.len();
        let mut n_reading = self.n_reading();
        for &id in wanted {
            if let Some(entry) = self.entries.iter().find(|e| e.id == Some(id)) {
                entry.ticket().into_iter().for_each(|t| readers.hurry(t));
                continue;
            }
            let below = match is_many && n_reading >= MAX_READERS {
                true => self.usage.of(id),
                false => f32::INFINITY,
            };
            let Some((i, slot)) = self.evict_unwanted(readers, below) else {
                break;
            };
            self.entries[i].content = Content::Held(Expert::empty(slot));
            let chunk = Chunk::expert(tables, id);
            self.entries[i].read(readers, id, chunk, Priority::Urgent);
            n_reading += 1;
        }
    }

    /// How many of the wanted experts are being read.
    fn n_reading(&self) -> usize {
        let is_wanted = |e: &&CacheEntry| e.id.is_some_and(|id| self.is_wanted[id as usize]);
        let wanted = self.entries.iter().filter(is_wanted);
        wanted.filter_map(CacheEntry::ticket).count()
    }

    fn evict_unwanted(&mut self, readers: &Readers, below: f32) -> Option<(usize, Slot)> {
        let is_wanted = take(&mut self.is_wanted);
        let may_go = |e: &CacheEntry| e.id.is_none_or(|id| !is_wanted[id as usize]);
        let evicted = self.evict(readers, below, may_go);
        self.is_wanted = is_wanted;
        evicted
    }

    /// Empties an entry of those that `may_go`, that nothing uses, and whose value is `below`; it
    /// has no slot then. First an empty one, then one whose read has not begun, then that of least
    /// value.
    fn evict(
        &mut self,
        readers: &Readers,
        below: f32,
        may_go: impl Fn(&CacheEntry) -> bool,
    ) -> Option<(usize, Slot)> {
        let may_go = |e: &CacheEntry| may_go(e) && self.value(e) < below;
        let least = self.least_idle(may_go);
        let is_empty = least.is_some_and(|i| self.entries[i].id.is_none());
        let withdrawn = match is_empty {
            true => None,
            false => self.withdraw_last(readers, may_go),
        };
        let (i, slot) = match withdrawn {
            Some(withdrawn) => withdrawn,
            None => (least?, self.entries[least?].take_slot()?),
        };
        self.entries[i].id = None;
        self.entries[i].content = Content::Lent;
        Some((i, slot))
    }

    /// The value of an entry; below 0 for an empty one.
    fn value(&self, entry: &CacheEntry) -> f32 {
        entry.id.map_or(-1.0, |id| self.usage.of(id))
    }

    /// The idle entry of least value, of the higher id on ties.
    fn least_idle(&self, may_go: impl Fn(&CacheEntry) -> bool) -> Option<usize> {
        let entries = self.entries.iter().enumerate();
        let idle = entries.filter(|(_, e)| e.is_idle() && may_go(e));
        let least = idle.min_by(|(_, a), (_, b)| {
            let by_value = self.value(a).total_cmp(&self.value(b));
            by_value.then(b.id.cmp(&a.id))
        });
        least.map(|(i, _)| i)
    }

    /// Takes a slot back from the readers, the last that was requested and that none has begun to
    /// fill.
    fn withdraw_last(
        &self,
        readers: &Readers,
        may_go: impl Fn(&CacheEntry) -> bool,
    ) -> Option<(usize, Slot)> {
        let entries = self.entries.iter().enumerate().rev();
        let queued = entries.filter(|(_, e)| may_go(e));
        let mut tickets = queued.filter_map(|(i, e)| Some((i, e.ticket()?)));
        tickets.find_map(|(i, ticket)| Some((i, readers.withdraw(ticket)?)))
    }

    /// Takes what the readers have served.
    ///
    /// # Errors
    /// That of a wanted expert.
    fn settle(&mut self, readers: &Readers) -> Result<(), Error> {
        let mut outcome = Ok(());
        for entry in &mut self.entries {
            let id = entry.id;
            let result = entry.settle(readers);
            if id.is_some_and(|id| self.is_wanted[id as usize]) {
                outcome = outcome.and(result);
            }
        }
        outcome
    }

    /// Moves the wanted experts in memory to the front and takes them; none if they are too few.
    fn hold(&self, wanted: &mut [u32], amount: Amount, out: &mut Vec<Arc<Expert>>) -> usize {
        let held = |id| self.entries.iter().find_map(|e| e.held(id));
        if wanted.iter().filter_map(|&id| held(id)).count() < amount.least {
            return 0;
        }
        let mut n = 0;
        for k in 0..wanted.len() {
            if n < amount.most
                && let Some(expert) = held(wanted[k])
            {
                out.push(expert.clone());
                wanted.swap(n, k);
                n += 1;
            }
        }
        n
    }

    /// Waits until a read of this cache is served; `false` if none is in flight.
    fn wait_for_reads(&self, readers: &Readers) -> bool {
        let mut tickets = self.entries.iter().filter_map(CacheEntry::ticket);
        let is_reading = tickets.next().is_some();
        if is_reading {
            readers.wait_for_any(|ticket| self.entries.iter().any(|e| e.ticket() == Some(ticket)));
        }
        is_reading
    }
}

impl CacheEntry {
    fn empty(slot: Slot) -> Self {
        Self {
            id: None,
            n_bytes: slot.len(),
            content: Content::Held(Expert::empty(slot)),
        }
    }

    fn is_idle(&self) -> bool {
        matches!(&self.content, Content::Held(expert) if Arc::strong_count(expert) == 1)
    }

    fn is_lent(&self) -> bool {
        matches!(self.content, Content::Lent)
    }

    /// The expert `id`, if it holds that.
    fn held(&self, id: u32) -> Option<&Arc<Expert>> {
        match &self.content {
            Content::Held(expert) if self.id == Some(id) => Some(expert),
            Content::Held(_) | Content::Reading(..) | Content::Lent => None,
        }
    }

    /// The request that fills it.
    fn ticket(&self) -> Option<ReadTicket> {
        match &self.content {
            Content::Reading(ticket, _) => Some(*ticket),
            Content::Held(_) | Content::Lent => None,
        }
    }

    /// Requests an expert into the slot that it holds.
    fn read(&mut self, readers: &Readers, id: u32, chunk: Chunk, priority: Priority) {
        if let Some(slot) = self.take_slot() {
            let ticket = readers.request(&chunk.slices, slot, priority);
            self.content = Content::Reading(ticket, chunk);
            self.id = Some(id);
        }
    }

    /// The slot, if the entry holds it alone.
    fn take_slot(&mut self) -> Option<Slot> {
        if !self.is_idle() {
            return None;
        }
        match replace(&mut self.content, Content::Lent) {
            Content::Held(expert) => Arc::into_inner(expert).map(|expert| expert.slot),
            Content::Reading(..) | Content::Lent => None,
        }
    }

    /// Takes the slot of a read that was served.
    fn settle(&mut self, readers: &Readers) -> Result<(), Error> {
        let is_served = |ticket: &ReadTicket| readers.is_served(*ticket);
        match replace(&mut self.content, Content::Lent) {
            Content::Reading(ticket, chunk) if is_served(&ticket) => {
                let (slot, result) = readers.wait(ticket);
                if result.is_err() {
                    self.id = None;
                }
                self.content = Content::Held(Arc::new(Expert { chunk, slot }));
                result
            }
            other => {
                self.content = other;
                Ok(())
            }
        }
    }
}
