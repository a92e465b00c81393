//! The `Weights` trait and its implementation for models whose bytes are all addressable.

use crate::{Error, Guard, Io, ModelFiles, Plan, RowTable, Sweep, Unit, unit::Parts};

/// A source of weights. The forward pass cannot tell which one it got.
pub trait Weights: Send + Sync {
    /// Says what a step is going to ask for, so that a source that reads from disk can read ahead.
    ///
    /// # Errors
    /// A file that is no longer what it was.
    fn begin(&self, _sweep: &Sweep) -> Result<(), Error> {
        Ok(())
    }

    /// Says that a step is over, before anybody gets its results.
    ///
    /// # Errors
    /// Weights that were not what is in the file.
    fn end(&self) -> Result<(), Error> {
        Ok(())
    }

    /// In how many pieces a unit comes.
    fn n_pieces(&self, _unit: Unit<'_>) -> usize {
        1
    }

    /// Brings a piece of a unit in (or finds it) and keeps it until the guard is dropped.
    ///
    /// # Errors
    /// An I/O error of a source that reads. A layer or table that the plan lacks is
    /// [`Error::NotInPlan`], a row outside of its table [`Error::NoRow`].
    fn piece<'a>(&'a self, unit: Unit<'a>, i: usize) -> Result<Guard<'a>, Error>;

    /// What it has read since it was made, and how long somebody waited for that.
    fn io(&self) -> Io {
        Io::default()
    }

    /// The files behind it.
    fn files(&self) -> &ModelFiles;
}

/// Weights that are addressable as they are: mapped files, bytes of the program.
pub struct InMemory {
    files: ModelFiles,
    plan: Plan,
}

impl std::fmt::Debug for InMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InMemory")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl InMemory {
    /// Checks the plan against the files.
    ///
    /// # Errors
    /// [`Error::OutOfFile`] for a table that ends past its file.
    pub fn new(files: ModelFiles, plan: Plan) -> Result<Self, Error> {
        if let Some(table) = plan
            .tables()
            .find(|table| files.bytes(table.extent).is_none())
        {
            return Err(files.out_of_file(table.extent));
        }
        Ok(Self { files, plan })
    }

    fn embed_rows<'a>(&'a self, ids: &'a [u32]) -> Result<Parts<'a>, Error> {
        let table = self.plan.embed.ok_or(Error::NotInPlan)?;
        check_rows(&table, ids)?;
        let bytes = self
            .files
            .bytes(table.extent)
            .ok_or_else(|| self.files.out_of_file(table.extent))?;
        Ok(Parts::EmbedRows {
            table: bytes,
            row_bytes: table.row_bytes as usize,
            ids,
        })
    }

    fn experts<'a>(&'a self, l: usize, ids: &'a [u32]) -> Result<Parts<'a>, Error> {
        let tables = self
            .plan
            .experts
            .get(l)
            .filter(|tables| !tables.is_empty())
            .ok_or(Error::NotInPlan)?;
        tables.iter().try_for_each(|table| check_rows(table, ids))?;
        Ok(Parts::Experts {
            files: &self.files,
            tables,
            ids,
        })
    }
}

impl Weights for InMemory {
    fn begin(&self, _: &Sweep) -> Result<(), Error> {
        self.files.check_unchanged()
    }

    fn end(&self) -> Result<(), Error> {
        self.files.check_unchanged()
    }

    fn piece<'a>(&'a self, unit: Unit<'a>, i: usize) -> Result<Guard<'a>, Error> {
        if i > 0 {
            return Err(Error::NotInPlan);
        }
        Ok(Guard(match unit {
            Unit::Experts(l, ids) => self.experts(l, ids)?,
            Unit::EmbedRows(ids) => self.embed_rows(ids)?,
            Unit::Stage(..) | Unit::Head => {
                Parts::Tables(&self.files, self.plan.parts(unit).ok_or(Error::NotInPlan)?)
            }
        }))
    }

    fn files(&self) -> &ModelFiles {
        &self.files
    }
}

/// Refuses rows that a table does not have.
pub(crate) fn check_rows(table: &RowTable, ids: &[u32]) -> Result<(), Error> {
    match ids.iter().max() {
        Some(&id) if u64::from(id) >= table.n_rows() => Err(Error::NoRow {
            row: id.into(),
            n_rows: table.n_rows(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Extent;

    /// Weights of a file whose bytes from `offset` on count from 0; layer 1 has four experts of two
    /// matrices, 2 and 3 bytes each, one matrix after the other.
    fn weights() -> InMemory {
        let mut bytes = atta_formats::Writer::new().finish().unwrap().header;
        let offset = bytes.len() as u64;
        bytes.extend(0..20);
        let files = ModelFiles::from_static("experts", bytes.leak()).unwrap();
        let table = |start: u64, row_bytes: u64| {
            let extent = Extent {
                shard: 0,
                offset: offset + start,
                bytes: 4 * row_bytes,
            };
            RowTable { extent, row_bytes }
        };
        let experts = vec![Vec::new(), vec![table(0, 2), table(8, 3)]];
        InMemory::new(
            files,
            Plan {
                experts,
                ..Plan::default()
            },
        )
        .unwrap()
    }

    #[test]
    fn the_parts_of_experts_come_expert_by_expert_in_the_order_asked_for() {
        let weights = weights();
        let unit = weights.piece(Unit::Experts(1, &[3, 0]), 0).unwrap();
        let parts: Vec<_> = (0..4).map(|i| unit.part(i).bytes.to_vec()).collect();
        assert_eq!(
            parts,
            [vec![6, 7], vec![17, 18, 19], vec![0, 1], vec![8, 9, 10]]
        );
    }

    #[test]
    fn experts_that_a_layer_does_not_have_are_refused() {
        let weights = weights();
        assert!(matches!(
            weights.piece(Unit::Experts(1, &[1, 4]), 0),
            Err(Error::NoRow { row: 4, n_rows: 4 })
        ));
        assert!(matches!(
            weights.piece(Unit::Experts(0, &[0]), 0),
            Err(Error::NotInPlan)
        ));
        assert!(matches!(
            weights.piece(Unit::Experts(2, &[0]), 0),
            Err(Error::NotInPlan)
        ));
    }

    #[test]
    fn a_plan_of_experts_past_the_end_of_the_file_is_refused() {
        let InMemory { files, mut plan } = weights();
        plan.experts[1][1].extent.bytes += 1;
        assert!(matches!(
            InMemory::new(files, plan),
            Err(Error::OutOfFile { .. })
        ));
    }
}
