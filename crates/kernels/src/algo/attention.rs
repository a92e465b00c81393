//! Softmax attention of the query heads that share one KV head, over paged keys and values.
//!
//! ```text
//! for each chunk of 128 absolute positions that is visible, in order:
//!     widen the keys of the chunk                     once for all heads and a tile of rows
//!     s[h][p] = cap(scale · (q[h] · k[p]))            two heads × eight keys; one tree adds the lanes of all 16
//!     m = max s,  e = exp(s − m),  n = Σ e,  o[h] = Σ e[p]·v[p]      in order of p, four vectors at a time
//!     merge (m, n, o) into the state of the chunks before
//! merge (sink[h], 1, 0)                           where heads have a sink: a score that has no value
//! out[h] = o / n
//! ```
//! The running maximum is Milakov and Gimelshein 2018, the merge of partial results Dao 2023 (FlashDecoding). Because a
//! chunk is computed from nothing and chunks are cut and merged by absolute position, the bits of the result do not
//! depend on who computes which chunk, nor on the length of the blocks that hold the positions.

use super::lanes::{self, LANES};
use super::math::{exp_weight, tanh};
use crate::attention::{AttnRow, D_HEAD_MAX, KvElem, KvLayer};
use crate::format::float::widen_f16;
use crate::isa::Floats;
use crate::tiles::Strip;
use std::ops::Range;

/// Positions per chunk.
pub(crate) const CHUNK: usize = 128;

/// Floats of a partial result of `group` heads: per head maximum, sum and weighted values.
pub(crate) fn partial_len(group: usize, d_head: usize) -> usize {
    group * (2 + d_head)
}

/// Heads treated at once; their scores of a chunk are on the stack.
pub(crate) const HEADS: usize = 32;

/// Query heads that share a KV head and a block table: the group of heads of each of a few rows.
pub(crate) struct Query<'a> {
    pub(crate) kv: &'a KvLayer<'a>,
    pub(crate) kv_head: usize,
    /// Query rows, `[n_rows, n_heads, d_head]`, from the first row of this query on.
    pub(crate) q: &'a [f32],
    pub(crate) n_heads: usize,
    /// What the rows see; with one block table.
    pub(crate) rows: &'a [AttnRow<'a>],
    pub(crate) scale: f32,
    pub(crate) softcap: Option<f32>,
    /// The score of each head's sink, `[n_heads]`.
    pub(crate) sinks: Option<&'a [f32]>,
}

impl Query<'_> {
    /// Heads per row.
    #[inline(always)]
    pub(crate) fn group(&self) -> usize {
        self.n_heads / self.kv.n_kv_heads
    }

    /// Head `i % group` of row `i / group`, `[d_head]`.
    #[inline(always)]
    fn head(&self, i: usize) -> &[f32] {
        let (group, d) = (self.group(), self.kv.d_head);
        let start = (i / group * self.n_heads + self.kv_head * group + i % group) * d;
        &self.q[start..start + d]
    }

    /// The sink of head `i`, if heads have one.
    #[inline(always)]
    fn sink(&self, i: usize) -> Option<f32> {
        self.sinks.map(|sinks| sinks[self.kv_head * self.group() + i % self.group()])
    }

    /// All positions that some row sees.
    #[inline(always)]
    fn seen(&self) -> Range<usize> {
        let first = self.rows.iter().map(|row| row.first).min().unwrap_or(0);
        first..self.rows.iter().map(|row| row.last + 1).max().unwrap_or(first)
    }

    /// The chunks with a visible position.
    #[inline(always)]
    pub(crate) fn chunks(&self) -> Range<usize> {
        let seen = self.seen();
        seen.start / CHUNK..seen.end.div_ceil(CHUNK)
    }

    /// The positions of a chunk that head `i` sees, counted from the start of the chunk. May be empty.
    #[inline(always)]
    fn visible(&self, i: usize, chunk: usize) -> Range<usize> {
        let (row, start) = (&self.rows[i / self.group()], chunk * CHUNK);
        let end = (row.last + 1).saturating_sub(start).min(CHUNK);
        row.first.saturating_sub(start).min(end)..end
    }

    /// Widens the rows of the positions that someone sees in a chunk, of the matrix `[n_kv_heads, block_len, d_head]`
    /// that lies at `at` inside each block, into rows of `out`, `[CHUNK, width]`.
    #[inline(always)]
    fn widen_chunk<I: Floats>(&self, isa: I, chunk: usize, (at, elem): (usize, KvElem), width: usize, out: &mut [f32]) {
        let (kv, seen) = (self.kv, self.seen());
        let len = elem.row_bytes(kv.d_head);
        let (mut p, end) = (seen.start.max(chunk * CHUNK), seen.end.min((chunk + 1) * CHUNK));
        while p < end {
            // Positions of one block lie behind each other.
            let n = (kv.block_len - p % kv.block_len).min(end - p);
            let block = self.rows[0].blocks[p / kv.block_len] as usize * kv.block_bytes;
            let start = block + at + (self.kv_head * kv.block_len + p % kv.block_len) * len;
            let rows = kv.arena[start..start + n * len].chunks_exact(len);
            for (row, out) in rows.zip(out[p % CHUNK * width..].chunks_exact_mut(width)) {
                widen(isa, row, elem, &mut out[..kv.d_head]);
            }
            p += n;
        }
    }
}

