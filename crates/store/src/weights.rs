//! The `Weights` trait and its implementation for models whose bytes are all addressable: mapped or resident.

use std::ops::Range;

use crate::{Error, Extent, Guard, ModelFiles, Plan, RowTable, Unit, unit::Parts};

/// A source of weights. The forward pass cannot tell which one it got.
///
/// A guard never holds more than the largest unit, and a tied tensor counts once.
pub trait Weights: Send + Sync {
    /// Brings a unit in (or finds it) and keeps it until the guard is dropped.
    ///
    /// # Errors
    /// An I/O error of a streamed source. A layer or table that the plan lacks is [`Error::NotInPlan`],
    /// a row outside of its table [`Error::NoRow`].
    fn unit<'a>(&'a self, unit: Unit<'a>) -> Result<Guard<'a>, Error>;

    /// The files behind it.
    fn files(&self) -> &ModelFiles;
}

/// Weights that are addressable as they are: mapped files, heap copies, bytes of the program.
pub struct InMemory {
    files: ModelFiles,
    plan: Plan,
}

impl InMemory {
    /// Checks the plan against the files.
    ///
    /// # Errors
    /// [`Error::OutOfFile`] for an extent that ends past its file.
    pub fn new(files: ModelFiles, plan: Plan) -> Result<Self, Error> {
        let tables = plan.embed.iter().chain(&plan.head).chain(plan.experts.iter().flatten()).map(|t| &t.extent);
        for &extent in plan.attn.iter().chain(&plan.ffn).flatten().chain(tables) {
            if files.bytes(extent).is_none() {
                return Err(out_of_file(&files, extent));
            }
        }
        Ok(Self { files, plan })
    }

    /// Rows `range` of a table.
    fn rows(&self, table: Option<RowTable>, range: Range<usize>) -> Result<&[u8], Error> {
        let RowTable { extent, row_bytes } = table.ok_or(Error::NotInPlan)?;
        let start = (range.start as u64).saturating_mul(row_bytes);
        let bytes = (range.len() as u64).saturating_mul(row_bytes);
        let part = Extent { offset: extent.offset.saturating_add(start), bytes, ..extent };
        if start.saturating_add(bytes) > extent.bytes {
            return Err(Error::NoRow { row: range.end as u64 - 1, n_rows: extent.bytes / row_bytes });
        }
        self.files.bytes(part).ok_or_else(|| out_of_file(&self.files, part))
    }

    fn embed_rows<'a>(&'a self, ids: &'a [u32]) -> Result<Parts<'a>, Error> {
        let RowTable { row_bytes, .. } = self.plan.embed.ok_or(Error::NotInPlan)?;
        let n_rows = ids.iter().max().map_or(0, |&id| id as usize + 1);
        let table = self.rows(self.plan.embed, 0..n_rows)?;
        Ok(Parts::Rows { table, row_bytes: row_bytes as usize, ids })
    }

    fn experts<'a>(&'a self, l: usize, ids: &'a [u32]) -> Result<Parts<'a>, Error> {
        let tables = self.plan.experts.get(l).filter(|tables| !tables.is_empty()).ok_or(Error::NotInPlan)?;
        let n_rows = tables.iter().map(RowTable::n_rows).min().unwrap_or(0);
        match ids.iter().max() {
            Some(&id) if u64::from(id) >= n_rows => Err(Error::NoRow { row: id.into(), n_rows }),
            _ => Ok(Parts::Experts { files: &self.files, tables, ids }),
        }
    }
}

impl Weights for InMemory {
    fn unit<'a>(&'a self, unit: Unit<'a>) -> Result<Guard<'a>, Error> {
        let layer = |units: &'a [Vec<Extent>], l: usize| {
            units.get(l).map(|extents| Parts::Extents(&self.files, extents)).ok_or(Error::NotInPlan)
        };
        Ok(Guard(match unit {
            Unit::Attn(l) => layer(&self.plan.attn, l)?,
            Unit::Ffn(l) => layer(&self.plan.ffn, l)?,
            Unit::Experts(l, ids) => self.experts(l, ids)?,
            Unit::EmbedRows(ids) => self.embed_rows(ids)?,
            Unit::HeadRows(range) => Parts::One(self.rows(self.plan.head, range)?),
        }))
    }

    fn files(&self) -> &ModelFiles {
        &self.files
    }
}

fn out_of_file(files: &ModelFiles, extent: Extent) -> Error {
    let Extent { shard, offset, bytes } = extent;
    Error::OutOfFile { shard, offset, bytes, file_bytes: files.shard_bytes(shard) }
}
