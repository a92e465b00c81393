//! Weights in private memory: some of them resident, the others read when they are needed.
//!
//! ```text
//! file ──readers──► read-ahead ring ──► forward pass    read in every pass   (read_ahead.rs)
//!    └────once────► pinned chunks ────►                 resident             (chunk.rs)
//!    └──on demand─► expert caches ────►                 routed experts       (expert_cache.rs)
//! ```
//! Nothing is mapped. The pinned chunks are chosen before the first token and never change: a model
//! is read in a cycle, and a least-recently-used cache would always have just evicted the next
//! chunk. Experts are the exception, since the router chooses them while a step runs; the most used
//! ones of an earlier run are read while the disk has nothing else to do. A model that
//! is resident as a whole ([`ResidencyPolicy::whole`]) takes the same path, with every group one
//! pinned chunk.

mod chunk;
mod expert_ahead;
mod expert_cache;
mod expert_usage;
mod fit;
mod held;
mod pinned;
mod probe;
mod read_ahead;
mod readers;
mod residency;

use std::{
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    Amount, Arrived, Budget, ChunkGuard, Error, ExpertRequest, ExpertUsage, ModelFiles, Plan,
    ReadMethod, Reservation, RowTable, WeightGroup, WeightPass, Weights, files::at,
    guard::HeldChunk, os::Slot, source::Source, weights::check_rows,
};
use chunk::{Chunks, expert_len};
use expert_ahead::MovingSlots;
use expert_cache::{ALL, Expert, ExpertCache};
pub(crate) use held::StreamedChunk;
use held::take_spare;
use pinned::PinnedChunk;
use read_ahead::{ChunkReader, PassChunks, ReadAheadRing};
pub(crate) use readers::MAX_READERS;
use readers::{Priority, Readers};
pub use residency::{ResidencyBytes, ResidencyPolicy};
use residency::{largest_expert, n_experts};

/// The reads of streamed weights, and the time that steps waited for them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Io {
    /// Bytes read from files.
    pub read_bytes: u64,
    /// Time in which a step waited for bytes.
    pub wait: Duration,
    /// The measured rate of the disk, bytes per second; 0 if steps read nothing.
    pub rate: f64,
    /// Bytes that one pass with the head reads, experts not counted.
    pub pass_bytes: u64,
    /// Bytes of resident chunks.
    pub pinned_bytes: u64,
    /// Bytes of the expert caches.
    pub expert_bytes: u64,
    /// Experts that steps have used, one in a batch counted once.
    pub n_expert_uses: u64,
    /// Those that were neither in memory nor being read.
    pub n_expert_misses: u64,
}

/// Weights in private memory, resident or streamed.
pub struct Streamed {
    files: ModelFiles,
    plan: Plan,
    chunks: Chunks,
    is_pinned: Vec<bool>,
    /// The pinned ones of the chunks.
    pinned: Vec<Option<PinnedChunk>>,
    /// The cache of each layer with experts.
    expert_caches: Vec<Option<ExpertCache>>,
    /// Entries of the caches of the layers that a prompt is at.
    moving: MovingSlots,
    ring: ReadAheadRing,
    readers: Readers,
    /// Buffers for rows of the embedding, and lists of experts; reused, so that a step allocates
    /// nothing.
    spare_rows: Mutex<Vec<Vec<u8>>>,
    spare_experts: Mutex<Vec<Vec<Arc<Expert>>>>,
    bytes: ResidencyBytes,
    /// The measured rate of the disk, bytes per second.
    rate: f64,
    row_bytes_read: AtomicU64,
    wait_ns: AtomicU64,
    n_expert_uses: AtomicU64,
    n_expert_misses: AtomicU64,
    _memory: [Reservation; 3],
}

