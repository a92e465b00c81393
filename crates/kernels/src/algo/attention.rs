//! Softmax attention of the query heads that share one KV head, over paged keys and values.
//!
//! ```text
//! for each chunk of 128 absolute positions that is visible, in order:
//!     s[h][p] = cap(scale · (q[h] · k[p]))            scores.rs: sixteen lanes and one tree;
//!                                                     scores16.rs and codes.rs: in integers
//!     s[h][p] = s[h][p] − slope[h]·|pos − p|          if scores fall with distance (ALiBi)
//!     m = max s,  e = exp(s − m),  n = Σ e            sixteen heads at a time
//!     o[h] = Σ e[p]·v[p]                              values.rs: in order of p;
//!                                                     values16.rs: in integers
//!     merge (m, n, o) into the state of the earlier chunks
//! merge (sink[h], 1, 0)                               if heads have sinks: a score without a value
//! out[h] = o / n                                      rotated, if values are; the caller undoes it
//! ```
//! The running maximum is Milakov and Gimelshein 2018, the merge of partial results Dao 2023
//! (FlashDecoding). Every chunk is computed from an empty state, and chunks are divided and merged
//! by absolute position. So the bits of the result do not depend on the thread that computes a
//! chunk, nor on the length of KV blocks.

#[cfg(target_arch = "riscv64")]
mod by_rows;
mod codes;
mod prefetch;
mod query;
mod scores;
mod scores16;
mod stored;
mod values;
mod values16;

use query::Chunk;
pub(crate) use query::Query;

use super::lanes::{LANES, padded};
use super::math::{exp_weight, tanh};
use crate::attention::{D_HEAD_MAX, KvElem};
use crate::isa::{Floats, KeyCodes, PairCodes, Pairs};
use crate::scratch;
use crate::tiles::Strip;
use codes::CodeBuffers;
use scores16::PairBuffers;
use std::ops::Range;
use values16::{CHUNK_PAIRS, Slab, ValueBuffers};

/// Positions per chunk.
pub(crate) const CHUNK: usize = 128;

/// Floats of a partial result of `group` heads: maximum, sum and weighted values of each head.
pub(crate) fn partial_len(group: usize, d_head: usize) -> usize {
    group * (2 + d_head)
}

/// Heads computed at once if there are more than [`FEW`]; their scores of a chunk are on the stack.
/// Both are multiples of 16.
pub(crate) const MANY: usize = 64;
/// Heads computed at once if there are no more: mostly those of one row.
const FEW: usize = 16;

/// Sixteen elements of sixteen keys, `[16 elements, 16 keys]`.
type Keys = [[f32; LANES]; LANES];

/// Memory of [`AttnBuffers`] on the stack of a thread: `N` heads of width up to `16·VECTORS`, and
/// `ROWS` rows of floats, [`CHUNK`] if keys or values are floats. `VECTORS` is a multiple of 4,
/// because vectors are computed in fours.
#[repr(align(64))]
pub(crate) struct StackBuffers<const VECTORS: usize, const N: usize, const ROWS: usize> {
    rows: [[[f32; LANES]; VECTORS]; ROWS],
    keys: [Keys; VECTORS],
    q: [[[f32; LANES]; VECTORS]; N],
    values: [[[f32; LANES]; VECTORS]; N],
    q_codes: [[[i8; LANES]; VECTORS]; N],
    q_sums: [[f32; VECTORS]; N],
    q_scales: [f32; N],
    codes: [KeyCodes; VECTORS],
    scales: [[f32; CHUNK]; VECTORS],
    scores: [[f32; CHUNK]; N],
    visible: [Range<usize>; N],
    masks: [u128; N],
    peaks: Peaks<N>,
    /// Eight pairs for each vector of sixteen elements.
    q_pairs: [[[i32; 8]; VECTORS]; N],
    q_pair_scales: [f32; N],
    key_pairs: [[[PairCodes; 8]; VECTORS]; 4],
    weights: [[i32; CHUNK_PAIRS]; N],
    ratios: [f32; N],
    value_scales: [f32; CHUNK],
    shifts: [u8; CHUNK],
    slab: Slab,
}

