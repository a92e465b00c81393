//! Gated short convolution: every position sees the last few, element by element.
//!
//! ```text
//! b, c, x = Win pre(x)                            one region
//! g = b ⊙ x                                       one region
//! y[pos] = c[pos] ⊙ Σ_j w[j] ⊙ g[pos - n_taps + 1 + j]    one region; from the oldest on
//! x += post(Wout y)                               one region; residual.rs
//! state = the last n_taps - 1 g
//! ```
//! `g` of positions in earlier batches is read from the state that this batch starts from.

use atta_kernels::{Job, Store};
use atta_store::{Projection, WeightGroup};

use super::Pass;
use crate::{
    Error, Role,
    seqs::StateStep,
    spec::{ShortConv, Sublayer},
};

/// `x += residual_scale * post(short_conv(pre(x)))` for layer `l`.
pub(crate) fn short_conv(p: &mut Pass<'_>, l: usize, conv: &ShortConv) -> Result<(), Error> {
    project_inputs(p, l)?;
    gate_inputs(p);
    convolve(p, l, conv);
    keep_states(p, l, conv);
    p.leave(l, Sublayer::Mixer, Role::ShortconvOutProj, None)
}

/// `b, c, x = Win pre(x)`.
fn project_inputs(p: &mut Pass<'_>, l: usize) -> Result<(), Error> {
    let n = p.rows.len();
    let t = p.model.layer(l);
    let d_in = ShortConv::N_INPUTS * p.model.spec().d_model;
    p.enter(l, Sublayer::Mixer, &[Role::ShortconvInProj]);
    p.each_chunk(WeightGroup::Layer(l, Projection::Qkv), |p, chunk| {
        let s = &mut *p.s;
        let mut job = [Job {
            w: t.matrix(Role::ShortconvInProj, chunk),
            bias: None,
            out: &mut s.recurrent[..n * d_in],
            mode: Store::Set,
        }];
        p.kernels.matmul(p.pool, &s.act, &mut job);
    })
}

/// `g = b ⊙ x`, in the place of `b`.
fn gate_inputs(p: &mut Pass<'_>) {
    let d = p.model.spec().d_model;
    let d_in = ShortConv::N_INPUTS * d;
    let rows = &mut p.s.recurrent[..p.rows.len() * d_in];
    p.pool.for_each_row(rows, d_in, |_, row| {
        let (b, rest) = row.split_at_mut(d);
        b.iter_mut().zip(&rest[d..]).for_each(|(b, x)| *b *= x);
    });
}

/// `y[pos] = c[pos] ⊙ Σ_j w[j] ⊙ g[pos - n_taps + 1 + j]`, the input of the output projection.
fn convolve(p: &mut Pass<'_>, l: usize, conv: &ShortConv) {
    let t = p.model.layer(l);
    let d = p.model.spec().d_model;
    let n_taps = conv.n_taps;
    let taps = t.vector(Role::ShortconvConv);
    let inputs = &p.s.recurrent;
    let steps = p.steps;
    let cache = &*p.cache;
    let input = |row: usize| &inputs[row * ShortConv::N_INPUTS * d..][..ShortConv::N_INPUTS * d];
    p.s.act.fill(
        p.kernels,
        p.pool,
        (p.rows.len(), d),
        t.layouts(&[Role::ShortconvOutProj]),
        |row, y| {
            y.fill(0.0);
            for j in 0..n_taps {
                let g = match before(steps, row, n_taps - 1 - j) {
                    Gated::Row(row) => &input(row)[..d],
                    Gated::State { block, back } => {
                        &cache.state(l, block)[(n_taps - 1 - back) * d..][..d]
                    }
                    Gated::Nothing => continue,
                };
                let taps = taps[j..].iter().step_by(n_taps);
                let products = g.iter().zip(taps).map(|(g, w)| w * g);
                y.iter_mut().zip(products).for_each(|(y, x)| *y += x);
            }
            let c = &input(row)[d..2 * d];
            y.iter_mut().zip(c).for_each(|(y, c)| *y *= c);
        },
    );
}

/// Writes the states behind the rows that keep one.
fn keep_states(p: &mut Pass<'_>, l: usize, conv: &ShortConv) {
    let d = p.model.spec().d_model;
    let n_taps = conv.n_taps;
    for (row, step) in p.steps.iter().enumerate().filter(|(_, s)| s.is_kept) {
        for (i, back) in (0..n_taps - 1).rev().enumerate() {
            let to = i * d..(i + 1) * d;
            match before(p.steps, row, back) {
                Gated::Row(row) => {
                    let g = &p.s.recurrent[row * ShortConv::N_INPUTS * d..][..d];
                    p.cache.state_mut(l, step.block)[to].copy_from_slice(g);
                }
                Gated::State { block, back } => {
                    let from = (n_taps - 1 - back) * d;
                    p.cache.copy_state(l, block, from, step.block, to);
                }
                Gated::Nothing => p.cache.state_mut(l, step.block)[to].fill(0.0),
            }
        }
    }
}

/// Where the gated input of a position is.
enum Gated {
    /// In a row of this batch.
    Row(usize),
    /// In a state: the input `back` positions before the one behind the state.
    State { block: u32, back: usize },
    /// Before the first position, where it is 0.
    Nothing,
}

/// The gated input `back` positions before a row.
fn before(steps: &[StateStep], mut row: usize, mut back: usize) -> Gated {
    while back > 0
        && let Some(previous) = steps[row].previous
    {
        row = previous as usize;
        back -= 1;
    }
    match steps[row].start {
        _ if back == 0 => Gated::Row(row),
        Some(block) => Gated::State { block, back },
        None => Gated::Nothing,
    }
}
