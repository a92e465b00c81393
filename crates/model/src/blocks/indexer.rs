//! Sparse attention: the choice of the blocks of positions that each query sees.
//!
//! ```text
//! q, k = Wq h, Wk h                               in the region of the attention's projections
//! q_h = rope(norm(q_h))                           one region
//! cache[pos] = k;  of the last position of a block: rope(norm(mean of the block's k))
//! score_b = Σ_h max(q_h · k_b, 0)                 one region for a few rows
//! chosen = the best blocks                        one region for a few rows
//! ```
//! A query that sees no more blocks than may be chosen sees all of them, without scores. The first
//! position of a block, whatever the batch, is a multiple of its length.

use atta_kernels::{ChosenBlocks, D_HEAD_MAX, Job, Store, math::all_finite};
use atta_store::ChunkGuard;

use super::Pass;
use crate::{
    Error, Role,
    spec::{Attention, Indexer, ModelSpec},
};

/// Rows whose scores are held at once.
const ROWS_AT_ONCE: usize = 16;
/// Blocks of a part of the scores of a row.
const STRIP: usize = 64;

/// The buffers of indexers; empty for a model without.
pub(crate) struct IndexerScratch {
    /// Bits of scores, `[ROWS_AT_ONCE, blocks]`. They are not negative, so that larger bits are of
    /// larger scores.
    scores: Vec<u32>,
    /// Numbers of the chosen blocks, ascending, `[n_rows, n_blocks]`.
    chosen: Vec<u32>,
}

impl IndexerScratch {
    /// Buffers for steps of at most `n_rows` rows in a context of `n_ctx`.
    pub(crate) fn new(spec: &ModelSpec, n_rows: usize, n_ctx: usize) -> Self {
        let [n_scores, n_chosen] = Self::sizes(spec, n_rows, n_ctx);
        Self {
            scores: vec![0; n_scores],
            chosen: vec![0; n_chosen],
        }
    }

    /// Bytes that [`new`](Self::new) allocates.
    pub(crate) fn bytes(spec: &ModelSpec, n_rows: usize, n_ctx: usize) -> u64 {
        let sizes = Self::sizes(spec, n_rows, n_ctx);
        sizes
            .iter()
            .fold(0, |sum, &n| (4 * n as u64).saturating_add(sum))
    }

    fn sizes(spec: &ModelSpec, n_rows: usize, n_ctx: usize) -> [usize; 2] {
        let sparse = spec.indexers().filter(|i| i.n_blocks < n_ctx / i.block_len);
        let sizes = sparse.map(|i| {
            let width = (n_ctx / i.block_len).next_multiple_of(STRIP);
            let n_rows_at_once = n_rows.min(ROWS_AT_ONCE);
            [width * n_rows_at_once, n_rows.saturating_mul(i.n_blocks)]
        });
        sizes.fold([0; 2], |[a, b], [c, d]| [a.max(c), b.max(d)])
    }

    /// The blocks that row `t`, a query at `pos`, sees; `None`: all.
    pub(super) fn chosen(&self, i: &Indexer, t: usize, pos: usize) -> Option<ChosenBlocks<'_>> {
        i.is_sparse_at(pos).then(|| ChosenBlocks {
            blocks: &self.chosen[t * i.n_blocks..][..i.n_blocks],
            len: i.block_len,
            rest: i.n_whole(pos) * i.block_len,
        })
    }
}

/// The buffers of a batch: queries, `[n_rows, n_heads, d_head]`, and keys, `[n_rows, d_head]`,
/// behind the gates of the attention in [`Scratch::mixer`](super::Scratch::mixer).
fn buffers<'a>(mixer: &'a mut [f32], n: usize, a: &Attention, i: &Indexer) -> [&'a mut [f32]; 2] {
    let (q, rest) = mixer[n * a.d_gates()..].split_at_mut(n * i.d_queries());
    [q, &mut rest[..n * i.d_head]]
}

