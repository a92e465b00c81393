//! What attention reads and writes: paged keys and values, query rows, and scratch. The arithmetic
//! is in `algo/attention.rs`, the schedule at the end of this file.

use crate::algo::attention::{CHUNK, MANY, Out, Query, partial_len, with_work};
use crate::tiles::{self, Grid};
use crate::{Kernels, Pool};

/// Widest head the kernels handle; they keep the values of a chunk on the stack.
pub const D_HEAD_MAX: usize = 1024;

/// Rows for which the chunks of a context may be shared out among threads. With more rows there is
/// work enough.
const SPLIT_ROWS: usize = 4;

/// Elements of a group of Q4, which have a scale and a minimum.
pub(crate) const Q4_GROUP: usize = 32;

/// Element type of cached keys and values, little endian. A row is one head of one position, `[d]`.
///
/// Q8 and Q4 hold a rotated row: an orthonormal Hadamard matrix is applied to blocks of the largest
/// power of two that divides `d` (QuaRot, Ashkboos et al. 2024), so that a few large channels do
/// not take the precision of the others. Attention rotates the queries, too, and the sums of values
/// back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KvElem {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// `scale·code`: an f16 scale, then `d` int8 codes from −127 to 127; 2 + d bytes.
    Q8,
    /// `min + scale·code` (KIVI, Liu et al. 2024) in groups of 32 elements: f16 scale, f16 minimum,
    /// then 4-bit codes, elements 0 to 15 in the low nibbles of 16 bytes and 16 to 31 in the
    /// high ones; 20 bytes. Of n elements that are left at the end, the first ⌈n/2⌉ are low
    /// nibbles; 4 + ⌈n/2⌉ bytes.
    Q4,
}

impl KvElem {
    /// Bytes of a row of `d` elements; of several rows, as many times that.
    pub fn row_bytes(self, d: usize) -> usize {
        match self {
            Self::F32 => 4 * d,
            Self::F16 => 2 * d,
            Self::Q8 => 2 + d,
            Self::Q4 => {
                let rest = d % Q4_GROUP;
                20 * (d / Q4_GROUP) + if rest > 0 { 4 + rest.div_ceil(2) } else { 0 }
            }
        }
    }

    /// Whether rows are rotated before they are stored, keys and values alike. For values, too, it
    /// never costs accuracy: of 512 rows of 128 under a softmax, the error of the result
    /// relative to it is, without and with, for Q8 0.0063 and 0.0060 of Gaussian rows, 0.0302
    /// and 0.0077 where four channels are 20 times as large, 0.097 and 0.013 where one is 50
    /// times as large; for Q4 0.074 and 0.073, 0.165 and 0.081, 0.39 and 0.20.
    pub(crate) fn is_rotated(self) -> bool {
        matches!(self, Self::Q8 | Self::Q4)
    }
}

/// Paged keys and values of one layer. A block of the arena holds `block_len` positions of all
/// layers of its group; for this layer the keys lie at `k_at` inside each block and the values at
/// `v_at`, each `[n_kv_heads, block_len, d_head]`.
#[derive(Clone, Copy, Debug)]
pub struct KvLayer<'a> {
    /// All blocks, `[n_blocks, block_bytes]`.
    pub arena: &'a [u8],
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Byte of the first key inside a block.
    pub k_at: usize,
    /// Byte of the first value inside a block.
    pub v_at: usize,
    /// Positions per block.
    pub block_len: usize,
    /// Heads of keys and values.
    pub n_kv_heads: usize,
    /// Width of a head, at most 1024.
    pub d_head: usize,
    /// Element type of the keys.
    pub k_elem: KvElem,
    /// Element type of the values.
    pub v_elem: KvElem,
}

/// Where one query row looks.
#[derive(Clone, Copy, Debug)]
pub struct AttnRow<'a> {
    /// Block table of its sequence: position p lies in block `blocks[p / block_len]`.
    pub blocks: &'a [u32],
    /// First visible position: 0, or where the window begins.
    pub first: usize,
    /// Last visible position, inclusive: its own.
    pub last: usize,
}

