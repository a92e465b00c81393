//! The cache of one executor: its sequences, their block tables, and where a layer's keys and values are.

use std::ops::Range;

use atta_kernels::{Kernels, KvElem, KvLayer};

use super::{BLOCK_LEN, KvType, blocks::Blocks};
use crate::{
    Error, SeqId,
    spec::{ModelSpec, Retention},
};

/// Keys and values of a range of layers.
pub(crate) struct Cache {
    /// One arena for each group of layers with the same retention.
    pub(super) groups: Vec<Blocks>,
    /// For each layer of the range: its group, and where it lies in a block.
    pub(super) places: Vec<Place>,
    pub(super) seqs: Vec<Option<Sequence>>,
    pub(super) kv: KvType,
    first_layer: usize,
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

pub(super) struct Sequence {
    pub(super) len: usize,
    /// For each group the blocks of positions `0..len`, in order.
    pub(super) tables: Vec<Vec<u32>>,
}

impl Cache {
    /// Room for `n_seqs` sequences of `n_ctx` positions each.
    pub(crate) fn new(spec: &ModelSpec, layers: Range<usize>, kv: KvType, n_ctx: usize, n_seqs: usize) -> Self {
        let first_layer = layers.start;
        let (places, sizes) = plan(spec, layers, kv);
        let n_blocks = n_ctx.div_ceil(BLOCK_LEN) * n_seqs;
        let groups = sizes.into_iter().map(|(_, block_bytes)| Blocks::new(n_blocks, block_bytes)).collect();
        let seqs = (0..n_seqs).map(|_| None).collect();
        Self { groups, places, seqs, kv, first_layer, n_ctx }
    }

    /// Bytes that [`new`](Self::new) allocates for the same arguments.
    pub(crate) fn bytes(spec: &ModelSpec, layers: Range<usize>, kv: KvType, n_ctx: usize, n_seqs: usize) -> u64 {
        let (_, sizes) = plan(spec, layers, kv);
        let n_blocks = n_ctx.div_ceil(BLOCK_LEN) * n_seqs;
        sizes.iter().map(|(_, block_bytes)| (n_blocks * block_bytes) as u64).sum()
    }

    /// Positions that a sequence may have.
    pub(crate) fn n_ctx(&self) -> usize {
        self.n_ctx
    }

    pub(crate) fn new_seq(&mut self) -> Result<SeqId, Error> {
        let n_blocks = self.n_ctx.div_ceil(BLOCK_LEN);
        let id = self.seqs.iter().position(Option::is_none).ok_or(Error::NoRoomForSequence(self.seqs.len()))?;
        // The tables get their full capacity now, so that a step never allocates.
        let tables = self.groups.iter().map(|_| Vec::with_capacity(n_blocks)).collect();
        self.seqs[id] = Some(Sequence { len: 0, tables });
        Ok(SeqId(id as u32))
    }

    pub(super) fn seq(&self, id: SeqId) -> Result<&Sequence, Error> {
        self.seqs.get(id.0 as usize).and_then(Option::as_ref).ok_or(Error::NoSequence(id.0))
    }

    pub(crate) fn len(&self, id: SeqId) -> Result<usize, Error> {
        Ok(self.seq(id)?.len)
    }

    pub(crate) fn fork(&mut self, id: SeqId) -> Result<SeqId, Error> {
        self.seq(id)?;
        let fork = self.new_seq()?;
        let [Some(old), Some(new)] =
            self.seqs.get_disjoint_mut([id.0 as usize, fork.0 as usize]).expect("two sequences")
        else {
            return Err(Error::NoSequence(id.0));
        };
        new.len = old.len;
        for ((old, new), group) in old.tables.iter().zip(&mut new.tables).zip(&mut self.groups) {
            new.extend_from_slice(old);
            old.iter().for_each(|&block| group.share(block));
        }
        Ok(fork)
    }

    pub(crate) fn truncate(&mut self, id: SeqId, len: usize) -> Result<(), Error> {
        let seq = self.seqs.get_mut(id.0 as usize).and_then(Option::as_mut).ok_or(Error::NoSequence(id.0))?;
        seq.len = seq.len.min(len);
        let keep = seq.len.div_ceil(BLOCK_LEN);
        for (table, group) in seq.tables.iter_mut().zip(&mut self.groups) {
            table.drain(keep.min(table.len())..).for_each(|block| group.give_back(block));
        }
        Ok(())
    }

    pub(crate) fn drop_seq(&mut self, id: SeqId) -> Result<(), Error> {
        self.truncate(id, 0)?;
        self.seqs[id.0 as usize] = None;
        Ok(())
    }

    /// Adds one position to a sequence; its last block is its own afterwards.
    pub(crate) fn extend(&mut self, id: SeqId) -> Result<(), Error> {
        let n_ctx = self.n_ctx;
        let seq = self.seqs.get_mut(id.0 as usize).and_then(Option::as_mut).ok_or(Error::NoSequence(id.0))?;
        let has_room = |(table, group): (&Vec<u32>, &Blocks)| match table.last() {
            Some(&last) if seq.len % BLOCK_LEN != 0 => !group.is_shared(last) || group.n_free() > 0,
            _ => group.n_free() > 0,
        };
        // A full group is found before any group is changed.
        if seq.len == n_ctx || !seq.tables.iter().zip(&self.groups).all(has_room) {
            return Err(Error::ContextFull { n_ctx });
        }
        for (table, group) in seq.tables.iter_mut().zip(&mut self.groups) {
            match table.last_mut() {
                Some(last) if seq.len % BLOCK_LEN != 0 => {
                    *last = group.own(*last).expect("a free block was seen above")
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
        self.seqs[id.0 as usize].as_ref().map_or(&[], |s| &s.tables[place.group])
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

    /// Stores key and value of one position of layer `l`, each [n_kv_heads, d_head].
    pub(crate) fn store(&mut self, (l, id, pos): (usize, SeqId, usize), kernels: Kernels, k: &[f32], v: &[f32]) {
        let place = self.places[l - self.first_layer];
        let block = self.table(l, id)[pos / BLOCK_LEN];
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
        let v_at = k_at + kv.k.row_bytes(BLOCK_LEN * a.d_kv());
        groups[group].1 = v_at + kv.v.row_bytes(BLOCK_LEN * a.d_kv());
        places.push(Place { group, k_at, v_at, n_kv_heads: a.n_kv_heads, d_head: a.d_head });
    }
    (places, groups)
}
