//! The cache of one executor: its sequences, their block tables, and where a layer's keys and values are.

use std::ops::Range;

use atta_kernels::{Kernels, KvLayer};

use super::{
    BLOCK_LEN, KvType,
    plan::{Place, plan},
    table::{Group, Table},
};
use crate::{Error, Row, SeqId, spec::ModelSpec};

/// Keys and values of a range of layers.
pub(crate) struct Cache {
    /// One for each retention of the layers.
    pub(super) groups: Vec<Group>,
    /// Of each layer of the range.
    pub(super) places: Vec<Place>,
    slots: Vec<Slot>,
    pub(super) first_layer: usize,
    /// How keys are turned where that depends on `n_ctx`: [`Rope::regime`](crate::spec::Rope::regime).
    pub(super) rope_regime: usize,
    n_ctx: usize,
}

/// What a cache is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheSize {
    pub(crate) kv: KvType,
    /// Positions of a sequence.
    pub(crate) n_ctx: usize,
    pub(crate) n_seqs: usize,
    /// Positions that come at once.
    pub(crate) n_batch: usize,
    /// Positions that stay behind a gap; `None`: there are no gaps.
    pub(crate) n_recent: Option<usize>,
    /// Positions of all sequences together, at least; `None`: each has its own.
    pub(crate) n_shared: Option<usize>,
}

/// Room for one sequence, used again and again.
struct Slot {
    /// How many sequences were here before.
    generation: u32,
    seq: Option<Sequence>,
}

pub(super) struct Sequence {
    pub(super) len: usize,
    /// Of each group.
    pub(super) tables: Vec<Table>,
}

impl Cache {
    /// Room for sequences of this size.
    pub(crate) fn new(spec: &ModelSpec, layers: Range<usize>, size: &CacheSize) -> Self {
        let CacheSize { kv, n_ctx, n_seqs, .. } = *size;
        let first_layer = layers.start;
        let ropes = spec.layers[layers.clone()].iter().filter_map(|l| l.attention().rope.as_ref());
        let rope_regime = ropes.map(|r| r.regime(n_ctx)).max().unwrap_or(0);
        let (places, sizes) = plan(spec, layers, kv);
        let group = |(retention, bytes)| Group::new(retention, size, bytes);
        let groups = sizes.into_iter().map(group).collect();
        let slots = (0..n_seqs).map(|_| Slot { generation: 0, seq: None }).collect();
        Self { groups, places, slots, first_layer, rope_regime, n_ctx }
    }

    /// Bytes that [`new`](Self::new) allocates for the same arguments.
    pub(crate) fn bytes(spec: &ModelSpec, layers: Range<usize>, size: &CacheSize) -> u64 {
        let (_, sizes) = plan(spec, layers, size.kv);
        let bytes = sizes
            .iter()
            .map(|&(retention, bytes)| (Group::n_blocks(retention, size) as u64).saturating_mul(bytes as u64));
        bytes.fold(0, u64::saturating_add)
    }

    /// Positions whose blocks are taken, and how many there are, of the layers that keep most.
    pub(crate) fn taken(&self) -> (usize, usize) {
        let group = self.groups.iter().max_by_key(|group| group.blocks.n_blocks());
        group.map_or((0, 0), |group| {
            let n = group.blocks.n_blocks();
            ((n - group.blocks.n_free()) * BLOCK_LEN, n * BLOCK_LEN)
        })
    }

    /// Positions that a sequence may have.
    pub(crate) fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    pub(crate) fn new_seq(&mut self) -> Result<SeqId, Error> {
        let (n_blocks, n_slots) = (self.n_ctx.div_ceil(BLOCK_LEN), self.slots.len());
        let mut slots = self.slots.iter_mut().enumerate();
        let (index, slot) = slots.find(|(_, s)| s.seq.is_none()).ok_or(Error::NoRoomForSequence(n_slots))?;
        // The tables get their full capacity now, so that a step never allocates.
        let tables = self.groups.iter().map(|_| Table::new(n_blocks)).collect();
        slot.seq = Some(Sequence { len: 0, tables });
        Ok(SeqId { index: index as u32, generation: slot.generation })
    }

    pub(super) fn seq(&self, id: SeqId) -> Result<&Sequence, Error> {
        let slot = self.slots.get(id.index as usize).filter(|s| s.generation == id.generation);
        slot.and_then(|s| s.seq.as_ref()).ok_or(Error::NoSequence(id))
    }

