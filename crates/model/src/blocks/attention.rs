//! Attention: every position reads the keys and values of the positions that it sees.
//!
//! ```text
//! h = pre(x)                                      residual.rs
//! q, k, v = Wq h, Wk h, Wv h                      one region
//! v = norm(v)                                     one region, if there is a norm
//! q, k = temperature * rope(norm(q)), rope(norm(k))   one region each; or norm(rope(q)) …
//! cache[pos] = k, v                               divided by powers of two, if it holds codes
//! the positions that each row sees                indexer.rs, if there is one
//! y = softmax(scale * q · K, sink) V              one region; K, V read back from the cache
//! y = y ⊙ sigmoid(gate)                           head_gates.rs
//! x += post(Wo sub(y))                            one region; residual.rs
//! ```
//! Without `Wv`, `v` is `k` before its norm. A layer that attends to the keys and values of another
//! one computes `q` only.

use atta_kernels::{
    Attention as Attend, AttnRow, D_HEAD_MAX, Job, Kernels, Store, math::all_finite,
};
use atta_store::{ChunkGuard, Projection, WeightGroup};

use super::{
    Pass,
    head_gates::{gate_heads, take_queries},
    indexer::{choose_blocks, project_index},
    latent::{LatentLayer, latent_attention},
};
use crate::{
    Error, Phase, Role,
    adapters::Adapted,
    bind::Tensors,
    spec::{Attention, KvSource, Norm, OutputGate, QkNorm, Sublayer},
};

/// `x += residual_scale * post(attention(pre(x)))` for layer `l`.
pub(crate) fn attention(p: &mut Pass<'_>, l: usize, a: &Attention) -> Result<(), Error> {
    if let KvSource::Latent(latent) = &a.kv {
        return latent_attention(p, LatentLayer { l, a, latent });
    }
    project_inputs(p, l, a)?;
    if let KvSource::Own { v_norm, .. } = a.kv {
        make_values(p, l, a, v_norm);
    }
    rotate(p, l, a);
    if a.kv_layer().is_none() {
        append_kv(p, l, a);
    }
    choose_blocks(p, l, a);
    attend(p, l, a);
    gate_heads(p, a);
    project_output(p, l, a)
}

/// `q, k, v = W pre(x) + b`, and the gates of heads.
fn project_inputs(p: &mut Pass<'_>, l: usize, a: &Attention) -> Result<(), Error> {
    let roles = &[Role::AttnQ, Role::AttnK, Role::AttnV, Role::AttnGate];
    let has_v = p.model.layer(l).has_matrix(Role::AttnV);
    let roles = match (a.kv_layer(), has_v) {
        (Some(_), _) => &roles[..1],
        (None, false) => &roles[..2],
        (None, true) if a.gate == OutputGate::Heads => &roles[..],
        (None, true) => &roles[..3],
    };
    let of_indexer: &[Role] = match a.indexer {
        Some(_) => &[Role::IndexerQ, Role::IndexerK],
        None => &[],
    };
    let mut all = [Role::AttnQ; 6];
    let both = roles.iter().chain(of_indexer);
    all.iter_mut().zip(both).for_each(|(to, role)| *to = *role);
    let n_all = roles.len() + of_indexer.len();
    p.enter(l, Sublayer::Mixer, &all[..n_all]);
    p.each_chunk(WeightGroup::Layer(l, Projection::Qkv), |p, chunk| {
        multiply_inputs(p, p.model.layer(l), chunk, a, roles.len())?;
        project_index(p, l, a, chunk)
    })?;
    adapt_inputs(p, l, a, roles);
    take_queries(p, a);
    Ok(())
}