impl std::fmt::Debug for Streamed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streamed")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Streamed {
    /// Reserves and allocates memory, reads the resident chunks, and measures the disk if steps
    /// will read from it. Of a source that [arrives](crate::ReadAt::is_arriving), the resident
    /// chunks are only requested, in the order of a pass. `files` should be unmapped.
    ///
    /// # Errors
    /// A budget too small for the policy, a plan that points outside of its files, a file that
    /// cannot be read, bytes that differ from their checksums.
    pub fn new(
        files: ModelFiles,
        plan: Plan,
        policy: &ResidencyPolicy,
        budget: &Budget,
    ) -> Result<Self, Error> {
        plan.tables()
            .try_for_each(|table| files.check(table.extent))?;
        files.check_headers()?;
        let bytes = ResidencyBytes::of(&plan, policy);
        let memory = [
            budget.reserve("pinned weights", bytes.pinned)?,
            budget.reserve("read-ahead", bytes.ring)?,
            budget.reserve("experts", bytes.experts)?,
        ];
        let readers = Readers::new(files.unmapped_sources(policy.method)?, files.checks())?;
        let chunks = Chunks::new(&plan, policy.chunk_bytes);
        let is_pinned = chunks.pin(policy.pinned_bytes);
        let n_slots = if bytes.read_per_pass > 0 {
            policy.n_slots.max(1)
        } else {
            0
        };
        let ring = ReadAheadRing::new(carve(&vec![chunks.largest(&is_pinned); n_slots])?);
        let mut this = Self {
            pinned: request_pinned(&readers, &chunks, &is_pinned)?,
            expert_caches: expert_caches(&plan, policy.n_experts)?,
            moving: MovingSlots::new(carve(&vec![largest_expert(&plan); policy.n_moving])?),
            files,
            plan,
            chunks,
            is_pinned,
            ring,
            readers,
            spare_rows: Mutex::default(),
            spare_experts: Mutex::default(),
            bytes,
            rate: 0.0,
            row_bytes_read: AtomicU64::new(0),
            wait_ns: AtomicU64::new(0),
            n_expert_uses: AtomicU64::new(0),
            n_expert_misses: AtomicU64::new(0),
            _memory: memory,
        };
        if !this.is_arriving() {
            this.wait_for_pinned()?;
            this.rate = this.probe()?;
        }
        Ok(this)
    }

    /// How files are read; `None` for a model that is built into the program.
    pub fn method(&self) -> Option<ReadMethod> {
        self.readers
            .sources()
            .first()
            .and_then(|source| source.method())
    }

    fn is_arriving(&self) -> bool {
        self.readers.sources().iter().any(Source::is_arriving)
    }

    /// Waits for all resident chunks; one that cannot be read is an error of them all.
    fn wait_for_pinned(&self) -> Result<(), Error> {
        let mut outcome = Ok(());
        for (i, pinned) in self.pinned.iter().enumerate() {
            if let Some(pinned) = pinned {
                outcome = outcome.and(pinned.wait(self.chunk_reader(), i).map(|_| ()));
            }
        }
        outcome
    }

    /// Measures the rate at which steps can read, bytes per second: chunks of a pass or, if all of
    /// them are resident, experts; 0 if steps read nothing.
    fn probe(&self) -> Result<f64, Error> {
        if self.bytes.read_per_pass > 0 {
            let chunks = self.chunks.list.iter().zip(&self.is_pinned);
            let read = chunks.filter(|(_, pinned)| !**pinned);
            let read: Vec<_> = read.map(|(chunk, _)| chunk).collect();
            let mut slots = self.ring.lend(&self.readers);
            let rate = probe::probe(&self.readers, &read, &mut slots);
            self.ring.take_back(slots);
            return rate;
        }
        let is_partial = |cache: &&ExpertCache| cache.n_entries() < n_experts(cache.tables());
        let Some(cache) = self.expert_caches.iter().flatten().find(is_partial) else {
            return Ok(0.0);
        };
        let experts: Vec<_> = (0..n_experts(cache.tables()) as u32)
            .map(|id| cache.chunk(id))
            .collect();
        let mut slots = cache.lend();
        let rate = probe::probe(
            &self.readers,
            &experts.iter().collect::<Vec<_>>(),
            &mut slots,
        );
        cache.take_back(slots);
        rate
    }

    fn chunk_reader(&self) -> ChunkReader<'_> {
        ChunkReader {
            chunks: &self.chunks.list,
            readers: &self.readers,
        }
    }

    /// Chunk `i` of a group of a layer or of the head.
    fn planned<'a>(&'a self, group: WeightGroup<'a>, i: usize) -> Result<StreamedChunk<'a>, Error> {
        let index = self.chunks.of(group).nth(i).ok_or(Error::NotInPlan)?;
        let slices = &self.chunks.list[index].slices[..];
        if let Some(pinned) = &self.pinned[index] {
            let slot = match pinned.arrived() {
                Some(slot) => slot,
                None => self.timed(|| pinned.wait(self.chunk_reader(), index))?,
            };
            return Ok(StreamedChunk::Pinned { slices, slot });
        }
        let slot = self.timed(|| self.ring.take(self.chunk_reader(), index))?;
        Ok(StreamedChunk::Read {
            slices,
            slot: Some(slot),
            weights: self,
        })
    }

    /// The cache of a layer, which must have these experts.
    fn cache_of(&self, l: usize, ids: &[u32]) -> Result<&ExpertCache, Error> {
        let cache = self.expert_caches.get(l).and_then(Option::as_ref);
        let cache = cache.ok_or(Error::NotInPlan)?;
        let tables = cache.tables();
        tables.iter().try_for_each(|table| check_rows(table, ids))?;
        Ok(cache)
    }

    /// Takes some of the experts `wanted`, whose ids are at the front then.
    fn take_experts<'a>(
        &'a self,
        cache: &'a ExpertCache,
        wanted: &mut [u32],
        amount: Amount,
    ) -> Result<(StreamedChunk<'a>, usize), Error> {
        let mut experts = take_spare(&self.spare_experts);
        let n = self.timed(|| cache.take(&self.readers, wanted, amount, &mut experts))?;
        let chunk = StreamedChunk::Experts {
            experts,
            cache,
            weights: self,
        };
        Ok((chunk, n))
    }

    /// All of these experts, in this order.
    fn experts<'a>(&'a self, l: usize, ids: &[u32]) -> Result<StreamedChunk<'a>, Error> {
        let cache = self.cache_of(l, ids)?;
        let uses = vec![1; ids.len()];
        cache.count(ids, &uses, 1);
        self.take_experts(cache, &mut ids.to_vec(), ALL)
            .map(|(chunk, _)| chunk)
    }

    /// Copies rows of the embedding, or of that of every layer: from pinned chunks, or from the
    /// file, one read for each row.
    fn embed_rows<'a>(
        &'a self,
        table: Option<RowTable>,
        pinned: Range<usize>,
        ids: &[u32],
    ) -> Result<StreamedChunk<'a>, Error> {
        let table = table.ok_or(Error::NotInPlan)?;
        check_rows(&table, ids)?;
        let row_bytes = table.row_bytes as usize;
        let mut rows = take_spare(&self.spare_rows);
        rows.resize(ids.len() * row_bytes, 0);
        for (&id, row) in ids.iter().zip(rows.chunks_exact_mut(row_bytes)) {
            match self.pinned_row(&table, pinned.clone(), id as usize) {
                Some(bytes) => row.copy_from_slice(bytes),
                None => self.timed(|| self.read_row(&table, id, row))?,
            }
        }
        Ok(StreamedChunk::EmbedRows {
            rows,
            row_bytes,
            weights: self,
        })
    }

    /// Row `id` of a table, if it is in one of these chunks and that is pinned and has arrived: a
    /// single row is not worth the wait for all of them.
    fn pinned_row(&self, table: &RowTable, mut chunks: Range<usize>, id: usize) -> Option<&[u8]> {
        let row_bytes = table.row_bytes as usize;
        chunks.find_map(|i| {
            let slot = self.pinned[i].as_ref()?.arrived_by_now(&self.readers)?;
            let slice = &self.chunks.list[i].slices[0];
            let at = id.checked_sub(slice.first)? * row_bytes;
            slice.bytes(slot).get(at..at + row_bytes)
        })
    }

    fn read_row(&self, table: &RowTable, id: u32, row: &mut [u8]) -> Result<(), Error> {
        let extent = table.row(id.into());
        let source = &self.readers.sources()[usize::from(extent.shard)];
        self.row_bytes_read
            .fetch_add(row.len() as u64, Ordering::Relaxed);
        at(source, source.read_exact_at(extent.offset, row))
    }

    /// Counts the time of `read` as time in which a step waited for bytes.
    fn timed<T>(&self, read: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = read();
        self.wait_ns
            .fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }
}

