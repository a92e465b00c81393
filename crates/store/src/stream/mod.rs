//! Weights that lie in memory of our own: some of them all the time, the others for as long as they
//! are needed.
//!
//! ```text
//! file ──readers──► slots of the ring ──► the forward pass     what is read in every sweep   (ring.rs)
//!    └────once────► pinned pieces ──────►                      what stays                    (cut.rs)
//!    └──on demand─► shelves of experts ─►                      what a token asks for         (experts.rs)
//! ```
//! Nothing is mapped. What stays is decided before the first token and never changes: a model is
//! read in a circle, where a cache of the last used would hold nothing that comes next. Experts are
//! the exception, since nobody knows them before. A model that is held whole ([`Holding::whole`])
//! is the same thing with everything pinned and nothing cut.

mod cut;
mod disk;
mod experts;
mod holding;
mod probe;
mod ring;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    Budget, Error, Guard, Method, ModelFiles, Plan, Reservation, RowTable, Rows, Sweep, Unit,
    Weights, os::Slot, unit::Parts, weights::check_rows,
};
use cut::{Cut, Pieces, expert_len};
use disk::{Disk, Turn};
use experts::{Expert, Shelf};
use holding::n_experts;
pub use holding::{Holding, Sizes};
use ring::{Circle, Ring};

/// What a source has read, and how long somebody waited for it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Io {
    /// Bytes of files.
    pub read_bytes: u64,
    /// Time in which computing stood still.
    pub wait: Duration,
    /// What the disk gave when it was tried, bytes per second; 0 if nothing is read while
    /// computing.
    pub rate: f64,
    /// Bytes that one sweep with the head reads, experts not counted.
    pub sweep_bytes: u64,
    /// Bytes that are held all the time.
    pub pinned_bytes: u64,
    /// Bytes of places for experts.
    pub expert_bytes: u64,
}

/// Weights in memory of our own.
pub struct Streamed {
    files: ModelFiles,
    plan: Plan,
    pieces: Pieces,
    is_pinned: Vec<bool>,
    /// The slot of each pinned piece.
    pinned: Vec<Option<Slot>>,
    shelves: Vec<Option<Shelf>>,
    ring: Ring,
    disk: Disk,
    /// Buffers for rows of the embedding, and lists of experts, to be used again.
    spare_rows: Mutex<Vec<Vec<u8>>>,
    spare_experts: Mutex<Vec<Vec<Arc<Expert>>>>,
    sizes: Sizes,
    rate: f64,
    row_bytes_read: AtomicU64,
    wait_ns: AtomicU64,
    _memory: [Reservation; 3],
}

impl std::fmt::Debug for Streamed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Streamed")
            .field("sizes", &self.sizes)
            .finish_non_exhaustive()
    }
}

impl Streamed {
    /// Takes memory, reads what stays, and measures the disk if there is more than that. `files`
    /// should be without maps.
    ///
    /// # Errors
    /// A budget without room for the holding, a plan that points outside of its files, a file that
    /// cannot be read.
    pub fn new(
        files: ModelFiles,
        plan: Plan,
        holding: &Holding,
        budget: &Budget,
    ) -> Result<Self, Error> {
        plan.tables()
            .try_for_each(|table| files.check(table.extent))?;
        let sizes = Sizes::of(&plan, holding);
        let memory = [
            budget.reserve("pinned weights", sizes.pinned)?,
            budget.reserve("read-ahead", sizes.ring)?,
            budget.reserve("experts", sizes.experts)?,
        ];
        let disk = Disk::new(files.sources(holding.method)?)?;
        let pieces = Pieces::new(&plan, holding.piece_bytes);
        let is_pinned = pieces.pin(holding.pinned_bytes);
        let n_slots = if sizes.read_per_sweep > 0 {
            holding.n_slots.max(1)
        } else {
            0
        };
        let ring = Ring::new(carve(&vec![pieces.largest(&is_pinned); n_slots])?);
        let mut this = Self {
            pinned: read_pinned(&disk, &pieces, &is_pinned)?,
            shelves: shelves(&plan, holding.n_experts)?,
            files,
            plan,
            pieces,
            is_pinned,
            ring,
            disk,
            spare_rows: Mutex::default(),
            spare_experts: Mutex::default(),
            sizes,
            rate: 0.0,
            row_bytes_read: AtomicU64::new(0),
            wait_ns: AtomicU64::new(0),
            _memory: memory,
        };
        this.rate = this.probe()?;
        Ok(this)
    }

    /// How files are read; `None` where nothing is but the program itself.
    pub fn method(&self) -> Option<Method> {
        self.disk
            .sources()
            .first()
            .and_then(|source| source.method())
    }

