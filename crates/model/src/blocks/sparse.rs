//! The gated MLP most of whose gates are closed.
//!
//! ```text
//! h = pre(x)                                                      residual.rs
//! g = Wgate h;  u = Wup h                                         one region
//! y = act(max(g - mean(g) - deviations * std(g), 0)) * u          one region
//! x += post(Wdown y)                                              one region; residual.rs
//! ```

use atta_kernels::{Job, Store};
use atta_store::{Projection, WeightGroup};

use super::{Pass, mlp::act};
use crate::{
    Error, Role,
    adapters::Adapted,
    spec::{SparseMlp, Sublayer},
};

/// `x += residual_scale * post(mlp(pre(x)))` for layer `l`.
pub(crate) fn sparse_mlp(p: &mut Pass<'_>, l: usize, m: &SparseMlp) -> Result<(), Error> {
    p.enter(l, Sublayer::Ffn, &[Role::FfnGate, Role::FfnUp]);
    multiply(p, l, m.mlp.d_ff)?;
    close_gates(p, l, m);
    p.leave(l, Sublayer::Ffn, Role::FfnDown, Some(Role::FfnDownBias))
}

/// `g = Wgate h; u = Wup h`.
fn multiply(p: &mut Pass<'_>, l: usize, d_ff: usize) -> Result<(), Error> {
    let n = p.rows.len();
    let t = p.model.layer(l);
    p.each_chunk(WeightGroup::Layer(l, Projection::GateUp), |p, chunk| {
        let job = |w, bias, out| Job {
            w: t.matrix(w, chunk),
            bias: t.vector_opt(bias),
            out,
            mode: Store::Set,
        };
        let s = &mut *p.s;
        let gate = job(Role::FfnGate, Role::FfnGateBias, &mut s.gates[..n * d_ff]);
        let up = job(Role::FfnUp, Role::FfnUpBias, &mut s.ff[..n * d_ff]);
        p.products.matmul(&s.act, [gate, up])
    })?;
    let s = &mut *p.s;
    let gates = &mut s.gates[..n * d_ff];
    p.adapting
        .add(Adapted::of_layer(l, Role::FfnGate, &s.act, gates));
    let ups = &mut s.ff[..n * d_ff];
    p.adapting
        .add(Adapted::of_layer(l, Role::FfnUp, &s.act, ups));
    Ok(())
}

/// `act = y`.
fn close_gates(p: &mut Pass<'_>, l: usize, m: &SparseMlp) {
    let n = p.rows.len();
    let d_ff = m.mlp.d_ff;
    let kernels = p.kernels;
    let activation = act(m.mlp.activation);
    let layout = p.model.layer(l).layouts(&[Role::FfnDown]);
    let s = &mut *p.s;
    let gates = &s.gates;
    let ups = &s.ff;
    s.act.fill(kernels, p.pool, (n, d_ff), layout, |row, out| {
        let row = row * d_ff..(row + 1) * d_ff;
        out.copy_from_slice(&gates[row.clone()]);
        kernels.statistical_top_k(out, m.deviations);
        kernels.gate_row(activation, out, &ups[row]);
    });
}