/// Widens a row of the cache.
#[inline(always)]
fn widen<I: Floats>(isa: I, bytes: &[u8], elem: KvElem, out: &mut [f32]) {
    match elem {
        KvElem::F32 => {
            for (out, x) in out.iter_mut().zip(bytes.as_chunks().0) {
                *out = f32::from_le_bytes(*x);
            }
        }
        KvElem::F16 => {
            let (halves, (out, out_rest)) = (bytes.as_chunks().0, out.as_chunks_mut());
            let (halves, rest) = halves.as_chunks();
            for (out, x) in out.iter_mut().zip(halves) {
                *out = isa.to_array(isa.halves(x));
            }
            for (out, x) in out_rest.iter_mut().zip(rest) {
                *out = widen_f16(u16::from_le_bytes(*x));
            }
        }
    }
}

/// Working memory for heads of up to `WIDTH`, a multiple of 64; rows are padded with zeros.
struct Scratch<const WIDTH: usize> {
    /// Keys, then values, of a chunk.
    rows: [[f32; WIDTH]; CHUNK],
    q: [[f32; WIDTH]; HEADS],
    scores: [[f32; CHUNK]; HEADS],
}

/// Softmax state of up to [`HEADS`] heads.
struct State<const WIDTH: usize> {
    max: [f32; HEADS],
    sum: [f32; HEADS],
    values: [[f32; WIDTH]; HEADS],
}

impl<const WIDTH: usize> State<WIDTH> {
    /// The state of nothing: merging into it gives the other. A constant of it would be in the program, and copied from
    /// there: 190 KB for all widths.
    #[inline(always)]
    fn nothing() -> Self {
        Self { max: [f32::NEG_INFINITY; HEADS], sum: [0.0; HEADS], values: [[0.0; WIDTH]; HEADS] }
    }
}

/// Heads whose scores are made at once, and keys.
const PAIR: usize = 2;
const KEYS: usize = 8;

impl<const WIDTH: usize> Scratch<WIDTH> {
    const NOTHING: Self = Self { rows: [[0.0; WIDTH]; CHUNK], q: [[0.0; WIDTH]; HEADS], scores: [[0.0; CHUNK]; HEADS] };

    /// Scores of the heads `heads` and the visible positions of a chunk; −∞ where nothing is visible.
    #[inline(always)]
    fn scores<I: Floats>(&mut self, isa: I, query: &Query<'_>, heads: Range<usize>, chunk: usize) {
        let (d, seen) = (query.kv.d_head, query.seen());
        query.widen_chunk(isa, chunk, (query.kv.k_at, query.kv.k_elem), WIDTH, self.rows.as_flattened_mut());
        let end = (seen.end - chunk * CHUNK).min(CHUNK);
        for h in (0..heads.len()).step_by(PAIR) {
            for p in (0..end).step_by(KEYS) {
                let totals = dots(isa, [&self.q[h], &self.q[h + 1]], &self.rows[p..p + KEYS], d.div_ceil(LANES));
                self.scores[h][p..p + KEYS].copy_from_slice(&totals[..KEYS]);
                self.scores[h + 1][p..p + KEYS].copy_from_slice(&totals[KEYS..]);
            }
        }
        for (i, scores) in heads.zip(&mut self.scores) {
            let visible = query.visible(i, chunk);
            scores[..visible.start].fill(f32::NEG_INFINITY);
            scores[visible.end..].fill(f32::NEG_INFINITY);
            let scores = &mut scores[visible];
            scores.iter_mut().for_each(|score| *score *= query.scale);
            if let Some(cap) = query.softcap {
                scores.iter_mut().for_each(|score| *score = cap * tanh(*score / cap));
            }
        }
    }