    /// How fast what is not held can be read, bytes per second: pieces of a sweep or, if all of
    /// them are held, experts; 0 if nothing is read while computing.
    fn probe(&self) -> Result<f64, Error> {
        if self.sizes.read_per_sweep > 0 {
            let read = self
                .pieces
                .list
                .iter()
                .zip(&self.is_pinned)
                .filter(|(_, pinned)| !**pinned);
            let read: Vec<_> = read.map(|(piece, _)| piece).collect();
            let mut slots = self.ring.lend(&self.disk);
            let rate = probe::probe(&self.disk, &read, &mut slots);
            self.ring.take_back(slots);
            return rate;
        }
        let shelf = self
            .shelves
            .iter()
            .flatten()
            .find(|shelf| shelf.n_places() < n_experts(shelf.tables()));
        let Some(shelf) = shelf else { return Ok(0.0) };
        let experts: Vec<_> = (0..n_experts(shelf.tables()) as u32)
            .map(|id| shelf.piece(id))
            .collect();
        let mut slots = shelf.lend();
        let rate = probe::probe(&self.disk, &experts.iter().collect::<Vec<_>>(), &mut slots);
        shelf.take_back(slots);
        rate
    }

    fn stage<'a>(&'a self, unit: Unit<'a>, i: usize) -> Result<Part<'a>, Error> {
        let index = self.pieces.of(unit).nth(i).ok_or(Error::NotInPlan)?;
        let cuts = &self.pieces.list[index].cuts[..];
        if let Some(slot) = &self.pinned[index] {
            return Ok(Part::Pinned { cuts, slot });
        }
        let slot = self.timed(|| self.ring.take((&self.pieces.list, &self.disk), index))?;
        Ok(Part::Read {
            cuts,
            slot: Some(slot),
            source: self,
        })
    }

    fn experts<'a>(&'a self, l: usize, ids: &[u32]) -> Result<Part<'a>, Error> {
        let shelf = self
            .shelves
            .get(l)
            .and_then(Option::as_ref)
            .ok_or(Error::NotInPlan)?;
        shelf
            .tables()
            .iter()
            .try_for_each(|table| check_rows(table, ids))?;
        let mut experts = take_spare(&self.spare_experts);
        match self.timed(|| shelf.take(&self.disk, ids, &mut experts)) {
            Ok(()) => Ok(Part::Experts {
                experts,
                shelf,
                source: self,
            }),
            Err(error) => Err(error),
        }
    }

    /// Rows of the embedding: from memory if they are there, else each with a read of its own.
    fn embed_rows<'a>(&'a self, ids: &[u32]) -> Result<Part<'a>, Error> {
        let table = self.plan.embed.ok_or(Error::NotInPlan)?;
        check_rows(&table, ids)?;
        let row_bytes = table.row_bytes as usize;
        let mut rows = take_spare(&self.spare_rows);
        rows.resize(ids.len() * row_bytes, 0);
        for (&id, row) in ids.iter().zip(rows.chunks_exact_mut(row_bytes)) {
            match self.pinned_row(&table, id as usize) {
                Some(bytes) => row.copy_from_slice(bytes),
                None => self.timed(|| self.read_row(&table, id, row))?,
            }
        }
        Ok(Part::EmbedRows {
            rows,
            row_bytes,
            source: self,
        })
    }

    fn pinned_row(&self, table: &RowTable, id: usize) -> Option<&[u8]> {
        let pieces = self.pieces.of_embedding(self.plan.embed == self.plan.head);
        let row_bytes = table.row_bytes as usize;
        pieces.into_iter().find_map(|i| {
            let (cut, slot) = (&self.pieces.list[i].cuts[0], self.pinned[i].as_ref()?);
            let at = id.checked_sub(cut.first)? * row_bytes;
            cut.bytes(slot).get(at..at + row_bytes)
        })
    }

    fn read_row(&self, table: &RowTable, id: u32, row: &mut [u8]) -> Result<(), Error> {
        let extent = table.row(id.into());
        let source = &self.disk.sources()[usize::from(extent.shard)];
        self.row_bytes_read
            .fetch_add(row.len() as u64, Ordering::Relaxed);
        source
            .read_small(extent.offset, row)
            .map_err(|e| Error::Io {
                path: source.path().to_owned(),
                source: e,
            })
    }

    /// Counts the time as time in which computing stood still.
    fn timed<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.wait_ns
            .fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        result
    }
}

impl Weights for Streamed {
    fn begin(&self, sweep: &Sweep) -> Result<(), Error> {
        self.end()?;
        let layers = self.pieces.of_layers(sweep.layers.clone());
        let circle = Circle {
            layers,
            head: self.pieces.of(Unit::Head),
            wants_head: sweep.wants_head,
        };
        self.ring
            .begin((&self.pieces.list, &self.disk), &circle, &self.is_pinned);
        Ok(())
    }

    fn end(&self) -> Result<(), Error> {
        self.disk.sources().iter().try_for_each(|source| {
            source.check_unchanged().map_err(|e| Error::Io {
                path: source.path().to_owned(),
                source: e,
            })
        })
    }

    fn n_pieces(&self, unit: Unit<'_>) -> usize {
        match unit {
            Unit::Stage(..) | Unit::Head => self.pieces.of(unit).len(),
            Unit::Experts(..) | Unit::EmbedRows(_) => 1,
        }
    }

