//! The `Weights` trait and its implementation for models whose bytes are all addressable.

use crate::{
    ChunkGuard, Error, ExpertUsage, Io, ModelFiles, Plan, RowTable, WeightGroup, WeightPass,
    guard::HeldChunk,
};

/// The experts of a layer that a step uses.
#[derive(Clone, Copy, Debug)]
pub struct ExpertRequest<'a> {
    /// Their ids, all different.
    pub ids: &'a [u32],
    /// How many rows use each.
    pub uses: &'a [u32],
    /// Rows of the step.
    pub n_rows: usize,
}

/// How many experts a step takes at once.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// It waits for so many.
    pub least: usize,
    /// It takes no more, even if more are in memory; at least 1.
    pub most: usize,
}

/// Experts that are in memory.
#[derive(Debug)]
pub struct Arrived<'a> {
    /// Their ids.
    pub ids: &'a [u32],
    /// Their matrices, as those of [`WeightGroup::Experts`].
    pub chunk: ChunkGuard<'a>,
}

/// Serves the weights of a model, chunk by chunk. The forward pass does not know whether they are
/// mapped, resident or streamed.
pub trait Weights: Send + Sync {
    /// Announces the groups that a step will ask for, so that streamed weights are read ahead.
    ///
    /// # Errors
    /// A file that changed since it was opened.
    fn begin(&self, _pass: &WeightPass) -> Result<(), Error> {
        Ok(())
    }

    /// Ends a step. The caller uses the results of the step only after this returned `Ok`.
    ///
    /// # Errors
    /// Weights that differed from the file.
    fn end(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Number of chunks of a group.
    fn n_chunks(&self, _group: WeightGroup<'_>) -> usize {
        1
    }

    /// Brings chunk `i` of a group into memory, unless it is there, and keeps it there until the
    /// guard is dropped.
    ///
    /// # Errors
    /// An I/O error of streamed weights. A layer or table that the plan lacks is
    /// [`Error::NotInPlan`], a row outside of its table [`Error::NoRow`].
    fn chunk<'a>(&'a self, group: WeightGroup<'a>, i: usize) -> Result<ChunkGuard<'a>, Error>;

    /// Begins to read the experts of a layer that a step is going to ask for, all at once.
    ///
    /// # Errors
    /// As those of [`chunk`](Self::chunk).
    fn request_experts(&self, _l: usize, _request: &ExpertRequest<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Takes experts in the order in which they arrive: waits until so many of `wanted` are in
    /// memory, and moves their ids to the front of `wanted`. The caller drops them before it asks
    /// for the others.
    ///
    /// # Errors
    /// As those of [`chunk`](Self::chunk).
    fn arrived_experts<'a>(
        &'a self,
        l: usize,
        wanted: &'a mut [u32],
        amount: Amount,
    ) -> Result<Arrived<'a>, Error> {
        let ids = &wanted[..amount.most.min(wanted.len())];
        let chunk = self.chunk(WeightGroup::Experts(l, ids), 0)?;
        Ok(Arrived { ids, chunk })
    }

    /// How often streamed experts were used; nothing of other weights.
    fn expert_usage(&self) -> ExpertUsage {
        ExpertUsage::default()
    }

    /// Continues from the usage of an earlier run: begins to read the experts that were used most,
    /// while the disk has nothing else to do, as many as there is memory for. Usage of another
    /// model does no harm.
    fn recall_experts(&self, _usage: &ExpertUsage) {}

    /// Whether several steps may run at once. Streamed weights are read in the order of one.
    fn serves_many(&self) -> bool {
        true
    }

    /// Bytes read since the weights were made, and the time that steps waited for them.
    fn io(&self) -> Io {
        Io::default()
    }

    /// The files of the model.
    fn files(&self) -> &ModelFiles;
}