/// The first `n_roles` of queries, keys, values and gates of heads.
fn multiply_inputs(
    p: &mut Pass<'_>,
    t: &Tensors,
    chunk: &ChunkGuard<'_>,
    a: &Attention,
    n_roles: usize,
) -> Result<(), Error> {
    let n = p.rows.len();
    let s = &mut *p.s;
    let gates = &mut s.mixer[..n * a.d_gates()];
    let (q, gates) = match a.gate {
        OutputGate::Elements => (gates, &mut [][..]),
        OutputGate::None | OutputGate::Heads => (&mut s.q[..n * a.d_q()], gates),
    };
    let job = |w, bias, out| Job {
        w: t.matrix(w, chunk),
        bias: t.vector_opt(bias),
        out,
        mode: Store::Set,
    };
    let q = job(Role::AttnQ, Role::AttnQBias, q);
    if n_roles == 1 {
        return p.products.matmul(&s.act, [q]);
    }
    let k = job(Role::AttnK, Role::AttnKBias, &mut s.k[..n * a.d_kv()]);
    if n_roles == 2 {
        return p.products.matmul(&s.act, [q, k]);
    }
    let v = job(Role::AttnV, Role::AttnVBias, &mut s.v[..n * a.d_kv()]);
    if n_roles == 3 {
        return p.products.matmul(&s.act, [q, k, v]);
    }
    let gate = Job {
        bias: None,
        ..job(Role::AttnGate, Role::AttnQBias, gates)
    };
    p.products.matmul(&s.act, [q, k, v, gate])
}

/// Adds the adapters' parts to queries, keys, values and gates of heads.
fn adapt_inputs(p: &mut Pass<'_>, l: usize, a: &Attention, roles: &[Role]) {
    let n = p.rows.len();
    let s = &mut *p.s;
    for &role in roles {
        let out = match role {
            Role::AttnQ if a.gate == OutputGate::Elements => &mut s.mixer[..n * a.d_gates()],
            Role::AttnQ => &mut s.q[..n * a.d_q()],
            Role::AttnK => &mut s.k[..n * a.d_kv()],
            Role::AttnV => &mut s.v[..n * a.d_kv()],
            _ => &mut s.mixer[..n * a.d_gates()],
        };
        p.adapting.add(Adapted::of_layer(l, role, &s.act, out));
    }
}

/// The weight of a norm that has none.
static ONES: [f32; D_HEAD_MAX] = [1.0; D_HEAD_MAX];

/// `v = norm(v)`; `v = norm(k)` without a projection of values.
fn make_values(p: &mut Pass<'_>, l: usize, a: &Attention, v_norm: Option<f32>) {
    let n = p.rows.len() * a.d_kv();
    let kernels = p.kernels;
    let s = &mut *p.s;
    if !p.model.layer(l).has_matrix(Role::AttnV) {
        s.v[..n].copy_from_slice(&s.k[..n]);
    }
    if let Some(eps) = v_norm {
        let ones = &ONES[..a.d_head];
        p.pool.for_each_row(&mut s.v[..n], a.d_head, |_, head| {
            kernels.rms_norm_inplace(head, ones, eps);
        });
    }
}

/// `q, k = temperature * rope(norm(q)), rope(norm(k))`.
fn rotate(p: &mut Pass<'_>, l: usize, a: &Attention) {
    let n = p.rows.len();
    let ropes = p.ropes;
    let kernels = p.kernels;
    let tensors = p.model.layer(l);
    let k = (&mut p.s.k, a.d_kv(), Role::AttnKNorm);
    let k = a.kv_layer().is_none().then_some(k);
    for (heads, width, role) in std::iter::once((&mut p.s.q, a.d_q(), Role::AttnQNorm)).chain(k) {
        p.pool
            .for_each_row(&mut heads[..n * width], width, |t, row| {
                let weight = match a.qk_norm {
                    QkNorm::Unit { .. } => Some(&ONES[..a.d_head]),
                    _ => tensors.vector_opt(role),
                };
                if !a.norms_rotated() {
                    norm_heads(kernels, a, weight, row);
                }
                row.chunks_exact_mut(a.d_head)
                    .for_each(|head| ropes.rotate(kernels, l, t, head));
                if a.norms_rotated() {
                    norm_heads(kernels, a, weight, row);
                }
            });
    }
    scale_queries(p, a);
}

/// `q = temperature * q`, if there is one.
pub(super) fn scale_queries(p: &mut Pass<'_>, a: &Attention) {
    if let Some(temperature) = a.temperature {
        for (q, row) in p.s.q.chunks_exact_mut(a.d_q()).zip(p.rows) {
            let factor = temperature.at(row.pos);
            q.iter_mut().for_each(|q| *q *= factor);
        }
    }
}