    /// A sequence, and the groups whose blocks it may take and give back.
    pub(super) fn seq_mut(&mut self, id: SeqId) -> Result<(&mut Sequence, &mut [Group]), Error> {
        let slot = self.slots.get_mut(id.index as usize).filter(|s| s.generation == id.generation);
        let seq = slot.and_then(|s| s.seq.as_mut()).ok_or(Error::NoSequence(id))?;
        Ok((seq, &mut self.groups))
    }

    pub(crate) fn len(&self, id: SeqId) -> Result<usize, Error> {
        Ok(self.seq(id)?.len)
    }

    pub(crate) fn fork(&mut self, id: SeqId) -> Result<SeqId, Error> {
        self.seq(id)?;
        let fork = self.new_seq()?;
        let (seq, groups) = self.seq_mut(id)?;
        let len = seq.len;
        let tables = groups.iter_mut().zip(&seq.tables).map(|(group, table)| group.fork(table)).collect();
        *self.seq_mut(fork)?.0 = Sequence { len, tables };
        Ok(fork)
    }

    /// What [`truncate`](Self::truncate) to `len` would leave.
    pub(crate) fn keeps(&self, id: SeqId, len: usize) -> Result<usize, Error> {
        let seq = self.seq(id)?;
        let len = seq.len.min(len);
        let is_whole = self.groups.iter().zip(&seq.tables).all(|(group, table)| group.is_whole(table, len));
        Ok(if is_whole { len } else { 0 })
    }

    /// Forgets everything from position `len` on; all, if a window does not reach back that far any more. Returns what is left.
    pub(crate) fn truncate(&mut self, id: SeqId, len: usize) -> Result<usize, Error> {
        let left = self.keeps(id, len)?;
        let (seq, groups) = self.seq_mut(id)?;
        seq.len = left;
        for (table, group) in seq.tables.iter_mut().zip(groups) {
            group.truncate(table, seq.len);
        }
        Ok(seq.len)
    }

    pub(crate) fn drop_seq(&mut self, id: SeqId) -> Result<(), Error> {
        self.truncate(id, 0)?;
        let slot = &mut self.slots[id.index as usize];
        slot.seq = None;
        slot.generation = slot.generation.wrapping_add(1);
        Ok(())
    }

    /// Adds one position to a sequence, which must see all that it is made to see; its last block is its own afterwards.
    pub(crate) fn extend(&mut self, id: SeqId) -> Result<(), Error> {
        let (seq, groups) = self.seq_mut(id)?;
        if !groups.iter().zip(&seq.tables).all(|(group, table)| group.is_whole(table, seq.len)) {
            return Err(Error::State("a window of the sequence is not there"));
        }
        self.add_position(id)
    }

    /// The same for one whose keys and values are going to be filled in.
    pub(super) fn add_position(&mut self, id: SeqId) -> Result<(), Error> {
        let n_ctx = self.n_ctx;
        let (seq, groups) = self.seq_mut(id)?;
        let len = seq.len;
        if len == n_ctx {
            return Err(Error::ContextFull { n_ctx });
        }
        // A full group is found before any group is changed.
        if !groups.iter().zip(&seq.tables).all(|(group, table)| group.has_room(table, len)) {
            return Err(Error::OutOfBlocks);
        }
        for (table, group) in seq.tables.iter_mut().zip(groups) {
            group.extend(table, len);
        }
        seq.len += 1;
        Ok(())
    }

    /// The blocks of a sequence for layer `l`.
    pub(crate) fn table(&self, l: usize, id: SeqId) -> &[u32] {
        let place = self.places[l - self.first_layer];
        self.seq(id).map_or(&[], |s| s.tables[place.group].blocks())
    }

    /// What attention needs to read layer `l`.
    pub(crate) fn layer(&self, l: usize) -> KvLayer<'_> {
        let place = &self.places[l - self.first_layer];
        place.layer(&self.groups[place.group].blocks)
    }

    /// Stores key and value of a row in layer `l`, each `[n_kv_heads, d_head]`.
    pub(crate) fn store(&mut self, l: usize, row: &Row, kernels: Kernels, [k, v]: [&[f32]; 2]) {
        let (place, inside) = (self.places[l - self.first_layer], row.pos % BLOCK_LEN);
        let block = self.table(l, row.seq)[row.pos / BLOCK_LEN];
        let bytes = self.groups[place.group].blocks.block_mut(block);
        for (half, x) in [(place.k, k), (place.v, v)] {
            for (h, x) in x.chunks_exact(place.d_head).enumerate() {
                kernels.store_kv(x, half.elem, &mut bytes[half.rows(h, inside..inside + 1)]);
            }
        }
    }
}
