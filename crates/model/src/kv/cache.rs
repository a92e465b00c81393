//! The state of one executor: its sequences, and where a layer's part of it is.

use std::ops::Range;

use atta_kernels::{Kernels, KvElem, KvLayer};

use super::{
    BLOCK_LEN, KvType,
    arena::{Arena, StateArena},
    plan::{KvPlace, LayerPlaces, Place, StatePlace, StatePlan},
};
use crate::{
    Error, Row, SeqId,
    seqs::{BlockCopy, SeqSize, SeqTable, StateRun},
    spec::{LayerSpec, ModelSpec, StateKind},
};

/// Keys and values, and recurrent states, of a range of layers.
pub(crate) struct Cache {
    /// The blocks of each sequence, in one group for each kind of state of the layers.
    pub(super) seqs: SeqTable,
    /// The bytes of each group of keys and values.
    pub(super) arenas: Vec<Arena>,
    /// Recurrent states; without blocks if no layer has one.
    pub(super) states: StateArena,
    /// Of the layers of the range: [`StatePlan::places`].
    pub(super) places: Vec<Place>,
    /// Of each layer of the range.
    pub(super) layers: Vec<LayerPlaces>,
    pub(super) first_layer: usize,
    /// Of each layer of the range, how keys are turned where that depends on `n_ctx`:
    /// [`Rope::regime`](crate::spec::Rope::regime).
    pub(super) rope_regimes: Vec<usize>,
}

impl Cache {
    /// Room for sequences of this size.
    pub(crate) fn new(spec: &ModelSpec, layers: Range<usize>, kv: KvType, size: &SeqSize) -> Self {
        let first_layer = layers.start;
        let rope = |l: &LayerSpec| Some(l.attention()?.rope.as_ref()?.regime(size.n_ctx));
        let layer_specs = spec.layers[layers.clone()].iter();
        let rope_regimes = layer_specs.map(|l| rope(l).unwrap_or(0)).collect();
        let plan = StatePlan::new(spec, layers, kv);
        let seqs = SeqTable::new(&plan.kinds(), size);
        let arena = |&(kind, bytes): &(StateKind, usize)| Arena::new(size.n_blocks(kind), bytes);
        Self {
            seqs,
            arenas: plan.kv_groups.iter().map(arena).collect(),
            states: StateArena::new(
                size.n_blocks(StateKind::Recurrent),
                plan.block_floats.unwrap_or(0),
            ),
            places: plan.places,
            layers: plan.layers,
            first_layer,
            rope_regimes,
        }
    }

    /// Bytes that [`new`](Self::new) allocates for the same arguments.
    pub(crate) fn bytes(spec: &ModelSpec, layers: Range<usize>, kv: KvType, size: &SeqSize) -> u64 {
        let plan = StatePlan::new(spec, layers, kv);
        let states = (StateKind::Recurrent, 4 * plan.block_floats.unwrap_or(0));
        let groups = plan.kv_groups.iter().chain(std::iter::once(&states));
        let bytes =
            groups.map(|&(kind, bytes)| (size.n_blocks(kind) as u64).saturating_mul(bytes as u64));
        bytes.fold(0, u64::saturating_add)
    }

    /// The blocks of each sequence.
    pub(crate) fn seqs(&self) -> &SeqTable {
        &self.seqs
    }

    /// The blocks of each sequence, for changes; queued copies are performed by
    /// [`copy_blocks`](Self::copy_blocks).
    pub(crate) fn seqs_mut(&mut self) -> &mut SeqTable {
        &mut self.seqs
    }