impl<const VECTORS: usize, const N: usize, const ROWS: usize> StackBuffers<VECTORS, N, ROWS> {
    /// All zeros: other values would be constants in the program, 1.7 MB for all these types.
    const EMPTY: Self = Self {
        rows: [[[0.0; LANES]; VECTORS]; ROWS],
        keys: [[[0.0; LANES]; LANES]; VECTORS],
        q: [[[0.0; LANES]; VECTORS]; N],
        values: [[[0.0; LANES]; VECTORS]; N],
        q_codes: [[[0; LANES]; VECTORS]; N],
        q_sums: [[0.0; VECTORS]; N],
        q_scales: [0.0; N],
        codes: [[[0; LANES]; LANES]; VECTORS],
        scales: [[0.0; CHUNK]; VECTORS],
        scores: [[0.0; CHUNK]; N],
        visible: [const { 0..0 }; N],
        masks: [0; N],
        peaks: Peaks {
            max: [0.0; N],
            sum: [0.0; N],
        },
        q_pairs: [[[0; 8]; VECTORS]; N],
        q_pair_scales: [0.0; N],
        key_pairs: [[[[0; LANES]; 8]; VECTORS]; 4],
        weights: [[0; CHUNK_PAIRS]; N],
        ratios: [0.0; N],
        value_scales: [0.0; CHUNK],
        shifts: [0; CHUNK],
        slab: [[[0; LANES]; 4]; CHUNK_PAIRS],
    };

    fn buffers(&mut self) -> AttnBuffers<'_> {
        let codes = CodeBuffers {
            width: VECTORS,
            q: self.q_codes.as_flattened_mut(),
            sums: self.q_sums.as_flattened_mut(),
            scales: &mut self.q_scales,
            keys: &mut self.codes,
        };
        let pairs = PairBuffers {
            width: 8 * VECTORS,
            q: self.q_pairs.as_flattened_mut().as_flattened_mut(),
            scales: &mut self.q_pair_scales,
            keys: self.key_pairs.as_flattened_mut().as_flattened_mut(),
        };
        let value_codes = ValueBuffers {
            weights: &mut self.weights,
            ratios: &mut self.ratios,
            scales: &mut self.value_scales,
            shifts: &mut self.shifts,
            slab: &mut self.slab,
        };
        AttnBuffers {
            width: VECTORS,
            codes,
            pairs,
            value_codes,
            scales: &mut self.scales,
            rows: self.rows.as_flattened_mut(),
            keys: &mut self.keys,
            q: self.q.as_flattened_mut(),
            values: self.values.as_flattened_mut(),
            scores: &mut self.scores,
            visible: &mut self.visible,
            masks: &mut self.masks,
            max: &mut self.peaks.max,
            sum: &mut self.peaks.sum,
        }
    }
}

/// Calls `f` with buffers for this query.
pub(crate) fn with_buffers(query: &Query<'_>, f: impl FnOnce(&mut AttnBuffers<'_>)) {
    match query.kv.k_elem == KvElem::F32 || query.kv.v_elem == KvElem::F32 {
        true => with_rows::<CHUNK>(query, f),
        false => with_rows::<0>(query, f),
    }
}

/// Calls `f` with buffers that have `ROWS` rows of floats.
fn with_rows<const ROWS: usize>(query: &Query<'_>, f: impl FnOnce(&mut AttnBuffers<'_>)) {
    let few = query.rows.len() * query.group() <= FEW;
    match (query.kv.d_head, few) {
        (..=64, true) => with_stack::<4, FEW, ROWS>(f),
        (..=64, false) => with_stack::<4, MANY, ROWS>(f),
        (65..=128, true) => with_stack::<8, FEW, ROWS>(f),
        (65..=128, false) => with_stack::<8, MANY, ROWS>(f),
        (129..=256, true) => with_stack::<16, FEW, ROWS>(f),
        (129..=256, false) => with_stack::<16, MANY, ROWS>(f),
        // `MANY` heads of this width do not fit the stack.
        _ => with_stack::<{ D_HEAD_MAX / LANES }, FEW, ROWS>(f),
    }
}

