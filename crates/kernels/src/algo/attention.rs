//! Softmax attention of the query heads that share one KV head, over paged keys and values.
//!
//! ```text
//! for each chunk of 128 absolute positions that is visible, in order:
//!     s[h][p] = cap(scale · (q[h] · k[p]))            each key is read once for all heads
//!     m = max s,  e = exp(s − m),  n = Σ e,  o[h] = Σ e[p]·v[p]
//!     merge (m, n, o) into the state of the chunks before
//! out[h] = o / n
//! ```
//! The running maximum is Milakov and Gimelshein 2018, the merge of partial results Dao 2023 (FlashDecoding). Because a
//! chunk is computed from nothing and chunks are cut and merged by absolute position, the bits of the result do not
//! depend on who computes which chunk, nor on the length of the blocks that hold the positions.

use super::lanes;
use super::math::{exp, tanh};
use crate::attention::{AttnRow, D_HEAD_MAX, KvElem, KvLayer};
use crate::format::float::widen_f16;
use crate::isa::Floats;
use std::ops::Range;

/// Positions per chunk.
pub(crate) const CHUNK: usize = 128;

/// Floats of a partial result of `group` heads: per head maximum, sum and weighted values.
pub(crate) fn partial_len(group: usize, d_head: usize) -> usize {
    group * (2 + d_head)
}

/// The query heads of one row that share a KV head.
pub(crate) struct Query<'a> {
    pub(crate) kv: &'a KvLayer<'a>,
    pub(crate) kv_head: usize,
    /// `[group, d_head]`.
    pub(crate) q: &'a [f32],
    pub(crate) row: AttnRow<'a>,
    pub(crate) scale: f32,
    pub(crate) softcap: Option<f32>,
}

impl Query<'_> {
    /// The chunks with a visible position.
    #[inline(always)]
    pub(crate) fn chunks(&self) -> Range<usize> {
        self.row.first / CHUNK..self.row.last / CHUNK + 1
    }

    /// The visible positions of a chunk.
    #[inline(always)]
    fn positions(&self, chunk: usize) -> Range<usize> {
        self.row.first.max(chunk * CHUNK)..(self.row.last + 1).min((chunk + 1) * CHUNK)
    }

    /// Bytes of the row of position `p` in the matrix `[n_kv_heads, block_len, d_head]` at `at` inside each block.
    #[inline(always)]
    fn bytes(&self, p: usize, at: usize, elem: KvElem) -> &[u8] {
        let (kv, len) = (self.kv, elem.row_bytes(self.kv.d_head));
        let block = self.row.blocks[p / kv.block_len] as usize * kv.block_bytes;
        let start = block + at + (self.kv_head * kv.block_len + p % kv.block_len) * len;
        &kv.arena[start..start + len]
    }
}

/// Widens a row of the cache.
#[inline(always)]
fn widen(bytes: &[u8], elem: KvElem, out: &mut [f32]) {
    match elem {
        KvElem::F32 => {
            for (out, x) in out.iter_mut().zip(bytes.as_chunks().0) {
                *out = f32::from_le_bytes(*x);
            }
        }
        KvElem::F16 => {
            for (out, x) in out.iter_mut().zip(bytes.as_chunks().0) {
                *out = widen_f16(u16::from_le_bytes(*x));
            }
        }
    }
}

/// Heads treated at once: their scores of a chunk are kept on the stack.
const HEADS: usize = 8;
/// Floats of their weighted values, so narrower groups for wide heads.
const VALUES: usize = 2048;

/// Softmax state of up to [`HEADS`] heads.
struct State<'a> {
    max: [f32; HEADS],
    sum: [f32; HEADS],
    /// `[heads, d_head]`.
    values: &'a mut [f32],
}

/// The state of nothing: merging into it gives the other.
const NOTHING: ([f32; HEADS], [f32; HEADS]) = ([f32::NEG_INFINITY; HEADS], [0.0; HEADS]);

/// Scores of the visible positions of a chunk, `[heads][CHUNK]`; −∞ where nothing is visible.
#[inline(always)]
fn scores<I: Floats>(isa: I, query: &Query<'_>, q: &[f32], chunk: usize, out: &mut [[f32; CHUNK]; HEADS]) {
    let d_head = query.kv.d_head;
    let mut key = [0.0; D_HEAD_MAX];
    let key = &mut key[..d_head];
    *out = [[f32::NEG_INFINITY; CHUNK]; HEADS];
    for p in query.positions(chunk) {
        widen(query.bytes(p, query.kv.k_at, query.kv.k_elem), query.kv.k_elem, key);
        for (q, out) in q.chunks_exact(d_head).zip(out.iter_mut()) {
            let score = lanes::dot(isa, q, key) * query.scale;
            out[p % CHUNK] = query.softcap.map_or(score, |cap| cap * tanh(score / cap));
        }
    }
}

