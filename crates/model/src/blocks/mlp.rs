//! The perceptron: every position thinks for itself.
//!
//! ```text
//! h = pre(x)                                      residual.rs
//! gated:  y = act(Wgate h) * (Wup h)              one region
//! plain:  y = act(Wup h)                          one region
//! x += post(Wdown y)                              one region; residual.rs
//! ```

use atta_kernels::{Activation as Act, Gated, Job, Store};
use atta_store::{Guard, Unit};

use super::{Last, Pass};
use crate::{
    Error, Phase, Role,
    spec::{Activation, Ffn, Half, Mlp},
};

/// `x += residual_scale * post(mlp(pre(x)))` for layer `l`.
pub(crate) fn mlp(p: &mut Pass<'_>, l: usize) -> Result<(), Error> {
    let (model, layer) = (p.model, &p.model.spec().layers[l]);
    p.observer.enter(Phase::Weights);
    let unit = model.weights().unit(Unit::Ffn(l))?;
    p.observer.enter(Phase::Other);
    match &layer.ffn {
        Ffn::Gated(m) => gated(p, l, m, &unit),
        Ffn::Plain(m) => plain(p, l, m, &unit),
    }
    project_output(p, l, &layer.ffn, &unit);
    Ok(())
}

/// `y = act(Wgate h + b) * (Wup h + b)`.
fn gated(p: &mut Pass<'_>, l: usize, m: &Mlp, unit: &Guard<'_>) {
    let (n, t) = (p.rows.len(), p.model.layer(l));
    let [gate, up] = [Role::FfnGate, Role::FfnUp].map(|role| t.matrix(role, unit));
    p.enter(l, Half::Ffn, gate.layout() | up.layout());
    let [gate_bias, up_bias] = [Role::FfnGateBias, Role::FfnUpBias].map(|role| t.vector_opt(role));
    let (activation, out) = (act(m.activation), &mut p.s.ff[..n * m.d_ff]);
    p.observer.enter(Phase::Matmul);
    p.kernels.matmul_gated(p.pool, &p.s.act, Gated { gate, up, gate_bias, up_bias, activation, out });
    p.observer.enter(Phase::Other);
}

/// `y = Wup h + b`; its activation is left to whoever reads it.
fn plain(p: &mut Pass<'_>, l: usize, m: &Mlp, unit: &Guard<'_>) {
    let (n, t) = (p.rows.len(), p.model.layer(l));
    let w = t.matrix(Role::FfnUp, unit);
    p.enter(l, Half::Ffn, w.layout());
    let (bias, out) = (t.vector_opt(Role::FfnUpBias), &mut p.s.ff[..n * m.d_ff]);
    p.observer.enter(Phase::Matmul);
    p.kernels.matmul(p.pool, &p.s.act, &mut [Job { w, bias, out, mode: Store::Set }]);
    p.observer.enter(Phase::Other);
}

/// `x += residual_scale * post(Wdown y + b)`, where `y` of a plain perceptron gets its activation first.
fn project_output(p: &mut Pass<'_>, l: usize, ffn: &Ffn, unit: &Guard<'_>) {
    let (n, t, kernels) = (p.rows.len(), p.model.layer(l), p.kernels);
    let w = t.matrix(Role::FfnDown, unit);
    let (d_ff, ff) = (w.d_in(), &p.s.ff);
    p.s.act.fill(kernels, p.pool, (n, d_ff), w.layout(), |t, out| {
        out.copy_from_slice(&ff[t * d_ff..(t + 1) * d_ff]);
        if let Ffn::Plain(m) = ffn {
            kernels.activate(act(m.activation), out);
        }
    });
    p.leave(l, Half::Ffn, Last { w, bias: t.vector_opt(Role::FfnDownBias) });
}

fn act(activation: Activation) -> Act {
    match activation {
        Activation::Silu => Act::Silu,
        Activation::GeluTanh => Act::GeluTanh,
    }
}