/// Not inlined, so that only one of these sizes is on the stack.
#[inline(never)]
fn with_stack<const VECTORS: usize, const N: usize, const ROWS: usize>(
    f: impl FnOnce(&mut AttnBuffers<'_>),
) {
    const { assert!(size_of::<StackBuffers<VECTORS, N, ROWS>>() <= scratch::THREAD) };
    let mut stack = StackBuffers::<VECTORS, N, ROWS>::EMPTY;
    f(&mut stack.buffers());
}

/// Buffers for [`FEW`] or [`MANY`] heads, in vectors of sixteen elements; rows are padded with
/// zeros.
pub(crate) struct AttnBuffers<'a> {
    /// Vectors of a row, a multiple of four.
    width: usize,
    /// 8-bit codes of queries and of quantized keys.
    codes: CodeBuffers<'a>,
    /// 16-bit codes of queries and of keys.
    pairs: PairBuffers<'a>,
    /// 16-bit codes of weights and of values.
    value_codes: ValueBuffers<'a>,
    /// Scales of the keys of a chunk that are codes, then of its values, `[width, CHUNK]`.
    scales: &'a mut [[f32; CHUNK]],
    /// Rows of floats: a few keys, then the values of a chunk, `[CHUNK, width]`; none if neither
    /// are floats.
    rows: &'a mut [[f32; LANES]],
    /// Sixteen keys, `[width]`.
    keys: &'a mut [Keys],
    /// Queries, `[heads, width]`: those of many heads interleaved by four; rotated, if keys are
    /// quantized.
    q: &'a mut [[f32; LANES]],
    /// Weighted values of the earlier chunks, `[heads, width]`.
    values: &'a mut [[f32; LANES]],
    scores: &'a mut [[f32; CHUNK]],
    /// The positions of the chunk that each head sees.
    visible: &'a mut [Range<usize>],
    /// Bits of the positions of the chunk that each head sees, where some of those between others
    /// are not visible.
    masks: &'a mut [u128],
    /// Maxima and sums of the softmax over the earlier chunks.
    max: &'a mut [f32],
    sum: &'a mut [f32],
}

/// Maximum and sum of the softmax of `N` heads.
struct Peaks<const N: usize> {
    max: [f32; N],
    sum: [f32; N],
}

impl<const N: usize> Peaks<N> {
    /// Peaks of no score; merging others into them gives the others.
    const EMPTY: Self = Self {
        max: [f32::NEG_INFINITY; N],
        sum: [0.0; N],
    };
}

/// Merges the peaks `later` of a later chunk into `max` and `sum` of sixteen heads, for the heads
/// that see some of the chunk; returns the factors of the values of both.
#[inline(always)]
fn merge_peaks(
    max: &mut [f32; LANES],
    sum: &mut [f32; LANES],
    later: &Peaks<LANES>,
    sees: &[bool; LANES],
) -> [[f32; LANES]; 2] {
    let mut factors = [[0.0; LANES]; 2];
    for h in 0..LANES {
        let new_max = if later.max[h] > max[h] {
            later.max[h]
        } else {
            max[h]
        };
        let a = exp_weight(max[h] - new_max);
        let b = exp_weight(later.max[h] - new_max);
        sum[h] = if sees[h] {
            sum[h] * a + later.sum[h] * b
        } else {
            sum[h]
        };
        max[h] = if sees[h] { new_max } else { max[h] };
        factors[0][h] = a;
        factors[1][h] = b;
    }
    factors
}

