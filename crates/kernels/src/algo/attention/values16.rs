//! Weighted sums of values in integers: the weights of a chunk become 16-bit codes, too.
//!
//! ```text
//! value p ≈ scale[p]·code                     scale and codes by the type, below
//! w[p] = e[p]·scale[p] where seen, else 0;    w < 2⁻¹⁰⁰ becomes 0
//! x = max w,  g = max over groups of Σ w      x = 0 or NaN: all weights 0, r = x
//! S = min(262112 / g, 32639 / x),  r = 1/S,  weight[p] = rne(w[p]·S)
//! o = Σ weight·code of the first group + Σ of the second + …      f32 sums of integers, in order
//! values = values·a + (o·r)·b
//! ```
//! Groups are positions 32j to 32j + 31 of the chunk, whatever is seen of them; `Σ w` is that of
//! `lanes.rs`. The weights of a group add up to at most 262112 + 16, and codes of values are at
//! most 8191, so their products fit 32 bits. Weights of 0 add nothing: values that a head does not
//! see may hold anything.
//!
//! | type | scale | code |
//! |---|---|---|
//! | F16 | as stored | as stored |
//! | F16, keys that are the values | scale·2ʲ, the least j that suffices | `(code + 2ʲ⁻¹) >> j` |
//! | Q8 | as stored | as stored; the chunk is one group, and S = 32639 / x |
//! | Q4 | s = m / 8183 | `rne(min/s) + rne(scale/s)·nibble` |
//!
//! `m` of Q4 is the largest of │min│ and │min + 15·scale│ of its groups of 32 elements.

use super::super::codes16::{CODE_MAX, rounded};
use super::super::kv::{Q4_BYTES, Q4_HEAD};
use super::super::lanes::{LANES, total};
use super::prefetch::Prefetch;
use super::query::Chunk;
use super::scores16::pair;
use super::stored::{Stored, read_scales};
use super::{AttnBuffers, CHUNK, MANY, Query, vectors};
use crate::attention::{KvElem, KvRole, KvRows, Q4_GROUP, VALUE_MAX};
use crate::isa::{Floats, PairCodes, Pairs};
use std::ops::Range;

/// Pairs of positions of a chunk.
pub(super) const CHUNK_PAIRS: usize = CHUNK / 2;
/// Elements of values that are multiplied at once.
pub(super) const COLUMNS: usize = 4 * LANES;
/// Positions whose products are added in integers.
pub(super) const GROUP: usize = 32;
/// What the weights of a group add up to at most, but for rounding.
const GROUP_MAX: f32 = 262_112.0;
/// Divisor of the scale of Q4: half a code for the minimum and 7.5 for fifteen steps remain.
const Q4_MAX: f32 = 8183.0;
/// Scales are multiplied by this and weights are compared with 2⁻¹⁰⁰ times it: small weights are
/// found before they are subnormal, and all other results keep their bits, as it is a power of two.
const LIFT: f32 = f32::from_bits((127 + 64) << 23);
/// Weights below this become 0: 2⁻¹⁰⁰ times [`LIFT`].
const LEAST: f32 = f32::from_bits((127 - 100 + 64) << 23);

/// Codes of [`COLUMNS`] elements of the values of a chunk: a pair of positions in each word.
pub(super) type Slab = [[PairCodes; 4]; CHUNK_PAIRS];

/// Memory for weights and values in 16-bit codes.
pub(super) struct ValueBuffers<'a> {
    /// Pairs of weights, `[heads]`.
    pub(super) weights: &'a mut [[i32; CHUNK_PAIRS]],
    /// `r` of each head, times what [`LIFT`] takes back.
    pub(super) ratios: &'a mut [f32],
    /// Scales of the values times [`LIFT`].
    pub(super) scales: &'a mut [f32; CHUNK],
    /// `j` of keys that are the values.
    pub(super) shifts: &'a mut [u8; CHUNK],
    pub(super) slab: &'a mut Slab,
}

/// The stored values of a chunk.
struct ChunkValues<'a> {
    rows: KvRows,
    stored: Stored<'a>,
    visible: Range<usize>,
}

