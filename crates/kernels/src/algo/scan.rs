//! Scans of linear attention: a state per head, updated position by position.
//!
//! ```text
//! t = S k                             the state, [d_value, d_key], before the position
//! u = gain (v − decay t)              delta rule;  gain v  without it
//! S = decay S + u kᵀ
//! y = S q                             + skip v  if there is one
//! ```
//! `decay` is a number of each head; or one of each column of S, as if the key of `t` were `decay
//! k`; or one of each element of S, `exp(rate gain)`, and then each row has its own gain and skip.
//!
//! The rows of S do not depend on each other, so each thread takes sixteen of one head through all
//! positions of a run, with its part of the state in fast memory. Sums over `d_key` are in lanes
//! ([`lanes`](super::lanes)), never fused: one order for prompts and for single tokens.

use super::lanes::{LANES, padded};
use super::math::exp;
use crate::D_KEY_MAX;
use crate::isa::Floats;
use crate::tiles::Strip;

/// Rows of the state that are computed together.
pub(crate) const ROWS: usize = 16;
/// Vectors of a row of the state at most.
pub(crate) const VECTORS: usize = D_KEY_MAX / LANES;

/// Vectors of one position, one after another with a stride.
#[derive(Clone, Copy, Debug)]
pub struct Strided<'a> {
    /// All positions.
    pub data: &'a [f32],
    /// Elements from one position to the next.
    pub stride: usize,
    /// First element of position 0.
    pub at: usize,
}

impl<'a> Strided<'a> {
    /// `n` elements of position `row`, from element `start` on.
    #[inline(always)]
    pub(crate) fn part(&self, row: u32, start: usize, n: usize) -> &'a [f32] {
        &self.data[row as usize * self.stride + self.at + start..][..n]
    }
}