impl AttnBuffers<'_> {
    /// Computes the softmax state of the heads `heads` over the chunks `chunks`.
    #[inline(always)]
    fn attend<I: Pairs>(
        &mut self,
        isa: I,
        query: &Query<'_>,
        heads: Range<usize>,
        chunks: Range<usize>,
    ) {
        self.max.fill(f32::NEG_INFINITY);
        self.sum.fill(0.0);
        self.values[..heads.len() * self.width]
            .as_flattened_mut()
            .fill(0.0);
        match query.kv.k_elem {
            KvElem::F32 => self.set_queries(query, heads.clone()),
            KvElem::F16 => self.set_pairs(isa, query, heads.clone()),
            KvElem::Q8 | KvElem::Q4 => self.set_codes(query, heads.clone()),
        }
        for chunk in chunks {
            let mut chunk = query.chunk(chunk);
            query.set_visible(&chunk, heads.clone(), self.visible, self.masks);
            let n = heads.len();
            if !query.narrow(&mut chunk, &self.visible[..n]) {
                continue;
            }
            let chunk = &chunk;
            match query.kv.k_elem {
                KvElem::F32 if self.treats_few() => self.scores_of_few(isa, query, n, chunk),
                KvElem::F32 => self.scores_of_many(isa, query, n, chunk),
                KvElem::F16 => self.scores_of_pairs(isa, query, n, chunk),
                KvElem::Q8 | KvElem::Q4 => self.scores_of_codes(isa, query, n, chunk),
            }
            let factors = self.softmax(isa, query, chunk, heads.clone());
            match query.kv.v_elem {
                KvElem::F32 => self.add_values(isa, query, chunk, n, &factors),
                _ => self.add_value_codes(isa, query, chunk, n, &factors),
            }
        }
    }

    /// Whether there are only a few heads.
    #[inline(always)]
    fn treats_few(&self) -> bool {
        self.scores.len() == FEW
    }

    /// Turns the scores of the heads `heads` into weights relative to their maximum in the chunk;
    /// returns the factors of the values of earlier chunks and of this chunk.
    #[inline(always)]
    fn softmax<I: Floats>(
        &mut self,
        isa: I,
        query: &Query<'_>,
        chunk: &Chunk,
        heads: Range<usize>,
    ) -> [[f32; MANY]; 2] {
        let mut factors = [[0.0; MANY]; 2];
        let n = heads.len();
        for first in (0..n).step_by(LANES) {
            let n = LANES.min(n - first);
            let visible = &self.visible[first..first + n];
            let masks = &self.masks[first..first + n];
            let scores = &mut self.scores[first..first + n];
            let adjust = |h: usize, scores: &mut [f32; CHUNK], visible: &Range<usize>| {
                query.lower_by_distance(chunk, heads.start + first + h, scores, visible);
                if masks[h] != u128::MAX {
                    hide(&mut scores[visible.clone()], masks[h] >> visible.start);
                }
            };
            let peaks = weigh(isa, query, scores, visible, adjust);
            let mut sees = [false; LANES];
            sees.iter_mut()
                .zip(visible)
                .for_each(|(sees, visible)| *sees = !visible.is_empty());
            let max = sixteen(self.max, first);
            let [a, b] = merge_peaks(max, sixteen(self.sum, first), &peaks, &sees);
            factors[0][first..first + LANES].copy_from_slice(&a);
            factors[1][first..first + LANES].copy_from_slice(&b);
        }
        factors
    }
}

/// The sixteen from `first` on.
#[inline(always)]
fn sixteen(x: &mut [f32], first: usize) -> &mut [f32; LANES] {
    x[first..]
        .first_chunk_mut()
        .expect("heads come in sixteens")
}

/// Turns the scores of up to sixteen heads into weights relative to their maximum; returns their
/// maxima and the sums of the weights. `adjust` changes the scaled scores of a head before.
#[inline(always)]
fn weigh<I: Floats>(
    isa: I,
    query: &Query<'_>,
    scores: &mut [[f32; CHUNK]],
    visible: &[Range<usize>],
    adjust: impl Fn(usize, &mut [f32; CHUNK], &Range<usize>),
) -> Peaks<LANES> {
    let mut lanes = [isa.splat_all(f32::NEG_INFINITY); LANES];
    for (h, (scores, visible)) in scores.iter_mut().zip(visible).enumerate() {
        scale_scores(isa, query, scores, visible);
        adjust(h, scores, visible);
        lanes[h] = finish_scores(isa, scores, visible);
    }
    let lanes = isa.transposed(lanes);
    let mut max = lanes[0];
    for h in 1..LANES {
        max = isa.max_f(max, lanes[h]);
    }
    let max = isa.to_array(max);
    let mut lanes = [isa.zeros(); LANES];
    for (h, (scores, visible)) in scores.iter_mut().zip(visible).enumerate() {
        let seen = &mut scores.as_chunks_mut::<LANES>().0[vectors(visible)];
        lanes[h] = isa.weigh(seen, max[h]);
    }
    Peaks {
        max,
        sum: isa.to_array(isa.totals_of_16(lanes)),
    }
}