impl Weights for Streamed {
    fn begin(&self, pass: &WeightPass) -> Result<(), Error> {
        self.end()?;
        let chunks = PassChunks {
            layers: self.chunks.of_layers(pass.layers.clone()),
            head: self.chunks.of(WeightGroup::Head),
            wants_head: pass.wants_head,
        };
        self.ring
            .begin(self.chunk_reader(), &chunks, &self.is_pinned);
        Ok(())
    }

    fn end(&self) -> Result<(), Error> {
        self.readers
            .sources()
            .iter()
            .try_for_each(|source| at(source, source.check_unchanged()))
    }

    fn n_chunks(&self, group: WeightGroup<'_>) -> usize {
        match group {
            WeightGroup::Layer(..) | WeightGroup::Head => self.chunks.of(group).len(),
            WeightGroup::Experts(..)
            | WeightGroup::EmbedRows(_)
            | WeightGroup::LayerEmbedRows(_) => 1,
        }
    }

    fn chunk<'a>(&'a self, group: WeightGroup<'a>, i: usize) -> Result<ChunkGuard<'a>, Error> {
        let chunk = match group {
            WeightGroup::Layer(..) | WeightGroup::Head => self.planned(group, i)?,
            WeightGroup::Experts(..)
            | WeightGroup::EmbedRows(_)
            | WeightGroup::LayerEmbedRows(_)
                if i > 0 =>
            {
                return Err(Error::NotInPlan);
            }
            WeightGroup::Experts(l, ids) => self.experts(l, ids)?,
            WeightGroup::EmbedRows(ids) => {
                let is_tied = self.plan.embed == self.plan.head;
                self.embed_rows(self.plan.embed, self.chunks.of_embedding(is_tied), ids)?
            }
            WeightGroup::LayerEmbedRows(ids) => {
                self.embed_rows(self.plan.layer_embed, 0..0, ids)?
            }
        };
        Ok(ChunkGuard(HeldChunk::Streamed(chunk)))
    }