    /// Performs the queued block copies, before anything is written.
    pub(crate) fn copy_blocks(&mut self) {
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
            for place in kv_places(&self.places).filter(|place| place.group == group) {
                for part in place.parts() {
                    (0..part.n_heads)
                        .flat_map(|h| part.arrays(h))
                        .for_each(|array| arena.copy(from, to, array.rows(first..BLOCK_LEN)));
                }
            }
        }
    }

    /// The blocks of a sequence for attention layer `l`.
    pub(crate) fn table(&self, l: usize, id: SeqId) -> &[u32] {
        self.seqs.blocks(id, self.kv_place(l).group)
    }

    /// What attention needs to read layer `l`.
    pub(crate) fn layer(&self, l: usize) -> KvLayer<'_> {
        let place = self.kv_place(l);
        place.layer(&self.arenas[place.group])
    }

    /// Whether the keys and the values of layer `l` are stored as 16-bit codes.
    pub(crate) fn has_codes(&self, l: usize) -> [bool; 2] {
        let place = self.kv_place(l);
        [place.k, place.v.unwrap_or(place.k)].map(|part| part.rows.elem == KvElem::F16)
    }

    /// Stores key and value of a row in layer `l`, each `[n_kv_heads, d_head]`; the key alone if
    /// it is the value.
    pub(crate) fn store(&mut self, l: usize, row: &Row, kernels: Kernels, [k, v]: [&[f32]; 2]) {
        let place = *self.kv_place(l);
        let inside = row.pos % BLOCK_LEN;
        let block = self.table(l, row.seq)[row.pos / BLOCK_LEN];
        let bytes = self.arenas[place.group].block_mut(block);
        for (part, x) in place.keys_and_values().zip([k, v]) {
            for (h, x) in x.chunks_exact(place.d_head).enumerate() {
                kernels.store_kv(x, part.rows, inside, &mut bytes[part.head(h)]);
            }
        }
    }

    /// Stores the key of the indexer of layer `l` of a row, `[d]`, or that of the block which ends
    /// there.
    pub(crate) fn store_index(&mut self, l: usize, row: &Row, kernels: Kernels, key: &[f32]) {
        let place = *self.kv_place(l);
        let part = place.index.expect("the layer has an indexer");
        let inside = row.pos % BLOCK_LEN;
        let block = self.table(l, row.seq)[row.pos / BLOCK_LEN];
        let bytes = self.arenas[place.group].block_mut(block);
        kernels.store_kv(key, part.rows, inside, &mut bytes[part.head(0)]);
    }

    /// Reads what [`store_index`](Self::store_index) stored at a position of a sequence.
    pub(crate) fn load_index(
        &self,
        l: usize,
        id: SeqId,
        pos: usize,
        kernels: Kernels,
        key: &mut [f32],
    ) {
        let place = self.kv_place(l);
        let part = place.index.expect("the layer has an indexer");
        let inside = pos % BLOCK_LEN;
        let block = self.table(l, id)[pos / BLOCK_LEN];
        let bytes = self.arenas[place.group].block(block);
        kernels.load_kv(part.rows, inside, &bytes[part.head(0)], key);
    }

    /// The recurrent state of layer `l` in a block.
    pub(crate) fn state(&self, l: usize, block: u32) -> &[f32] {
        let StatePlace { at, n_floats } = *self.state_place(l);
        &self.states.block(block)[at..at + n_floats]
    }

    /// The recurrent state of layer `l` in a block, to be written.
    pub(crate) fn state_mut(&mut self, l: usize, block: u32) -> &mut [f32] {
        let StatePlace { at, n_floats } = *self.state_place(l);
        &mut self.states.block_mut(block)[at..at + n_floats]
    }

    /// A part of the recurrent state of layer `l` in the block that a run starts from, if it does
    /// not start from zeros, and the same part of the block that it ends with.
    pub(crate) fn state_pair(
        &mut self,
        l: usize,
        run: &StateRun,
        part: Range<usize>,
    ) -> (Option<&[f32]>, &mut [f32]) {
        let at = self.state_place(l).at;
        let part = at + part.start..at + part.end;
        match run.start {
            Some(start) => {
                let (from, to) = self.states.pair(start, run.block, part);
                (Some(from), to)
            }
            None => (None, &mut self.states.block_mut(run.block)[part]),
        }
    }

    /// Copies a part of the recurrent state of layer `l`, from element `start` of one block to the
    /// elements `to` of another.
    pub(crate) fn copy_state(
        &mut self,
        l: usize,
        from_block: u32,
        start: usize,
        to_block: u32,
        to: Range<usize>,
    ) {
        let at = self.state_place(l).at;
        let to = at + to.start..at + to.end;
        self.states.copy(from_block, at + start, to_block, to);
    }

    fn kv_place(&self, l: usize) -> &KvPlace {
        match self.place(self.layers[l - self.first_layer].kv) {
            Some(Place::Kv(place)) => place,
            Some(Place::Shared(other)) => self.kv_place(self.first_layer + other),
            Some(Place::Recurrent(_)) | None => unreachable!("layer {l} has no keys and values"),
        }
    }

    fn state_place(&self, l: usize) -> &StatePlace {
        match self.place(self.layers[l - self.first_layer].recurrent) {
            Some(Place::Recurrent(place)) => place,
            Some(Place::Kv(_) | Place::Shared(_)) | None => {
                unreachable!("layer {l} has no recurrent state")
            }
        }
    }

    fn place(&self, i: Option<usize>) -> Option<&Place> {
        i.map(|i| &self.places[i])
    }

    /// The first position of a sequence whose keys and values a layer holds, within `positions`.
    pub(super) fn first_held(
        &self,
        id: SeqId,
        place: &KvPlace,
        positions: &Range<usize>,
    ) -> Result<usize, Error> {
        Ok(self
            .seqs
            .first_held(id, place.group)?
            .clamp(positions.start, positions.end))
    }
}

/// The places of keys and values, each once.
pub(super) fn kv_places(places: &[Place]) -> impl Iterator<Item = &KvPlace> {
    places.iter().filter_map(|place| match place {
        Place::Kv(place) => Some(place),
        Place::Shared(_) | Place::Recurrent(_) => None,
    })
}
