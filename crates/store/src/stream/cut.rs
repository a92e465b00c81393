//! How a model is cut into pieces, and which of them stay in memory.
//!
//! Everything here is arithmetic: no file is opened and nothing is allocated for weights. A piece
//! holds the same share of the rows of every matrix of its unit, so that the two factors of a gated
//! block arrive row by row together.

use std::{ops::Range, sync::Arc};

use crate::{Extent, Plan, RowTable, Stage, Unit, os::ALIGN};

/// Rows are handed over in multiples of this, as kernels take them.
const ROWS: u64 = 64;

/// Some rows of a matrix: where they are in the file, and where they go in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The rows.
    pub(crate) extent: Extent,
    /// Which row of the matrix the first one is.
    pub(crate) first: usize,
    /// Where the block of the first byte goes in the slot, a multiple of [`ALIGN`].
    pub(crate) at: usize,
}

impl Cut {
    /// How far the first byte is into its block.
    fn skew(&self) -> usize {
        (self.extent.offset % ALIGN as u64) as usize
    }

    /// The offset of the block of the first byte.
    pub(crate) fn block_offset(&self) -> u64 {
        self.extent.offset - self.skew() as u64
    }

    /// Bytes from the start of the first block to the last byte.
    pub(crate) fn needed(&self) -> usize {
        self.skew() + self.extent.bytes as usize
    }

    /// Where the blocks of the rows are in a slot.
    pub(crate) fn blocks(&self) -> Range<usize> {
        self.at..self.at + self.needed().next_multiple_of(ALIGN)
    }

    /// The rows in a slot that was filled.
    pub(crate) fn bytes<'a>(&self, slot: &'a [u8]) -> &'a [u8] {
        let start = self.at + self.skew();
        &slot[start..start + self.extent.bytes as usize]
    }
}

/// Lays cuts out one after the other; returns how large a slot they need.
fn lay_out(cuts: &mut [Cut]) -> usize {
    let mut end = 0;
    for cut in cuts.iter_mut().filter(|cut| cut.extent.bytes > 0) {
        cut.at = end;
        end = cut.blocks().end;
    }
    end
}

/// What is read at once.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// For each matrix of the unit its rows, maybe none.
    pub(crate) cuts: Arc<[Cut]>,
    /// The slot it needs, bytes.
    pub(crate) len: usize,
}

impl Piece {
    fn new(mut cuts: Vec<Cut>) -> Self {
        let len = lay_out(&mut cuts);
        Self {
            cuts: cuts.into(),
            len,
        }
    }

    /// One expert: row `id` of every table.
    pub(crate) fn expert(tables: &[RowTable], id: u32) -> Self {
        Self::new(
            tables
                .iter()
                .map(|t| Cut {
                    extent: t.row(id.into()),
                    first: 0,
                    at: 0,
                })
                .collect(),
        )
    }
}

/// The slot that any expert of these tables fits into, bytes.
pub(crate) fn expert_len(tables: &[RowTable]) -> usize {
    tables
        .iter()
        .map(|t| (t.row_bytes as usize).next_multiple_of(ALIGN) + ALIGN)
        .sum()
}

/// All pieces of a model but the experts, in the order in which a forward pass comes to them.
#[derive(Clone, Debug)]
pub(crate) struct Pieces {
    pub(crate) list: Vec<Piece>,
    /// The pieces of each unit: of the stages, of the head, of the embedding.
    units: Vec<Range<usize>>,
    n_layers: usize,
}

impl Pieces {
    /// Cuts a model into pieces of about `target` bytes, or leaves every unit whole.
    pub(crate) fn new(plan: &Plan, target: Option<usize>) -> Self {
        let stages = plan.layers.iter().flatten().map(|tables| &tables[..]);
        let head = plan.head.as_slice();
        // A tied embedding is the head; another one is held whole or not at all.
        let embed = if plan.embed == plan.head || target.is_some() {
            &[]
        } else {
            plan.embed.as_slice()
        };
        let mut pieces = Self {
            list: Vec::new(),
            units: Vec::new(),
            n_layers: plan.layers.len(),
        };
        for tables in stages.chain([head, embed]) {
            let start = pieces.list.len();
            pieces.list.extend(cut(tables, target));
            pieces.units.push(start..pieces.list.len());
        }
        pieces
    }

