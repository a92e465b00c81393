//! Chunks of weight groups, held in memory while they are used.

use crate::{ModelFiles, RowTable, stream::StreamedChunk};

/// Some rows of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorRows<'a> {
    /// The index in the matrix of the first of these rows.
    pub first: usize,
    /// Whole rows.
    pub bytes: &'a [u8],
}

/// A chunk of a weight group. Its bytes stay in memory until the guard is dropped.
pub struct ChunkGuard<'a>(pub(crate) HeldChunk<'a>);

impl std::fmt::Debug for ChunkGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkGuard").finish_non_exhaustive()
    }
}

/// Where the bytes of a chunk are.
pub(crate) enum HeldChunk<'a> {
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
    Streamed(StreamedChunk<'a>),
}

impl ChunkGuard<'_> {
    /// Returns the rows of tensor `i` that this chunk holds, maybe none. Tensors are in the order
    /// of the plan (of the ids, for [`WeightGroup::EmbedRows`](crate::WeightGroup::EmbedRows) and
    /// [`WeightGroup::Experts`](crate::WeightGroup::Experts)).
    ///
    /// # Panics
    /// If the group has no such tensor: the crate that wrote the plan contradicts itself.
    pub fn tensor(&self, i: usize) -> TensorRows<'_> {
        let whole = |bytes| TensorRows { first: 0, bytes };
        match &self.0 {
            HeldChunk::Tables(files, tables) => whole(
                files
                    .bytes(tables[i].extent)
                    .expect("tables are checked when weights are made"),
            ),
            HeldChunk::EmbedRows {
                table,
                row_bytes,
                ids,
            } => {
                let at = ids[i] as usize * row_bytes;
                whole(&table[at..at + row_bytes])
            }
            HeldChunk::Experts { files, tables, ids } => {
                let row = tables[i % tables.len()].row(ids[i / tables.len()].into());
                whole(
                    files
                        .bytes(row)
                        .expect("ids are checked when a group is asked for"),
                )
            }
            HeldChunk::Streamed(chunk) => chunk.tensor(i),
        }
    }
}
