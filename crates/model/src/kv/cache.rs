//! The cache of one executor: its sequences, and where a layer's keys and values are.

use std::ops::Range;

use atta_kernels::{Kernels, KvLayer};

use super::{
    BLOCK_LEN, KvType,
    arena::Arena,
    plan::{Place, plan},
};
use crate::{
    Error, Row, SeqId,
    seqs::{BlockCopy, SeqSize, SeqTable},
    spec::{ModelSpec, Retention},
};

/// Keys and values of a range of layers.
pub(crate) struct Cache {
    /// Which sequence has which blocks, in one group for each retention of the layers.
    pub(super) seqs: SeqTable,
    /// The bytes of each group.
    pub(super) arenas: Vec<Arena>,
    /// Of each layer of the range.
    pub(super) places: Vec<Place>,
    pub(super) first_layer: usize,
    /// How keys are turned where that depends on `n_ctx`:
    /// [`Rope::regime`](crate::spec::Rope::regime).
    pub(super) rope_regime: usize,
}

impl Cache {
    /// Room for sequences of this size.
    pub(crate) fn new(spec: &ModelSpec, layers: Range<usize>, kv: KvType, size: &SeqSize) -> Self {
        let first_layer = layers.start;
        let ropes = spec.layers[layers.clone()]
            .iter()
            .filter_map(|l| l.attention().rope.as_ref());
        let rope_regime = ropes.map(|r| r.regime(size.n_ctx)).max().unwrap_or(0);
        let (places, groups) = plan(spec, layers, kv);
        let retentions: Vec<Retention> = groups.iter().map(|&(retention, _)| retention).collect();
        let arena = |(retention, bytes)| Arena::new(size.n_blocks(retention), bytes);
        let arenas = groups.into_iter().map(arena).collect();
        Self {
            seqs: SeqTable::new(&retentions, size),
            arenas,
            places,
            first_layer,
            rope_regime,
        }
    }

    /// Bytes that [`new`](Self::new) allocates for the same arguments.
    pub(crate) fn bytes(spec: &ModelSpec, layers: Range<usize>, kv: KvType, size: &SeqSize) -> u64 {
        let (_, groups) = plan(spec, layers, kv);
        let bytes = groups.iter().map(|&(retention, bytes)| {
            (size.n_blocks(retention) as u64).saturating_mul(bytes as u64)
        });
        bytes.fold(0, u64::saturating_add)
    }

    /// Which sequence has which blocks.
    pub(crate) fn seqs(&self) -> &SeqTable {
        &self.seqs
    }

    /// The same, to be changed; what has to be copied then is copied by [`settle`](Self::settle).
    pub(crate) fn seqs_mut(&mut self) -> &mut SeqTable {
        &mut self.seqs
    }

    /// Copies what has to be copied before anything is written.
    pub(crate) fn settle(&mut self) {
        for BlockCopy {
            group,
            from,
            to,
            first,
        } in self.seqs.take_copies()
        {
            let arena = &mut self.arenas[group];
            if first == 0 {
                arena.copy(from, to, 0..arena.block_bytes());
                continue;
            }
            for place in self.places.iter().filter(|place| place.group == group) {
                for half in [place.k, place.v] {
                    (0..place.n_kv_heads)
                        .for_each(|h| arena.copy(from, to, half.rows(h, first..BLOCK_LEN)));
                }
            }
        }
    }

    /// The blocks of a sequence for layer `l`.
    pub(crate) fn table(&self, l: usize, id: SeqId) -> &[u32] {
        self.seqs
            .blocks(id, self.places[l - self.first_layer].group)
    }

    /// What attention needs to read layer `l`.
    pub(crate) fn layer(&self, l: usize) -> KvLayer<'_> {
        let place = &self.places[l - self.first_layer];
        place.layer(&self.arenas[place.group])
    }

    /// Stores key and value of a row in layer `l`, each `[n_kv_heads, d_head]`.
    pub(crate) fn store(&mut self, l: usize, row: &Row, kernels: Kernels, [k, v]: [&[f32]; 2]) {
        let (place, inside) = (self.places[l - self.first_layer], row.pos % BLOCK_LEN);
        let block = self.table(l, row.seq)[row.pos / BLOCK_LEN];
        let bytes = self.arenas[place.group].block_mut(block);
        for (half, x) in [(place.k, k), (place.v, v)] {
            for (h, x) in x.chunks_exact(place.d_head).enumerate() {
                kernels.store_kv(x, half.elem, &mut bytes[half.rows(h, inside..inside + 1)]);
            }
        }
    }

    /// The first position of a sequence whose keys and values a layer holds, within `positions`.
    pub(super) fn first_held(
        &self,
        id: SeqId,
        place: &Place,
        positions: &Range<usize>,
    ) -> Result<usize, Error> {
        Ok(self
            .seqs
            .first_held(id, place.group)?
            .clamp(positions.start, positions.end))
    }
}
