//! The experts of a layer: those used last stay in memory, the others are read when a token goes to
//! them.
//!
//! Nobody knows the next token's experts, so nothing is read ahead. A shelf that holds no more than
//! one token's experts would be overwritten by each token; what makes it useful is the room beyond
//! that.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{
    cut::Piece,
    disk::{Disk, Turn},
};
use crate::{Error, RowTable, os::Slot};

/// The places for experts of one layer.
pub(crate) struct Shelf {
    tables: Vec<RowTable>,
    places: Mutex<Vec<Place>>,
    freed: Condvar,
}

/// One expert in memory: for each of its matrices a cut, and their bytes.
pub(crate) struct Expert {
    piece: Piece,
    slot: Slot,
}

struct Place {
    id: Option<u32>,
    /// When it was asked for last, in requests of this layer.
    used: u64,
    /// Shared while it is in use. Empty only while its slot is being read into.
    expert: Option<Arc<Expert>>,
}

impl Expert {
    /// The bytes of one of its matrices.
    pub(crate) fn part(&self, i: usize) -> &[u8] {
        self.piece.cuts[i].bytes(&self.slot)
    }
}

impl Shelf {
    /// A shelf with these slots, each large enough for any expert.
    pub(crate) fn new(tables: Vec<RowTable>, slots: Vec<Slot>) -> Self {
        let place = |slot| Place {
            id: None,
            used: 0,
            expert: Some(Arc::new(Expert {
                piece: nothing(),
                slot,
            })),
        };
        Self {
            tables,
            places: Mutex::new(slots.into_iter().map(place).collect()),
            freed: Condvar::new(),
        }
    }

    /// The tables of the experts' matrices.
    pub(crate) fn tables(&self) -> &[RowTable] {
        &self.tables
    }

    /// How many experts it can hold.
    pub(crate) fn n_places(&self) -> usize {
        self.lock().len()
    }

    /// Adds the experts `ids`, all different, to `out`; those that are missing are read. They must
    /// be fewer than the places.
    ///
    /// # Errors
    /// What went wrong with reading; [`Error::TooManyExperts`] if there are not so many places.
    pub(crate) fn take(
        &self,
        disk: &Disk,
        ids: &[u32],
        out: &mut Vec<Arc<Expert>>,
    ) -> Result<(), Error> {
        let mut places = self.lock();
        if ids.len() > places.len() {
            return Err(Error::TooManyExperts {
                asked: ids.len(),
                places: places.len(),
            });
        }
        let n_missing = |places: &[Place]| {
            ids.iter()
                .filter(|id| !places.iter().any(|p| p.id == Some(**id)))
                .count()
        };
        // Others may hold experts; they are not going to ask for more before they let them go.
        while places
            .iter()
            .filter(|p| p.is_idle() && !p.is_one_of(ids))
            .count()
            < n_missing(&places)
        {
            places = self
                .freed
                .wait(places)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let now = places.iter().map(|p| p.used).max().unwrap_or(0) + 1;
        places
            .iter_mut()
            .filter(|p| p.is_one_of(ids))
            .for_each(|p| p.used = now);
        self.read_missing(disk, &mut places, (ids, now))?;
        let expert = |id: &u32| {
            places
                .iter()
                .find(|p| p.id == Some(*id))
                .and_then(|p| p.expert.clone())
        };
        out.extend(ids.iter().filter_map(expert));
        Ok(())
    }

    /// Reads the experts that are not there into the places that were not used for the longest
    /// time, all at once.
    fn read_missing(
        &self,
        disk: &Disk,
        places: &mut [Place],
        (ids, now): (&[u32], u64),
    ) -> Result<(), Error> {
        let mut on_their_way = Vec::new();
        for &id in ids
            .iter()
            .filter(|id| !places.iter().any(|p| p.id == Some(**id)))
            .collect::<Vec<_>>()
        {
            let oldest = (0..places.len()).filter(|&i| places[i].is_idle() && places[i].used < now);
            let Some(i) = oldest.min_by_key(|&i| places[i].used) else {
                continue;
            };
            let Some(slot) = places[i]
                .expert
                .take()
                .and_then(Arc::into_inner)
                .map(|expert| expert.slot)
            else {
                continue;
            };
            let piece = self.piece(id);
            (places[i].id, places[i].used) = (Some(id), now);
            on_their_way.push((i, disk.ask(&piece.cuts, slot, Turn::Now), piece));
        }
        let mut outcome = Ok(());
        for (i, ticket, piece) in on_their_way {
            let (slot, result) = disk.wait(ticket);
            places[i].expert = Some(Arc::new(Expert { piece, slot }));
            if let Err(error) = result {
                (places[i].id, outcome) = (None, Err(error));
            }
        }
        outcome
    }

    /// The piece of one expert.
    pub(crate) fn piece(&self, id: u32) -> Piece {
        Piece::expert(&self.tables, id)
    }

    /// Lends the slots of places that hold nothing, for measuring.
    pub(crate) fn lend(&self) -> Vec<Slot> {
        let mut places = self.lock();
        let empty = places.iter_mut().filter(|p| p.id.is_none());
        empty
            .filter_map(|p| p.expert.take().and_then(Arc::into_inner))
            .map(|expert| expert.slot)
            .collect()
    }

    /// Takes lent slots back.
    pub(crate) fn take_back(&self, slots: Vec<Slot>) {
        let mut places = self.lock();
        for (place, slot) in places.iter_mut().filter(|p| p.expert.is_none()).zip(slots) {
            place.expert = Some(Arc::new(Expert {
                piece: nothing(),
                slot,
            }));
        }
    }

    /// Somebody let experts go.
    pub(crate) fn freed(&self) {
        drop(self.lock());
        self.freed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an empty place holds.
fn nothing() -> Piece {
    Piece {
        cuts: Arc::new([]),
        len: 0,
    }
}

impl Place {
    fn is_idle(&self) -> bool {
        self.expert
            .as_ref()
            .is_some_and(|expert| Arc::strong_count(expert) == 1)
    }

    fn is_one_of(&self, ids: &[u32]) -> bool {
        self.id.is_some_and(|id| ids.contains(&id))
    }
}
