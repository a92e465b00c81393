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
//! A prompt takes the same steps as a single token.

use atta_kernels::{Job, Matrix, Store, math::all_finite};
use atta_store::{Projection, WeightGroup};

use super::{
    Pass,
    attention::{attend, scale_queries},
    latent_heads::{absorb_keys, expand_values},
};
use crate::{
    Error, Role,
    adapters::Adapted,
    spec::{Attention, Latent, Sublayer},
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
    absorb_keys(p, layer)?;
    scale_queries(p, layer.a);
    append_keys(p, layer);
    attend(p, layer.l, layer.a);
    expand_values(p, layer)?;
    project_output(p, layer)
}

/// The buffers of a batch, parts of [`Scratch::mixer`](super::Scratch::mixer).
pub(super) struct Buffers<'a> {
    /// Queries before their matrices are absorbed, `[n_rows, n_heads, d_key + d_rope]`.
    pub(super) q: &'a mut [f32],
    /// Latent vectors of keys and values, `[n_rows, d_latent + d_rope]`.
    kv: &'a mut [f32],
    /// Latent vectors of queries, `[n_rows, d_query]`.
    q_latent: &'a mut [f32],
}

impl LatentLayer<'_> {
    pub(super) fn buffers<'b>(&self, all: &'b mut [f32], n_rows: usize) -> Buffers<'b> {
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
        let job = |role, out| product(t.matrix(role, chunk), out);
        let jobs = [job(first, q), job(Role::AttnKvA, kv)];
        p.products.matmul(&p.s.act, jobs)
    })?;
    let s = &mut *p.s;
    let Buffers { q, kv, q_latent } = layer.buffers(&mut s.mixer, n);
    let q = if first == Role::AttnQ { q } else { q_latent };
    for (role, out) in [(first, q), (Role::AttnKvA, kv)] {
        p.adapting
            .add(Adapted::of_layer(layer.l, role, &s.act, out));
    }
    Ok(())
}

/// `out = W act`.
fn product<'a>(w: Matrix<'a>, out: &'a mut [f32]) -> Job<'a> {
    Job {
        w,
        bias: None,
        out,
        mode: Store::Set,
    }
}

/// `q = Wqb norm(a)`, if queries have a latent vector.
fn project_queries(p: &mut Pass<'_>, layer: LatentLayer<'_>) -> Result<(), Error> {
    let Some(d) = layer.latent.d_query else {
        return Ok(());
    };
    let l = layer.l;
    let n = p.rows.len();
    let t = p.model.layer(l);
    norm_queries(p, layer, d);
    p.observe_inputs(l, &[Role::AttnQB]);
    p.each_chunk(WeightGroup::Layer(l, Projection::QueryUp), |p, chunk| {
        let out = layer.buffers(&mut p.s.mixer, n).q;
        let job = product(t.matrix(Role::AttnQB, chunk), out);
        p.products.matmul(&p.s.act, [job])
    })?;
    let s = &mut *p.s;
    let out = layer.buffers(&mut s.mixer, n).q;
    p.adapting
        .add(Adapted::of_layer(l, Role::AttnQB, &s.act, out));
    Ok(())
}

/// `act = norm(a)`, with latent vectors of width `d`.
fn norm_queries(p: &mut Pass<'_>, layer: LatentLayer<'_>, d: usize) {
    let n = p.rows.len();
    let t = p.model.layer(layer.l);
    let kernels = p.kernels;
    let weight = t.vector(Role::AttnQANorm);
    let s = &mut *p.s;
    let from = &*layer.buffers(&mut s.mixer, n).q_latent;
    let layouts = t.layouts(&[Role::AttnQB]);
    s.act.fill(kernels, p.pool, (n, d), layouts, |row, out| {
        kernels.rms_norm(&from[row * d..][..d], weight, layer.latent.eps, out);
    });
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