/// Attention of query rows over cached keys and values, which include those of the rows themselves.
pub struct Attention<'a> {
    /// Keys and values.
    pub kv: KvLayer<'a>,
    /// Queries after rope, `[n_rows, n_heads, d_head]`.
    pub q: &'a [f32],
    /// What row `t` sees; asked as often as it is needed, so it should be cheap.
    pub rows: &'a (dyn Fn(usize) -> AttnRow<'a> + Sync),
    /// Query heads, a multiple of `kv.n_kv_heads`; neighbours share a KV head.
    pub n_heads: usize,
    /// Factor of the scores, mostly `1/√d_head`.
    pub scale: f32,
    /// Scores are squeezed into ±cap by `cap·tanh(score/cap)`. Gemma 2, section 2.
    pub softcap: Option<f32>,
    /// `Some`: one more score of each head, `[n_heads]`, that takes part in its softmax and has no
    /// value, so that a head can look at nothing. It is neither scaled nor capped.
    pub sinks: Option<&'a [f32]>,
    /// Weighted values, `[n_rows, n_heads, d_head]`.
    pub out: &'a mut [f32],
    /// Memory for intermediate results.
    pub scratch: &'a mut AttnScratch,
}

impl std::fmt::Debug for Attention<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attention")
            .field("n_heads", &self.n_heads)
            .field("scale", &self.scale)
            .finish_non_exhaustive()
    }
}

/// Memory of [`Kernels::attention`].
pub struct AttnScratch {
    /// Softmax state per chunk, `[rows, n_kv_heads, n_chunks, partial]`.
    partials: Vec<f32>,
}

impl std::fmt::Debug for AttnScratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AttnScratch")
            .field("n_partials", &self.partials.len())
            .finish_non_exhaustive()
    }
}

impl AttnScratch {
    /// Memory for calls of up to these sizes. With one thread none is needed.
    pub fn new(
        n_rows_max: usize,
        n_heads: usize,
        d_head: usize,
        n_ctx_max: usize,
        n_threads: usize,
    ) -> Self {
        Self {
            partials: vec![
                0.0;
                Self::n_partials(n_rows_max, n_heads, d_head, n_ctx_max, n_threads)
            ],
        }
    }

    /// Bytes of the memory that [`new`](Self::new) would make.
    pub fn bytes(
        n_rows_max: usize,
        n_heads: usize,
        d_head: usize,
        n_ctx_max: usize,
        n_threads: usize,
    ) -> u64 {
        4 * Self::n_partials(n_rows_max, n_heads, d_head, n_ctx_max, n_threads) as u64
    }

    fn n_partials(
        n_rows_max: usize,
        n_heads: usize,
        d_head: usize,
        n_ctx_max: usize,
        n_threads: usize,
    ) -> usize {
        let rows = if n_threads > 1 {
            n_rows_max.min(SPLIT_ROWS)
        } else {
            0
        };
        n_ctx_max
            .div_ceil(CHUNK)
            .saturating_mul(partial_len(n_heads, d_head))
            .saturating_mul(rows)
    }
}

/// The parts of [`Attention`] that are only read.
struct Inputs<'a> {
    kv: KvLayer<'a>,
    q: &'a [f32],
    n_rows: usize,
    rows: &'a (dyn Fn(usize) -> AttnRow<'a> + Sync),
    group: usize,
    scale: f32,
    softcap: Option<f32>,
    sinks: Option<&'a [f32]>,
}

