//! Units: the portions in which weights are asked for, and the guards through which they are read.
//!
//! A [`Plan`] is written once by whoever knows the tensors; it says which byte ranges make up each
//! unit. A unit is what one step of computing needs at the same time, such as the gate and the
//! other factor of a feed-forward block. A source may hand it over in several pieces, each with
//! some rows of every matrix: a model that is read from disk needs room for a few of those, not for
//! whole matrices.

use std::ops::Range;

use crate::{ModelFiles, stream};

/// A contiguous run of bytes in one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Index of the shard.
    pub shard: u16,
    /// First byte, from the start of that file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// A table that is read by rows: a matrix, the token embedding, a matrix of every expert of a
/// layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowTable {
    /// The whole table.
    pub extent: Extent,
    /// Bytes of one row.
    pub row_bytes: u64,
}

impl RowTable {
    /// The bytes of rows `rows`; past the end of the table if it has no such rows.
    pub(crate) fn rows(&self, rows: Range<u64>) -> Extent {
        let offset = self
            .extent
            .offset
            .saturating_add(rows.start.saturating_mul(self.row_bytes));
        Extent {
            offset,
            bytes: (rows.end - rows.start).saturating_mul(self.row_bytes),
            ..self.extent
        }
    }

    /// The bytes of row `i`; past the end of the table if it has no such row.
    pub(crate) fn row(&self, i: u64) -> Extent {
        self.rows(i..i.saturating_add(1))
    }

    /// Number of rows.
    pub(crate) fn n_rows(&self) -> u64 {
        self.extent.bytes.checked_div(self.row_bytes).unwrap_or(0)
    }
}

/// The matrices of a layer that are multiplied at the same time, in the order in which a forward
/// pass comes to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// What the mixer begins with: queries, keys, values.
    MixerIn,
    /// What it ends with.
    MixerOut,
    /// What chooses the experts of a token.
    Router,
    /// What a feed-forward block, or the expert that all tokens share, begins with.
    FfnIn,
    /// What it ends with.
    FfnOut,
}

impl Stage {
    /// All stages of a layer, in order.
    pub const ALL: [Self; 5] = [
        Self::MixerIn,
        Self::MixerOut,
        Self::Router,
        Self::FfnIn,
        Self::FfnOut,
    ];
}

/// The matrices of each stage of a layer: `[stage][part]`. A layer may lack stages.
pub type Stages = [Vec<RowTable>; Stage::ALL.len()];

/// Which bytes each unit is made of.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The matrices that every token needs, by layer.
    pub layers: Vec<Stages>,
    /// The matrices of the experts of each layer: `experts[l][part]` is a table whose rows are
    /// whole experts. Empty for a layer without.
    pub experts: Vec<Vec<RowTable>>,
    /// The token embedding.
    pub embed: Option<RowTable>,
    /// The output head; equal to `embed` where the two are tied, and then it counts once.
    pub head: Option<RowTable>,
}

impl Plan {
    /// Restricts the plan to some layers, with or without embedding and head: nothing else is read,
    /// kept or counted.
    #[must_use]
    pub fn restrict(self, layers: Range<usize>, embed: bool, head: bool) -> Self {
        let is_in = |l: &usize| layers.contains(l);
        let kept = |(l, stages)| if is_in(&l) { stages } else { Stages::default() };
        let experts = |(l, tables)| if is_in(&l) { tables } else { Vec::new() };
        Self {
            layers: self.layers.into_iter().enumerate().map(kept).collect(),
            experts: self.experts.into_iter().enumerate().map(experts).collect(),
            embed: self.embed.filter(|_| embed),
            head: self.head.filter(|_| head),
        }
    }

    /// Every table once.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &RowTable> {
        let head = self.head.iter().filter(|_| self.head != self.embed);
        self.layers
            .iter()
            .flatten()
            .flatten()
            .chain(self.experts.iter().flatten())
            .chain(&self.embed)
            .chain(head)
    }

    /// The tables of a unit that does not depend on a token.
    pub(crate) fn parts(&self, unit: Unit<'_>) -> Option<&[RowTable]> {
        match unit {
            Unit::Stage(l, stage) => self.layers.get(l).map(|stages| &stages[stage as usize][..]),
            Unit::Head => self.head.as_ref().map(std::slice::from_ref),
            Unit::Experts(..) | Unit::EmbedRows(_) => None,
        }
        .filter(|parts| !parts.is_empty())
    }
}

/// What a forward pass can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit<'a> {
    /// The matrices of one stage of a layer.
    Stage(usize, Stage),
    /// Some experts of a layer, all different; part `k * n_parts + p` is part `p` of the expert
    /// `ids[k]`. Always in one piece.
    Experts(usize, &'a [u32]),
    /// Some rows of the token embedding; part `i` is row `ids[i]`. Always in one piece.
    EmbedRows(&'a [u32]),
    /// The output head.
    Head,
}

/// What a step is going to ask for: the stages of some layers in order, and then perhaps the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The layers.
    pub layers: Range<usize>,
    /// Whether the head comes after them.
    pub wants_head: bool,
}

/// Some rows of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows<'a> {
    /// Which row of the matrix the first one is.
    pub first: usize,
    /// Whole rows.
    pub bytes: &'a [u8],
}

/// A piece of a unit at hand. Its bytes stay where they are until it is dropped.
pub struct Guard<'a>(pub(crate) Parts<'a>);

impl std::fmt::Debug for Guard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

pub(crate) enum Parts<'a> {
    Tables(&'a ModelFiles, &'a [RowTable]),
    EmbedRows {
        table: &'a [u8],
        row_bytes: usize,
        ids: &'a [u32],
    },
    Experts {
        files: &'a ModelFiles,
        tables: &'a [RowTable],
        ids: &'a [u32],
    },
    Streamed(stream::Part<'a>),
}

impl Guard<'_> {
    /// The rows of one part that are in this piece, maybe none. Parts are in the order of the plan
    /// (of the ids, for [`Unit::EmbedRows`] and [`Unit::Experts`]).
    ///
    /// # Panics
    /// If there is no such part: the plan's writer and its reader are the same crate, and disagree.
    pub fn part(&self, i: usize) -> Rows<'_> {
        let whole = |bytes| Rows { first: 0, bytes };
        match &self.0 {
            Parts::Tables(files, tables) => whole(
                files
                    .bytes(tables[i].extent)
                    .expect("tables are checked when weights are made"),
            ),
            Parts::EmbedRows {
                table,
                row_bytes,
                ids,
            } => {
                let at = ids[i] as usize * row_bytes;
                whole(&table[at..at + row_bytes])
            }
            Parts::Experts { files, tables, ids } => {
                let row = tables[i % tables.len()].row(ids[i / tables.len()].into());
                whole(
                    files
                        .bytes(row)
                        .expect("ids are checked when a unit is asked for"),
                )
            }
            Parts::Streamed(part) => part.rows(i),
        }
    }
}
