//! Attention: every position looks back at the ones before it.
//!
//! ```text
//! h = norm(x)
//! q, k, v = Wq h, Wk h, Wv h                      one region
//! q, k = rope(norm_head(q)), rope(norm_head(k))   one region each
//! cache[pos] = k, v
//! y = softmax(scale * q · K) V                    one region; K, V read back from the cache
//! x += Wo y                                       one region
//! ```

use atta_kernels::{Attention as Attend, AttnRow, Job, Store};
use atta_store::{Guard, Unit};

use super::{Normalize, Pass};
use crate::{
    Error, Phase, Role,
    spec::{Attention, LayerSpec, QkNorm},
};

/// `x += residual_scale * attention(norm(x))` for layer `l`.
pub(crate) fn attention(p: &mut Pass<'_>, l: usize) -> Result<(), Error> {
    let model = p.model;
    let layer = &model.spec().layers[l];
    p.observer.enter(Phase::Weights);
    let unit = model.weights().unit(Unit::Attn(l))?;
    p.observer.enter(Phase::Other);
    project_inputs(p, l, layer, &unit);
    rotate(p, l, layer.attention());
    remember(p, l, layer.attention());
    look_back(p, l, layer.attention());
    project_output(p, l, layer, &unit);
    Ok(())
}

/// `q, k, v = W norm(x) + b`.
fn project_inputs(p: &mut Pass<'_>, l: usize, layer: &LayerSpec, unit: &Guard<'_>) {
    let (n, a, s) = (p.rows.len(), layer.attention(), &mut *p.s);
    let (model, kernels, d) = (p.model, p.kernels, p.model.spec().d_model);
    let t = model.layer(l);
    let [wq, wk, wv] = [Role::AttnQ, Role::AttnK, Role::AttnV].map(|role| t.matrix(role, unit));
    let (norm, weight, x) = (layer.pre_norms()[0], t.vector(Role::AttnNorm), &s.x);
    s.act.fill(kernels, p.pool, (n, d), wq.layout() | wk.layout() | wv.layout(), |t, out| {
        norm.apply(kernels, &x[t * d..(t + 1) * d], weight, out);
    });
    let job = |w, bias, out| Job { w, bias: t.vector_opt(bias), out, mode: Store::Set };
    let mut jobs = [
        job(wq, Role::AttnQBias, &mut s.q[..n * a.d_q()]),
        job(wk, Role::AttnKBias, &mut s.k[..n * a.d_kv()]),
        job(wv, Role::AttnVBias, &mut s.v[..n * a.d_kv()]),
    ];
    p.observer.enter(Phase::Matmul);
    kernels.matmul(p.pool, &s.act, &mut jobs);
    p.observer.enter(Phase::Other);
}

/// `q, k = rope(norm_head(q)), rope(norm_head(k))`.
fn rotate(p: &mut Pass<'_>, l: usize, a: &Attention) {
    let (n, ropes, kernels) = (p.rows.len(), p.ropes, p.kernels);
    let tensors = p.model.layer(l);
    for (heads, width, role) in [(&mut p.s.q, a.d_q(), Role::AttnQNorm), (&mut p.s.k, a.d_kv(), Role::AttnKNorm)] {
        p.pool.for_each_row(&mut heads[..n * width], width, |t, row| {
            for head in row.chunks_exact_mut(a.d_head) {
                if let QkNorm::PerHead { eps } = a.qk_norm {
                    kernels.rms_norm_inplace(head, tensors.vector(role), eps);
                }
                ropes.rotate(kernels, l, t, head);
            }
        });
    }
}

/// Appends keys and values to the state of their sequences.
fn remember(p: &mut Pass<'_>, l: usize, a: &Attention) {
    let keys = p.s.k.chunks_exact(a.d_kv()).zip(p.s.v.chunks_exact(a.d_kv()));
    for (row, (k, v)) in p.rows.iter().zip(keys) {
        p.cache.store(l, row, p.kernels, [k, v]);
    }
}

/// `y = softmax(scale * q · K) V`, for every row over the positions that it sees.
fn look_back(p: &mut Pass<'_>, l: usize, a: &Attention) {
    let (n, rows, cache) = (p.rows.len(), p.rows, &*p.cache);
    let row = |t: usize| {
        let row = &rows[t];
        AttnRow { blocks: cache.table(l, row.seq), first: a.first_visible(row.pos), last: row.pos }
    };
    p.observer.enter(Phase::Attention);
    p.kernels.attention(
        p.pool,
        Attend {
            kv: cache.layer(l),
            q: &p.s.q[..n * a.d_q()],
            rows: &row,
            n_heads: a.n_heads,
            scale: a.scale,
            softcap: a.softcap,
            out: &mut p.s.heads[..n * a.d_q()],
            scratch: &mut p.s.attn,
        },
    );
}

/// `x += residual_scale * (Wo y + b)`.
fn project_output(p: &mut Pass<'_>, l: usize, layer: &LayerSpec, unit: &Guard<'_>) {
    let (n, d_q, s) = (p.rows.len(), layer.attention().d_q(), &mut *p.s);
    let (model, heads, t) = (p.model, &s.heads, p.model.layer(l));
    p.observer.enter(Phase::Other);
    let w = t.matrix(Role::AttnOutput, unit);
    s.act.fill(p.kernels, p.pool, (n, d_q), w.layout(), |t, out| out.copy_from_slice(&heads[t * d_q..(t + 1) * d_q]));
    let out = &mut s.x[..n * model.spec().d_model];
    let mode = Store::Add(layer.residual_scale);
    p.observer.enter(Phase::Matmul);
    p.kernels.matmul(p.pool, &s.act, &mut [Job { w, bias: t.vector_opt(Role::AttnOutputBias), out, mode }]);
}