impl AttnBuffers<'_> {
    /// `values = values·a + (Σ weight·value)·b` for the first `n` heads and the values of a chunk,
    /// `[a, b]` being `factors`; values are codes.
    #[inline(always)]
    pub(super) fn add_value_codes<I: Pairs>(
        &mut self,
        isa: I,
        query: &Query<'_>,
        chunk: &Chunk,
        n: usize,
        factors: &[[f32; MANY]; 2],
    ) {
        let kv = query.kv.stored_values();
        let values = ChunkValues {
            rows: kv.rows,
            stored: query.stored(chunk, kv),
            visible: chunk.visible.clone(),
        };
        if kv.rows.elem == KvElem::F16 {
            let last = kv.rows.n_sections() - 1;
            query.copy_scales(chunk, kv, self.scales);
            self.value_codes.scales.copy_from_slice(&self.scales[last]);
        }
        self.set_value_scales(isa, &values);
        self.set_weights(isa, &values, n);
        #[cfg(target_arch = "riscv64")]
        if I::BY_ROWS && query.adds_rows() {
            return self.add_value_rows(isa, query, chunk, n, factors);
        }
        let mut prefetch = query.prefetch::<I>(chunk, kv);
        let first = kv.rows.value_from() / COLUMNS * COLUMNS;
        for v in (first..kv.rows.d).step_by(COLUMNS) {
            self.fill_slab(isa, &values, v, &prefetch);
            prefetch = Prefetch::NONE;
            match I::TILE {
                4 => self.add_columns::<I, 4>(isa, &values, n, v, factors),
                _ => self.add_columns::<I, 1>(isa, &values, n, v, factors),
            }
        }
    }

    /// Reads or computes the scales of visible values, and what else their codes need.
    #[inline(always)]
    fn set_value_scales<I: Pairs>(&mut self, isa: I, values: &ChunkValues<'_>) {
        let ChunkValues {
            rows,
            stored,
            visible,
        } = values;
        let buffers = &mut self.value_codes;
        match rows.elem {
            KvElem::F32 => unreachable!("floats have no codes"),
            KvElem::F16 => {
                if let KvRole::Both { value_from } = rows.role {
                    for p in visible.clone() {
                        let codes = stored[p].as_chunks().0[value_from..].iter();
                        buffers.shifts[p] = shift(codes.map(|&c| i16::from_le_bytes(c)));
                        buffers.scales[p] *= f32::from(1_u8 << buffers.shifts[p]);
                    }
                }
            }
            KvElem::Q8 => {
                read_scales(isa, stored, visible, rows.elem, rows.d, self.scales);
                buffers.scales.copy_from_slice(&self.scales[0]);
            }
            KvElem::Q4 => {
                read_scales(isa, stored, visible, rows.elem, rows.d, self.scales);
                let n = 2 * rows.d.div_ceil(Q4_GROUP);
                set_scales_of_q4(&mut self.scales[..n], buffers.scales);
            }
        }
        for scale in &mut *buffers.scales {
            *scale *= LIFT;
        }
    }

    /// Turns the weights of the first `n` heads into codes.
    #[inline(always)]
    fn set_weights<I: Floats>(&mut self, isa: I, values: &ChunkValues<'_>, n: usize) {
        let buffers = &mut self.value_codes;
        for h in 0..n {
            let weights = Weights {
                e: &self.scores[h],
                scales: buffers.scales,
                visible: &self.visible[h],
                in_groups: values.rows.elem != KvElem::Q8,
            };
            buffers.ratios[h] = weights.encode(isa, &mut buffers.weights[h]);
        }
    }

    /// Writes the codes of [`COLUMNS`] elements from `v` on, and prefetches while it reads.
    #[inline(always)]
    fn fill_slab<I: Pairs>(
        &mut self,
        isa: I,
        values: &ChunkValues<'_>,
        v: usize,
        prefetch: &Prefetch<'_>,
    ) {
        let visible = &values.visible;
        let shifts = &*self.value_codes.shifts;
        for i in 0..CHUNK_PAIRS {
            prefetch.rows(isa, 2 * i..2 * i + 2);
            if !(visible.start / 2..visible.end.div_ceil(2)).contains(&i) {
                continue;
            }
            let mut both = [[0; COLUMNS]; 2];
            for (j, codes) in both.iter_mut().enumerate() {
                let p = 2 * i + j;
                if visible.contains(&p) {
                    values.read(p, v, codes, shifts[p], self.scales);
                }
            }
            for (out, i) in self.value_codes.slab[i].iter_mut().zip(0..) {
                for lane in 0..LANES {
                    out[lane] = pair(both[0][i * LANES + lane], both[1][i * LANES + lane]);
                }
            }
        }
    }

    /// Adds [`COLUMNS`] elements of the values of a chunk, from `v` on, for the first `n` heads.
    #[inline(always)]
    fn add_columns<I: Pairs, const B: usize>(
        &mut self,
        isa: I,
        values: &ChunkValues<'_>,
        n: usize,
        v: usize,
        factors: &[[f32; MANY]; 2],
    ) {
        let group = if values.rows.elem == KvElem::Q8 {
            CHUNK
        } else {
            GROUP
        };
        for h in (0..n).step_by(4) {
            let heads = h..n.min(h + 4);
            let tile = ColumnTile {
                v,
                group,
                heads,
                factors,
            };
            match tile.heads.len() {
                1 => self.add_tile::<I, 1, B>(isa, &tile),
                2 => self.add_tile::<I, 2, B>(isa, &tile),
                _ => self.add_tile::<I, 4, B>(isa, &tile),
            }
        }
    }

    /// Adds the columns of a tile of up to `R` heads.
    #[inline(always)]
    fn add_tile<I: Pairs, const R: usize, const B: usize>(
        &mut self,
        isa: I,
        tile: &ColumnTile<'_>,
    ) {
        let ColumnTile {
            v,
            group,
            ref heads,
            factors,
        } = *tile;
        let seen = self.visible[heads.clone()].iter().filter(|s| !s.is_empty());
        let start = seen.clone().map(|s| s.start).min().unwrap_or(0) / group * group;
        let end = seen.map(|s| s.end).max().unwrap_or(0);
        let weights: &[_; R] = self.value_codes.weights[heads.start..]
            .first_chunk()
            .expect("heads come in sixteens");
        let width = self.width;
        for b in (0..4).step_by(B) {
            let slab = &*self.value_codes.slab;
            let mut sums = [[isa.zeros(); B]; R];
            for first in (start..end).step_by(group) {
                let pairs = first / 2..(first + group).min(end).div_ceil(2);
                let products = products::<I, R, B>(isa, slab, b, weights, pairs);
                for r in 0..R {
                    for i in 0..B {
                        let sum = isa.as_floats(isa.lane_totals(products[r][i]));
                        sums[r][i] = isa.sum_f(sums[r][i], sum);
                    }
                }
            }
            for (h, sums) in heads.clone().zip(sums) {
                if !self.visible[h].is_empty() {
                    let values = &mut self.values[h * width + v / LANES + b..][..B];
                    let factors = [factors[0][h], factors[1][h]];
                    merge(isa, values, sums, self.value_codes.ratios[h], factors);
                }
            }
        }
    }
}

