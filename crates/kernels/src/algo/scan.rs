//! Scans of linear attention: a state per head, updated position by position.
//!
//! ```text
//! t = S k                             the state, [d_value, d_key], before the position
//! u = gain (v − decay t)              delta rule;  gain v  without it
//! S = decay S + u kᵀ
//! y = S q
//! ```
//! The rows of S do not depend on each other, so each thread takes sixteen of one head through all
//! positions of a run, with its part of the state in fast memory. Sums over `d_key` are in lanes
//! ([`lanes`](super::lanes)), never fused: one order for prompts and for single tokens.

use super::lanes::{LANES, padded};
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

/// What a scan computes for some rows of one head's state.
pub(crate) struct ScanPart<'a> {
    /// Positions, in order.
    pub(crate) rows: &'a [u32],
    pub(crate) q: Strided<'a>,
    pub(crate) k: Strided<'a>,
    pub(crate) v: Strided<'a>,
    pub(crate) decay: Strided<'a>,
    pub(crate) gain: Strided<'a>,
    pub(crate) d_key: usize,
    /// The head, and the head of its queries and keys.
    pub(crate) head: usize,
    pub(crate) key_head: usize,
    /// The first of these rows among those of all heads.
    pub(crate) first_row: usize,
    pub(crate) is_delta: bool,
    /// The rows before the run, `[n, d_key]`; `None`: zeros.
    pub(crate) before: Option<&'a [f32]>,
}

/// Takes rows of the state, `after`, `[n ≤ 16, d_key]`, through the positions of a run; `out` are
/// their columns of the results.
#[inline(always)]
pub(crate) fn scan<I: Floats>(isa: I, part: &ScanPart<'_>, after: &mut [f32], out: &mut Strip<'_>) {
    if part.d_key == 8 * LANES {
        run::<I, 8>(isa, part, after, out)
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
    let n_rows = after.len() / d_key;
    // Known when it is compiled where the row fills `N` vectors.
    let n = if d_key == N * LANES {
        N
    } else {
        d_key.div_ceil(LANES)
    };
    let mut state = [[isa.zeros(); N]; ROWS];
    if let Some(before) = part.before {
        for (state, before) in state.iter_mut().zip(before.chunks_exact(d_key)) {
            *state = vectors::<I, N>(isa, before);
        }
    }
    for &row in part.rows {
        let k = vectors::<I, N>(isa, part.k.part(row, part.key_head * d_key, d_key));
        let q = vectors::<I, N>(isa, part.q.part(row, part.key_head * d_key, d_key));
        let v = isa.floats(&padded(part.v.part(row, part.first_row, n_rows)));
        let decay = isa.splat_all(part.decay.part(row, part.head, 1)[0]);
        let gain = isa.splat_all(part.gain.part(row, part.head, 1)[0]);
        let mut updates = v;
        if part.is_delta {
            let mut sums = [isa.zeros(); ROWS];
            for (sum, state) in sums.iter_mut().zip(&state).take(n_rows) {
                for i in 0..n {
                    *sum = isa.sum_f(*sum, isa.product(state[i], k[i]));
                }
            }
            let minus_decay = isa.product(decay, isa.splat_all(-1.0));
            let told = isa.product(minus_decay, isa.totals_of_16(sums));
            updates = isa.sum_f(v, told);
        }
        let updates = isa.to_array(isa.product(gain, updates));
        let mut sums = [isa.zeros(); ROWS];
        for r in 0..n_rows {
            let update = isa.splat_all(updates[r]);
            for i in 0..n {
                let kept = isa.product(state[r][i], decay);
                let x = isa.sum_f(kept, isa.product(k[i], update));
                state[r][i] = x;
                sums[r] = isa.sum_f(sums[r], isa.product(x, q[i]));
            }
        }
        let y = isa.to_array(isa.totals_of_16(sums));
        out.row(row as usize).copy_from_slice(&y[..n_rows]);
    }
    for (state, after) in state.iter().zip(after.chunks_exact_mut(d_key)) {
        for (i, after) in after.chunks_mut(LANES).enumerate() {
            after.copy_from_slice(&isa.to_array(state[i])[..after.len()]);
        }
    }
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
