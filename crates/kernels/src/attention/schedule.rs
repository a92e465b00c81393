//! How attention is distributed over threads: by tiles of query rows, or by chunks of the context
//! if there are few rows.

use super::{Attention, AttnRow, D_HEAD_MAX, KvLayer};
use crate::algo::attention::{AttnOut, CHUNK, MANY, Query, partial_len, with_buffers};
use crate::tiles::{self, Grid};
use crate::{Kernels, Pool};

/// The fields of [`Attention`] that all threads read.
struct AttnInputs<'a> {
    kv: KvLayer<'a>,
    q: &'a [f32],
    n_rows: usize,
    rows: &'a (dyn Fn(usize) -> AttnRow<'a> + Sync),
    /// Query heads that share a KV head.
    group: usize,
    scale: f32,
    softcap: Option<f32>,
    slopes: Option<&'a (dyn Fn(usize) -> f32 + Sync)>,
    sinks: Option<&'a [f32]>,
}

impl<'a> AttnInputs<'a> {
    fn of(a: &Attention<'a>) -> Self {
        let kv = a.kv;
        let multiple = kv.n_kv_heads > 0 && a.n_heads.is_multiple_of(kv.n_kv_heads);
        assert!(
            multiple,
            "{} query heads share {} kv heads",
            a.n_heads, kv.n_kv_heads
        );
        assert!(
            (1..=D_HEAD_MAX).contains(&kv.d_head),
            "heads of width {}",
            kv.d_head
        );
        let shares_rows = kv
            .value_from
            .is_some_and(|from| from.is_multiple_of(2) && from < kv.d_head && kv.v_at == kv.k_at);
        assert!(
            kv.value_from.is_none() || shares_rows,
            "values are keys from element {:?} on",
            kv.value_from
        );
        let row_len = a.n_heads * kv.d_head;
        let n_rows = a.q.len() / row_len;
        assert!(
            a.q.len().is_multiple_of(row_len),
            "queries are [n_rows, n_heads, d_head]"
        );
        assert_eq!(
            a.out.len(),
            a.q.len(),
            "outputs have the shape of the queries"
        );
        assert!(
            (0..n_rows).map(a.rows).all(|row| row.first <= row.last),
            "a row sees nothing"
        );
        assert!(
            a.sinks.is_none_or(|sinks| sinks.len() == a.n_heads),
            "a sink for each of {} heads",
            a.n_heads
        );
        Self {
            kv,
            q: a.q,
            n_rows,
            rows: a.rows,
            group: a.n_heads / kv.n_kv_heads,
            scale: a.scale,
            softcap: a.softcap,
            slopes: a.slopes,
            sinks: a.sinks,
        }
    }

    /// The query heads of KV head `h` in the rows `first..first + rows.len()`.
    fn query<'b>(
        &'b self,
        kernels: Kernels,
        first: usize,
        h: usize,
        rows: &'b [AttnRow<'b>],
    ) -> Query<'b> {
        let n_heads = self.n_heads();
        Query {
            kernels,
            kv: &self.kv,
            kv_head: h,
            q: &self.q[first * n_heads * self.kv.d_head..],
            n_heads,
            rows,
            scale: self.scale,
            softcap: self.softcap,
            slopes: self.slopes,
            sinks: self.sinks,
        }
    }

    /// The sinks of the query heads that share KV head `h`, `[group]`.
    fn sinks_of(&self, h: usize) -> Option<&[f32]> {
        self.sinks
            .map(|sinks| &sinks[h * self.group..(h + 1) * self.group])
    }

    /// Undoes the rotation of stored values in weighted sums of them, `[heads, d_head]`.
    fn rotate_back(&self, k: Kernels, out: &mut [f32]) {
        if self.kv.values().is_rotated() {
            out.chunks_exact_mut(self.kv.d_head)
                .for_each(|head| k.hadamard(head));
        }
    }

    fn n_heads(&self) -> usize {
        self.group * self.kv.n_kv_heads
    }
}

/// The most query rows of a part; they share the reads of keys and values.
const TILE: usize = MANY;

