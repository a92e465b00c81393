//! Multi-head latent attention, with absorbed matrices: all heads attend to one head of keys, which
//! are the values too.
//!
//! ```text
//! a, c = Wqa pre(x), Wkva pre(x)                    one region; q in place of a without Wqb
//! q = Wqb norm(a)                                   two regions
//! k = rope(c_rope), norm(c)                         one region
//! q_h = temperature * (rope(q_rope), Wk_hᵀ q_key)   one region, and three for some heads
//! cache[pos] = k
//! z_h = softmax(scale * q_h · K) K                  one region; K read back from the cache
//! y_h = Wv_h z_h                                    two regions for some heads
//! x += post(Wo y)                                   one region; residual.rs
//! ```
//! A prompt takes the same steps as a single token. As many heads are multiplied at once as the
//! activations have room for: all of them if there are few rows.

use std::ops::Range;

use atta_kernels::{Groups, Job, Layouts, Matrix, Store, math::all_finite};
use atta_store::{ChunkGuard, Projection, WeightGroup};

use super::{
    Pass,
    attention::{attend, scale_queries},
};
use crate::{
    Error, Role,
    bind::Tensors,
    spec::{Attention, Latent, LatentUp, Sublayer},
};

/// Layer `l` and its attention.
#[derive(Clone, Copy)]
pub(super) struct LatentLayer<'a> {
    pub(super) l: usize,
    pub(super) a: &'a Attention,
    pub(super) latent: &'a Latent,
}

/// `x += residual_scale * post(attention(pre(x)))`.
pub(super) fn latent_attention(p: &mut Pass<'_>, layer: LatentLayer<'_>) -> Result<(), Error> {
    project_inputs(p, layer)?;
    project_queries(p, layer)?;
    make_keys(p, layer);
    rotate_queries(p, layer);
    for_heads(p, layer, UpOf::Keys, absorb_keys)?;
    scale_queries(p, layer.a);
    append_keys(p, layer);
    attend(p, layer.l, layer.a);
    for_heads(p, layer, UpOf::Values, expand_values)?;
    project_output(p, layer)
}

/// The buffers of a batch, parts of [`Scratch::mixer`](super::Scratch::mixer).
struct Buffers<'a> {
    /// Queries before their matrices are absorbed, `[n_rows, n_heads, d_key + d_rope]`.
    q: &'a mut [f32],
    /// Latent vectors of keys and values, `[n_rows, d_latent + d_rope]`.
    kv: &'a mut [f32],
    /// Latent vectors of queries, `[n_rows, d_query]`.
    q_latent: &'a mut [f32],
}

impl LatentLayer<'_> {
    fn buffers<'b>(&self, all: &'b mut [f32], n_rows: usize) -> Buffers<'b> {
        let (q, rest) = all.split_at_mut(n_rows * self.a.d_q_rows());
        let (kv, rest) = rest.split_at_mut(n_rows * self.a.d_kv());
        let q_latent = &mut rest[..n_rows * self.latent.d_query.unwrap_or(0)];
        Buffers { q, kv, q_latent }
    }
}

/// `a, c = Wqa pre(x), Wkva pre(x)`; `q` in place of `a` if queries have no latent vector.
fn project_inputs(p: &mut Pass<'_>, layer: LatentLayer<'_>) -> Result<(), Error> {
    let n = p.rows.len();
    let t = p.model.layer(layer.l);
    let first = match layer.latent.d_query {
        Some(_) => Role::AttnQA,
        None => Role::AttnQ,
    };
    p.enter(layer.l, Sublayer::Mixer, &[first, Role::AttnKvA]);
    p.each_chunk(WeightGroup::Layer(layer.l, Projection::Qkv), |p, chunk| {
        let Buffers { q, kv, q_latent } = layer.buffers(&mut p.s.mixer, n);
        let q = if first == Role::AttnQ { q } else { q_latent };
        let job = |role, out| Job {
            w: t.matrix(role, chunk),
            bias: None,
            out,
            mode: Store::Set,
        };
        let mut jobs = [job(first, q), job(Role::AttnKvA, kv)];
        p.kernels.matmul(p.pool, &p.s.act, &mut jobs);
    })
}

/// `q = Wqb norm(a)`, if queries have a latent vector.
fn project_queries(p: &mut Pass<'_>, layer: LatentLayer<'_>) -> Result<(), Error> {
    let LatentLayer { l, latent, .. } = layer;
    let Some(d) = latent.d_query else {
        return Ok(());
    };
    let n = p.rows.len();
    let t = p.model.layer(l);
    let kernels = p.kernels;
    let weight = t.vector(Role::AttnQANorm);
    let s = &mut *p.s;
    let from = &*layer.buffers(&mut s.mixer, n).q_latent;
    let layouts = t.layouts(&[Role::AttnQB]);
    s.act.fill(kernels, p.pool, (n, d), layouts, |row, out| {
        kernels.rms_norm(&from[row * d..(row + 1) * d], weight, latent.eps, out);
    });
    p.observe_inputs(l, &[Role::AttnQB]);
    p.each_chunk(WeightGroup::Layer(l, Projection::QueryUp), |p, chunk| {
        let out = layer.buffers(&mut p.s.mixer, n).q;
        let w = t.matrix(Role::AttnQB, chunk);
        let mut jobs = [Job {
            w,
            bias: None,
            out,
            mode: Store::Set,
        }];
        p.kernels.matmul(p.pool, &p.s.act, &mut jobs);
    })
}

