//! The state of one executor: its sequences, and where a layer's part of it is.

use std::ops::Range;

use atta_kernels::{Kernels, KvElem, KvLayer};

use super::{
    BLOCK_LEN, Cache, KvType,
    arena::KvArena,
    plan::{KvPlace, LayerPlaces, Place, StatePlace, StatePlan},
};
use crate::{
    Error, Row, SeqId,
    seqs::{BlockCopy, SeqSize, SeqTable, StateRun},
    spec::{LayerSpec, ModelSpec, StateKind},
};

/// Keys and values, and recurrent states, of a range of layers.
pub struct KvCache<A: KvArena> {
    /// The blocks of each sequence, in one group for each kind of state of the layers.
    pub(super) seqs: SeqTable,
    /// The bytes of each group of keys and values.
    pub(super) arenas: Vec<A>,
    /// Recurrent states; without blocks if no layer has one.
    pub(super) states: A::States,
    /// Of the layers of the range: [`StatePlan::places`].
    pub(super) places: Vec<Place>,
    /// Of each layer of the range.
    pub(super) layers: Vec<LayerPlaces>,
    pub(super) first_layer: usize,
    /// Of each layer of the range, how keys are turned where that depends on `n_ctx`:
    /// [`Rope::regime`](crate::spec::Rope::regime).
    pub(super) rope_regimes: Vec<usize>,
}

impl<A: KvArena> std::fmt::Debug for KvCache<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvCache")
            .field("seqs", &self.seqs)
            .finish_non_exhaustive()
    }
}

/// The state that a cache has room for.
#[derive(Clone, Debug)]
pub struct CacheSize<'a> {
    /// The model.
    pub spec: &'a ModelSpec,
    /// Its layers that are here.
    pub layers: Range<usize>,
    /// Element types.
    pub kv: KvType,
    /// Sequences.
    pub seqs: SeqSize,
}

/// Where a layer's keys and values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayerPlace {
    /// Group of layers with the same block tables, and number of its arena.
    pub group: usize,
    /// First byte in a block, and element type, of keys: of each head 32 rows.
    pub k: (usize, KvElem),
    /// The same of values.
    pub v: (usize, KvElem),
}

impl<A: KvArena> KvCache<A> {
    /// Room for sequences of this size; `arena` makes so many blocks of so many bytes, and `states`
    /// so many of so many floats.
    ///
    /// # Errors
    /// Those of `arena` and `states`.
    pub fn new<E>(
        of: CacheSize<'_>,
        mut arena: impl FnMut(usize, usize) -> Result<A, E>,
        states: impl FnOnce(usize, usize) -> Result<A::States, E>,
    ) -> Result<Self, E> {
        let CacheSize {
            spec,
            layers,
            kv,
            seqs: size,
        } = of;
        let size = &size;
        let first_layer = layers.start;
        let layer_specs = spec.layers[layers.clone()].iter();
        let rope_regimes = layer_specs.map(|l| rope_regime(l, size.n_ctx)).collect();
        let plan = StatePlan::new(spec, layers, kv);
        let seqs = SeqTable::new(&plan.kinds(), size);
        let arena = |&(kind, bytes): &(StateKind, usize)| arena(size.n_blocks(kind), bytes);
        Ok(Self {
            seqs,
            arenas: plan.kv_groups.iter().map(arena).collect::<Result<_, E>>()?,
            states: states(
                size.n_blocks(StateKind::Recurrent),
                plan.block_floats.unwrap_or(0),
            )?,
            places: plan.places,
            layers: plan.layers,
            first_layer,
            rope_regimes,
        })
    }

    /// The blocks of each sequence.
    pub fn seqs(&self) -> &SeqTable {
        &self.seqs
    }

    /// The blocks of each sequence, for changes; queued copies are performed by
    /// [`copy_blocks`](Self::copy_blocks).
    pub fn seqs_mut(&mut self) -> &mut SeqTable {
        &mut self.seqs
    }