/// Some columns of values, for some heads.
struct ColumnTile<'a> {
    /// The first element.
    v: usize,
    /// Positions whose products are added in integers.
    group: usize,
    heads: Range<usize>,
    factors: &'a [[f32; MANY]; 2],
}

/// Sums of the products of these pairs of positions: `R` heads, and `B` vectors from `b` on.
#[inline(always)]
fn products<I: Pairs, const R: usize, const B: usize>(
    isa: I,
    slab: &Slab,
    b: usize,
    weights: &[[i32; CHUNK_PAIRS]; R],
    pairs: Range<usize>,
) -> [[I::Sums; B]; R] {
    let mut at = [b; B];
    for j in 0..B {
        at[j] += j;
    }
    let mut y: [&[i32]; R] = [&[]; R];
    for r in 0..R {
        y[r] = &weights[r][pairs.clone()];
    }
    isa.sums_of_pairs([&slab[pairs]; B], at, y)
}

/// `values = values·a + (sums·ratio)·b`.
#[inline(always)]
pub(super) fn merge<I: Floats, const B: usize>(
    isa: I,
    values: &mut [[f32; LANES]],
    sums: [I::F; B],
    ratio: f32,
    [a, b]: [f32; 2],
) {
    let ratio = isa.splat_all(ratio);
    let a = isa.splat_all(a);
    let b = isa.splat_all(b);
    for (values, sums) in values.iter_mut().zip(sums) {
        let sums = isa.product(isa.product(sums, ratio), b);
        *values = isa.to_array(isa.sum_f(isa.product(isa.floats(values), a), sums));
    }
}

