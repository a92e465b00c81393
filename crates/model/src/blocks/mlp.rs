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
    adapters::{Adapted, Adapting},
    spec::{Activation, Mlp, Norm, Sublayer},
};

/// `x += residual_scale * post(mlp(pre(x)))` for layer `l`, whose MLP has a gate.
pub(crate) fn gated_mlp(p: &mut Pass<'_>, l: usize, m: &Mlp) -> Result<(), Error> {
    let t = p.model.layer(l);
    p.enter(l, Sublayer::Ffn, &[Role::FfnGate, Role::FfnUp]);
    let bias = [Role::FfnGateBias, Role::FfnUpBias].map(|role| t.vector_opt(role));
    let roles = [Role::FfnGate, Role::FfnUp];
    multiply_gated(p, l, m, GatedMatrices { roles, bias })?;
    project_output(p, l, m.d_ff, |_| ())
}

/// Gate and up of an MLP, and their biases.
pub(super) struct GatedMatrices<'a> {
    pub(super) roles: [Role; 2],
    pub(super) bias: [Option<&'a [f32]>; 2],
}

/// `ff = act(Wgate act + b) * (Wup act + b)`.
pub(super) fn multiply_gated(
    p: &mut Pass<'_>,
    l: usize,
    m: &Mlp,
    matrices: GatedMatrices<'_>,
) -> Result<(), Error> {
    let GatedMatrices { roles, bias } = matrices;
    if p.adapting.has(Some(l), &roles) {
        return multiply_apart(p, l, m, matrices);
    }
    let n = p.rows.len();
    let t = p.model.layer(l);
    p.each_chunk(WeightGroup::Layer(l, Projection::GateUp), |p, chunk| {
        let [gate, up] = roles.map(|role| t.matrix(role, chunk));
        let job = Gated {
            gate,
            up,
            gate_bias: bias[0],
            up_bias: bias[1],
            activation: act(m.activation),
            out: &mut p.s.ff[..n * m.d_ff],
        };
        p.products.matmul_gated(&p.s.act, job)
    })
}

/// As [`multiply_gated`], the same numbers for rows without adapters: both factors, to which
/// adapters add, then their product.
fn multiply_apart(
    p: &mut Pass<'_>,
    l: usize,
    m: &Mlp,
    GatedMatrices { roles, bias }: GatedMatrices<'_>,
) -> Result<(), Error> {
    let n = p.rows.len() * m.d_ff;
    let t = p.model.layer(l);
    let mut ups = std::mem::take(&mut p.adapting.s.ups);
    let done = p.each_chunk(WeightGroup::Layer(l, Projection::GateUp), |p, chunk| {
        let job = |i: usize, out| Job {
            w: t.matrix(roles[i], chunk),
            bias: bias[i],
            out,
            mode: Store::Set,
        };
        let gate = job(0, &mut p.s.ff[..n]);
        let up = job(1, &mut ups[..n]);
        p.products.matmul(&p.s.act, [gate, up])
    });
    let s = &mut *p.s;
    for (role, out) in roles.into_iter().zip([&mut s.ff[..n], &mut ups[..n]]) {
        p.adapting.add(Adapted::of_layer(l, role, &s.act, out));
    }
    p.adapting.gate(m, &mut s.ff[..n], &ups[..n]);
    p.adapting.s.ups = ups;
    done
}

impl Adapting<'_> {
    /// `gates = act(gates) * ups`, rows of `[d_ff]`: what kernels do with both products at once.
    pub(super) fn gate(&self, m: &Mlp, gates: &mut [f32], ups: &[f32]) {
        let kernels = self.kernels;
        let activation = act(m.activation);
        self.pool.for_each_row(gates, m.d_ff, |row, gates| {
            kernels.gate_row(activation, gates, &ups[row * m.d_ff..][..m.d_ff]);
        });
    }
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
    let s = &mut *p.s;
    let out = &mut s.ff[..n * m.d_ff];
    p.adapting
        .add(Adapted::of_layer(l, Role::FfnUp, &s.act, out));
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
