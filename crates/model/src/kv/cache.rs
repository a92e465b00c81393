//! The cache of one executor: its sequences, their block tables, and where a layer's keys and values are.

use std::ops::Range;

use atta_kernels::{Kernels, KvElem, KvLayer};

use super::{BLOCK_LEN, KvType, blocks::Blocks};
use crate::{
    Error, Row, SeqId,
    spec::{ModelSpec, Retention},
};

/// Keys and values of a range of layers.
pub(crate) struct Cache {
    /// One arena for each group of layers with the same retention.
    pub(super) groups: Vec<Blocks>,
    /// For each layer of the range: its group, and where it lies in a block.
    pub(super) places: Vec<Place>,
    slots: Vec<Slot>,
    pub(super) kv: KvType,
    pub(super) first_layer: usize,
    /// How keys are turned where that depends on `n_ctx`: [`Rope::regime`](crate::spec::Rope::regime).
    pub(super) rope_regime: usize,
    n_ctx: usize,
}

/// Where a layer's part of a block is.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) group: usize,
    pub(super) k_at: usize,
    pub(super) v_at: usize,
    pub(super) n_kv_heads: usize,
    pub(super) d_head: usize,
}

/// Room for one sequence, used again and again.
struct Slot {
    /// How many sequences were here before.
    generation: u32,
    seq: Option<Sequence>,
}

pub(super) struct Sequence {
    pub(super) len: usize,
    /// For each group the blocks of positions `0..len`, in order.
    pub(super) tables: Vec<Vec<u32>>,
}

impl Cache {
    /// Room for `n_seqs` sequences of `n_ctx` positions each.
    pub(crate) fn new(spec: &ModelSpec, layers: Range<usize>, kv: KvType, n_ctx: usize, n_seqs: usize) -> Self {
        let first_layer = layers.start;
        let ropes = spec.layers[layers.clone()].iter().filter_map(|l| l.attention().rope.as_ref());
        let rope_regime = ropes.map(|r| r.regime(n_ctx)).max().unwrap_or(0);
        let (places, sizes) = plan(spec, layers, kv);
        let n_blocks = n_ctx.div_ceil(BLOCK_LEN) * n_seqs;
        let groups = sizes.into_iter().map(|(_, block_bytes)| Blocks::new(n_blocks, block_bytes)).collect();
        let slots = (0..n_seqs).map(|_| Slot { generation: 0, seq: None }).collect();
        Self { groups, places, slots, kv, first_layer, rope_regime, n_ctx }
    }

    /// Bytes that [`new`](Self::new) allocates for the same arguments.
    pub(crate) fn bytes(spec: &ModelSpec, layers: Range<usize>, kv: KvType, n_ctx: usize, n_seqs: usize) -> u64 {
        let (_, sizes) = plan(spec, layers, kv);
        let n_blocks = (n_ctx.div_ceil(BLOCK_LEN) as u64).saturating_mul(n_seqs as u64);
        sizes.iter().map(|&(_, bytes)| n_blocks.saturating_mul(bytes as u64)).fold(0, u64::saturating_add)
    }

    /// Positions that a sequence may have.
    pub(crate) fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    pub(crate) fn new_seq(&mut self) -> Result<SeqId, Error> {
        let n_blocks = self.n_ctx.div_ceil(BLOCK_LEN);
        let n_slots = self.slots.len();
        let (index, slot) = self
            .slots
            .iter_mut()
            .enumerate()
            .find(|(_, s)| s.seq.is_none())
            .ok_or(Error::NoRoomForSequence(n_slots))?;
        // The tables get their full capacity now, so that a step never allocates.
        let tables = self.groups.iter().map(|_| Vec::with_capacity(n_blocks)).collect();
        slot.seq = Some(Sequence { len: 0, tables });
        Ok(SeqId { index: index as u32, generation: slot.generation })
    }

    pub(super) fn seq(&self, id: SeqId) -> Result<&Sequence, Error> {
        let slot = self.slots.get(id.index as usize).filter(|s| s.generation == id.generation);
        slot.and_then(|s| s.seq.as_ref()).ok_or(Error::NoSequence(id))
    }

    /// A sequence, and the blocks it may take and give back.
    fn seq_mut(&mut self, id: SeqId) -> Result<(&mut Sequence, &mut [Blocks]), Error> {
        let slot = self.slots.get_mut(id.index as usize).filter(|s| s.generation == id.generation);
        let seq = slot.and_then(|s| s.seq.as_mut()).ok_or(Error::NoSequence(id))?;
        Ok((seq, &mut self.groups))
    }

    pub(crate) fn len(&self, id: SeqId) -> Result<usize, Error> {
        Ok(self.seq(id)?.len)
    }

    pub(crate) fn fork(&mut self, id: SeqId) -> Result<SeqId, Error> {
        let Sequence { len, tables } = self.seq(id)?;
        let (len, tables) = (*len, tables.clone());
        let fork = self.new_seq()?;
        let (new, groups) = self.seq_mut(fork)?;
        new.len = len;
        for ((new, old), group) in new.tables.iter_mut().zip(&tables).zip(groups) {
            new.extend_from_slice(old);
            old.iter().for_each(|&block| group.share(block));
        }
        Ok(fork)
    }

