//! Units: the portions in which weights are asked for, and the guards through which they are read.
//!
//! A [`Plan`] is written once by whoever knows the tensors; it says which byte ranges make up each unit. A layer is two
//! units (attention, feed-forward) so that a streamed model needs room for half a layer at a time, not for a whole one.

use std::ops::Range;

use crate::ModelFiles;

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

/// A table that is read by rows: the token embedding, the output head, a matrix of every expert of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowTable {
    /// The whole table.
    pub extent: Extent,
    /// Bytes of one row.
    pub row_bytes: u64,
}

impl RowTable {
    /// The bytes of row `i`; past the end of the table if it has no such row.
    pub(crate) fn row(&self, i: u64) -> Extent {
        let offset = self.extent.offset.saturating_add(i.saturating_mul(self.row_bytes));
        Extent { offset, bytes: self.row_bytes, ..self.extent }
    }

    /// Number of rows.
    pub(crate) fn n_rows(&self) -> u64 {
        self.extent.bytes.checked_div(self.row_bytes).unwrap_or(0)
    }
}

/// Which bytes each unit is made of.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The matrices of the mixer of each layer, one extent each: `attn[l][part]`.
    pub attn: Vec<Vec<Extent>>,
    /// The matrices of the feed-forward block of each layer: `ffn[l][part]`.
    pub ffn: Vec<Vec<Extent>>,
    /// The matrices of the experts of each layer: `experts[l][part]` is a table whose rows are whole experts. Empty for a
    /// layer without.
    pub experts: Vec<Vec<RowTable>>,
    /// The token embedding.
    pub embed: Option<RowTable>,
    /// The output head; equal to `embed` where the two are tied, and then it counts once.
    pub head: Option<RowTable>,
}

/// What a forward pass can ask for.
#[derive(Clone, Debug)]
pub enum Unit<'a> {
    /// The mixer matrices of a layer.
    Attn(usize),
    /// The feed-forward matrices of a layer that every token needs.
    Ffn(usize),
    /// Some experts of a layer; part `k * n_parts + p` is part `p` of the expert `ids[k]`.
    Experts(usize, &'a [u32]),
    /// Some rows of the token embedding; part `i` is row `ids[i]`.
    EmbedRows(&'a [u32]),
    /// A range of rows of the output head, as one part.
    HeadRows(Range<usize>),
}

/// A unit at hand. Its bytes stay where they are until it is dropped.
pub struct Guard<'a>(pub(crate) Parts<'a>);

pub(crate) enum Parts<'a> {
    Extents(&'a ModelFiles, &'a [Extent]),
    Rows { table: &'a [u8], row_bytes: usize, ids: &'a [u32] },
    Experts { files: &'a ModelFiles, tables: &'a [RowTable], ids: &'a [u32] },
    One(&'a [u8]),
}

impl Guard<'_> {
    /// The bytes of one part, in the order of the plan (of the ids, for [`Unit::EmbedRows`]
    /// and [`Unit::Experts`]).
    ///
    /// # Panics
    /// If there is no such part: the plan's writer and its reader are the same crate, and disagree.
    pub fn part(&self, i: usize) -> &[u8] {
        match &self.0 {
            Parts::Extents(files, extents) => {
                files.bytes(extents[i]).expect("extents are checked when weights are made")
            }
            Parts::Rows { table, row_bytes, ids } => {
                let at = ids[i] as usize * row_bytes;
                &table[at..at + row_bytes]
            }
            Parts::Experts { files, tables, ids } => {
                let row = tables[i % tables.len()].row(ids[i / tables.len()].into());
                files.bytes(row).expect("ids are checked when a unit is asked for")
            }
            Parts::One(bytes) => {
                assert_eq!(i, 0, "this unit has one part");
                bytes
            }
        }
    }
}
