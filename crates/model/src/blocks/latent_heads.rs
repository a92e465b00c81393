//! Products with a matrix of each head, of latent attention: on the way to the latent space of keys
//! and back from it to values.
//!
//! The rows of `act` lie head after head, so that one region multiplies several heads. As many are
//! multiplied at once as the activations have room for: all of them if there are few rows.

use std::ops::Range;

use atta_kernels::{Groups, Layouts, Matrix};
use atta_store::{ChunkGuard, Projection, WeightGroup};

use super::{Pass, latent::LatentLayer};
use crate::{Error, Role, bind::Tensors, spec::LatentUp};

/// The second part of every `q_h`: `Wk_hᵀ q_key`.
pub(super) fn absorb_keys(p: &mut Pass<'_>, layer: LatentLayer<'_>) -> Result<(), Error> {
    let role = match layer.latent.up {
        LatentUp::Split => Role::AttnKB,
        LatentUp::Joint => Role::AttnKvB,
    };
    let up = Up {
        group: Projection::KeyUp,
        role,
        d_in: layer.latent.d_key,
    };
    up.for_heads(p, layer, |p, heads| {
        fill_keys(p, layer, heads);
        multiply_keys(p, layer, heads);
        take_absorbed(p, layer, heads);
    })
}

/// `y_h = Wv_h z_h`, `[n_heads, n_rows, d_value]` in the buffer of queries.
pub(super) fn expand_values(p: &mut Pass<'_>, layer: LatentLayer<'_>) -> Result<(), Error> {
    let role = match layer.latent.up {
        LatentUp::Split => Role::AttnVB,
        LatentUp::Joint => Role::AttnKvB,
    };
    let up = Up {
        group: Projection::ValueUp,
        role,
        d_in: layer.latent.d_latent,
    };
    up.for_heads(p, layer, |p, heads| {
        fill_values(p, layer, heads);
        multiply_values(p, layer, heads);
    })
}

/// Matrices of heads.
struct Up {
    group: Projection,
    role: Role,
    /// Width of the inputs of a matrix.
    d_in: usize,
}

/// Some heads, whose matrices are in a chunk.
struct Heads<'a> {
    role: Role,
    chunk: &'a ChunkGuard<'a>,
    range: Range<usize>,
}

impl Up {
    /// Calls `multiply` with all heads of a layer, some at a time.
    fn for_heads(
        self,
        p: &mut Pass<'_>,
        layer: LatentLayer<'_>,
        multiply: impl Fn(&mut Pass<'_>, &Heads<'_>),
    ) -> Result<(), Error> {
        let Self { group, role, d_in } = self;
        p.each_chunk(WeightGroup::Layer(layer.l, group), |p, chunk| {
            let all = p.model.layer(layer.l).heads(role, chunk);
            let n_rows = p.rows.len();
            let n_at_once = (p.s.act.n_rows_max(d_in) / n_rows).max(1);
            for start in all.clone().step_by(n_at_once) {
                let range = start..all.end.min(start + n_at_once);
                p.s.bounds.clear();
                p.s.bounds.extend((0..=range.len()).map(|i| i * n_rows));
                multiply(p, &Heads { role, chunk, range });
            }
            Ok(())
        })
    }
}

impl Heads<'_> {
    /// Row `i` of these, one head after the other, in rows of all `n_heads`.
    fn row(&self, i: usize, n_rows: usize, n_heads: usize) -> usize {
        i % n_rows * n_heads + self.range.start + i / n_rows
    }

    /// Some rows of the matrix of head `i` of these, without a bias.
    fn matrix<'a>(
        &'a self,
        t: &Tensors,
        i: usize,
        rows: Range<usize>,
    ) -> (Matrix<'a>, Option<&'a [f32]>) {
        let h = self.range.start + i;
        (t.head(self.role, h, rows, self.chunk), None)
    }
}