impl<'a> Inputs<'a> {
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
        let (n_rows, rest) = (
            a.q.len() / (a.n_heads * kv.d_head),
            a.q.len() % (a.n_heads * kv.d_head),
        );
        assert_eq!(rest, 0, "queries are [n_rows, n_heads, d_head]");
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
        let (group, scale, softcap, sinks) =
            (a.n_heads / kv.n_kv_heads, a.scale, a.softcap, a.sinks);
        Self {
            kv,
            q: a.q,
            n_rows,
            rows: a.rows,
            group,
            scale,
            softcap,
            sinks,
        }
    }

    /// The query heads of the KV head `h` in the rows from `first` on, of which `rows` says what
    /// they see.
    fn query<'b>(
        &'b self,
        kernels: Kernels,
        first: usize,
        h: usize,
        rows: &'b [AttnRow<'b>],
    ) -> Query<'b> {
        let (kv, n_heads) = (&self.kv, self.n_heads());
        let q = &self.q[first * n_heads * kv.d_head..];
        Query {
            kernels,
            kv,
            kv_head: h,
            q,
            n_heads,
            rows,
            scale: self.scale,
            softcap: self.softcap,
            sinks: self.sinks,
        }
    }

    /// The sinks of the query heads that share the KV head `h`, `[group]`.
    fn sinks_of(&self, h: usize) -> Option<&[f32]> {
        self.sinks
            .map(|sinks| &sinks[h * self.group..(h + 1) * self.group])
    }

    /// Turns heads of results, `[heads, d_head]`, back to where values were before they were
    /// stored.
    fn rotate_back(&self, k: Kernels, out: &mut [f32]) {
        if self.kv.v_elem.is_rotated() {
            out.chunks_exact_mut(self.kv.d_head)
                .for_each(|head| k.hadamard(head));
        }
    }

    fn n_heads(&self) -> usize {
        self.group * self.kv.n_kv_heads
    }
}

/// Query rows treated at once; they share the work of reading keys and values.
const TILE: usize = MANY;