/// Normalizes queries or keys of a position, `[n_heads, d_head]`, if there is a weight.
fn norm_heads(kernels: Kernels, a: &Attention, weight: Option<&[f32]>, row: &mut [f32]) {
    let Some(weight) = weight else { return };
    let heads = row.chunks_exact_mut(a.d_head);
    match a.qk_norm {
        QkNorm::None => {}
        QkNorm::PerHead { eps }
        | QkNorm::PerHeadIfThere { eps }
        | QkNorm::Unit { eps }
        | QkNorm::RotatedPerHead { eps } => {
            heads.for_each(|head| kernels.rms_norm_inplace(head, weight, eps));
        }
        QkNorm::LayerPerHead { eps, .. } => {
            let mut copy = [0.0; D_HEAD_MAX];
            for (head, weight) in heads.zip(weight.chunks_exact(a.d_head)) {
                let copy = &mut copy[..a.d_head];
                copy.copy_from_slice(head);
                kernels.layer_norm(copy, (weight, None), eps, head);
            }
        }
        QkNorm::Whole { eps } => kernels.rms_norm_inplace(row, weight, eps),
    }
}

/// Appends keys and values to the KV cache.
fn append_kv(p: &mut Pass<'_>, l: usize, a: &Attention) {
    let n = p.rows.len() * a.d_kv();
    let [balances_keys, balances_values] = p.cache.has_codes(l);
    let balance = p.model.balance(l);
    let s = &mut *p.s;
    if balances_keys {
        balance.divide_keys(&mut s.k[..n]);
    }
    if balances_values {
        balance.divide_values(&mut s.v[..n]);
    }
    let keys = s.k.chunks_exact(a.d_kv()).zip(s.v.chunks_exact(a.d_kv()));
    for ((row, (k, v)), q) in p.rows.iter().zip(keys).zip(s.q.chunks_exact_mut(a.d_q())) {
        p.cache.store(l, row, p.kernels, [k, v]);
        // The cache stores finite numbers only, so that stale numbers in a reused block cannot
        // reach another sequence. The query passes on a fault in keys or values.
        if !all_finite(k) || !all_finite(v) {
            q.fill(f32::NAN);
        }
    }
}

/// `y = softmax(scale * q · K) V`, for every row over the positions that it sees.
pub(super) fn attend(p: &mut Pass<'_>, l: usize, a: &Attention) {
    let n = p.rows.len();
    let rows = p.rows;
    let cache = &*p.cache;
    let [balances_keys, balances_values] = cache.has_codes(l);
    let balance = p.model.balance(a.kv_layer().unwrap_or(l));
    if balances_keys {
        balance.multiply_queries(a, &mut p.s.q[..n * a.d_q()]);
    }
    let indexer = &p.s.indexer;
    let row = |t: usize| {
        let row = &rows[t];
        AttnRow {
            chosen: a
                .indexer
                .as_ref()
                .and_then(|i| indexer.chosen(i, t, row.pos)),
            blocks: cache.table(l, row.seq),
            first: a.first_visible(row.pos),
            last: a.last_visible(row.pos, cache.seqs().len(row.seq).unwrap_or(0)),
            pos: row.pos,
        }
    };
    let slope = |head| a.slope(head);
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
            slopes: a.slopes.map(|_| &slope as _),
            sinks: p.model.layer(l).vector_opt(Role::AttnSinks),
            out: &mut p.s.heads[..n * a.d_q()],
            scratch: &mut p.s.attn,
        },
    );
    if balances_values {
        balance.multiply_results(a, &mut p.s.heads[..n * a.d_q()]);
    }
}

/// `x += residual_scale * post(Wo sub(y) + b)`.
fn project_output(p: &mut Pass<'_>, l: usize, a: &Attention) -> Result<(), Error> {
    let n = p.rows.len();
    let d_q = a.d_q();
    let t = p.model.layer(l);
    p.observer.enter(Phase::Other);
    let heads = &p.s.heads;
    let kernels = p.kernels;
    let sub = p.model.spec().layers[l].sub(Sublayer::Mixer);
    p.s.act.fill(
        kernels,
        p.pool,
        (n, d_q),
        t.layouts(&[Role::AttnOutput]),
        |row, out| {
            out.copy_from_slice(&heads[row * d_q..(row + 1) * d_q]);
            if let Some((Norm::Rms { eps }, role)) = sub {
                kernels.rms_norm_inplace(out, t.vector(role), eps);
            }
        },
    );
    p.leave(
        l,
        Sublayer::Mixer,
        Role::AttnOutput,
        Some(Role::AttnOutputBias),
    )
}