    /// State of the heads over one chunk, from nothing. Heads that see nothing of it get the state of nothing.
    #[inline(always)]
    fn attend<I: Floats>(
        &mut self,
        isa: I,
        query: &Query<'_>,
        heads: Range<usize>,
        chunk: usize,
        state: &mut State<WIDTH>,
    ) {
        self.scores(isa, query, heads.clone(), chunk);
        for h in 0..heads.len() {
            let visible = query.visible(heads.start + h, chunk);
            (state.max[h], state.sum[h]) = match visible.is_empty() {
                true => (f32::NEG_INFINITY, 0.0),
                false => softmax(isa, &mut self.scores[h], visible),
            };
        }
        query.widen_chunk(isa, chunk, (query.kv.v_at, query.kv.v_elem), WIDTH, self.rows.as_flattened_mut());
        // Four vectors of the values at a time for all heads: that part of the chunk stays in L1.
        for start in (0..query.kv.d_head).step_by(4 * LANES) {
            for (h, i) in heads.clone().enumerate() {
                let (visible, out) = (query.visible(i, chunk), &mut state.values[h][start..]);
                weighted(isa, &self.rows, start, &self.scores[h], visible, out);
            }
        }
    }
}

/// Scores of two heads and eight keys, `n` vectors wide: those of the first head, then of the second.
#[inline(always)]
fn dots<I: Floats, const WIDTH: usize>(isa: I, q: [&[f32; WIDTH]; 2], keys: &[[f32; WIDTH]], n: usize) -> [f32; 16] {
    let q = q.map(|q| &q.as_chunks::<LANES>().0[..n]);
    let keys: &[_; KEYS] = keys.first_chunk().expect("as many keys as are made at once");
    let mut lanes = [isa.zeros(); 16];
    // In turns of a few keys, so that the sums of a turn stay in the registers of every machine.
    for turn in (0..KEYS).step_by(I::KEYS) {
        for k in 0..n {
            let q = [isa.floats(&q[0][k]), isa.floats(&q[1][k])];
            for p in turn..turn + I::KEYS {
                let key = isa.floats(&keys[p].as_chunks::<LANES>().0[k]);
                lanes[p] = isa.sum_f(lanes[p], isa.product(q[0], key));
                lanes[KEYS + p] = isa.sum_f(lanes[KEYS + p], isa.product(q[1], key));
            }
        }
    }
    isa.to_array(isa.totals_of_16(lanes))
}

/// `out = Σ weight·row` over the positions `visible`, in order, 64 wide from element `start` on.
#[inline(always)]
fn weighted<I: Floats, const WIDTH: usize>(
    isa: I,
    rows: &[[f32; WIDTH]; CHUNK],
    start: usize,
    weights: &[f32; CHUNK],
    visible: Range<usize>,
    out: &mut [f32],
) {
    let mut lanes = [isa.zeros(); 4];
    for (row, weight) in rows[visible.clone()].iter().zip(&weights[visible]) {
        let (row, weight) = (row[start..].as_chunks::<LANES>().0, isa.splat_all(*weight));
        let row: &[_; 4] = row.first_chunk().expect("the vectors lie inside the row");
        for i in 0..4 {
            lanes[i] = isa.sum_f(lanes[i], isa.product(weight, isa.floats(&row[i])));
        }
    }
    for (out, lanes) in out.as_chunks_mut::<LANES>().0.iter_mut().zip(lanes) {
        *out = isa.to_array(lanes);
    }
}

/// Turns scores, −∞ where they are not visible, into weights relative to their maximum; returns the maximum and the sum of
/// the weights.
#[inline(always)]
fn softmax<I: Floats>(isa: I, scores: &mut [f32; CHUNK], visible: Range<usize>) -> (f32, f32) {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for scores in scores.as_chunks::<LANES>().0 {
        for i in 0..LANES {
            lanes[i] = if scores[i] > lanes[i] { scores[i] } else { lanes[i] };
        }
    }
    let max = lanes.into_iter().fold(f32::NEG_INFINITY, |max, s| if s > max { s } else { max });
    // Vectors of which nothing is visible need no exponential.
    let (first, end) = (visible.start / LANES, visible.end.div_ceil(LANES));
    let vectors = scores.as_chunks_mut::<LANES>().0;
    vectors[..first].as_flattened_mut().fill(0.0);
    vectors[end..].as_flattened_mut().fill(0.0);
    for vector in &mut vectors[first..end] {
        for score in vector {
            *score = exp_weight(*score - max);
        }
    }
    (max, lanes::sum(isa, scores))
}

/// Merges the state of a later chunk, one head: values, maximum and sum of each.
#[inline(always)]
fn merge(into: (&mut [f32], &mut f32, &mut f32), from: (&[f32], f32, f32)) {
    let ((values, max, sum), (other, other_max, other_sum)) = (into, from);
    let new_max = if other_max > *max { other_max } else { *max };
    let (a, b) = (exp_weight(*max - new_max), exp_weight(other_max - new_max));
    for (x, y) in values.iter_mut().zip(other) {
        *x = *x * a + y * b;
    }
    *sum = *sum * a + other_sum * b;
    *max = new_max;
}