    fn request_experts(&self, l: usize, request: &ExpertRequest<'_>) -> Result<(), Error> {
        let ExpertRequest { ids, uses, n_rows } = *request;
        let cache = self.cache_of(l, ids)?;
        let n_misses = cache.count(ids, uses, n_rows);
        let add = |to: &AtomicU64, n: usize| to.fetch_add(n as u64, Ordering::Relaxed);
        add(&self.n_expert_uses, ids.len());
        add(&self.n_expert_misses, n_misses);
        cache.request(&self.readers, ids);
        let caches = &self.expert_caches;
        self.moving.read_ahead(&self.readers, caches, l, ids.len());
        Ok(())
    }

    fn arrived_experts<'a>(
        &'a self,
        l: usize,
        wanted: &'a mut [u32],
        amount: Amount,
    ) -> Result<Arrived<'a>, Error> {
        let cache = self.cache_of(l, wanted)?;
        let (chunk, n) = self.take_experts(cache, wanted, amount)?;
        Ok(Arrived {
            ids: &wanted[..n],
            chunk: ChunkGuard(HeldChunk::Streamed(chunk)),
        })
    }

    fn expert_usage(&self) -> ExpertUsage {
        let uses = |cache: &Option<ExpertCache>| cache.as_ref().map(ExpertCache::uses);
        let layers = self.expert_caches.iter().map(uses);
        ExpertUsage {
            layers: layers.map(Option::unwrap_or_default).collect(),
        }
    }

    fn recall_experts(&self, usage: &ExpertUsage) {
        let layers = self.expert_caches.iter().zip(&usage.layers);
        let known = layers.filter_map(|(cache, uses)| Some((cache.as_ref()?, uses)));
        let ranked: Vec<_> = known
            .map(|(cache, uses)| (cache, cache.restore(uses)))
            .collect();
        let n_ranks = ranked.iter().map(|(_, ids)| ids.len()).max().unwrap_or(0);
        // The most used ones of all layers first.
        for rank in 0..n_ranks {
            for (cache, ids) in &ranked {
                let id = ids.get(rank).copied();
                cache.read_ahead(&self.readers, id.into_iter(), Priority::Idle);
            }
        }
    }

    fn io(&self) -> Io {
        Io {
            read_bytes: self.readers.n_bytes() + self.row_bytes_read.load(Ordering::Relaxed),
            wait: Duration::from_nanos(self.wait_ns.load(Ordering::Relaxed)),
            rate: self.rate,
            pass_bytes: self.bytes.read_per_pass,
            pinned_bytes: self.bytes.pinned,
            expert_bytes: self.bytes.experts,
            n_expert_uses: self.n_expert_uses.load(Ordering::Relaxed),
            n_expert_misses: self.n_expert_misses.load(Ordering::Relaxed),
        }
    }

    fn serves_many(&self) -> bool {
        false
    }

    fn files(&self) -> &ModelFiles {
        &self.files
    }
}

fn carve(sizes: &[usize]) -> Result<Vec<Slot>, Error> {
    Slot::carve(sizes).map_err(|source| Error::NoMemory {
        bytes: sizes.iter().sum::<usize>() as u64,
        source,
    })
}

/// Requests the resident chunks, in the order of a pass.
fn request_pinned(
    readers: &Readers,
    chunks: &Chunks,
    is_pinned: &[bool],
) -> Result<Vec<Option<PinnedChunk>>, Error> {
    let reader = ChunkReader {
        chunks: &chunks.list,
        readers,
    };
    let which: Vec<usize> = (0..is_pinned.len()).filter(|&i| is_pinned[i]).collect();
    let sizes: Vec<usize> = which.iter().map(|&i| chunks.list[i].len).collect();
    let mut pinned: Vec<_> = is_pinned.iter().map(|_| None).collect();
    for (i, slot) in which.into_iter().zip(carve(&sizes)?) {
        pinned[i] = Some(PinnedChunk::new(reader.request(i, slot, Priority::Queued)));
    }
    Ok(pinned)
}

/// An empty cache for each layer with experts.
fn expert_caches(plan: &Plan, n_entries: usize) -> Result<Vec<Option<ExpertCache>>, Error> {
    let cache = |tables: &Vec<RowTable>| {
        if tables.is_empty() {
            return Ok(None);
        }
        let slots = carve(&vec![expert_len(tables); n_experts(tables).min(n_entries)])?;
        Ok(Some(ExpertCache::new(tables.clone(), slots)))
    };
    plan.experts.iter().map(cache).collect()
}

#[cfg(test)]
mod check_tests;
#[cfg(test)]
mod expert_tests;
#[cfg(test)]
mod tests;
