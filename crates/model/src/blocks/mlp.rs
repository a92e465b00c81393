//! The dense feed-forward block (MLP): every position by itself.
//!
//! ```text
//! h = pre(x)                                      residual.rs
//! gated:  y = act(Wgate h) * (Wup h)              one region
//! plain:  y = act(Wup h)                          one region
//! x += post(Wdown sub(y))                         one region; residual.rs
//! ```

use atta_kernels::{Activation as Act, Gated, Job, Store};
use atta_store::{Projection, WeightGroup};

use super::Pass;
use crate::{
    Error, Role,
    spec::{Activation, Mlp, Norm, Sublayer},
};

/// `x += residual_scale * post(mlp(pre(x)))` for layer `l`, whose MLP has a gate.
pub(crate) fn gated_mlp(p: &mut Pass<'_>, l: usize, m: &Mlp) -> Result<(), Error> {
    let n = p.rows.len();
    let t = p.model.layer(l);
    p.enter(l, Sublayer::Ffn, &[Role::FfnGate, Role::FfnUp]);
    let [gate_bias, up_bias] = [Role::FfnGateBias, Role::FfnUpBias].map(|role| t.vector_opt(role));
    let activation = act(m.activation);
    p.each_chunk(WeightGroup::Layer(l, Projection::GateUp), |p, chunk| {
        let [gate, up] = [Role::FfnGate, Role::FfnUp].map(|role| t.matrix(role, chunk));
        let out = &mut p.s.ff[..n * m.d_ff];
        let job = Gated {
            gate,
            up,
            gate_bias,
            up_bias,
            activation,
            out,
        };
        p.products.matmul_gated(&p.s.act, job)
    })?;
    project_output(p, l, m.d_ff, |_| ())
}

/// `x += residual_scale * post(mlp(pre(x)))` for an MLP without a gate. The activation is applied
/// when the hidden layer is read.
pub(crate) fn plain_mlp(p: &mut Pass<'_>, l: usize, m: &Mlp) -> Result<(), Error> {
    let n = p.rows.len();
    let t = p.model.layer(l);
    p.enter(l, Sublayer::Ffn, &[Role::FfnUp]);
    p.each_chunk(WeightGroup::Layer(l, Projection::GateUp), |p, chunk| {
        let w = t.matrix(Role::FfnUp, chunk);
        let bias = t.vector_opt(Role::FfnUpBias);
        let out = &mut p.s.ff[..n * m.d_ff];
        let job = Job {
            w,
            bias,
            out,
            mode: Store::Set,
        };
        p.products.matmul(&p.s.act, [job])
    })?;
    let kernels = p.kernels;
    let activation = act(m.activation);
    project_output(p, l, m.d_ff, |hidden| kernels.activate(activation, hidden))
}

/// `x += residual_scale * post(Wdown sub(finish(hidden)) + b)`.
fn project_output(
    p: &mut Pass<'_>,
    l: usize,
    d_ff: usize,
    finish: impl Fn(&mut [f32]) + Sync,
) -> Result<(), Error> {
    let n = p.rows.len();
    let t = p.model.layer(l);
    let kernels = p.kernels;
    let ff = &p.s.ff;
    let sub = p.model.spec().layers[l].sub(Sublayer::Ffn);
    p.s.act.fill(
        kernels,
        p.pool,
        (n, d_ff),
        t.layouts(&[Role::FfnDown]),
        |row, out| {
            out.copy_from_slice(&ff[row * d_ff..(row + 1) * d_ff]);
            finish(out);
            if let Some((Norm::Rms { eps }, role)) = sub {
                kernels.rms_norm_inplace(out, t.vector(role), eps);
            }
        },
    );
    p.leave(l, Sublayer::Ffn, Role::FfnDown, Some(Role::FfnDownBias))
}

/// The kernels' enumerator of a nonlinearity.
pub(super) fn act(activation: Activation) -> Act {
    match activation {
        Activation::Silu => Act::Silu,
        Activation::Gelu => Act::Gelu,
        Activation::GeluTanh => Act::GeluTanh,
        Activation::Relu2 => Act::Relu2,
        Activation::Xielu(x) => Act::Xielu {
            alpha_p: x.alpha_p,
            alpha_n: x.alpha_n,
            beta: x.beta,
            eps: x.eps,
        },
        Activation::Clamped { alpha, limit } => Act::Clamped { alpha, limit },
    }
}
