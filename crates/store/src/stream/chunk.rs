//! How a model is divided into chunks, and which of them stay in memory.
//!
//! Everything here is arithmetic: no file is opened and nothing is allocated for weights. A chunk
//! holds the same share of the rows of every matrix of its group, so that corresponding rows of
//! gate and up arrive together.

use std::{ops::Range, sync::Arc};

use crate::{Extent, Plan, Projection, RowTable, WeightGroup, os::ALIGN};

/// Chunks begin at multiples of so many rows, since kernels take rows in such groups.
const ROWS: u64 = 64;

/// The rows of one matrix that are in a chunk: where they are in the file, and where they go in the
/// chunk's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkSlice {
    /// The bytes of the rows.
    pub(crate) extent: Extent,
    /// The index in the matrix of the first of these rows.
    pub(crate) first: usize,
    /// Where the disk block with the first byte goes in the slot, a multiple of [`ALIGN`].
    pub(crate) at: usize,
}

impl ChunkSlice {
    /// The distance of the first byte from the start of its disk block.
    fn skew(&self) -> usize {
        (self.extent.offset % ALIGN as u64) as usize
    }

    /// The offset in the file of the disk block with the first byte.
    pub(crate) fn block_offset(&self) -> u64 {
        self.extent.offset - self.skew() as u64
    }

    /// Bytes from the start of the first disk block to the last byte.
    pub(crate) fn needed(&self) -> usize {
        self.skew() + self.extent.bytes as usize
    }

    /// Where the disk blocks go in the slot.
    pub(crate) fn blocks(&self) -> Range<usize> {
        self.at..self.at + self.needed().next_multiple_of(ALIGN)
    }

    /// The rows in a slot that was filled.
    pub(crate) fn bytes<'a>(&self, slot: &'a [u8]) -> &'a [u8] {
        let start = self.at + self.skew();
        &slot[start..start + self.extent.bytes as usize]
    }
}

/// Places slices one after the other; returns the size of their slot.
fn lay_out(slices: &mut [ChunkSlice]) -> usize {
    let mut end = 0;
    for slice in slices.iter_mut().filter(|slice| slice.extent.bytes > 0) {
        slice.at = end;
        end = slice.blocks().end;
    }
    end
}

/// A part of a weight group that one request reads.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    /// The rows of each matrix of the group, maybe none.
    pub(crate) slices: Arc<[ChunkSlice]>,
    /// The size of its slot, bytes.
    pub(crate) len: usize,
}

impl Chunk {
    fn new(mut slices: Vec<ChunkSlice>) -> Self {
        let len = lay_out(&mut slices);
        Self {
            slices: slices.into(),
            len,
        }
    }

    /// One expert: row `id` of every table.
    pub(crate) fn expert(tables: &[RowTable], id: u32) -> Self {
        Self::new(
            tables
                .iter()
                .map(|t| ChunkSlice {
                    extent: t.row(id.into()),
                    first: 0,
                    at: 0,
                })
                .collect(),
        )
    }
}

/// The size of a slot into which any expert of these tables fits, bytes.
pub(crate) fn expert_len(tables: &[RowTable]) -> usize {
    tables
        .iter()
        .map(|t| (t.row_bytes as usize).next_multiple_of(ALIGN) + ALIGN)
        .sum()
}

/// All chunks of a model except its experts, in the order of the forward pass.
#[derive(Clone, Debug)]
pub(crate) struct Chunks {
    pub(crate) list: Vec<Chunk>,
    /// The chunks of each group: of all layers in order, of the head, of the embedding.
    groups: Vec<Range<usize>>,
    n_layers: usize,
}

impl Chunks {
    /// Divides a model into chunks of about `target` bytes, or takes every group as one chunk.
    pub(crate) fn new(plan: &Plan, target: Option<usize>) -> Self {
        let groups = plan.layers.iter().flatten().map(|tables| &tables[..]);
        let head = plan.head.as_slice();
        // A tied embedding is the head; another one is resident in a whole model only.
        let embed = if plan.embed == plan.head || target.is_some() {
            &[]
        } else {
            plan.embed.as_slice()
        };
        let mut chunks = Self {
            list: Vec::new(),
            groups: Vec::new(),
            n_layers: plan.layers.len(),
        };
        for tables in groups.chain([head, embed]) {
            let start = chunks.list.len();
            chunks.list.extend(divide(tables, target));
            chunks.groups.push(start..chunks.list.len());
        }
        chunks
    }

