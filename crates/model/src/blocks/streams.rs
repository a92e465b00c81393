//! Several residual streams: what a sublayer reads of them, how its result is added to them, and
//! how they begin and end.
//!
//! ```text
//! x_c = x                                       at the beginning; x: the embedding
//! N_c = norm_c(x_c)                             one region
//! low, w = W_down N, W_inject N                 one region; no w at the end
//! g = W_up silu(low / n)                        one region
//! x = mean over c of sigmoid(g_c) ⊙ N_c         one region; what the sublayer or the head reads
//! x_c += residual_scale * 2 sigmoid(w_c / n) y  one region; y: the result of the sublayer
//! ```
//! Sublayers, embeddings and the head know nothing of streams: their `x` is [`Scratch::x`], as
//! wide as one stream.

use atta_kernels::{Activation, Job, Store, math::sigmoid};
use atta_store::WeightGroup;

use super::{Pass, Scratch};
use crate::{
    Error, Placement, Role,
    bind::Tensors,
    spec::{ModelSpec, StreamKind, Streams, Sublayer, Wiring},
};

/// The streams of a batch; empty for a model of one stream.
pub(crate) struct StreamsScratch {
    /// `[n_rows, n, d_model]`.
    pub(crate) x: Vec<f32>,
    /// Normalized, `[n_rows, n, d_model]`.
    normed: Vec<f32>,
    /// Gates of the normalized streams, `[n_rows, n, d_model]`.
    gates: Vec<f32>,
    /// Their down projection, `[n_rows, rank]`.
    low: Vec<f32>,
    /// Weights of the result of the current sublayer, `[n_rows, n]`.
    inject: Vec<f32>,
}

impl StreamsScratch {
    pub(crate) fn new(spec: &ModelSpec, n_rows: usize) -> Self {
        let [x, normed, gates, low, inject] = widths(spec).map(|d| vec![0.0; n_rows * d]);
        Self {
            x,
            normed,
            gates,
            low,
            inject,
        }
    }

    /// Floats of a row.
    pub(crate) fn n_floats(spec: &ModelSpec) -> usize {
        widths(spec).into_iter().sum()
    }

    /// Width of the widest input of a matrix.
    pub(crate) fn d_act(spec: &ModelSpec) -> usize {
        widths(spec).into_iter().max().unwrap_or(0)
    }
}

/// Elements per row of the buffers, in order.
fn widths(spec: &ModelSpec) -> [usize; 5] {
    let Some(Streams { n, kind }) = spec.streams else {
        return [0; 5];
    };
    let d = spec.d_residual();
    match kind {
        StreamKind::HyperConnections { rank, .. } => [d, d, d, rank, n],
    }
}

impl Scratch {
    /// The residual that passes from layer to layer, `[n_rows, d_residual]`.
    pub(crate) fn residual(&mut self) -> &mut [f32] {
        match self.streams.x.is_empty() {
            true => &mut self.x,
            false => &mut self.streams.x,
        }
    }
}

/// The matrices and the norm that mix streams: of a sublayer, or of the end.
#[derive(Clone, Copy)]
struct MixRoles {
    norm: Role,
    /// What reads the normalized streams: the down projection, and the weights of a sublayer's
    /// result.
    down: &'static [Role],
    up: Role,
}

const MIXER: MixRoles = MixRoles {
    norm: Role::HcAttnNorm,
    down: &[Role::HcAttnDown, Role::HcAttnInject],
    up: Role::HcAttnUp,
};

const FFN: MixRoles = MixRoles {
    norm: Role::HcFfnNorm,
    down: &[Role::HcFfnDown, Role::HcFfnInject],
    up: Role::HcFfnUp,
};

const END: MixRoles = MixRoles {
    norm: Role::OutputHcNorm,
    down: &[Role::OutputHcDown],
    up: Role::OutputHcUp,
};

/// Gated hyper-connections with the tensors of layer `l`, or of the whole model.
#[derive(Clone, Copy)]
struct Mix<'a> {
    roles: MixRoles,
    tensors: &'a Tensors,
    l: usize,
    n: usize,
    rank: usize,
    eps: f32,
}

impl<'a> Mix<'a> {
    fn new(streams: Streams, roles: MixRoles, tensors: &'a Tensors, l: usize) -> Self {
        let StreamKind::HyperConnections { rank, eps } = streams.kind;
        Self {
            roles,
            tensors,
            l,
            n: streams.n,
            rank,
            eps,
        }
    }

    /// The weight group of a matrix.
    fn group(&self, role: Role) -> WeightGroup<'static> {
        match role.placement() {
            Placement::Layer(group) | Placement::LastLayer(group) => {
                WeightGroup::Layer(self.l, group)
            }
            _ => unreachable!("{role:?} is no matrix that every token needs"),
        }
    }

    /// Reports the input of these matrices, if they are of a layer.
    fn observe(&self, p: &mut Pass<'_>, roles: &[Role]) {
        if matches!(roles[0].placement(), Placement::Layer(_)) {
            p.observe_inputs(self.l, roles);
        }
    }
}

/// The streams as they begin, from the embedding `x`.
pub(crate) fn begin_streams(p: &mut Pass<'_>) {
    let Some(Streams { n, kind }) = p.model.spec().streams else {
        return;
    };
    let StreamKind::HyperConnections { .. } = kind;
    let d = p.model.spec().d_model;
    let s = &mut *p.s;
    let x = &s.x;
    let streams = &mut s.streams.x[..p.rows.len() * n * d];
    p.pool.for_each_row(streams, d, |i, stream| {
        stream.copy_from_slice(&x[i / n * d..][..d]);
    });
}