/// The weights of a head in a chunk.
struct Weights<'a> {
    /// `e` of the softmax; anything where the head sees nothing.
    e: &'a [f32; CHUNK],
    /// Scales of the values times [`LIFT`].
    scales: &'a [f32; CHUNK],
    visible: &'a Range<usize>,
    /// Whether codes of values are so large that weights are limited by groups.
    in_groups: bool,
}

impl Weights<'_> {
    /// Writes the codes of all positions of the chunk, pairs of them in words, and returns `r`.
    #[inline(always)]
    fn encode<I: Floats>(&self, isa: I, out: &mut [i32; CHUNK_PAIRS]) -> f32 {
        let w = self.products(isa);
        // Bits of numbers that are not negative have the order of the numbers, NaN being the
        // largest.
        let max = w
            .iter()
            .fold(0, |max, w| w.abs().to_bits().cast_signed().max(max));
        let max = f32::from_bits(max.cast_unsigned());
        if max == 0.0 || max.is_nan() {
            out.fill(0);
            return max;
        }
        let scale = self.scale(&w, max);
        let mut codes = [0; CHUNK];
        for (code, w) in codes.iter_mut().zip(w) {
            *code = rounded(w * scale);
        }
        for (out, [first, second]) in out.iter_mut().zip(codes.as_chunks().0) {
            *out = pair(*first, *second);
        }
        1.0 / scale * (1.0 / LIFT)
    }

    /// `w` times [`LIFT`].
    #[inline(always)]
    fn products<I: Floats>(&self, isa: I) -> [f32; CHUNK] {
        let mut out = [0.0; CHUNK];
        let e = self.e.as_chunks::<LANES>().0;
        let scales = self.scales.as_chunks::<LANES>().0;
        let all = out.as_chunks_mut::<LANES>().0;
        for v in vectors(self.visible) {
            all[v] = isa.to_array(isa.product(isa.floats(&e[v]), isa.floats(&scales[v])));
        }
        out[..self.visible.start].fill(0.0);
        out[self.visible.end..].fill(0.0);
        for w in &mut out {
            *w = if *w < LEAST { 0.0 } else { *w };
        }
        out
    }

    /// `S` over [`LIFT`].
    #[inline(always)]
    fn scale(&self, w: &[f32; CHUNK], max: f32) -> f32 {
        let by_max = CODE_MAX / max;
        if !self.in_groups {
            return by_max;
        }
        let mut largest = 0.0;
        for [first, second] in w.as_chunks::<LANES>().0.as_chunks().0 {
            let mut lanes = *first;
            for i in 0..LANES {
                lanes[i] += second[i];
            }
            let sum = total(lanes);
            largest = if sum > largest { sum } else { largest };
        }
        let by_sum = GROUP_MAX / largest;
        if by_sum < by_max { by_sum } else { by_max }
    }
}

/// The least `j` for which all codes become at most [`VALUE_MAX`] in magnitude.
#[inline(always)]
fn shift(codes: impl Iterator<Item = i16>) -> u8 {
    let [low, high] = codes.fold([0, 0], |[low, high], c| [c.min(low), c.max(high)]);
    let fits = |j: &u8| -VALUE_MAX <= shifted(low, *j) && shifted(high, *j) <= VALUE_MAX;
    (0..2).find(fits).unwrap_or(2)
}

/// `(code + 2ʲ⁻¹) >> j`; `code` itself for `j = 0`.
#[inline(always)]
fn shifted(code: i16, j: u8) -> i16 {
    code.wrapping_add((1 << j) >> 1) >> j
}