    /// The chunks of a group; none for experts and rows of the embedding.
    pub(crate) fn of(&self, group: WeightGroup<'_>) -> Range<usize> {
        let n_groups = Projection::ALL.len();
        let index = match group {
            WeightGroup::Layer(l, group) if l < self.n_layers => l * n_groups + group as usize,
            WeightGroup::Head => self.n_layers * n_groups,
            WeightGroup::Layer(..)
            | WeightGroup::Experts(..)
            | WeightGroup::EmbedRows(_)
            | WeightGroup::LayerEmbedRows(_) => return 0..0,
        };
        self.groups[index].clone()
    }

    /// The chunks that hold the embedding: its own or, if the two are tied, those of the head.
    pub(crate) fn of_embedding(&self, is_tied: bool) -> Range<usize> {
        if is_tied {
            self.of(WeightGroup::Head)
        } else {
            self.groups[self.n_layers * Projection::ALL.len() + 1].clone()
        }
    }

    /// The chunks of some layers.
    pub(crate) fn of_layers(&self, layers: Range<usize>) -> Range<usize> {
        let n_groups = Projection::ALL.len();
        let end = layers.end.min(self.n_layers);
        match layers.start < end {
            true => self.groups[layers.start * n_groups].start..self.groups[end * n_groups - 1].end,
            false => 0..0,
        }
    }

    /// The size of the largest chunk that is not `pinned`, bytes.
    pub(crate) fn largest(&self, pinned: &[bool]) -> usize {
        self.list
            .iter()
            .zip(pinned)
            .filter(|(_, pinned)| !**pinned)
            .map(|(chunk, _)| chunk.len)
            .max()
            .unwrap_or(0)
    }

    /// The size of the slots of all chunks, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.list.iter().map(|chunk| chunk.len as u64).sum()
    }

    /// Chooses the chunks that stay in memory, at most `bytes` of them. They are spread evenly over
    /// the model, so that neither the disk nor the kernels wait for the other at one end of it. The
    /// choice never changes: a pass reads chunks in a cycle, and a least-recently-used cache would
    /// always have just evicted the next one.
    pub(crate) fn pin(&self, bytes: u64) -> Vec<bool> {
        let total = self.bytes();
        let mut left = bytes;
        let mut credit = 0.0;
        let share = if total == 0 {
            1.0
        } else {
            (bytes as f64 / total as f64).min(1.0)
        };
        let mut choose = |chunk: &Chunk| {
            let len = chunk.len as f64;
            credit += share * len;
            let is_pinned = (bytes >= total || credit >= 0.5 * len) && chunk.len as u64 <= left;
            if is_pinned {
                credit -= len;
                left -= chunk.len as u64;
            }
            is_pinned
        };
        self.list.iter().map(&mut choose).collect()
    }
}