/// Turns scores into weights relative to their maximum; returns the maximum and the sum of the weights.
#[inline(always)]
fn softmax<I: Floats>(isa: I, scores: &mut [f32; CHUNK]) -> (f32, f32) {
    let max = scores.iter().fold(f32::NEG_INFINITY, |max, &s| if s > max { s } else { max });
    for score in scores.iter_mut() {
        *score = exp(*score - max);
    }
    (max, lanes::sum(isa, scores))
}

/// State of the heads `q`, `[heads, d_head]`, over one chunk, from nothing.
#[inline(always)]
fn attend_heads<I: Floats>(isa: I, query: &Query<'_>, q: &[f32], chunk: usize, state: &mut State<'_>) {
    let d_head = query.kv.d_head;
    let mut weights = [[0.0; CHUNK]; HEADS];
    scores(isa, query, q, chunk, &mut weights);
    for (h, weights) in weights[..q.len() / d_head].iter_mut().enumerate() {
        (state.max[h], state.sum[h]) = softmax(isa, weights);
    }
    state.values.fill(0.0);
    let mut value = [0.0; D_HEAD_MAX];
    let value = &mut value[..d_head];
    for p in query.positions(chunk) {
        widen(query.bytes(p, query.kv.v_at, query.kv.v_elem), query.kv.v_elem, value);
        for (out, weights) in state.values.chunks_exact_mut(d_head).zip(&weights) {
            let weight = weights[p % CHUNK];
            for (out, v) in out.iter_mut().zip(value.iter()) {
                *out += weight * v;
            }
        }
    }
}

/// Merges the state of a later chunk, one head: values, maximum and sum of each.
#[inline(always)]
fn merge(into: (&mut [f32], &mut f32, &mut f32), from: (&[f32], f32, f32)) {
    let ((values, max, sum), (other, other_max, other_sum)) = (into, from);
    let new_max = if other_max > *max { other_max } else { *max };
    let (a, b) = (exp(*max - new_max), exp(other_max - new_max));
    for (x, y) in values.iter_mut().zip(other) {
        *x = *x * a + y * b;
    }
    *sum = *sum * a + other_sum * b;
    *max = new_max;
}

/// `out = values / sum` for one head.
#[inline(always)]
fn finish(values: &mut [f32], sum: f32) {
    let inverse = 1.0 / sum;
    values.iter_mut().for_each(|x| *x *= inverse);
}

/// All visible positions, `out` is `[group, d_head]`.
#[inline(always)]
pub(crate) fn attend<I: Floats>(isa: I, query: &Query<'_>, out: &mut [f32]) {
    let d_head = query.kv.d_head;
    let width = HEADS.min(VALUES / d_head) * d_head;
    let mut values = [0.0; VALUES];
    for (q, out) in query.q.chunks(width).zip(out.chunks_mut(width)) {
        let mut chunk_state = State { max: NOTHING.0, sum: NOTHING.1, values: &mut values[..q.len()] };
        let (mut max, mut sum) = NOTHING;
        out.fill(0.0);
        for chunk in query.chunks() {
            attend_heads(isa, query, q, chunk, &mut chunk_state);
            for (h, out) in out.chunks_exact_mut(d_head).enumerate() {
                let values = &chunk_state.values[h * d_head..(h + 1) * d_head];
                merge((out, &mut max[h], &mut sum[h]), (values, chunk_state.max[h], chunk_state.sum[h]));
            }
        }
        for (out, sum) in out.chunks_exact_mut(d_head).zip(sum) {
            finish(out, sum);
        }
    }
}

/// One chunk. `partial` is `[group·d_head values, group maxima, group sums]`.
#[inline(always)]
pub(crate) fn attend_chunk<I: Floats>(isa: I, query: &Query<'_>, chunk: usize, partial: &mut [f32]) {
    let d_head = query.kv.d_head;
    let heads = HEADS.min(VALUES / d_head);
    let (values, rest) = partial.split_at_mut(query.q.len());
    let (maxima, sums) = rest.split_at_mut(query.q.len() / d_head);
    let parts = values.chunks_mut(heads * d_head).zip(maxima.chunks_mut(heads).zip(sums.chunks_mut(heads)));
    for (q, (values, (max, sum))) in query.q.chunks(heads * d_head).zip(parts) {
        let mut state = State { max: NOTHING.0, sum: NOTHING.1, values };
        attend_heads(isa, query, q, chunk, &mut state);
        max.copy_from_slice(&state.max[..max.len()]);
        sum.copy_from_slice(&state.sum[..sum.len()]);
    }
}

/// Merges the partial results of consecutive chunks into `out`, `[group, d_head]`.
#[inline(always)]
pub(crate) fn merge_chunks(partials: &[f32], d_head: usize, out: &mut [f32]) {
    let (width, group) = (out.len(), out.len() / d_head);
    for (h, out) in out.chunks_exact_mut(d_head).enumerate() {
        let (mut max, mut sum) = (f32::NEG_INFINITY, 0.0);
        out.fill(0.0);
        for partial in partials.chunks_exact(partial_len(group, d_head)) {
            let values = &partial[h * d_head..(h + 1) * d_head];
            merge((out, &mut max, &mut sum), (values, partial[width + h], partial[width + group + h]));
        }
        finish(out, sum);
    }
}