    /// Performs the queued block copies, before anything is written.
    pub fn copy_blocks(&mut self) {
        for BlockCopy {
            group,
            from,
            to,
            first,
        } in self.seqs.take_copies()
        {
            let arena = &mut self.arenas[group];
            if first == 0 {
                arena.copy_to(from, 0..arena.block_bytes(), to, 0);
                continue;
            }
            for place in kv_places(&self.places).filter(|place| place.group == group) {
                for part in place.parts() {
                    (0..part.n_heads)
                        .flat_map(|h| part.arrays(h))
                        .map(|array| array.rows(first..BLOCK_LEN))
                        .for_each(|rows| arena.copy_to(from, rows.clone(), to, rows.start));
                }
            }
        }
    }

    /// Appends all rows of a batch to their sequences, or none. `check` may refuse a row.
    ///
    /// # Errors
    /// Those of [`SeqTable::admit`].
    pub fn admit(
        &mut self,
        rows: &[Row],
        check: impl Fn(usize, &Row) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let admitted = self.seqs.admit(rows, check);
        self.copy_blocks();
        admitted
    }

    /// The bytes of each group.
    pub fn arenas(&self) -> &[A] {
        &self.arenas
    }

    /// The blocks of recurrent states.
    pub fn states(&self) -> &A::States {
        &self.states
    }

    /// The first float of the recurrent state of layer `l` in a block.
    pub fn state_at(&self, l: usize) -> usize {
        self.state_place(l).at
    }

    /// Where keys and values of attention layer `l` of the model are: those that it reads.
    pub fn layer_place(&self, l: usize) -> KvLayerPlace {
        let place = self.kv_place(l);
        let v = place.v.unwrap_or(place.k);
        KvLayerPlace {
            group: place.group,
            k: (place.k.at, place.k.rows.elem),
            v: (v.at, v.rows.elem),
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

    /// The blocks of a sequence for attention layer `l`.
    pub(crate) fn table(&self, l: usize, id: SeqId) -> &[u32] {
        self.seqs.blocks(id, self.kv_place(l).group)
    }

    pub(super) fn kv_place(&self, l: usize) -> &KvPlace {
        match self.place(self.layers[l - self.first_layer].kv) {
            Some(Place::Kv(place)) => place,
            Some(Place::Shared(other)) => self.kv_place(self.first_layer + other),
            Some(Place::Recurrent(_)) | None => unreachable!("layer {l} has no keys and values"),
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

impl CacheSize<'_> {
    /// The sequences of a cache, without their bytes.
    pub fn seq_table(&self) -> SeqTable {
        let plan = StatePlan::new(self.spec, self.layers.clone(), self.kv);
        SeqTable::new(&plan.kinds(), &self.seqs)
    }

    /// How keys of some layers are turned, where that depends on the length of the context.
    pub(super) fn rope_regime(&self, layers: Range<usize>) -> u32 {
        let layers = self.spec.layers[layers].iter();
        let regimes = layers.map(|l| rope_regime(l, self.seqs.n_ctx));
        regimes.max().unwrap_or(0) as u32
    }

    /// Bytes that a cache allocates for it.
    pub fn bytes(&self) -> u64 {
        let plan = StatePlan::new(self.spec, self.layers.clone(), self.kv);
        let states = (StateKind::Recurrent, 4 * plan.block_floats.unwrap_or(0));
        let groups = plan.kv_groups.iter().chain(std::iter::once(&states));
        let n_blocks = |kind| self.seqs.n_blocks(kind) as u64;
        let bytes = groups.map(|&(kind, bytes)| n_blocks(kind).saturating_mul(bytes as u64));
        bytes.fold(0, u64::saturating_add)
    }
}

impl Cache {
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
}

/// How keys of a layer are turned, where that depends on the length of the context.
fn rope_regime(layer: &LayerSpec, n_ctx: usize) -> usize {
    let rope = layer.attention().and_then(|a| a.rope.as_ref());
    rope.map_or(0, |rope| rope.regime(n_ctx))
}

/// The places of keys and values, each once.
pub(super) fn kv_places(places: &[Place]) -> impl Iterator<Item = &KvPlace> {
    places.iter().filter_map(|place| match place {
        Place::Kv(place) => Some(place),
        Place::Shared(_) | Place::Recurrent(_) => None,
    })
}