/// Runs attention as one region of the pool. A part is the query heads of one KV head in a tile of
/// rows or, if those are too few to keep the threads busy, a run of chunks of the context of one
/// row.
pub(crate) fn attention(k: Kernels, pool: &Pool, a: Attention<'_>) {
    let inputs = AttnInputs::of(&a);
    if inputs.n_rows == 0 {
        return;
    }
    let n_queries = inputs.n_rows * inputs.kv.n_kv_heads;
    let n_chunks = (0..inputs.n_rows)
        .map(|t| (inputs.rows)(t).last / CHUNK + 1)
        .max()
        .unwrap_or(0);
    let len = partial_len(inputs.group, inputs.kv.d_head);
    let too_few = n_queries < 4 * pool.n_threads() && n_chunks > 1 && pool.n_threads() > 1;
    match a.scratch.partials.get_mut(..n_queries * n_chunks * len) {
        Some(partials) if too_few => by_chunk(k, pool, &inputs, partials, a.out),
        _ => by_tile(k, pool, &inputs, a.out),
    }
}

/// Rows of a tile: as many as fill [`MANY`] heads, fewer if threads would be idle.
fn tile_rows(inputs: &AttnInputs<'_>, n_threads: usize) -> usize {
    let enough = inputs.n_rows * inputs.kv.n_kv_heads / (4 * n_threads);
    (MANY / inputs.group).min(enough).clamp(1, TILE)
}

fn by_tile(k: Kernels, pool: &Pool, inputs: &AttnInputs<'_>, out: &mut [f32]) {
    let tile = tile_rows(inputs, pool.n_threads());
    let n_kv_heads = inputs.kv.n_kv_heads;
    let mut parts = Grid::new(out, inputs.n_rows, tile, inputs.group * inputs.kv.d_head);
    tiles::deal(pool, &mut parts, |i, mut out| {
        let first = i / n_kv_heads * tile;
        let h = i % n_kv_heads;
        let mut rows = [AttnRow {
            blocks: &[],
            first: 0,
            last: 0,
            pos: 0,
            chosen: None,
        }; TILE];
        let rows = &mut rows[..tile.min(inputs.n_rows - first)];
        rows.iter_mut()
            .enumerate()
            .for_each(|(t, row)| *row = (inputs.rows)(first + t));
        let mut start = 0;
        for rows in rows.chunk_by(|a, b| std::ptr::eq(a.blocks, b.blocks)) {
            let query = inputs.query(k, first + start, h, rows);
            with_buffers(&query, |buffers| {
                k.attend(&query, buffers, AttnOut::Rows(&mut out.rows_from(start)))
            });
            start += rows.len();
        }
        (0..rows.len()).for_each(|t| inputs.rotate_back(k, out.row(t)));
    });
}

/// The most chunks of a part. They share one
/// [`StackBuffers`](crate::algo::attention::StackBuffers), because zeroing it takes as long as a
/// chunk of few heads.
const RUN: usize = 4;

/// Computes chunks of the context in parallel into `partials`, `[n_queries, n_chunks, partial]`,
/// then merges them on the calling thread: a few thousand operations per chunk.
fn by_chunk(
    k: Kernels,
    pool: &Pool,
    inputs: &AttnInputs<'_>,
    partials: &mut [f32],
    out: &mut [f32],
) {
    let len = partial_len(inputs.group, inputs.kv.d_head);
    let n_kv_heads = inputs.kv.n_kv_heads;
    let width = inputs.group * inputs.kv.d_head;
    let n_queries = out.len() / width;
    let n_chunks = partials.len() / len / n_queries;
    let run = (n_queries * n_chunks / (4 * pool.n_threads())).clamp(1, RUN);
    tiles::deal(
        pool,
        &mut Grid::new(partials, n_queries, 1, run * len),
        |i, mut part| {
            let query = i / n_chunks.div_ceil(run);
            let first = part.columns().start / len;
            let rows = [(inputs.rows)(query / n_kv_heads)];
            let query = inputs.query(k, query / n_kv_heads, query % n_kv_heads, &rows);
            let visible = query.chunks();
            let chunks = visible.start.max(first)..visible.end.min(first + run);
            if chunks.is_empty() {
                return;
            }
            let partials = part.row(0).chunks_exact_mut(len).skip(chunks.start - first);
            with_buffers(&query, |buffers| {
                chunks.zip(partials).for_each(|(chunk, partial)| {
                    k.attend(&query, buffers, AttnOut::Chunk(chunk, partial))
                });
            });
        },
    );
    for (i, out) in out.chunks_exact_mut(width).enumerate() {
        let row = (inputs.rows)(i / n_kv_heads);
        let partials = &partials[i * n_chunks * len..(i + 1) * n_chunks * len];
        let partials = &partials[row.first / CHUNK * len..(row.last / CHUNK + 1) * len];
        k.merge_chunks(
            partials,
            inputs.sinks_of(i % n_kv_heads),
            inputs.kv.d_head,
            out,
        );
        inputs.rotate_back(k, out);
    }
}
