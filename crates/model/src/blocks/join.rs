//! The input of a draft head: the embedding of a token, and a hidden state of the position before.
//!
//! ```text
//! h = Wf taps, or the head's own state          one region; beside: EAGLE-3
//! j = [norm(e); norm(h)]                        one region
//! x = h, or norm(h), or We j                    one region
//! ```
//! Where `x` is no product, the first attention reads `j` in place of `norm(x)`.

use atta_kernels::{Job, Store};
use atta_store::{Projection, WeightGroup};

use super::Pass;
use crate::{
    Error, Input, Role,
    spec::{Join, JoinKind},
};

/// `x` from the embeddings in `x` and the hidden states of a batch, which rows refer to.
pub(crate) fn join_states(p: &mut Pass<'_>, join: &Join, hidden: &[f32]) -> Result<(), Error> {
    let n = p.rows.len();
    let d = p.model.spec().d_model;
    let s = &mut *p.s;
    for (joined, e) in s
        .joined
        .chunks_exact_mut(2 * d)
        .zip(s.x[..n * d].chunks_exact(d))
    {
        joined[..d].copy_from_slice(e);
    }
    let is_tapped = matches!(p.rows[0].input, Input::Tapped { .. });
    match join.kind {
        JoinKind::Beside { .. } if is_tapped => project_taps(p, join, hidden)?,
        _ => take_states(p, hidden),
    }
    norm_both(p, join);
    match join.kind {
        JoinKind::Beside { keeps_norm } => {
            if keeps_norm {
                keep_normed(p);
            }
            Ok(())
        }
        JoinKind::Projected => project_joined(p),
    }
}

/// The row of `hidden`, `[d]` each, that a row reads.
fn state<'a>(input: &Input, hidden: &'a [f32], d: usize) -> &'a [f32] {
    match *input {
        Input::Tapped { states: i, .. } | Input::Carried { state: i, .. } => &hidden[i * d..][..d],
        Input::Token(_) | Input::Embedding(_) | Input::Hidden(_) => {
            unreachable!("the rows of a draft head have hidden states")
        }
    }
}

/// `x = h`.
fn take_states(p: &mut Pass<'_>, hidden: &[f32]) {
    let d = p.model.spec().d_model;
    for (x, row) in p.s.x.chunks_exact_mut(d).zip(p.rows) {
        x.copy_from_slice(state(&row.input, hidden, d));
    }
}

/// `x = Wf taps`.
fn project_taps(p: &mut Pass<'_>, join: &Join, hidden: &[f32]) -> Result<(), Error> {
    let n = p.rows.len();
    let d = p.model.spec().d_model;
    let d_states = join.taps.len() * join.d_target;
    let t = p.model.globals();
    let rows = p.rows;
    let layouts = t.layouts(&[Role::Fc]);
    let shape = (n, d_states);
    p.s.act.fill(p.kernels, p.pool, shape, layouts, |row, out| {
        out.copy_from_slice(state(&rows[row].input, hidden, d_states));
    });
    p.each_chunk(WeightGroup::Layer(0, Projection::Join), |p, chunk| {
        let job = Job {
            w: t.matrix(Role::Fc, chunk),
            bias: None,
            out: &mut p.s.x[..n * d],
            mode: Store::Set,
        };
        p.products.matmul(&p.s.act, [job])
    })
}

/// `j = [norm(e); norm(x)]`, where its first half is `e`.
fn norm_both(p: &mut Pass<'_>, join: &Join) {
    let n = p.rows.len();
    let d = p.model.spec().d_model;
    let t = p.model.layer(0);
    let [of_e, of_h] = match join.kind {
        JoinKind::Beside { .. } => [Role::AttnNorm, Role::AttnNorm2],
        JoinKind::Projected => [Role::NextnEnorm, Role::NextnHnorm],
    }
    .map(|role| t.vector(role));
    let kernels = p.kernels;
    let x = &p.s.x;
    let joined = &mut p.s.joined[..2 * n * d];
    p.pool.for_each_row(joined, 2 * d, |row, joined| {
        let (e, h) = joined.split_at_mut(d);
        kernels.rms_norm_inplace(e, of_e, join.eps);
        kernels.rms_norm(&x[row * d..][..d], of_h, join.eps, h);
    });
}

/// `x = norm(h)`.
fn keep_normed(p: &mut Pass<'_>) {
    let d = p.model.spec().d_model;
    let n = p.rows.len();
    let s = &mut *p.s;
    let rows = s.x[..n * d].chunks_exact_mut(d);
    for (x, joined) in rows.zip(s.joined.chunks_exact(2 * d)) {
        x.copy_from_slice(&joined[d..]);
    }
}

/// `x = We j`.
fn project_joined(p: &mut Pass<'_>) -> Result<(), Error> {
    let n = p.rows.len();
    let d = p.model.spec().d_model;
    let t = p.model.layer(0);
    let s = &mut *p.s;
    let joined = &s.joined;
    let layouts = t.layouts(&[Role::NextnEhProj]);
    s.act
        .fill(p.kernels, p.pool, (n, 2 * d), layouts, |row, out| {
            out.copy_from_slice(&joined[2 * row * d..][..2 * d]);
        });
    p.each_chunk(WeightGroup::Layer(0, Projection::Join), |p, chunk| {
        let job = Job {
            w: t.matrix(Role::NextnEhProj, chunk),
            bias: None,
            out: &mut p.s.x[..n * d],
            mode: Store::Set,
        };
        p.products.matmul(&p.s.act, [job])
    })
}