    fn piece<'a>(&'a self, unit: Unit<'a>, i: usize) -> Result<Guard<'a>, Error> {
        Ok(Guard(Parts::Streamed(match unit {
            Unit::Stage(..) | Unit::Head => self.stage(unit, i)?,
            Unit::Experts(..) | Unit::EmbedRows(_) if i > 0 => return Err(Error::NotInPlan),
            Unit::Experts(l, ids) => self.experts(l, ids)?,
            Unit::EmbedRows(ids) => self.embed_rows(ids)?,
        })))
    }

    fn io(&self) -> Io {
        Io {
            read_bytes: self.disk.n_bytes() + self.row_bytes_read.load(Ordering::Relaxed),
            wait: Duration::from_nanos(self.wait_ns.load(Ordering::Relaxed)),
            rate: self.rate,
            sweep_bytes: self.sizes.read_per_sweep,
            pinned_bytes: self.sizes.pinned,
            expert_bytes: self.sizes.experts,
        }
    }

    fn files(&self) -> &ModelFiles {
        &self.files
    }
}

/// A piece at hand; dropping it gives its memory back.
pub(crate) enum Part<'a> {
    Pinned {
        cuts: &'a [Cut],
        slot: &'a Slot,
    },
    Read {
        cuts: &'a [Cut],
        slot: Option<Slot>,
        source: &'a Streamed,
    },
    Experts {
        experts: Vec<Arc<Expert>>,
        shelf: &'a Shelf,
        source: &'a Streamed,
    },
    EmbedRows {
        rows: Vec<u8>,
        row_bytes: usize,
        source: &'a Streamed,
    },
}

impl Part<'_> {
    /// The rows of one matrix.
    pub(crate) fn rows(&self, i: usize) -> Rows<'_> {
        match self {
            Self::Pinned { cuts, slot } => rows_of(&cuts[i], slot),
            Self::Read { cuts, slot, .. } => {
                rows_of(&cuts[i], slot.as_ref().expect("it is there until the drop"))
            }
            Self::Experts { experts, shelf, .. } => {
                let n = shelf.tables().len();
                Rows {
                    first: 0,
                    bytes: experts[i / n].part(i % n),
                }
            }
            Self::EmbedRows {
                rows, row_bytes, ..
            } => Rows {
                first: 0,
                bytes: &rows[i * row_bytes..(i + 1) * row_bytes],
            },
        }
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        match self {
            Self::Pinned { .. } => {}
            Self::Read { slot, source, .. } => {
                if let Some(slot) = slot.take() {
                    source.ring.free((&source.pieces.list, &source.disk), slot);
                }
            }
            Self::Experts {
                experts,
                shelf,
                source,
            } => {
                experts.clear();
                shelf.freed();
                give_spare(&source.spare_experts, std::mem::take(experts));
            }
            Self::EmbedRows { rows, source, .. } => {
                rows.clear();
                give_spare(&source.spare_rows, std::mem::take(rows));
            }
        }
    }
}

fn rows_of<'a>(cut: &Cut, slot: &'a Slot) -> Rows<'a> {
    let bytes = if cut.extent.bytes == 0 {
        &[]
    } else {
        cut.bytes(slot)
    };
    Rows {
        first: cut.first,
        bytes,
    }
}

fn take_spare<T>(spare: &Mutex<Vec<Vec<T>>>) -> Vec<T> {
    spare
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .pop()
        .unwrap_or_default()
}

fn give_spare<T>(spare: &Mutex<Vec<Vec<T>>>, buffer: Vec<T>) {
    spare
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(buffer);
}

fn carve(sizes: &[usize]) -> Result<Vec<Slot>, Error> {
    Slot::carve(sizes).map_err(|source| Error::NoMemory {
        bytes: sizes.iter().sum::<usize>() as u64,
        source,
    })
}

/// Reads the pieces that stay.
fn read_pinned(
    disk: &Disk,
    pieces: &Pieces,
    is_pinned: &[bool],
) -> Result<Vec<Option<Slot>>, Error> {
    let which: Vec<usize> = (0..is_pinned.len()).filter(|&i| is_pinned[i]).collect();
    let sizes: Vec<usize> = which.iter().map(|&i| pieces.list[i].len).collect();
    let ask = |(&i, slot): (&usize, Slot)| (i, disk.ask(&pieces.list[i].cuts, slot, Turn::Next));
    let asked: Vec<_> = which.iter().zip(carve(&sizes)?).map(ask).collect();
    let mut pinned: Vec<_> = is_pinned.iter().map(|_| None).collect();
    let mut outcome = Ok(());
    for (i, ticket) in asked {
        let (slot, result) = disk.wait(ticket);
        pinned[i] = Some(slot);
        outcome = outcome.and(result);
    }
    outcome.map(|()| pinned)
}

/// Places for the experts of each layer that has some.
fn shelves(plan: &Plan, n_places: usize) -> Result<Vec<Option<Shelf>>, Error> {
    let shelf = |tables: &Vec<RowTable>| {
        if tables.is_empty() {
            return Ok(None);
        }
        let slots = carve(&vec![expert_len(tables); n_experts(tables).min(n_places)])?;
        Ok(Some(Shelf::new(tables.clone(), slots)))
    };
    plan.experts.iter().map(shelf).collect()
}

#[cfg(test)]
mod tests;