/// The chunks of one group.
fn divide(tables: &[RowTable], target: Option<usize>) -> Vec<Chunk> {
    let bytes: u64 = tables.iter().map(|t| t.extent.bytes).sum();
    let n_rows = tables.iter().map(RowTable::n_rows).max().unwrap_or(0);
    let n = target
        .map_or(1, |target| bytes.div_ceil(target.max(1) as u64))
        .clamp(1, n_rows.div_ceil(ROWS).max(1));
    // `d * j` does not overflow: row numbers are below 2^32, and there are at most as many chunks
    // as rows.
    let bound = |d: u64, j: u64| {
        if j == n {
            d
        } else {
            (d * j / n).next_multiple_of(ROWS).min(d)
        }
    };
    let chunk = |j| {
        let rows = |t: &RowTable| bound(t.n_rows(), j)..bound(t.n_rows(), j + 1);
        let slice = |t: &RowTable| ChunkSlice {
            extent: t.rows(rows(t)),
            first: rows(t).start as usize,
            at: 0,
        };
        Chunk::new(tables.iter().map(slice).collect())
    };
    (0..n).map(chunk).filter(|chunk| chunk.len > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LayerTables;

    fn table(offset: u64, n_rows: u64, row_bytes: u64) -> RowTable {
        let extent = Extent {
            shard: 0,
            offset,
            bytes: n_rows * row_bytes,
        };
        RowTable::contiguous(extent, row_bytes)
    }

    fn plan() -> Plan {
        let layer = |l: u64| {
            let base = 1_000_000 * l + 33;
            let mixer = vec![
                table(base, 512, 300),
                table(base + 200_000, 128, 300),
                table(base + 300_000, 128, 400),
            ];
            let ffn = vec![
                table(base + 400_000, 700, 300),
                table(base + 700_000, 700, 300),
            ];
            let mut tables = LayerTables::default();
            tables[Projection::Qkv as usize] = mixer;
            tables[Projection::GateUp as usize] = ffn;
            tables[Projection::Down as usize] = vec![table(base + 950_000, 100, 10)];
            tables
        };
        let head = Some(table(5_000_000, 1000, 500));
        Plan {
            layers: vec![layer(0), layer(1)],
            head,
            embed: Some(table(7, 1000, 500)),
            ..Plan::default()
        }
    }

    #[test]
    fn chunks_cover_every_row_of_every_matrix_once_and_in_order() {
        let plan = plan();
        for target in [1, 20_000, 100_000, 1 << 30] {
            let chunks = Chunks::new(&plan, Some(target));
            for (l, group) in [
                (0, Projection::Qkv),
                (1, Projection::GateUp),
                (1, Projection::Down),
            ] {
                for (i, table) in plan
                    .tables_of(WeightGroup::Layer(l, group))
                    .unwrap()
                    .iter()
                    .enumerate()
                {
                    let mut row = 0;
                    for chunk in &chunks.list[chunks.of(WeightGroup::Layer(l, group))] {
                        let slice = chunk.slices[i];
                        let n = slice.extent.bytes / table.row_bytes;
                        assert_eq!(
                            (slice.first as u64, slice.extent),
                            (row, table.rows(row..row + n))
                        );
                        row += n;
                    }
                    assert_eq!(row, table.n_rows());
                }
            }
            assert!(
                chunks
                    .of(WeightGroup::Layer(0, Projection::Router))
                    .is_empty()
            );
            assert!(chunks.of(WeightGroup::Layer(2, Projection::Qkv)).is_empty());
        }
    }

    #[test]
    fn gate_and_up_arrive_row_by_row_together() {
        let chunks = Chunks::new(&plan(), Some(50_000));
        let ffn = chunks.of(WeightGroup::Layer(0, Projection::GateUp));
        assert!(ffn.len() > 5);
        for chunk in &chunks.list[ffn] {
            let [gate, up] = &chunk.slices[..] else {
                panic!()
            };
            assert_eq!((gate.first, gate.extent.bytes), (up.first, up.extent.bytes));
        }
    }

    #[test]
    fn slices_are_disjoint_in_their_slot_and_know_their_bytes() {
        let chunks = Chunks::new(&plan(), Some(50_000));
        for chunk in &chunks.list {
            let mut end = 0;
            for slice in chunk.slices.iter().filter(|slice| slice.extent.bytes > 0) {
                assert!(slice.blocks().start >= end && slice.blocks().end <= chunk.len);
                end = slice.blocks().end;
                let slot: Vec<u8> = (0..chunk.len).map(|i| (i % 251) as u8).collect();
                let at = slice.at + (slice.extent.offset - slice.block_offset()) as usize;
                assert_eq!(slice.bytes(&slot)[0], (at % 251) as u8);
                assert_eq!(slice.bytes(&slot).len() as u64, slice.extent.bytes);
            }
        }
    }

    #[test]
    fn pins_are_spread_evenly_and_stay_below_their_limit() {
        let chunks = Chunks::new(&plan(), Some(10_000));
        let total = chunks.bytes();
        for share in [0, 1, 10, 33, 50, 90, 99] {
            let limit = total * share / 100;
            let pinned = chunks.pin(limit);
            let sum = |range: Range<usize>| -> u64 {
                range
                    .filter(|&i| pinned[i])
                    .map(|i| chunks.list[i].len as u64)
                    .sum()
            };
            let all = sum(0..pinned.len());
            assert!(
                all <= limit && all + 30_000 >= limit,
                "{share}: {all} of {limit}"
            );
            for l in 0..2 {
                let layer = chunks.of_layers(l..l + 1);
                let len: u64 = layer.clone().map(|i| chunks.list[i].len as u64).sum();
                assert!(sum(layer).abs_diff(len * share / 100) < 30_000, "{share}");
            }
        }
        assert!(chunks.pin(total).iter().all(|&pinned| pinned));
        assert_eq!(chunks.largest(&chunks.pin(total)), 0);
    }

    #[test]
    fn a_whole_model_has_one_chunk_per_group_and_its_embedding() {
        let chunks = Chunks::new(&plan(), None);
        assert_eq!(chunks.list.len(), 2 * 3 + 2);
        assert_eq!(chunks.of_embedding(false).len(), 1);
        assert!(
            Chunks::new(&plan(), Some(1000))
                .of_embedding(false)
                .is_empty()
        );
        assert_eq!(chunks.of_layers(1..9), 3..6);
        assert!(chunks.of_layers(2..2).is_empty());
    }
}