/// Weights that are addressable without reading: mapped files, bytes built into the program.
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
    /// [`Error::OutOfFile`] for a table that ends past its file, [`Error::NotAddressable`] for one
    /// that has to be read.
    pub fn new(files: ModelFiles, plan: Plan) -> Result<Self, Error> {
        for table in plan.tables() {
            files.check(table.extent)?;
            if files.bytes(table.extent).is_none() {
                return Err(Error::NotAddressable {
                    shard: table.extent.shard,
                });
            }
        }
        Ok(Self { files, plan })
    }

    fn embed_rows<'a>(
        &'a self,
        table: Option<RowTable>,
        ids: &'a [u32],
    ) -> Result<HeldChunk<'a>, Error> {
        let table = table.ok_or(Error::NotInPlan)?;
        check_rows(&table, ids)?;
        let bytes = self
            .files
            .bytes(table.extent)
            .ok_or_else(|| self.files.out_of_file(table.extent))?;
        Ok(HeldChunk::EmbedRows {
            table: bytes,
            row_bytes: table.row_bytes as usize,
            ids,
        })
    }

    fn experts<'a>(&'a self, l: usize, ids: &'a [u32]) -> Result<HeldChunk<'a>, Error> {
        let tables = self
            .plan
            .experts
            .get(l)
            .filter(|tables| !tables.is_empty())
            .ok_or(Error::NotInPlan)?;
        tables.iter().try_for_each(|table| check_rows(table, ids))?;
        Ok(HeldChunk::Experts {
            files: &self.files,
            tables,
            ids,
        })
    }
}

impl Weights for InMemory {
    fn begin(&self, _: &WeightPass) -> Result<(), Error> {
        self.files.check_unchanged()
    }

    fn end(&self) -> Result<(), Error> {
        self.files.check_unchanged()
    }

    fn chunk<'a>(&'a self, group: WeightGroup<'a>, i: usize) -> Result<ChunkGuard<'a>, Error> {
        if i > 0 {
            return Err(Error::NotInPlan);
        }
        Ok(ChunkGuard(match group {
            WeightGroup::Experts(l, ids) => self.experts(l, ids)?,
            WeightGroup::EmbedRows(ids) => self.embed_rows(self.plan.embed, ids)?,
            WeightGroup::LayerEmbedRows(ids) => self.embed_rows(self.plan.layer_embed, ids)?,
            WeightGroup::Layer(..) | WeightGroup::Head => HeldChunk::Tables(
                &self.files,
                self.plan.tables_of(group).ok_or(Error::NotInPlan)?,
            ),
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
            RowTable::contiguous(extent, row_bytes)
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
    fn the_tensors_of_experts_come_expert_by_expert_in_the_order_asked_for() {
        let weights = weights();
        let group = weights.chunk(WeightGroup::Experts(1, &[3, 0]), 0).unwrap();
        let tensors: Vec<_> = (0..4).map(|i| group.tensor(i).bytes.to_vec()).collect();
        assert_eq!(
            tensors,
            [vec![6, 7], vec![17, 18, 19], vec![0, 1], vec![8, 9, 10]]
        );
    }

    #[test]
    fn a_part_of_each_expert_is_all_that_there_is_of_it() {
        let InMemory { files, mut plan } = weights();
        let whole = plan.experts[1][1];
        let part = whole.within_rows(1, 2);
        assert_eq!((part.n_rows(), part.extent.bytes), (4, 11));
        plan.experts[1][1] = part;
        let weights = InMemory::new(files, plan).unwrap();
        let group = weights.chunk(WeightGroup::Experts(1, &[3, 1]), 0).unwrap();
        assert_eq!([1, 3].map(|i| group.tensor(i).bytes), [[18, 19], [12, 13]]);
        let none = weights.chunk(WeightGroup::Experts(1, &[4]), 0);
        assert!(matches!(none, Err(Error::NoRow { row: 4, n_rows: 4 })));
    }

    #[test]
    fn experts_that_a_layer_does_not_have_are_refused() {
        let weights = weights();
        assert!(matches!(
            weights.chunk(WeightGroup::Experts(1, &[1, 4]), 0),
            Err(Error::NoRow { row: 4, n_rows: 4 })
        ));
        assert!(matches!(
            weights.chunk(WeightGroup::Experts(0, &[0]), 0),
            Err(Error::NotInPlan)
        ));
        assert!(matches!(
            weights.chunk(WeightGroup::Experts(2, &[0]), 0),
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