/// What remains of a state from one position to the next.
#[derive(Clone, Copy, Debug)]
pub enum Decay<'a> {
    /// A number of each head, `[n_heads]` of a row; gains and skips are of heads too.
    OfHeads(Strided<'a>),
    /// A number of each element of a key, `[n_heads, d_key]` of a row; gains and skips are of
    /// heads.
    OfChannels(Strided<'a>),
    /// `exp(rate gain)` of each element of the state, with the rates, `[n_heads, d_value, d_key]`;
    /// gains and skips are of values, `[n_heads, d_value]`.
    OfElements(&'a [f32]),
}

/// What a scan computes for some rows of one head's state.
pub(crate) struct ScanPart<'a> {
    /// Positions, in order.
    pub(crate) rows: &'a [u32],
    pub(crate) q: Strided<'a>,
    pub(crate) k: Strided<'a>,
    pub(crate) v: Strided<'a>,
    /// Rates are those of these rows only, `[n, d_key]`.
    pub(crate) decay: Decay<'a>,
    pub(crate) gain: Strided<'a>,
    pub(crate) d_key: usize,
    /// The head, and the head of its queries and keys.
    pub(crate) head: usize,
    pub(crate) key_head: usize,
    /// The first of these rows among those of all heads.
    pub(crate) first_row: usize,
    pub(crate) is_delta: bool,
    /// What a result gets of its value: one number, or one of each row.
    pub(crate) skip: Option<&'a [f32]>,
    /// The rows before the run, `[n, d_key]`; `None`: zeros.
    pub(crate) before: Option<&'a [f32]>,
}

/// Takes rows of the state, `after`, `[n ≤ 16, d_key]`, through the positions of a run; `out` are
/// their columns of the results.
#[inline(always)]
pub(crate) fn scan<I: Floats>(isa: I, part: &ScanPart<'_>, after: &mut [f32], out: &mut Strip<'_>) {
    // Programs for boards have only the general one.
    if cfg!(feature = "avx512") && part.d_key == 8 * LANES {
        run::<I, 8>(isa, part, after, out)
    } else if cfg!(feature = "avx512") && part.d_key <= LANES {
        run::<I, 1>(isa, part, after, out)
    } else {
        run::<I, VECTORS>(isa, part, after, out)
    }
}

/// [`scan`] for rows of at most `N` vectors.
#[inline(always)]
fn run<I: Floats, const N: usize>(
    isa: I,
    part: &ScanPart<'_>,
    after: &mut [f32],
    out: &mut Strip<'_>,
) {
    let d_key = part.d_key;
    let mut state = HeadRows::<I, N> {
        rows: [[isa.zeros(); N]; ROWS],
        n_rows: after.len() / d_key,
        // Known when it is compiled where the row fills `N` vectors.
        n: if d_key == N * LANES {
            N
        } else {
            d_key.div_ceil(LANES)
        },
    };
    if let Some(before) = part.before {
        for (row, before) in state.rows.iter_mut().zip(before.chunks_exact(d_key)) {
            *row = vectors::<I, N>(isa, before);
        }
    }
    for &row in part.rows {
        let y = match part.decay {
            Decay::OfHeads(decay) => state.step(isa, part, row, decay),
            Decay::OfChannels(decay) => state.step_channels(isa, part, row, decay),
            Decay::OfElements(rates) => state.step_elements(isa, part, row, rates),
        };
        out.row(row as usize).copy_from_slice(&y[..state.n_rows]);
    }
    for (row, after) in state.rows.iter().zip(after.chunks_exact_mut(d_key)) {
        for (i, after) in after.chunks_mut(LANES).enumerate() {
            after.copy_from_slice(&isa.to_array(row[i])[..after.len()]);
        }
    }
}

/// Some rows of a head's state.
struct HeadRows<I: Floats, const N: usize> {
    rows: [[I::F; N]; ROWS],
    n_rows: usize,
    /// Vectors of a row.
    n: usize,
}

impl<I: Floats, const N: usize> HeadRows<I, N> {
    /// Takes the rows through a position; its results.
    #[inline(always)]
    fn step(&mut self, isa: I, part: &ScanPart<'_>, row: u32, decay: Strided<'_>) -> [f32; ROWS] {
        let key = part.key_head * part.d_key;
        let k = vectors::<I, N>(isa, part.k.part(row, key, part.d_key));
        let q = vectors::<I, N>(isa, part.q.part(row, key, part.d_key));
        let v = isa.floats(&padded(part.v.part(row, part.first_row, self.n_rows)));
        let decay = isa.splat_all(decay.part(row, part.head, 1)[0]);
        let gain = isa.splat_all(part.gain.part(row, part.head, 1)[0]);
        let mut updates = v;
        if part.is_delta {
            let minus_decay = isa.product(decay, isa.splat_all(-1.0));
            updates = isa.sum_f(v, isa.product(minus_decay, self.products(isa, &k)));
        }
        let results = self.update(isa, isa.product(gain, updates), [&k, &q], |_| decay);
        isa.to_array(with_skip(isa, part, results, v))
    }

    /// As [`step`](Self::step), with a decay of each element of a key.
    #[inline(always)]
    fn step_channels(
        &mut self,
        isa: I,
        part: &ScanPart<'_>,
        row: u32,
        decay: Strided<'_>,
    ) -> [f32; ROWS] {
        let key = part.key_head * part.d_key;
        let k = vectors::<I, N>(isa, part.k.part(row, key, part.d_key));
        let q = vectors::<I, N>(isa, part.q.part(row, key, part.d_key));
        let v = isa.floats(&padded(part.v.part(row, part.first_row, self.n_rows)));
        let decay = decay.part(row, part.head * part.d_key, part.d_key);
        let decay = vectors::<I, N>(isa, decay);
        let gain = isa.splat_all(part.gain.part(row, part.head, 1)[0]);
        let mut updates = v;
        if part.is_delta {
            let mut decayed = k;
            for i in 0..self.n {
                decayed[i] = isa.product(decay[i], k[i]);
            }
            let told = self.products(isa, &decayed);
            updates = isa.sum_f(v, isa.product(told, isa.splat_all(-1.0)));
        }
        let results = self.update(isa, isa.product(gain, updates), [&k, &q], |i| decay[i]);
        isa.to_array(with_skip(isa, part, results, v))
    }

    /// `S = decay S + updates kᵀ`, with the decay of each vector of a row; returns `S q`.
    #[inline(always)]
    fn update(
        &mut self,
        isa: I,
        updates: I::F,
        [k, q]: [&[I::F; N]; 2],
        decay: impl Fn(usize) -> I::F,
    ) -> I::F {
        let updates = isa.to_array(updates);
        let mut sums = [isa.zeros(); ROWS];
        for r in 0..self.n_rows {
            let update = isa.splat_all(updates[r]);
            for i in 0..self.n {
                let kept = isa.product(self.rows[r][i], decay(i));
                let x = isa.sum_f(kept, isa.product(k[i], update));
                self.rows[r][i] = x;
                sums[r] = isa.sum_f(sums[r], isa.product(x, q[i]));
            }
        }
        isa.totals_of_16(sums)
    }

    /// As [`step`](Self::step), with a decay of each element of the state: `exp(rate gain)`.
    #[inline(always)]
    fn step_elements(
        &mut self,
        isa: I,
        part: &ScanPart<'_>,
        row: u32,
        rates: &[f32],
    ) -> [f32; ROWS] {
        let key = part.key_head * part.d_key;
        let k = vectors::<I, N>(isa, part.k.part(row, key, part.d_key));
        let q = vectors::<I, N>(isa, part.q.part(row, key, part.d_key));
        let v = isa.floats(&padded(part.v.part(row, part.first_row, self.n_rows)));
        let gains = padded(part.gain.part(row, part.first_row, self.n_rows));
        let updates = isa.to_array(isa.product(isa.floats(&gains), v));
        let mut sums = [isa.zeros(); ROWS];
        for (r, rates) in rates.chunks_exact(part.d_key).enumerate() {
            let update = isa.splat_all(updates[r]);
            for (i, rates) in rates.chunks(LANES).enumerate() {
                let kept = isa.product(self.rows[r][i], decays(isa, rates, gains[r]));
                let x = isa.sum_f(kept, isa.product(k[i], update));
                self.rows[r][i] = x;
                sums[r] = isa.sum_f(sums[r], isa.product(x, q[i]));
            }
        }
        isa.to_array(with_skip(isa, part, isa.totals_of_16(sums), v))
    }

    /// `S k`.
    #[inline(always)]
    fn products(&self, isa: I, k: &[I::F; N]) -> I::F {
        let mut sums = [isa.zeros(); ROWS];
        for r in 0..self.n_rows {
            for i in 0..self.n {
                sums[r] = isa.sum_f(sums[r], isa.product(self.rows[r][i], k[i]));
            }
        }
        isa.totals_of_16(sums)
    }
}

/// `results + skip v`, if there is a skip.
#[inline(always)]
fn with_skip<I: Floats>(isa: I, part: &ScanPart<'_>, results: I::F, v: I::F) -> I::F {
    let skip = match part.skip {
        Some(&[skip]) => isa.splat_all(skip),
        Some(skips) => isa.floats(&padded(skips)),
        None => return results,
    };
    isa.sum_f(results, isa.product(skip, v))
}

/// `exp(rate gain)` of up to 16 rates.
#[inline(always)]
fn decays<I: Floats>(isa: I, rates: &[f32], gain: f32) -> I::F {
    let mut exponents = padded(rates);
    for x in &mut exponents {
        *x = exp(*x * gain);
    }
    isa.floats(&exponents)
}

/// A row as vectors, its end padded with zeros.
#[inline(always)]
fn vectors<I: Floats, const N: usize>(isa: I, x: &[f32]) -> [I::F; N] {
    let mut out = [isa.zeros(); N];
    let (whole, rest) = x.as_chunks::<LANES>();
    for (out, x) in out.iter_mut().zip(whole) {
        *out = isa.floats(x);
    }
    if !rest.is_empty() {
        out[whole.len()] = isa.floats(&padded(rest));
    }
    out
}
