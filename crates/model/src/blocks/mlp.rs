//! The gated perceptron: every position thinks for itself.
//!
//! ```text
//! h = norm(x)
//! y = act(Wgate h) * (Wup h)                      one region
//! x += Wdown y                                    one region
//! ```

use atta_kernels::{Activation as Act, Gated, Job, Store};
use atta_store::Unit;

use super::{Normalize, Pass};
use crate::{
    Error, Phase, Role,
    spec::{Activation, Mlp},
};

/// `x += residual_scale * mlp(norm(x))` for layer `l`.
pub(crate) fn mlp(p: &mut Pass<'_>, l: usize) -> Result<(), Error> {
    let (n, model, kernels, s) = (p.rows.len(), p.model, p.kernels, &mut *p.s);
    let (layer, t, d) = (&model.spec().layers[l], model.layer(l), model.spec().d_model);
    let d_ff = layer.mlp().d_ff;
    p.observer.enter(Phase::Weights);
    let unit = model.weights().unit(Unit::Ffn(l))?;
    p.observer.enter(Phase::Other);
    let [gate, up, down] = [Role::FfnGate, Role::FfnUp, Role::FfnDown].map(|role| t.matrix(role, &unit));

    let (norm, weight, x) = (layer.pre_norms()[1], t.vector(Role::FfnNorm), &s.x);
    s.act.fill(kernels, p.pool, (n, d), gate.layout() | up.layout(), |t, out| {
        norm.apply(kernels, &x[t * d..(t + 1) * d], weight, out);
    });
    let activation = activation(layer.mlp());
    let [gate_bias, up_bias] = [Role::FfnGateBias, Role::FfnUpBias].map(|role| t.vector_opt(role));
    let out = &mut s.ff[..n * d_ff];
    p.observer.enter(Phase::Matmul);
    kernels.matmul_gated(p.pool, &s.act, Gated { gate, up, gate_bias, up_bias, activation, out });

    p.observer.enter(Phase::Other);
    let ff = &s.ff;
    s.act.fill(kernels, p.pool, (n, d_ff), down.layout(), |t, out| out.copy_from_slice(&ff[t * d_ff..(t + 1) * d_ff]));
    let (bias, mode) = (t.vector_opt(Role::FfnDownBias), Store::Add(layer.residual_scale));
    p.observer.enter(Phase::Matmul);
    kernels.matmul(p.pool, &s.act, &mut [Job { w: down, bias, out: &mut s.x[..n * d], mode }]);
    Ok(())
}

/// The nonlinearity of a perceptron, as the kernels call it.
pub(crate) fn activation(mlp: &Mlp) -> Act {
    match mlp.activation {
        Activation::Silu => Act::Silu,
        Activation::GeluTanh => Act::GeluTanh,
    }
}