/// One region: a part is the heads of a tile of rows that share a KV head, or, when those are too
/// few, a chunk of the context of one row.
pub(crate) fn attention(k: Kernels, pool: &Pool, a: Attention<'_>) {
    let inputs = Inputs::of(&a);
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

/// Rows of a tile: as many as the heads that are treated at once, fewer if that leaves threads
/// without work.
fn tile_rows(inputs: &Inputs<'_>, n_threads: usize) -> usize {
    let enough = inputs.n_rows * inputs.kv.n_kv_heads / (4 * n_threads);
    (MANY / inputs.group).min(enough).clamp(1, TILE)
}

fn by_tile(k: Kernels, pool: &Pool, inputs: &Inputs<'_>, out: &mut [f32]) {
    let (tile, n_kv_heads) = (tile_rows(inputs, pool.n_threads()), inputs.kv.n_kv_heads);
    let mut parts = Grid::new(out, inputs.n_rows, tile, inputs.group * inputs.kv.d_head);
    tiles::deal(pool, &mut parts, |i, mut out| {
        let (first, h) = (i / n_kv_heads * tile, i % n_kv_heads);
        let mut rows = [AttnRow {
            blocks: &[],
            first: 0,
            last: 0,
        }; TILE];
        let rows = &mut rows[..tile.min(inputs.n_rows - first)];
        rows.iter_mut()
            .enumerate()
            .for_each(|(t, row)| *row = (inputs.rows)(first + t));
        let mut start = 0;
        for rows in rows.chunk_by(|a, b| std::ptr::eq(a.blocks, b.blocks)) {
            let query = inputs.query(k, first + start, h, rows);
            with_work(&query, |work| {
                k.attend(&query, work, Out::Rows(&mut out.rows_from(start)))
            });
            start += rows.len();
        }
        (0..rows.len()).for_each(|t| inputs.rotate_back(k, out.row(t)));
    });
}

/// Chunks of a part, where there are enough of them: they share a room, to zero which takes as long
/// as a chunk of few heads.
const RUN: usize = 4;

/// `partials` is `[n_queries, n_chunks, partial]`. The caller merges: a few thousand operations per
/// chunk.
fn by_chunk(k: Kernels, pool: &Pool, inputs: &Inputs<'_>, partials: &mut [f32], out: &mut [f32]) {
    let (len, n_kv_heads) = (
        partial_len(inputs.group, inputs.kv.d_head),
        inputs.kv.n_kv_heads,
    );
    let width = inputs.group * inputs.kv.d_head;
    let n_queries = out.len() / width;
    let n_chunks = partials.len() / len / n_queries;
    let run = (n_queries * n_chunks / (4 * pool.n_threads())).clamp(1, RUN);
    tiles::deal(
        pool,
        &mut Grid::new(partials, n_queries, 1, run * len),
        |i, mut part| {
            let (i, first) = (i / n_chunks.div_ceil(run), part.columns().start / len);
            let rows = [(inputs.rows)(i / n_kv_heads)];
            let query = inputs.query(k, i / n_kv_heads, i % n_kv_heads, &rows);
            let seen = query.chunks();
            let chunks = seen.start.max(first)..seen.end.min(first + run);
            if chunks.is_empty() {
                return;
            }
            let partials = part.row(0).chunks_exact_mut(len).skip(chunks.start - first);
            with_work(&query, |work| {
                chunks.zip(partials).for_each(|(chunk, partial)| {
                    k.attend(&query, work, Out::Chunk(chunk, partial))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algo::hadamard::rotate;
    use crate::isa::scalar::Scalar;
    use crate::testing::{Random, bits, pool};
    use atta_formats::f16::{f16_to_f32, f32_to_f16};

    const ELEMS: [KvElem; 4] = [KvElem::F32, KvElem::F16, KvElem::Q8, KvElem::Q4];

    /// Sequences of equal length in shuffled blocks of one arena, with one more layer in front of
    /// the one at hand.
    struct Case {
        n_heads: usize,
        n_kv_heads: usize,
        d_head: usize,
        block_len: usize,
        elem: KvElem,
        /// Type of the values, where it is not that of the keys.
        v_elem: Option<KvElem>,
        window: usize,
        softcap: Option<f32>,
        has_sinks: bool,
        /// Last positions of the query rows.
        last: Vec<usize>,
        /// A position whose key and value are infinite.
        infinite: usize,
        /// An element of the queries that is NaN.
        nan: usize,
        seed: u64,
    }

    impl Default for Case {
        fn default() -> Self {
            Self {
                n_heads: 8,
                n_kv_heads: 2,
                d_head: 64,
                block_len: 32,
                elem: KvElem::F32,
                v_elem: None,
                window: usize::MAX,
                softcap: None,
                has_sinks: false,
                last: vec![0, 5, 127, 128, 300, 511],
                infinite: usize::MAX,
                nan: usize::MAX,
                seed: 11,
            }
        }
    }

    impl Case {
        fn n_ctx(&self) -> usize {
            self.last.iter().max().unwrap() + 1
        }

        /// Keys and values, `[n_ctx, n_kv_heads, d_head]` each, and queries; independent of blocks
        /// and element type.
        fn inputs(&self) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
            let (mut random, n) = (
                Random(self.seed),
                self.n_ctx() * self.n_kv_heads * self.d_head,
            );
            let narrow = |x: f32| f16_to_f32(f32_to_f16(x));
            let mut kv = || random.floats(n).into_iter().map(narrow).collect::<Vec<_>>();
            let (mut k, mut v) = (kv(), kv());
            for x in [&mut k, &mut v].map(|x| {
                x.chunks_mut(self.n_kv_heads * self.d_head)
                    .nth(self.infinite)
            }) {
                x.into_iter().flatten().for_each(|x| *x = f32::INFINITY);
            }
            let mut q = random.floats(self.last.len() * self.n_heads * self.d_head);
            q.iter_mut().for_each(|x| *x *= 4.0);
            q.get_mut(self.nan).into_iter().for_each(|x| *x = f32::NAN);
            (k, v, q)
        }

        /// Types of keys and values.
        fn elems(&self) -> [KvElem; 2] {
            [self.elem, self.v_elem.unwrap_or(self.elem)]
        }

        fn row(&self, last: usize) -> (usize, usize) {
            ((last + 1).saturating_sub(self.window), last)
        }

        /// From scores that vanish beside the others to ones beside which the others vanish.
        fn sinks(&self) -> Option<Vec<f32>> {
            self.has_sinks.then(|| {
                (0..self.n_heads)
                    .map(|h| [1.5, -200.0, 3.0, 90.0, -0.5][h % 5])
                    .collect()
            })
        }

        fn scale(&self) -> f32 {
            1.0 / (self.d_head as f32).sqrt()
        }

        fn run(&self, n_threads: usize, scratch: &mut AttnScratch) -> Vec<f32> {
            self.run_on(Kernels::detect(), n_threads, scratch)
        }

        fn run_on(&self, k: Kernels, n_threads: usize, scratch: &mut AttnScratch) -> Vec<f32> {
            let (keys, values, q) = self.inputs();
            let (width, n_blocks) = (
                self.n_kv_heads * self.d_head,
                self.n_ctx().div_ceil(self.block_len),
            );
            let [k_elem, v_elem] = self.elems();
            let [k_len, v_len] = [k_elem, v_elem]
                .map(|elem| self.block_len * self.n_kv_heads * elem.row_bytes(self.d_head));
            // A block holds [other layer's keys, values, keys of ours], so that neither begins at
            // 0.
            let (block_bytes, v_at, k_at) = (2 * k_len + v_len, k_len, k_len + v_len);
            let mut arena = vec![0xffu8; n_blocks * block_bytes];
            let mut blocks: Vec<u32> = (0..n_blocks as u32).rev().collect();
            for p in 0..self.n_ctx() {
                for h in 0..self.n_kv_heads {
                    let block = blocks[p / self.block_len] as usize * block_bytes;
                    let from = p * width + h * self.d_head..p * width + (h + 1) * self.d_head;
                    for (at, x, elem) in [(k_at, &keys, k_elem), (v_at, &values, v_elem)] {
                        let row = elem.row_bytes(self.d_head);
                        let start = block + at + (h * self.block_len + p % self.block_len) * row;
                        k.store_kv(&x[from.clone()], elem, &mut arena[start..start + row]);
                    }
                }
            }
            // What nobody sees need not be a block.
            let first = self
                .last
                .iter()
                .map(|&last| self.row(last).0)
                .min()
                .unwrap();
            blocks[..first / self.block_len].fill(u32::MAX);
            blocks.extend([u32::MAX; 9]);
            let rows: Vec<_> = self
                .last
                .iter()
                .map(|&last| AttnRow {
                    blocks: &blocks,
                    first: self.row(last).0,
                    last,
                })
                .collect();
            let mut out = vec![f32::NAN; q.len()];
            let kv = KvLayer {
                arena: &arena,
                block_bytes,
                k_at,
                v_at,
                block_len: self.block_len,
                n_kv_heads: self.n_kv_heads,
                d_head: self.d_head,
                k_elem,
                v_elem,
            };
            let (n_heads, scale, softcap, sinks) =
                (self.n_heads, self.scale(), self.softcap, self.sinks());
            let (rows, sinks, out_of) = (|t: usize| rows[t], sinks.as_deref(), &mut out);
            let a = Attention {
                kv,
                q: &q,
                rows: &rows,
                n_heads,
                scale,
                softcap,
                sinks,
                out: out_of,
                scratch,
            };
            k.attention(&pool(n_threads), a);
            out
        }

        fn run_alone(&self) -> Vec<f32> {
            self.run(1, &mut self.scratch(1))
        }

        fn scratch(&self, n_threads: usize) -> AttnScratch {
            AttnScratch::new(
                self.last.len(),
                self.n_heads,
                self.d_head,
                self.n_ctx(),
                n_threads,
            )
        }

        /// Softmax in two passes over everything visible, in f64.
        fn reference(&self, (keys, values, q): &(Vec<f32>, Vec<f32>, Vec<f32>)) -> Vec<f64> {
            let (d, group) = (self.d_head, self.n_heads / self.n_kv_heads);
            let at = |x: &[f32], p: usize, h: usize| -> Vec<f64> {
                let start = (p * self.n_kv_heads + h / group) * d;
                x[start..start + d].iter().map(|&x| f64::from(x)).collect()
            };
            let mut out = Vec::new();
            for (i, q) in q.chunks(d).enumerate() {
                let (h, (first, last)) = (i % self.n_heads, self.row(self.last[i / self.n_heads]));
                let score = |p: usize| {
                    let dot: f64 = q
                        .iter()
                        .zip(at(keys, p, h))
                        .map(|(&q, k)| f64::from(q) * k)
                        .sum();
                    let score = dot * f64::from(self.scale());
                    self.softcap.map_or(score, |cap| {
                        f64::from(cap) * (score / f64::from(cap)).tanh()
                    })
                };
                let scores: Vec<f64> = (first..=last).map(score).collect();
                let sink = self.sinks().map(|sinks| f64::from(sinks[h]));
                let all = || scores.iter().copied().chain(sink);
                let max = all().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = all().map(|s| (s - max).exp()).sum();
                let mut row = vec![0.0; d];
                for (p, score) in (first..=last).zip(&scores) {
                    let weight = (score - max).exp() / sum;
                    row.iter_mut()
                        .zip(at(values, p, h))
                        .for_each(|(out, v)| *out += weight * v);
                }
                out.extend(row);
            }
            out
        }

        fn scalar(&self) -> Vec<u32> {
            bits(&self.run_on(Kernels::named("scalar").unwrap(), 1, &mut self.scratch(1)))
        }

        /// Keys, values and queries as they take part in the arithmetic, in the basis in which they
        /// were given.
        fn kept(&self) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
            let (mut keys, mut values, mut q) = self.inputs();
            for (x, elem) in [&mut keys, &mut values].into_iter().zip(self.elems()) {
                let (k, mut bytes) = (Kernels::detect(), vec![0; elem.row_bytes(self.d_head)]);
                for row in x.chunks_mut(self.d_head) {
                    k.store_kv(row, elem, &mut bytes);
                    k.load_kv(&bytes, elem, row);
                }
            }
            for q in q.chunks_mut(self.d_head).filter(|_| self.elem.is_rotated()) {
                rotate(Scalar, q);
                let step = q.iter().fold(0f32, |max, x| max.max(x.abs())) / 127.0;
                q.iter_mut()
                    .for_each(|x| *x = (*x / step).round_ties_even() * step);
                rotate(Scalar, q);
            }
            (keys, values, q)
        }

        /// As the type of the elements defines it, but for the rounding of f32.
        fn check(&self) {
            self.compare(
                &self.kept(),
                if self.elems().iter().any(|elem| elem.is_rotated()) {
                    2e-5
                } else {
                    1e-6
                },
            );
        }

        fn compare(&self, inputs: &(Vec<f32>, Vec<f32>, Vec<f32>), tolerance: f64) {
            let got = self.run(1, &mut self.scratch(1));
            for (i, (&got, want)) in got.iter().zip(self.reference(inputs)).enumerate() {
                assert!(
                    (f64::from(got) - want).abs() < tolerance,
                    "{:?} output {i}: {got} {want}",
                    self.elems()
                );
            }
        }
    }

    #[test]
    fn attention_agrees_with_two_passes_in_f64() {
        for elem in ELEMS {
            Case {
                elem,
                ..Case::default()
            }
            .check();
        }
    }

    #[test]
    fn quantized_keys_and_values_are_near_the_exact_ones() {
        // Elements lie between −1 and 1; a row sees between 1 and 512 of them.
        for (elem, tolerance) in [(KvElem::Q8, 0.02), (KvElem::Q4, 0.2)] {
            let case = Case {
                elem,
                ..Case::default()
            };
            case.compare(&case.inputs(), tolerance);
        }
    }

    #[test]
    fn every_isa_gives_the_bits_of_scalar() {
        let rows = |n: usize| (200..200 + n).collect::<Vec<_>>();
        let few = [(9, 3, 33, 5), (7, 1, 16, 1), (40, 1, 80, 3), (6, 2, 31, 2)];
        let many = [
            (8, 2, 64, 40),
            (4, 4, 128, 20),
            (9, 3, 31, 30),
            (2, 1, 63, 40),
        ];
        for (i, (n_heads, n_kv_heads, d_head, n_rows)) in few.into_iter().chain(many).enumerate() {
            let cases = ELEMS.into_iter().zip([
                (Some(3.0), 100),
                (None, usize::MAX),
                (None, 90),
                (Some(5.0), 300),
            ]);
            for (j, (elem, (softcap, window))) in cases.enumerate() {
                let (last, v_elem) = (rows(n_rows), Some(ELEMS[(i + j) % 4]));
                let case = Case {
                    has_sinks: softcap.is_none(),
                    v_elem,
                    ..Case::default()
                };
                let case = Case {
                    n_heads,
                    n_kv_heads,
                    d_head,
                    elem,
                    softcap,
                    window,
                    last,
                    ..case
                };
                let want = case.scalar();
                for k in Kernels::available()
                    .into_iter()
                    .map(|name| Kernels::named(name).unwrap())
                {
                    for n_threads in [1, 2] {
                        let got = bits(&case.run_on(k, n_threads, &mut case.scratch(n_threads)));
                        assert!(
                            got == want,
                            "{} {n_heads} {n_kv_heads} {d_head} {elem:?} {v_elem:?} {n_threads}",
                            k.isa()
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn any_grouping_and_width_of_heads_works() {
        let last = vec![0, 140];
        for (n_heads, n_kv_heads, d_head) in [
            (1, 1, 1),
            (3, 3, 20),
            (2, 1, 31),
            (10, 1, 80),
            (9, 3, 33),
            (6, 2, 63),
            (4, 2, 512),
            (5, 1, 1024),
        ] {
            for elem in [KvElem::F32, KvElem::Q8, KvElem::Q4] {
                Case {
                    n_heads,
                    n_kv_heads,
                    d_head,
                    elem,
                    last: last.clone(),
                    ..Case::default()
                }
                .check();
            }
        }
    }

    #[test]
    fn keys_and_values_may_have_different_types() {
        for (elem, v_elem) in ELEMS
            .into_iter()
            .flat_map(|elem| ELEMS.map(|v_elem| (elem, Some(v_elem))))
        {
            for d_head in [48, 63] {
                Case {
                    elem,
                    v_elem,
                    d_head,
                    last: vec![7, 200],
                    ..Case::default()
                }
                .check();
            }
        }
    }

    #[test]
    fn windows_begin_anywhere() {
        for (window, elem) in [1, 2, 100, 128, 129, 400]
            .into_iter()
            .zip(ELEMS.into_iter().cycle())
        {
            Case {
                window,
                ..Case::default()
            }
            .check();
            Case {
                window,
                elem,
                ..Case::default()
            }
            .check();
        }
    }

    #[test]
    fn scores_can_be_capped() {
        Case {
            softcap: Some(2.0),
            ..Case::default()
        }
        .check();
    }

    #[test]
    fn heads_can_look_at_a_sink() {
        for (window, n_kv_heads) in [(usize::MAX, 2), (7, 1), (200, 8)] {
            Case {
                has_sinks: true,
                window,
                n_kv_heads,
                ..Case::default()
            }
            .check();
        }
    }

    #[test]
    fn a_sink_that_vanishes_changes_no_bit() {
        let case = Case {
            has_sinks: true,
            last: vec![3, 200],
            ..Case::default()
        };
        let (with, without) = (
            case.run_alone(),
            Case {
                has_sinks: false,
                ..case
            }
            .run_alone(),
        );
        // Every fifth head from the second on has a sink of -200.
        for (i, (with, without)) in with.chunks(64).zip(without.chunks(64)).enumerate() {
            assert_eq!(bits(with) == bits(without), i % 8 % 5 == 1, "head {i}");
        }
    }

    #[test]
    fn what_a_row_does_not_see_may_be_infinite() {
        for (n_heads, n_kv_heads) in [(8, 2), (3, 3)] {
            let case = Case {
                n_heads,
                n_kv_heads,
                last: (120..160).collect(),
                ..Case::default()
            };
            let (want, width) = (bits(&case.run_alone()), n_heads * case.d_head);
            let got = bits(
                &Case {
                    infinite: 139,
                    ..case
                }
                .run_alone(),
            );
            assert_eq!(got[..19 * width], want[..19 * width]);
            assert!(
                got[19 * width..]
                    .chunks(width)
                    .all(|row| !f32::from_bits(row[0]).is_finite())
            );
        }
    }

    #[test]
    fn a_nan_in_a_query_shows_whatever_the_keys_are() {
        for (elem, d_head) in ELEMS.into_iter().flat_map(|elem| [(elem, 33), (elem, 64)]) {
            let case = Case {
                elem,
                d_head,
                nan: 2 * d_head,
                last: vec![0, 200],
                ..Case::default()
            };
            let out = case.run_alone();
            for (i, head) in out.chunks(d_head).enumerate() {
                assert!(
                    head.iter().all(|x| x.is_nan() == (i == 2)),
                    "{elem:?} {d_head}, head {i}"
                );
            }
        }
    }

    #[test]
    fn the_bits_do_not_depend_on_threads_or_scratch() {
        let cases = [
            (vec![511], 2),
            (vec![511], 1),
            (vec![130, 400], 2),
            (vec![0, 5, 127, 128, 300], 8),
        ];
        let settings = [
            (KvElem::F16, false),
            (KvElem::F16, true),
            (KvElem::Q8, true),
            (KvElem::Q4, false),
        ];
        for ((last, n_kv_heads), (elem, has_sinks)) in cases
            .iter()
            .flat_map(|case| settings.map(|with| (case, with)))
        {
            let (last, n_kv_heads) = (last.clone(), *n_kv_heads);
            let case = Case {
                last,
                n_kv_heads,
                has_sinks,
                window: 333,
                elem,
                ..Case::default()
            };
            let want = bits(&case.run(1, &mut case.scratch(1)));
            for n_threads in [2, 3, 5] {
                assert_eq!(
                    bits(&case.run(n_threads, &mut case.scratch(n_threads))),
                    want,
                    "{n_threads} threads"
                );
                assert_eq!(
                    bits(&case.run(n_threads, &mut case.scratch(1))),
                    want,
                    "{n_threads} threads, no scratch"
                );
            }
        }
    }

    #[test]
    fn the_bits_do_not_depend_on_neighbours_or_blocks() {
        for (elem, d_head) in ELEMS.into_iter().flat_map(|elem| [(elem, 64), (elem, 80)]) {
            let many = Case {
                last: vec![511, 0, 300, 300, 129],
                elem,
                d_head,
                ..Case::default()
            };
            let width = many.n_heads * many.d_head;
            let want = bits(&many.run(1, &mut many.scratch(1)));
            for block_len in [1, 16, 100, 128, 600] {
                let other = Case {
                    block_len,
                    last: many.last.clone(),
                    ..many
                };
                assert_eq!(
                    bits(&other.run(2, &mut other.scratch(2))),
                    want,
                    "{elem:?}, blocks of {block_len}"
                );
            }
            // The first row with other neighbours, and alone.
            for last in [vec![511, 300], vec![511]] {
                let fewer = Case { last, ..many };
                let got = bits(&fewer.run(1, &mut fewer.scratch(1)));
                assert_eq!(got[..width], want[..width], "{elem:?}, {d_head}");
            }
        }
    }
}