/// The vectors of scores with a visible position.
#[inline(always)]
fn vectors(visible: &Range<usize>) -> Range<usize> {
    visible.start / LANES..visible.end.div_ceil(LANES)
}

/// Scales (scores of 16-bit codes are scaled already) and caps the visible scores of a head.
#[inline(always)]
fn scale_scores<I: Floats>(
    isa: I,
    query: &Query<'_>,
    scores: &mut [f32; CHUNK],
    visible: &Range<usize>,
) {
    let seen = vectors(visible);
    if query.kv.k_elem != KvElem::F16 {
        let scale = isa.splat_all(query.scale);
        for vector in &mut scores.as_chunks_mut::<LANES>().0[seen] {
            *vector = isa.to_array(isa.product(isa.floats(vector), scale));
        }
    }
    if let Some(cap) = query.softcap {
        scores[visible.clone()]
            .iter_mut()
            .for_each(|score| *score = cap * tanh(*score / cap));
    }
}

/// Sets the scores that are not visible, of vectors with visible ones, to −∞; returns the maximum
/// of each lane.
#[inline(always)]
fn finish_scores<I: Floats>(isa: I, scores: &mut [f32; CHUNK], visible: &Range<usize>) -> I::F {
    let seen = vectors(visible);
    scores[seen.start * LANES..visible.start].fill(f32::NEG_INFINITY);
    scores[visible.end..seen.end * LANES].fill(f32::NEG_INFINITY);
    let mut max = isa.splat_all(f32::NEG_INFINITY);
    for vector in &scores.as_chunks::<LANES>().0[seen] {
        max = isa.max_f(isa.floats(vector), max);
    }
    max
}

/// Sets scores to −∞ where a bit of the mask is 0. Not inlined: few models need it.
#[inline(never)]
fn hide(scores: &mut [f32], mask: u128) {
    for (i, score) in scores.iter_mut().enumerate() {
        if mask >> i & 1 == 0 {
            *score = f32::NEG_INFINITY;
        }
    }
}

/// `out = values / sum` for one head. Its sink is one more score in the sum, without a value (Xiao
/// et al. 2024), and is merged like a last chunk. Not inlined: it is called once per head, and
/// every kernel table would have two copies.
#[inline(never)]
fn finish(values: &mut [f32], max: f32, mut sum: f32, sink: Option<f32>) {
    if let Some(sink) = sink {
        let new_max = if sink > max { sink } else { max };
        let a = exp_weight(max - new_max);
        let b = exp_weight(sink - new_max);
        multiply(values, a);
        sum = sum * a + b;
    }
    multiply(values, 1.0 / sum);
}

/// `x = x·factor`.
#[inline(always)]
fn multiply(x: &mut [f32], factor: f32) {
    let (vectors, rest) = x.as_chunks_mut::<LANES>();
    for x in vectors {
        *x = x.map(|x| x * factor);
    }
    if !rest.is_empty() {
        let product = padded(rest).map(|x| x * factor);
        rest.copy_from_slice(&product[..rest.len()]);
    }
}