    /// The pieces of a unit; none of what is not cut.
    pub(crate) fn of(&self, unit: Unit<'_>) -> Range<usize> {
        let n_stages = Stage::ALL.len();
        let index = match unit {
            Unit::Stage(l, stage) if l < self.n_layers => l * n_stages + stage as usize,
            Unit::Head => self.n_layers * n_stages,
            Unit::Stage(..) | Unit::Experts(..) | Unit::EmbedRows(_) => return 0..0,
        };
        self.units[index].clone()
    }

    /// The pieces in which the embedding can be found: its own or, where they are one, those of the
    /// head.
    pub(crate) fn of_embedding(&self, is_tied: bool) -> Range<usize> {
        if is_tied {
            self.of(Unit::Head)
        } else {
            self.units[self.n_layers * Stage::ALL.len() + 1].clone()
        }
    }

    /// The pieces of some layers.
    pub(crate) fn of_layers(&self, layers: Range<usize>) -> Range<usize> {
        let n_stages = Stage::ALL.len();
        let end = layers.end.min(self.n_layers);
        match layers.start < end {
            true => self.units[layers.start * n_stages].start..self.units[end * n_stages - 1].end,
            false => 0..0,
        }
    }

    /// The largest piece that is not `pinned`, bytes.
    pub(crate) fn largest(&self, pinned: &[bool]) -> usize {
        self.list
            .iter()
            .zip(pinned)
            .filter(|(_, pinned)| !**pinned)
            .map(|(piece, _)| piece.len)
            .max()
            .unwrap_or(0)
    }

    /// Bytes of all pieces in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.list.iter().map(|piece| piece.len as u64).sum()
    }

    /// Which pieces stay in memory if at most `bytes` may: spread evenly, so that reading never has
    /// to wait for computing at one end of the model and computing for reading at the other.
    /// The choice never changes: of what is read in a circle, a cache of the last used would
    /// hold nothing that comes next.
    pub(crate) fn pin(&self, bytes: u64) -> Vec<bool> {
        let total = self.bytes();
        let (mut left, mut credit) = (bytes, 0.0);
        let share = if total == 0 {
            1.0
        } else {
            (bytes as f64 / total as f64).min(1.0)
        };
        let mut choose = |piece: &Piece| {
            let len = piece.len as f64;
            credit += share * len;
            let is_pinned = (bytes >= total || credit >= 0.5 * len) && piece.len as u64 <= left;
            if is_pinned {
                credit -= len;
                left -= piece.len as u64;
            }
            is_pinned
        };
        self.list.iter().map(&mut choose).collect()
    }
}

