//! Slots that move with a prompt through the layers: while one layer computes, the experts of the
//! next one are read into them.
//!
//! A prompt uses nearly all experts of a layer, so nothing has to be predicted. The slots are
//! entries of the cache of the layer that they are at: half of them at the layer that computes,
//! half at the next one. A layer's own entries keep the experts of most value.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use super::{
    expert_cache::ExpertCache,
    readers::{Priority, Readers},
};
use crate::os::Slot;

/// A step that uses this part of a layer's experts will use as large a part of the next one's.
const MOST: f32 = 0.75;

/// The slots.
pub(super) struct MovingSlots {
    state: Mutex<SlotPlaces>,
    n: usize,
    /// The size of each.
    n_bytes: usize,
}

struct SlotPlaces {
    free: Vec<Slot>,
    /// How many are at each layer.
    at: BTreeMap<usize, usize>,
}

impl MovingSlots {
    pub(super) fn new(slots: Vec<Slot>) -> Self {
        Self {
            n: slots.len(),
            n_bytes: slots.first().map_or(0, |slot| slot.len()),
            state: Mutex::new(SlotPlaces {
                free: slots,
                at: BTreeMap::new(),
            }),
        }
    }

    /// Reads experts of the layer behind `l` if a step uses most of those of `l`, `n_used`.
    pub(super) fn read_ahead(
        &self,
        readers: &Readers,
        caches: &[Option<ExpertCache>],
        l: usize,
        n_used: usize,
    ) {
        let n_experts = |cache: &ExpertCache| super::n_experts(cache.tables());
        let here = caches.get(l).and_then(Option::as_ref).map_or(0, n_experts);
        if (n_used as f32) < MOST * here as f32 {
            return;
        }
        let mut behind = (l + 1..caches.len()).map(|next| (next, caches[next].as_ref()));
        let Some((next, Some(cache))) = behind.find(|(_, cache)| cache.is_some()) else {
            return;
        };
        cache.attach(self.leave(readers, caches, l, next));
        cache.read_ahead(readers, 0..n_experts(cache) as u32, Priority::Queued);
    }

    /// Half of the slots, for layer `next`; those at layers other than that and `l` move on.
    fn leave(
        &self,
        readers: &Readers,
        caches: &[Option<ExpertCache>],
        l: usize,
        next: usize,
    ) -> Vec<Slot> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let SlotPlaces { free, at } = &mut *state;
        for (&layer, n) in at
            .iter_mut()
            .filter(|(layer, _)| ![l, next].contains(layer))
        {
            if let Some(cache) = &caches[layer] {
                let slots = cache.detach(readers, *n, self.n_bytes);
                *n -= slots.len();
                free.extend(slots);
            }
        }
        let there = at.entry(next).or_default();
        let n = free.len().min((self.n / 2).saturating_sub(*there));
        *there += n;
        free.split_off(free.len() - n)
    }
}