/// `k = rope(c_rope), norm(c)`.
fn make_keys(p: &mut Pass<'_>, layer: LatentLayer<'_>) {
    let LatentLayer { l, a, latent } = layer;
    let n = p.rows.len();
    let d = a.d_head;
    let kernels = p.kernels;
    let ropes = p.ropes;
    let weight = p.model.layer(l).vector(Role::AttnKvANorm);
    let s = &mut *p.s;
    let kv = &*layer.buffers(&mut s.mixer, n).kv;
    p.pool.for_each_row(&mut s.k[..n * d], d, |row, k| {
        let (c, c_rope) = kv[row * d..(row + 1) * d].split_at(latent.d_latent);
        let (k_rope, k_latent) = k.split_at_mut(c_rope.len());
        k_rope.copy_from_slice(c_rope);
        kernels.rms_norm(c, weight, latent.eps, k_latent);
        ropes.rotate(kernels, l, row, k);
    });
}

/// The first part of every `q_h`: `rope(q_rope)`.
fn rotate_queries(p: &mut Pass<'_>, layer: LatentLayer<'_>) {
    let LatentLayer { l, a, latent } = layer;
    let n = p.rows.len();
    let kernels = p.kernels;
    let ropes = p.ropes;
    let d_rope = a.d_rotatable();
    let s = &mut *p.s;
    let from = &*layer.buffers(&mut s.mixer, n).q;
    let queries = &mut s.q[..n * a.d_q()];
    p.pool.for_each_row(queries, a.d_q(), |row, q| {
        let heads = from[row * a.d_q_rows()..].chunks_exact(latent.d_key + d_rope);
        for (q, head) in q.chunks_exact_mut(a.d_head).zip(heads) {
            q[..d_rope].copy_from_slice(&head[latent.d_key..]);
            ropes.rotate(kernels, l, row, q);
        }
    });
}

/// The side of attention that a matrix of each head is for.
#[derive(Clone, Copy)]
enum UpOf {
    Keys,
    Values,
}

/// Some heads, whose matrices are in a chunk.
struct Heads<'a> {
    role: Role,
    chunk: &'a ChunkGuard<'a>,
    range: Range<usize>,
}

/// Calls `multiply` with the heads of a layer, some at a time.
fn for_heads(
    p: &mut Pass<'_>,
    layer: LatentLayer<'_>,
    of: UpOf,
    multiply: impl Fn(&mut Pass<'_>, LatentLayer<'_>, Heads<'_>),
) -> Result<(), Error> {
    let LatentLayer { l, latent, .. } = layer;
    let (group, role, d) = match (of, latent.up) {
        (UpOf::Keys, LatentUp::Split) => (Projection::KeyUp, Role::AttnKB, latent.d_key),
        (UpOf::Keys, LatentUp::Joint) => (Projection::KeyUp, Role::AttnKvB, latent.d_key),
        (UpOf::Values, LatentUp::Split) => (Projection::ValueUp, Role::AttnVB, latent.d_latent),
        (UpOf::Values, LatentUp::Joint) => (Projection::ValueUp, Role::AttnKvB, latent.d_latent),
    };
    p.each_chunk(WeightGroup::Layer(l, group), |p, chunk| {
        let all = p.model.layer(l).heads(role, chunk);
        let n_rows = p.rows.len();
        let n_at_once = (p.s.act.n_rows_max(d) / n_rows).max(1);
        for start in all.clone().step_by(n_at_once) {
            let range = start..all.end.min(start + n_at_once);
            p.s.bounds.clear();
            p.s.bounds.extend((0..=range.len()).map(|i| i * n_rows));
            multiply(p, layer, Heads { role, chunk, range });
        }
    })
}

/// The second part of some `q_h`: `Wk_hᵀ q_key`.
fn absorb_keys(p: &mut Pass<'_>, layer: LatentLayer<'_>, heads: Heads<'_>) {
    let LatentLayer { l, a, latent } = layer;
    let n = p.rows.len();
    let t = p.model.layer(l);
    let d_from = latent.d_key + a.d_rotatable();
    let is_split = latent.up == LatentUp::Split;
    let layouts = match is_split {
        true => t.layouts(&[heads.role]),
        false => Layouts::EMPTY,
    };
    let s = &mut *p.s;
    let from = &*layer.buffers(&mut s.mixer, n).q;
    let shape = (heads.range.len() * n, latent.d_key);
    s.act.fill(p.kernels, p.pool, shape, layouts, |i, out| {
        let head = i % n * a.n_heads + heads.range.start + i / n;
        out.copy_from_slice(&from[head * d_from..][..latent.d_key]);
    });
    // Nothing else needs the buffer of results yet.
    let out = &mut s.heads[..heads.range.len() * n * latent.d_latent];
    let bounds = &s.bounds;
    let w = &|i| {
        heads.matrix(
            t,
            i,
            0..if is_split {
                latent.d_latent
            } else {
                latent.d_key
            },
        )
    };
    let job = Groups { bounds, w, out };
    match is_split {
        true => p.kernels.matmul_groups(p.pool, &s.act, job),
        false => p.kernels.matmul_transposed_groups(p.pool, &s.act, job),
    }
    if is_split {
        p.observe_inputs(l, &[heads.role]);
    }
    take_absorbed(p, layer, heads.range);
}

impl Heads<'_> {
    /// Some rows of the matrix of head `i` of these, without a bias.
    fn matrix<'a>(
        &'a self,
        t: &Tensors,
        i: usize,
        rows: Range<usize>,
    ) -> (Matrix<'a>, Option<&'a [f32]>) {
        (
            t.head(self.role, self.range.start + i, rows, self.chunk),
            None,
        )
    }
}