/// The pieces of one unit.
fn cut(tables: &[RowTable], target: Option<usize>) -> Vec<Piece> {
    let bytes: u64 = tables.iter().map(|t| t.extent.bytes).sum();
    let n_rows = tables.iter().map(RowTable::n_rows).max().unwrap_or(0);
    let n = target
        .map_or(1, |target| bytes.div_ceil(target.max(1) as u64))
        .clamp(1, n_rows.div_ceil(ROWS).max(1));
    // Row numbers are below 2^32 and so are pieces, since a piece has at least a row of some
    // matrix.
    let bound = |d: u64, j: u64| {
        if j == n {
            d
        } else {
            (d * j / n).next_multiple_of(ROWS).min(d)
        }
    };
    let piece = |j| {
        let rows = |t: &RowTable| bound(t.n_rows(), j)..bound(t.n_rows(), j + 1);
        let cut = |t: &RowTable| Cut {
            extent: t.rows(rows(t)),
            first: rows(t).start as usize,
            at: 0,
        };
        Piece::new(tables.iter().map(cut).collect())
    };
    (0..n).map(piece).filter(|piece| piece.len > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(offset: u64, n_rows: u64, row_bytes: u64) -> RowTable {
        RowTable {
            extent: Extent {
                shard: 0,
                offset,
                bytes: n_rows * row_bytes,
            },
            row_bytes,
        }
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
            [
                mixer,
                vec![],
                vec![],
                ffn,
                vec![table(base + 950_000, 100, 10)],
            ]
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
    fn pieces_cover_every_row_of_every_matrix_once_and_in_order() {
        let plan = plan();
        for target in [1, 20_000, 100_000, 1 << 30] {
            let pieces = Pieces::new(&plan, Some(target));
            for (l, stage) in [(0, Stage::MixerIn), (1, Stage::FfnIn), (1, Stage::FfnOut)] {
                for (i, table) in plan
                    .parts(Unit::Stage(l, stage))
                    .unwrap()
                    .iter()
                    .enumerate()
                {
                    let mut row = 0;
                    for piece in &pieces.list[pieces.of(Unit::Stage(l, stage))] {
                        let cut = piece.cuts[i];
                        let n = cut.extent.bytes / table.row_bytes;
                        assert_eq!(
                            (cut.first as u64, cut.extent),
                            (row, table.rows(row..row + n))
                        );
                        row += n;
                    }
                    assert_eq!(row, table.n_rows());
                }
            }
            assert!(pieces.of(Unit::Stage(0, Stage::Router)).is_empty());
            assert!(pieces.of(Unit::Stage(2, Stage::MixerIn)).is_empty());
        }
    }

    #[test]
    fn the_factors_of_a_gated_block_arrive_row_by_row_together() {
        let pieces = Pieces::new(&plan(), Some(50_000));
        let ffn = pieces.of(Unit::Stage(0, Stage::FfnIn));
        assert!(ffn.len() > 5);
        for piece in &pieces.list[ffn] {
            let [gate, up] = &piece.cuts[..] else {
                panic!()
            };
            assert_eq!((gate.first, gate.extent.bytes), (up.first, up.extent.bytes));
        }
    }

    #[test]
    fn cuts_lie_apart_in_their_slot_and_know_their_bytes() {
        let pieces = Pieces::new(&plan(), Some(50_000));
        for piece in &pieces.list {
            let mut end = 0;
            for cut in piece.cuts.iter().filter(|cut| cut.extent.bytes > 0) {
                assert!(cut.blocks().start >= end && cut.blocks().end <= piece.len);
                end = cut.blocks().end;
                let slot: Vec<u8> = (0..piece.len).map(|i| (i % 251) as u8).collect();
                let at = cut.at + (cut.extent.offset - cut.block_offset()) as usize;
                assert_eq!(cut.bytes(&slot)[0], (at % 251) as u8);
                assert_eq!(cut.bytes(&slot).len() as u64, cut.extent.bytes);
            }
        }
    }

    #[test]
    fn pins_are_spread_evenly_and_stay_below_their_limit() {
        let pieces = Pieces::new(&plan(), Some(10_000));
        let total = pieces.bytes();
        for share in [0, 1, 10, 33, 50, 90, 99] {
            let limit = total * share / 100;
            let pinned = pieces.pin(limit);
            let sum = |range: Range<usize>| -> u64 {
                range
                    .filter(|&i| pinned[i])
                    .map(|i| pieces.list[i].len as u64)
                    .sum()
            };
            let all = sum(0..pinned.len());
            assert!(
                all <= limit && all + 30_000 >= limit,
                "{share}: {all} of {limit}"
            );
            for l in 0..2 {
                let layer = pieces.of_layers(l..l + 1);
                let len: u64 = layer.clone().map(|i| pieces.list[i].len as u64).sum();
                assert!(sum(layer).abs_diff(len * share / 100) < 30_000, "{share}");
            }
        }
        assert!(pieces.pin(total).iter().all(|&pinned| pinned));
        assert_eq!(pieces.largest(&pieces.pin(total)), 0);
    }

    #[test]
    fn a_whole_model_has_one_piece_per_unit_and_its_embedding() {
        let pieces = Pieces::new(&plan(), None);
        assert_eq!(pieces.list.len(), 2 * 3 + 2);
        assert_eq!(pieces.of_embedding(false).len(), 1);
        assert!(
            Pieces::new(&plan(), Some(1000))
                .of_embedding(false)
                .is_empty()
        );
        assert_eq!(pieces.of_layers(1..9), 3..6);
        assert!(pieces.of_layers(2..2).is_empty());
    }
}