    pub(crate) fn truncate(&mut self, id: SeqId, len: usize) -> Result<(), Error> {
        let (seq, groups) = self.seq_mut(id)?;
        seq.len = seq.len.min(len);
        let keep = seq.len.div_ceil(BLOCK_LEN);
        for (table, group) in seq.tables.iter_mut().zip(groups) {
            table.drain(keep.min(table.len())..).for_each(|block| group.give_back(block));
        }
        Ok(())
    }

    pub(crate) fn drop_seq(&mut self, id: SeqId) -> Result<(), Error> {
        self.truncate(id, 0)?;
        let slot = &mut self.slots[id.index as usize];
        slot.seq = None;
        slot.generation = slot.generation.wrapping_add(1);
        Ok(())
    }

    /// Adds one position to a sequence; its last block is its own afterwards.
    pub(crate) fn extend(&mut self, id: SeqId) -> Result<(), Error> {
        let n_ctx = self.n_ctx;
        let (seq, groups) = self.seq_mut(id)?;
        let has_room = |(table, group): (&Vec<u32>, &Blocks)| match table.last() {
            Some(&last) if !seq.len.is_multiple_of(BLOCK_LEN) => !group.is_shared(last) || group.n_free() > 0,
            _ => group.n_free() > 0,
        };
        // A full group is found before any group is changed.
        if seq.len == n_ctx || !seq.tables.iter().zip(&*groups).all(has_room) {
            return Err(Error::ContextFull { n_ctx });
        }
        for (table, group) in seq.tables.iter_mut().zip(groups) {
            match table.last_mut() {
                Some(last) if !seq.len.is_multiple_of(BLOCK_LEN) => {
                    *last = group.own(*last).expect("a free block was seen above");
                }
                _ => table.extend(group.take()),
            }
        }
        seq.len += 1;
        Ok(())
    }

    /// The blocks of a sequence for layer `l`.
    pub(crate) fn table(&self, l: usize, id: SeqId) -> &[u32] {
        let place = self.places[l - self.first_layer];
        self.seq(id).map_or(&[], |s| &s.tables[place.group])
    }

    /// What attention needs to read layer `l`.
    pub(crate) fn layer(&self, l: usize) -> KvLayer<'_> {
        let place = self.places[l - self.first_layer];
        let blocks = &self.groups[place.group];
        KvLayer {
            arena: blocks.arena(),
            block_bytes: blocks.block_bytes(),
            k_at: place.k_at,
            v_at: place.v_at,
            block_len: BLOCK_LEN,
            n_kv_heads: place.n_kv_heads,
            d_head: place.d_head,
            k_elem: self.kv.k,
            v_elem: self.kv.v,
        }
    }

    /// Stores key and value of a row in layer `l`, each `[n_kv_heads, d_head]`.
    pub(crate) fn store(&mut self, l: usize, row: &Row, kernels: Kernels, [k, v]: [&[f32]; 2]) {
        let (place, pos) = (self.places[l - self.first_layer], row.pos);
        let block = self.table(l, row.seq)[pos / BLOCK_LEN];
        let bytes = self.groups[place.group].block_mut(block);
        for h in 0..place.n_kv_heads {
            let head = h * place.d_head..(h + 1) * place.d_head;
            let row = h * BLOCK_LEN + pos % BLOCK_LEN;
            kernels.store_kv(&k[head.clone()], self.kv.k, &mut bytes[place.row_bytes(place.k_at, row, self.kv.k)]);
            kernels.store_kv(&v[head], self.kv.v, &mut bytes[place.row_bytes(place.v_at, row, self.kv.v)]);
        }
    }
}

impl Place {
    /// The bytes of one row of d_head elements within a block.
    pub(super) fn row_bytes(&self, at: usize, row: usize, elem: KvElem) -> Range<usize> {
        let bytes = elem.row_bytes(self.d_head);
        at + row * bytes..at + (row + 1) * bytes
    }
}

/// The place of each layer, and retention and block size of each group.
fn plan(spec: &ModelSpec, layers: Range<usize>, kv: KvType) -> (Vec<Place>, Vec<(Retention, usize)>) {
    let mut groups: Vec<(Retention, usize)> = Vec::new();
    let mut places = Vec::new();
    for layer in &spec.layers[layers] {
        let (a, retention) = (layer.attention(), layer.retention());
        let group = groups.iter().position(|(r, _)| *r == retention).unwrap_or_else(|| {
            groups.push((retention, 0));
            groups.len() - 1
        });
        let k_at = groups[group].1;
        let n_rows = BLOCK_LEN * a.n_kv_heads;
        let v_at = k_at + n_rows * kv.k.row_bytes(a.d_head);
        groups[group].1 = v_at + n_rows * kv.v.row_bytes(a.d_head);
        places.push(Place { group, k_at, v_at, n_kv_heads: a.n_kv_heads, d_head: a.d_head });
    }
    (places, groups)
}