/// Copies the second part of some `q_h` to their places.
fn take_absorbed(p: &mut Pass<'_>, layer: LatentLayer<'_>, heads: Range<usize>) {
    let LatentLayer { a, latent, .. } = layer;
    let n = p.rows.len();
    let d = latent.d_latent;
    let s = &mut *p.s;
    let absorbed = &s.heads;
    let queries = &mut s.q[..n * a.d_q()];
    p.pool.for_each_row(queries, a.d_q(), |row, q| {
        let queries = q.chunks_exact_mut(a.d_head).skip(heads.start);
        for (i, q) in queries.take(heads.len()).enumerate() {
            q[a.d_rotatable()..].copy_from_slice(&absorbed[(i * n + row) * d..][..d]);
        }
    });
}

/// Appends keys to the KV cache.
fn append_keys(p: &mut Pass<'_>, layer: LatentLayer<'_>) {
    let LatentLayer { l, a, .. } = layer;
    let s = &mut *p.s;
    let keys = s.k.chunks_exact(a.d_head);
    for ((row, k), q) in p.rows.iter().zip(keys).zip(s.q.chunks_exact_mut(a.d_q())) {
        p.cache.store(l, row, p.kernels, [k, k]);
        // As for other attention: the query passes on a fault in the key.
        if !all_finite(k) {
            q.fill(f32::NAN);
        }
    }
}

/// `y_h = Wv_h z_h` of some heads, `[n_heads, n_rows, d_value]` in the buffer of queries.
fn expand_values(p: &mut Pass<'_>, layer: LatentLayer<'_>, heads: Heads<'_>) {
    let LatentLayer { l, a, latent } = layer;
    let n = p.rows.len();
    let t = p.model.layer(l);
    let s = &mut *p.s;
    let from = &s.heads;
    let layouts = t.layouts(&[heads.role]);
    let shape = (heads.range.len() * n, latent.d_latent);
    s.act.fill(p.kernels, p.pool, shape, layouts, |i, out| {
        let head = i % n * a.n_heads + heads.range.start + i / n;
        out.copy_from_slice(&from[head * a.d_head..][a.d_rotatable()..a.d_head]);
    });
    let first = match latent.up {
        LatentUp::Split => 0,
        LatentUp::Joint => latent.d_key,
    };
    let width = n * latent.d_value;
    let out = &mut s.q[heads.range.start * width..heads.range.end * width];
    let bounds = &s.bounds;
    let w = &|i| heads.matrix(t, i, first..first + latent.d_value);
    p.kernels
        .matmul_groups(p.pool, &s.act, Groups { bounds, w, out });
    p.observe_inputs(l, &[heads.role]);
}

/// `x += residual_scale * post(Wo y + b)`.
fn project_output(p: &mut Pass<'_>, layer: LatentLayer<'_>) -> Result<(), Error> {
    let LatentLayer { l, a, latent } = layer;
    let n = p.rows.len();
    let d = latent.d_value;
    let s = &mut *p.s;
    let from = &s.q;
    let layouts = p.model.layer(l).layouts(&[Role::AttnOutput]);
    let shape = (n, a.d_heads());
    s.act.fill(p.kernels, p.pool, shape, layouts, |row, out| {
        for (h, y) in out.chunks_exact_mut(d).enumerate() {
            y.copy_from_slice(&from[(h * n + row) * d..][..d]);
        }
    });
    let bias = Some(Role::AttnOutputBias);
    p.leave(l, Sublayer::Mixer, Role::AttnOutput, bias)
}