/// `q, k = Wq h, Wk h`.
pub(super) fn project_index(
    p: &mut Pass<'_>,
    l: usize,
    a: &Attention,
    chunk: &ChunkGuard<'_>,
) -> Result<(), Error> {
    let Some(indexer) = &a.indexer else {
        return Ok(());
    };
    let n = p.rows.len();
    let t = p.model.layer(l);
    let s = &mut *p.s;
    let [q, k] = buffers(&mut s.mixer, n, a, indexer);
    let job = |role, out| Job {
        w: t.matrix(role, chunk),
        bias: None,
        out,
        mode: Store::Set,
    };
    let jobs = [job(Role::IndexerQ, q), job(Role::IndexerK, k)];
    p.products.matmul(&s.act, jobs)
}

/// Stores the keys of the rows, and chooses the blocks that each of them sees.
pub(super) fn choose_blocks(p: &mut Pass<'_>, l: usize, a: &Attention) {
    let Some(indexer) = &a.indexer else { return };
    append_keys(p, l, a, indexer);
    if p.rows.iter().any(|row| indexer.is_sparse_at(row.pos)) {
        rotate_queries(p, l, a, indexer);
        for first in (0..p.rows.len()).step_by(ROWS_AT_ONCE) {
            choose_of_rows(p, l, first, a);
        }
    }
}

/// Stores the key of each row, and that of each block which ends with one.
fn append_keys(p: &mut Pass<'_>, l: usize, a: &Attention, i: &Indexer) {
    let n = p.rows.len();
    let kernels = p.kernels;
    let s = &mut *p.s;
    let [_, keys] = buffers(&mut s.mixer, n, a, i);
    let rows = keys.chunks_exact(i.d_head).zip(p.rows);
    for ((key, row), q) in rows.zip(s.q.chunks_exact_mut(a.d_q())) {
        p.cache.store_index(l, row, kernels, key);
        // As for the keys of the attention: the query passes on a fault.
        if !all_finite(key) {
            q.fill(f32::NAN);
        }
    }
    let weight = p.model.layer(l).vector(Role::IndexerKNorm);
    let mut room = [[0.0; D_HEAD_MAX]; 2];
    let [mean, key] = room.each_mut().map(|room| &mut room[..i.d_head]);
    for row in p
        .rows
        .iter()
        .filter(|row| (row.pos + 1).is_multiple_of(i.block_len))
    {
        let start = row.pos + 1 - i.block_len;
        mean.fill(0.0);
        for pos in start..=row.pos {
            p.cache.load_index(l, row.seq, pos, kernels, key);
            kernels.add_assign(mean, key);
        }
        mean.iter_mut().for_each(|x| *x /= i.block_len as f32);
        kernels.rms_norm_inplace(mean, weight, i.eps);
        p.ropes.rotate_at(kernels, l, start, mean);
        p.cache.store_index(l, row, kernels, mean);
    }
}

/// `q_h = rope(norm(q_h))`.
fn rotate_queries(p: &mut Pass<'_>, l: usize, a: &Attention, i: &Indexer) {
    let n = p.rows.len();
    let kernels = p.kernels;
    let ropes = p.ropes;
    let weight = p.model.layer(l).vector(Role::IndexerQNorm);
    let [q, _] = buffers(&mut p.s.mixer, n, a, i);
    p.pool.for_each_row(q, i.d_queries(), |t, q| {
        for head in q.chunks_exact_mut(i.d_head) {
            kernels.rms_norm_inplace(head, weight, i.eps);
            ropes.rotate(kernels, l, t, head);
        }
    });
}