/// Replaces scales and minima of groups of Q4 by their codes, and writes the scales of the codes.
#[inline(always)]
fn set_scales_of_q4(of_groups: &mut [[f32; CHUNK]], scales: &mut [f32; CHUNK]) {
    scales.fill(0.0);
    let larger = |x: f32, y: f32| {
        let bits = |x: f32| x.abs().to_bits().cast_signed();
        f32::from_bits(bits(x).max(bits(y)).cast_unsigned())
    };
    for [step, min] in of_groups.as_chunks::<2>().0 {
        for p in 0..CHUNK {
            let ends = larger(min[p], min[p] + 15.0 * step[p]);
            scales[p] = larger(scales[p], ends);
        }
    }
    for scale in &mut *scales {
        *scale /= Q4_MAX;
    }
    for of_group in of_groups {
        for (x, scale) in of_group.iter_mut().zip(&*scales) {
            *x = if *scale > 0.0 { *x / *scale } else { 0.0 };
        }
    }
}

impl ChunkValues<'_> {
    /// Reads the codes of up to [`COLUMNS`] elements of the value of position `p`, from `v` on;
    /// `of_groups` are the codes of scales and minima of Q4.
    #[inline(always)]
    fn read(
        &self,
        p: usize,
        v: usize,
        out: &mut [i16; COLUMNS],
        shift: u8,
        of_groups: &[[f32; CHUNK]],
    ) {
        let row = self.stored[p];
        match (self.rows.elem, self.rows.role) {
            (KvElem::F32, _) => unreachable!("floats have no codes"),
            (KvElem::F16, KvRole::Both { value_from }) => {
                read_codes(&row[2 * v..], out);
                for code in &mut *out {
                    *code = shifted(*code, shift);
                }
                out[..value_from.saturating_sub(v)].fill(0);
            }
            (KvElem::F16, _) => read_codes(&row[2 * v..], out),
            (KvElem::Q8, _) => read_bytes(&row[2 + v..], out),
            (KvElem::Q4, _) => {
                let n = (self.rows.d - v).min(COLUMNS);
                let groups = of_groups[v / Q4_GROUP * 2..].as_chunks::<2>().0;
                let row = &row[v / Q4_GROUP * Q4_BYTES..];
                let parts = row.chunks(Q4_BYTES).zip(out[..n].chunks_mut(Q4_GROUP));
                for ((group, out), [step, min]) in parts.zip(groups) {
                    let [step, min] = [rounded(step[p]), rounded(min[p])];
                    read_nibbles(&group[Q4_HEAD..], out, step, min);
                }
            }
        }
    }
}

/// Reads as many codes as there are, at most [`COLUMNS`].
#[inline(always)]
fn read_codes(bytes: &[u8], out: &mut [i16; COLUMNS]) {
    let codes = bytes.as_chunks().0;
    if let Some(codes) = codes.first_chunk::<COLUMNS>() {
        for i in 0..COLUMNS {
            out[i] = i16::from_le_bytes(codes[i]);
        }
        return;
    }
    for (out, code) in out.iter_mut().zip(codes) {
        *out = i16::from_le_bytes(*code);
    }
}

/// Reads as many int8 codes as there are, at most [`COLUMNS`].
#[inline(always)]
fn read_bytes(bytes: &[u8], out: &mut [i16; COLUMNS]) {
    if let Some(codes) = bytes.first_chunk::<COLUMNS>() {
        for i in 0..COLUMNS {
            out[i] = i16::from(codes[i] as i8);
        }
        return;
    }
    for (out, code) in out.iter_mut().zip(bytes) {
        *out = i16::from(*code as i8);
    }
}

/// `min + step·nibble`: low nibbles first, then high ones.
#[inline(always)]
fn read_nibbles(nibbles: &[u8], out: &mut [i16], step: i16, min: i16) {
    let code = |nibble: u8| min.wrapping_add(step.wrapping_mul(i16::from(nibble)));
    let (low, high) = out.split_at_mut(nibbles.len());
    for (out, byte) in low.iter_mut().zip(nibbles) {
        *out = code(byte & 15);
    }
    for (out, byte) in high.iter_mut().zip(nibbles) {
        *out = code(byte >> 4);
    }
}
