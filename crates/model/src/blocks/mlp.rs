//! The perceptron: every position thinks for itself.
//!
//! ```text
//! h = pre(x)                                      residual.rs
//! gated:  y = act(Wgate h) * (Wup h)              one region
//! plain:  y = act(Wup h)                          one region
//! x += post(Wdown sub(y))                         one region; residual.rs
//! ```

use atta_kernels::{Activation as Act, Gated, Job, Store};
use atta_store::{Guard, Unit};

use super::{Last, Pass};
use crate::{
    Error, Phase, Role,
    spec::{Activation, Half, Mlp, Norm},
};

/// `x += residual_scale * post(mlp(pre(x)))` for layer `l`, whose perceptron has a gate.
pub(crate) fn gated_mlp(p: &mut Pass<'_>, l: usize, m: &Mlp) -> Result<(), Error> {
    let (n, t, unit) = (p.rows.len(), p.model.layer(l), bring(p, l)?);
    let [gate, up] = [Role::FfnGate, Role::FfnUp].map(|role| t.matrix(role, &unit));
    p.enter(l, Half::Ffn, gate.layout() | up.layout());
    let [gate_bias, up_bias] = [Role::FfnGateBias, Role::FfnUpBias].map(|role| t.vector_opt(role));
    let (activation, out) = (act(m.activation), &mut p.s.ff[..n * m.d_ff]);
    p.observer.enter(Phase::Matmul);
    p.kernels.matmul_gated(p.pool, &p.s.act, Gated { gate, up, gate_bias, up_bias, activation, out });
    project_output(p, l, &unit, |_| ());
    Ok(())
}

/// The same without a gate; the hidden layer gets its activation when it is read.
pub(crate) fn plain_mlp(p: &mut Pass<'_>, l: usize, m: &Mlp) -> Result<(), Error> {
    let (n, t, unit) = (p.rows.len(), p.model.layer(l), bring(p, l)?);
    let w = t.matrix(Role::FfnUp, &unit);
    p.enter(l, Half::Ffn, w.layout());
    let (bias, out) = (t.vector_opt(Role::FfnUpBias), &mut p.s.ff[..n * m.d_ff]);
    p.observer.enter(Phase::Matmul);
    p.kernels.matmul(p.pool, &p.s.act, &mut [Job { w, bias, out, mode: Store::Set }]);
    let (kernels, activation) = (p.kernels, act(m.activation));
    project_output(p, l, &unit, |hidden| kernels.activate(activation, hidden));
    Ok(())
}

fn bring<'a>(p: &mut Pass<'a>, l: usize) -> Result<Guard<'a>, Error> {
    p.observer.enter(Phase::Weights);
    let unit = p.model.weights().unit(Unit::Ffn(l))?;
    p.observer.enter(Phase::Other);
    Ok(unit)
}

/// `x += residual_scale * post(Wdown sub(finish(hidden)) + b)`.
fn project_output(p: &mut Pass<'_>, l: usize, unit: &Guard<'_>, finish: impl Fn(&mut [f32]) + Sync) {
    let (n, t, kernels) = (p.rows.len(), p.model.layer(l), p.kernels);
    p.observer.enter(Phase::Other);
    let w = t.matrix(Role::FfnDown, unit);
    let (d_ff, ff, sub) = (w.d_in(), &p.s.ff, p.model.spec().layers[l].sub(Half::Ffn));
    p.s.act.fill(kernels, p.pool, (n, d_ff), w.layout(), |row, out| {
        out.copy_from_slice(&ff[row * d_ff..(row + 1) * d_ff]);
        finish(out);
        if let Some((Norm::Rms { eps }, role)) = sub {
            kernels.rms_norm_inplace(out, t.vector(role), eps);
        }
    });
    p.leave(l, Half::Ffn, Last { w, bias: t.vector_opt(Role::FfnDownBias) });
}

/// A nonlinearity, as the kernels call it.
pub(super) fn act(activation: Activation) -> Act {
    match activation {
        Activation::Silu => Act::Silu,
        Activation::GeluTanh => Act::GeluTanh,
        Activation::Relu2 => Act::Relu2,
        Activation::Clamped { alpha, limit } => Act::Clamped { alpha, limit },
    }
}
