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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Budget, Placement};

    /// Weights of a file whose bytes from `offset` on count from 0; layer 1 has four experts of two matrices, 2 and 3 bytes
    /// each, one matrix after the other.
    fn weights() -> InMemory {
        let mut bytes = atta_formats::Writer::new().finish().unwrap().header;
        let offset = bytes.len() as u64;
        bytes.extend(0..20);
        let files = ModelFiles::from_static("experts", bytes.leak(), Placement::Mapped, &Budget::unlimited()).unwrap();
        let table = |start: u64, row_bytes: u64| {
            let extent = Extent { shard: 0, offset: offset + start, bytes: 4 * row_bytes };
            RowTable { extent, row_bytes }
        };
        let experts = vec![Vec::new(), vec![table(0, 2), table(8, 3)]];
        InMemory::new(files, Plan { experts, ..Plan::default() }).unwrap()
    }

    #[test]
    fn the_parts_of_experts_come_expert_by_expert_in_the_order_asked_for() {
        let weights = weights();
        let unit = weights.unit(Unit::Experts(1, &[3, 0])).unwrap();
        let parts: Vec<_> = (0..4).map(|i| unit.part(i).to_vec()).collect();
        assert_eq!(parts, [vec![6, 7], vec![17, 18, 19], vec![0, 1], vec![8, 9, 10]]);
    }

    #[test]
    fn experts_that_a_layer_does_not_have_are_refused() {
        let weights = weights();
        assert!(matches!(weights.unit(Unit::Experts(1, &[1, 4])), Err(Error::NoRow { row: 4, n_rows: 4 })));
        assert!(matches!(weights.unit(Unit::Experts(0, &[0])), Err(Error::NotInPlan)));
        assert!(matches!(weights.unit(Unit::Experts(2, &[0])), Err(Error::NotInPlan)));
    }

    #[test]
    fn a_plan_of_experts_past_the_end_of_the_file_is_refused() {
        let InMemory { files, mut plan } = weights();
        plan.experts[1][1].extent.bytes += 1;
        assert!(matches!(InMemory::new(files, plan), Err(Error::OutOfFile { .. })));
    }
}