/// `x` = what a sublayer of layer `l` reads of the streams, if its layer reads them.
pub(crate) fn enter_streams(p: &mut Pass<'_>, l: usize, sublayer: Sublayer) -> Result<(), Error> {
    let Some(streams) = p.model.spec().streams else {
        return Ok(());
    };
    let roles = match sublayer {
        Sublayer::Mixer => MIXER,
        Sublayer::Ffn => FFN,
    };
    match p.model.spec().layers[l].wiring {
        Wiring::Streams => mix(p, Mix::new(streams, roles, p.model.layer(l), l)),
        _ => Ok(()),
    }
}

/// `x` = the streams behind the last layer, as one.
pub(crate) fn end_streams(p: &mut Pass<'_>) -> Result<(), Error> {
    let Some(streams) = p.model.spec().streams else {
        return Ok(());
    };
    let last = p.model.spec().layers.len() - 1;
    mix(p, Mix::new(streams, END, p.model.globals(), last))
}

/// `x_c += scale * 2 sigmoid(w_c / n) y`.
pub(crate) fn add_to_streams(p: &mut Pass<'_>, scale: f32) {
    let Some(Streams { n, .. }) = p.model.spec().streams else {
        return;
    };
    let d = p.model.spec().d_model;
    let kernels = p.kernels;
    let s = &mut *p.s;
    let y = &s.y;
    let inject = &s.streams.inject;
    let streams = &mut s.streams.x[..p.rows.len() * n * d];
    p.pool.for_each_row(streams, d, |i, stream| {
        let factor = scale * 2.0 * sigmoid(inject[i] / n as f32);
        kernels.add_multiple(stream, factor, &y[i / n * d..][..d]);
    });
}

/// `x = mean over c of sigmoid(g_c) ⊙ N_c`.
fn mix(p: &mut Pass<'_>, m: Mix<'_>) -> Result<(), Error> {
    normalize(p, m);
    project_down(p, m)?;
    project_up(p, m)?;
    let d = p.model.spec().d_model;
    let kernels = p.kernels;
    let s = &mut *p.s;
    let n_floats = p.rows.len() * m.n * d;
    let normed = &s.streams.normed;
    let gates = &mut s.streams.gates[..n_floats];
    p.pool.for_each_row(gates, d, |i, gate| {
        kernels.gate_row(Activation::Sigmoid, gate, &normed[i * d..][..d]);
    });
    let gated = &s.streams.gates;
    let x = &mut s.x[..p.rows.len() * d];
    p.pool.for_each_row(x, d, |row, x| {
        x.fill(0.0);
        let gated = &gated[row * m.n * d..][..m.n * d];
        gated
            .chunks_exact(d)
            .for_each(|gated| kernels.add_multiple(x, 1.0 / m.n as f32, gated));
    });
    Ok(())
}

/// `N_c = norm_c(x_c)`.
fn normalize(p: &mut Pass<'_>, m: Mix<'_>) {
    let d = p.model.spec().d_model;
    let weight = m.tensors.vector(m.roles.norm);
    let kernels = p.kernels;
    let s = &mut *p.s;
    let x = &s.streams.x;
    let normed = &mut s.streams.normed[..p.rows.len() * m.n * d];
    p.pool.for_each_row(normed, d, |i, normed| {
        let weight = &weight[i % m.n * d..][..d];
        kernels.rms_norm(&x[i * d..][..d], weight, m.eps, normed);
    });
}

/// `low, w = W_down N, W_inject N`.
fn project_down(p: &mut Pass<'_>, m: Mix<'_>) -> Result<(), Error> {
    let n_rows = p.rows.len();
    let d = p.model.spec().d_residual();
    let s = &mut *p.s;
    let normed = &s.streams.normed;
    let layouts = m.tensors.layouts(m.roles.down);
    s.act
        .fill(p.kernels, p.pool, (n_rows, d), layouts, |row, out| {
            out.copy_from_slice(&normed[row * d..][..d]);
        });
    m.observe(p, m.roles.down);
    p.each_chunk(m.group(m.roles.down[0]), |p, chunk| {
        let StreamsScratch { low, inject, .. } = &mut p.s.streams;
        let outs = [&mut low[..n_rows * m.rank], &mut inject[..n_rows * m.n]];
        let jobs = m.roles.down.iter().zip(outs).map(|(&role, out)| Job {
            w: m.tensors.matrix(role, chunk),
            bias: None,
            out,
            mode: Store::Set,
        });
        for job in jobs {
            p.products.matmul(&p.s.act, [job])?;
        }
        Ok(())
    })
}

/// `g = W_up silu(low / n)`.
fn project_up(p: &mut Pass<'_>, m: Mix<'_>) -> Result<(), Error> {
    let n_rows = p.rows.len();
    let d = p.model.spec().d_residual();
    let kernels = p.kernels;
    let s = &mut *p.s;
    let low = &s.streams.low;
    let layouts = m.tensors.layouts(&[m.roles.up]);
    s.act
        .fill(kernels, p.pool, (n_rows, m.rank), layouts, |row, out| {
            out.fill(0.0);
            kernels.add_multiple(out, 1.0 / m.n as f32, &low[row * m.rank..][..m.rank]);
            kernels.activate(Activation::Silu, out);
        });
    m.observe(p, &[m.roles.up]);
    p.each_chunk(m.group(m.roles.up), |p, chunk| {
        let job = Job {
            w: m.tensors.matrix(m.roles.up, chunk),
            bias: None,
            out: &mut p.s.streams.gates[..n_rows * d],
            mode: Store::Set,
        };
        p.products.matmul(&p.s.act, [job])
    })
}