/// `out = values / sum` for one head, whose sink takes part in the sum as a score without a value (Xiao et al. 2024). It is
/// merged like one more chunk, the last.
#[inline(always)]
fn finish(values: &mut [f32], (mut max, mut sum): (f32, f32), sink: Option<f32>) {
    if let Some(sink) = sink {
        let nothing = &[0.0; D_HEAD_MAX][..values.len()];
        merge((values, &mut max, &mut sum), (nothing, sink, 1.0));
    }
    let inverse = 1.0 / sum;
    values.iter_mut().for_each(|x| *x *= inverse);
}

/// All visible positions; part `i` of `out` is row `i`, `[group, d_head]`.
#[inline(always)]
pub(crate) fn attend<I: Floats>(isa: I, query: &Query<'_>, out: &mut Strip<'_>) {
    match query.kv.d_head {
        ..=64 => attend_within::<I, 64>(isa, query, out),
        65..=128 => attend_within::<I, 128>(isa, query, out),
        129..=256 => attend_within::<I, 256>(isa, query, out),
        _ => attend_within::<I, D_HEAD_MAX>(isa, query, out),
    }
}

#[inline(always)]
fn attend_within<I: Floats, const WIDTH: usize>(isa: I, query: &Query<'_>, out: &mut Strip<'_>) {
    let (d, group) = (query.kv.d_head, query.group());
    let n = query.rows.len() * group;
    let mut scratch = Scratch::<WIDTH>::NOTHING;
    let mut chunk_state = State::<WIDTH>::nothing();
    for start in (0..n).step_by(HEADS) {
        let heads = start..n.min(start + HEADS);
        let mut state = State::<WIDTH>::nothing();
        for (h, i) in heads.clone().enumerate() {
            scratch.q[h][..d].copy_from_slice(query.head(i));
        }
        for chunk in query.chunks() {
            scratch.attend(isa, query, heads.clone(), chunk, &mut chunk_state);
            for (h, i) in heads.clone().enumerate() {
                if !query.visible(i, chunk).is_empty() {
                    let into = (&mut state.values[h][..], &mut state.max[h], &mut state.sum[h]);
                    merge(into, (&chunk_state.values[h], chunk_state.max[h], chunk_state.sum[h]));
                }
            }
        }
        for (h, i) in heads.enumerate() {
            finish(&mut state.values[h], (state.max[h], state.sum[h]), query.sink(i));
            out.row(i / group)[i % group * d..][..d].copy_from_slice(&state.values[h][..d]);
        }
    }
}

/// One chunk of a query of one row. `partial` is `[group·d_head values, group maxima, group sums]`.
#[inline(always)]
pub(crate) fn attend_chunk<I: Floats>(isa: I, query: &Query<'_>, chunk: usize, partial: &mut [f32]) {
    match query.kv.d_head {
        ..=64 => attend_chunk_within::<I, 64>(isa, query, chunk, partial),
        65..=128 => attend_chunk_within::<I, 128>(isa, query, chunk, partial),
        129..=256 => attend_chunk_within::<I, 256>(isa, query, chunk, partial),
        _ => attend_chunk_within::<I, D_HEAD_MAX>(isa, query, chunk, partial),
    }
}

#[inline(always)]
fn attend_chunk_within<I: Floats, const WIDTH: usize>(isa: I, query: &Query<'_>, chunk: usize, partial: &mut [f32]) {
    let (d, n) = (query.kv.d_head, query.group());
    let (values, rest) = partial.split_at_mut(n * d);
    let (maxima, sums) = rest.split_at_mut(n);
    let mut scratch = Scratch::<WIDTH>::NOTHING;
    let mut state = State::<WIDTH>::nothing();
    for start in (0..n).step_by(HEADS) {
        let heads = start..n.min(start + HEADS);
        for (h, i) in heads.clone().enumerate() {
            scratch.q[h][..d].copy_from_slice(query.head(i));
        }
        scratch.attend(isa, query, heads.clone(), chunk, &mut state);
        for (h, i) in heads.enumerate() {
            values[i * d..(i + 1) * d].copy_from_slice(&state.values[h][..d]);
            (maxima[i], sums[i]) = (state.max[h], state.sum[h]);
        }
    }
}

/// Merges the partial results of consecutive chunks into `out`, `[group, d_head]`; `sinks` are those of the group, `[group]`.
#[inline(always)]
pub(crate) fn merge_chunks(partials: &[f32], sinks: Option<&[f32]>, d_head: usize, out: &mut [f32]) {
    let (width, group) = (out.len(), out.len() / d_head);
    for (h, out) in out.chunks_exact_mut(d_head).enumerate() {
        let (mut max, mut sum) = (f32::NEG_INFINITY, 0.0);
        out.fill(0.0);
        for partial in partials.chunks_exact(partial_len(group, d_head)) {
            let values = &partial[h * d_head..(h + 1) * d_head];
            merge((out, &mut max, &mut sum), (values, partial[width + h], partial[width + group + h]));
        }
        finish(out, (max, sum), sinks.map(|sinks| sinks[h]));
    }
}