/// The result of a query.
pub(crate) enum AttnOut<'a, 'b> {
    /// Attention over all visible positions; part `i` is row `i`, `[group, d_head]`.
    Rows(&'a mut Strip<'b>),
    /// The partial result of one chunk for a query of one row, not divided by its sums:
    /// `[group·d_head values, group maxima, group sums]`.
    Chunk(usize, &'a mut [f32]),
}

/// Computes the attention of a query.
#[inline(always)]
pub(crate) fn attend<I: Pairs>(
    isa: I,
    query: &Query<'_>,
    buffers: &mut AttnBuffers<'_>,
    mut out: AttnOut<'_, '_>,
) {
    let n = query.rows.len() * query.group();
    let at_once = buffers.scores.len();
    let chunks = match out {
        AttnOut::Rows(_) => query.chunks(),
        AttnOut::Chunk(chunk, _) => chunk..chunk + 1,
    };
    for start in (0..n).step_by(at_once) {
        let heads = start..n.min(start + at_once);
        buffers.attend(isa, query, heads.clone(), chunks.clone());
        for (h, i) in heads.enumerate() {
            buffers.write(query, h, i, &mut out);
        }
    }
}

impl AttnBuffers<'_> {
    /// Writes the result of head `i` of the query, which has index `h` in the buffers.
    #[inline(always)]
    fn write(&mut self, query: &Query<'_>, h: usize, i: usize, out: &mut AttnOut<'_, '_>) {
        let d = query.kv.d_head;
        let group = query.group();
        let values = &mut self.values[h * self.width..].as_flattened_mut()[..d];
        match out {
            AttnOut::Rows(out) => {
                finish(values, self.max[h], self.sum[h], query.sink(i));
                out.row(i / group)[i % group * d..][..d].copy_from_slice(values);
            }
            AttnOut::Chunk(_, partial) => {
                partial[i * d..(i + 1) * d].copy_from_slice(values);
                partial[group * d + i] = self.max[h];
                partial[group * d + group + i] = self.sum[h];
            }
        }
    }
}

/// Merges the partial results of consecutive chunks into `out`, `[group, d_head]`; `sinks` are
/// those of the group, `[group]`.
#[inline(always)]
pub(crate) fn merge_chunks(
    partials: &[f32],
    sinks: Option<&[f32]>,
    d_head: usize,
    out: &mut [f32],
) {
    let width = out.len();
    let group = width / d_head;
    out.fill(0.0);
    for (first, out) in (0..group)
        .step_by(LANES)
        .zip(out.chunks_mut(LANES * d_head))
    {
        let n = out.len() / d_head;
        let Peaks { mut max, mut sum } = Peaks::<LANES>::EMPTY;
        for partial in partials.chunks_exact(partial_len(group, d_head)) {
            let mut later = Peaks {
                max: [0.0; LANES],
                sum: [0.0; LANES],
            };
            later.max[..n].copy_from_slice(&partial[width + first..][..n]);
            later.sum[..n].copy_from_slice(&partial[width + group + first..][..n]);
            // Of a chunk that a head does not see, the sum is 0.
            let sees = later.sum.map(|sum| sum != 0.0);
            let [a, b] = merge_peaks(&mut max, &mut sum, &later, &sees);
            let values = partial[first * d_head..].chunks_exact(d_head);
            for (h, (out, values)) in out.chunks_exact_mut(d_head).zip(values).enumerate() {
                if sees[h] {
                    add_multiple(out, values, [a[h], b[h]]);
                }
            }
        }
        for (h, out) in out.chunks_exact_mut(d_head).enumerate() {
            finish(out, max[h], sum[h], sinks.map(|sinks| sinks[first + h]));
        }
    }
}

/// `x = x·a + y·b`. Sixteen at a time with a padded end: the compiler makes several versions of a
/// loop over single elements.
#[inline(always)]
fn add_multiple(x: &mut [f32], y: &[f32], factors: [f32; 2]) {
    let (x, x_rest) = x.as_chunks_mut::<LANES>();
    let (y, y_rest) = y.as_chunks::<LANES>();
    for (x, y) in x.iter_mut().zip(y) {
        *x = sum_of_multiples(x, y, factors);
    }
    if !x_rest.is_empty() {
        let sum = sum_of_multiples(&padded(x_rest), &padded(y_rest), factors);
        x_rest.copy_from_slice(&sum[..x_rest.len()]);
    }
}

/// `x·a + y·b`.
#[inline(always)]
fn sum_of_multiples(x: &[f32; LANES], y: &[f32; LANES], [a, b]: [f32; 2]) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    for i in 0..LANES {
        out[i] = x[i] * a + y[i] * b;
    }
    out
}