/// `act = q_key` of some heads.
fn fill_keys(p: &mut Pass<'_>, layer: LatentLayer<'_>, heads: &Heads<'_>) {
    let LatentLayer { l, a, latent } = layer;
    let n = p.rows.len();
    let d = latent.d_key + a.d_rotatable();
    let layouts = match latent.up {
        LatentUp::Split => p.model.layer(l).layouts(&[heads.role]),
        LatentUp::Joint => Layouts::EMPTY,
    };
    let s = &mut *p.s;
    let from = &*layer.buffers(&mut s.mixer, n).q;
    let shape = (heads.range.len() * n, latent.d_key);
    s.act.fill(p.kernels, p.pool, shape, layouts, |i, out| {
        let row = heads.row(i, n, a.n_heads);
        out.copy_from_slice(&from[row * d..][..latent.d_key]);
    });
}

/// `Wk_hᵀ act` of some heads, `[heads, n_rows, d_latent]` in the buffer of results, which is free
/// before attention.
fn multiply_keys(p: &mut Pass<'_>, layer: LatentLayer<'_>, heads: &Heads<'_>) {
    let LatentLayer { l, latent, .. } = layer;
    let t = p.model.layer(l);
    let s = &mut *p.s;
    let out = &mut s.heads[..s.act.n_rows() * latent.d_latent];
    let bounds = &s.bounds;
    match latent.up {
        LatentUp::Split => {
            let w = &|i| heads.matrix(t, i, 0..latent.d_latent);
            let job = Groups { bounds, w, out };
            p.kernels.matmul_groups(p.pool, &s.act, job);
            p.observe_inputs(l, &[heads.role]);
        }
        LatentUp::Joint => {
            let w = &|i| heads.matrix(t, i, 0..latent.d_key);
            let job = Groups { bounds, w, out };
            p.kernels.matmul_transposed_groups(p.pool, &s.act, job);
        }
    }
}

/// Copies the second part of some `q_h` to their places.
fn take_absorbed(p: &mut Pass<'_>, layer: LatentLayer<'_>, heads: &Heads<'_>) {
    let LatentLayer { a, latent, .. } = layer;
    let n = p.rows.len();
    let d = latent.d_latent;
    let s = &mut *p.s;
    let absorbed = &s.heads;
    let queries = &mut s.q[..n * a.d_q()];
    p.pool.for_each_row(queries, a.d_q(), |row, q| {
        let queries = q.chunks_exact_mut(a.d_head).skip(heads.range.start);
        for (i, q) in queries.take(heads.range.len()).enumerate() {
            q[a.d_rotatable()..].copy_from_slice(&absorbed[(i * n + row) * d..][..d]);
        }
    });
}

/// `act = z_h` of some heads.
fn fill_values(p: &mut Pass<'_>, layer: LatentLayer<'_>, heads: &Heads<'_>) {
    let LatentLayer { l, a, latent } = layer;
    let n = p.rows.len();
    let s = &mut *p.s;
    let from = &s.heads;
    let layouts = p.model.layer(l).layouts(&[heads.role]);
    let shape = (heads.range.len() * n, latent.d_latent);
    s.act.fill(p.kernels, p.pool, shape, layouts, |i, out| {
        let row = heads.row(i, n, a.n_heads);
        out.copy_from_slice(&from[row * a.d_head..][a.d_rotatable()..a.d_head]);
    });
}

/// `y_h = Wv_h act` of some heads.
fn multiply_values(p: &mut Pass<'_>, layer: LatentLayer<'_>, heads: &Heads<'_>) {
    let LatentLayer { l, latent, .. } = layer;
    let t = p.model.layer(l);
    let first = match latent.up {
        LatentUp::Split => 0,
        LatentUp::Joint => latent.d_key,
    };
    let width = p.rows.len() * latent.d_value;
    let s = &mut *p.s;
    let out = &mut s.q[heads.range.start * width..heads.range.end * width];
    let bounds = &s.bounds;
    let w = &|i| heads.matrix(t, i, first..first + latent.d_value);
    let job = Groups { bounds, w, out };
    p.kernels.matmul_groups(p.pool, &s.act, job);
    p.observe_inputs(l, &[heads.role]);
}