/// Chooses the blocks of up to [`ROWS_AT_ONCE`] rows from row `first` on.
fn choose_of_rows(p: &mut Pass<'_>, l: usize, first: usize, a: &Attention) {
    let Some(i) = &a.indexer else { return };
    let n = p.rows.len();
    let rows = &p.rows[first..n.min(first + ROWS_AT_ONCE)];
    // Rows that see all of their blocks have no scores.
    let n_scored = |pos| {
        if i.is_sparse_at(pos) {
            i.n_whole(pos)
        } else {
            0
        }
    };
    let n_most = rows.iter().map(|row| n_scored(row.pos)).max().unwrap_or(0);
    if n_most == 0 {
        return;
    }
    let width = n_most.next_multiple_of(STRIP);
    let kernels = p.kernels;
    let cache = &*p.cache;
    let s = &mut *p.s;
    let [q, _] = buffers(&mut s.mixer, n, a, i);
    let q = &*q;
    let scores = &mut s.indexer.scores[..rows.len() * width];
    p.pool.for_each_row(scores, STRIP, |strip, scores| {
        let t = strip * STRIP / width;
        let row = &rows[t];
        let blocks = strip * STRIP % width..n_scored(row.pos);
        let q = &q[(first + t) * i.d_queries()..][..i.d_queries()];
        let mut room = [0.0; D_HEAD_MAX];
        let key = &mut room[..i.d_head];
        for (block, score) in blocks.zip(scores) {
            let last = (block + 1) * i.block_len - 1;
            cache.load_index(l, row.seq, last, kernels, key);
            let products = q
                .chunks_exact(i.d_head)
                .map(|q| kernels.dot_product(q, key));
            let positive = products.map(|x| if x > 0.0 { x } else { 0.0 });
            *score = positive.sum::<f32>().to_bits();
        }
    });
    let scores = &s.indexer.scores;
    let chosen = &mut s.indexer.chosen[first * i.n_blocks..][..rows.len() * i.n_blocks];
    p.pool.for_each_row(chosen, i.n_blocks, |t, chosen| {
        choose(&scores[t * width..][..n_scored(rows[t].pos)], chosen);
    });
}

/// Writes the numbers of the largest scores, ascending; of equal ones the first. Without scores it
/// writes nothing.
fn choose(scores: &[u32], chosen: &mut [u32]) {
    if scores.is_empty() {
        return;
    }
    let (least, mut n_equal) = nth_largest(scores, chosen.len());
    let mut is_chosen = |score: u32| {
        let takes = score == least && n_equal > 0;
        n_equal -= usize::from(takes);
        takes || score > least
    };
    let numbers = (0..).zip(scores).filter(|(_, score)| is_chosen(**score));
    chosen
        .iter_mut()
        .zip(numbers)
        .for_each(|(to, (number, _))| *to = number);
}

/// The `n`th largest number, and how many of the `n` largest are equal to it. It is found digit by
/// digit, and nothing is moved.
fn nth_largest(x: &[u32], n: usize) -> (u32, usize) {
    let mut found = 0;
    let mut n_left = n;
    for shift in [24, 16, 8, 0] {
        let mut counts = [0; 256];
        let above = |x: u32| (u64::from(x) >> shift) >> 8;
        for &x in x.iter().filter(|&&x| above(x) == above(found)) {
            counts[(x >> shift) as usize & 255] += 1;
        }
        let mut digit = 255;
        while digit > 0 && counts[digit] < n_left {
            n_left -= counts[digit];
            digit -= 1;
        }
        found |= (digit as u32) << shift;
    }
    (found, n_left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_scores_are_chosen_and_of_equal_ones_the_first() {
        let mut seed = 1u32;
        for n in [1, 2, 5, 64, 300] {
            for (k, range) in [(1, 3), (n / 2 + 1, 7), (n, 2), (n / 3 + 1, u32::MAX)] {
                let scores: Vec<u32> = (0..n)
                    .map(|_| {
                        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        (seed >> 1) % range
                    })
                    .collect();
                let mut sorted: Vec<u32> = (0..n as u32).collect();
                sorted.sort_by_key(|&i| (std::cmp::Reverse(scores[i as usize]), i));
                sorted.truncate(k);
                sorted.sort_unstable();
                let mut chosen = vec![u32::MAX; k];
                choose(&scores, &mut chosen);
                assert_eq!(chosen, sorted, "{k} of {scores:?}");
            }
        }
    }
}
