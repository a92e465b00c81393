//! Mamba: a state per channel, whose elements each forget at a rate of their own.
//!
//! ```text
//! x, z = W pre(x)                                 one region
//! x = silu(conv(x) + bias)                        one region; conv.rs
//! dt, b, c = norm(Wx x)                           two regions
//! step = softplus(Wdt dt + bias)                  three regions
//! S, y = scan(q = c, k = b, v = x, decay = exp(a step), step) + d x    one for each run
//! x += post(Wout (y ⊙ silu(z)))                   one region; residual.rs
//! state = the last n_taps - 1 x, S
//! ```

use atta_kernels::{Activation, Decay, Job, Scan, Store, Strided};
use atta_store::{Projection, WeightGroup};

use super::{Pass, conv::Conv, history::History};
use crate::{
    Error, Phase, Role,
    adapters::Adapted,
    spec::{Mamba, StateNorms, Sublayer},
};

/// `x += residual_scale * post(mamba(pre(x)))` for layer `l`.
pub(crate) fn mamba(p: &mut Pass<'_>, l: usize, mamba: &Mamba) -> Result<(), Error> {
    project_inputs(p, l, mamba)?;
    convolve(p, l, mamba);
    project_selection(p, l, mamba)?;
    norm_selection(p, l, mamba);
    project_steps(p, l, mamba)?;
    p.observer.enter(Phase::Scan);
    scan(p, l, mamba);
    p.observer.enter(Phase::Other);
    project_output(p, l, mamba)
}

/// The buffers of a batch, parts of [`Scratch::mixer`](super::Scratch::mixer).
struct MambaBuffers<'a> {
    /// Inputs of the convolution and gates, `[n_rows, 2 d_inner]`.
    projected: &'a mut [f32],
    /// Results of the convolution, `[n_rows, d_inner]`.
    x: &'a mut [f32],
    /// Inputs of steps, `b` and `c`, `[n_rows, d_selection]`.
    selection: &'a mut [f32],
    /// `[n_rows, d_inner]`.
    steps: &'a mut [f32],
}

impl<'a> MambaBuffers<'a> {
    fn new(all: &'a mut [f32], n_rows: usize, mamba: &Mamba) -> Self {
        let n_inner = n_rows * mamba.d_inner;
        let (projected, rest) = all.split_at_mut(2 * n_inner);
        let (x, rest) = rest.split_at_mut(n_inner);
        let (steps, rest) = rest.split_at_mut(n_inner);
        Self {
            projected,
            x,
            selection: &mut rest[..n_rows * mamba.d_selection()],
            steps,
        }
    }
}

/// `x, z = W pre(x)`.
fn project_inputs(p: &mut Pass<'_>, l: usize, mamba: &Mamba) -> Result<(), Error> {
    let n = p.rows.len();
    let t = p.model.layer(l);
    p.enter(l, Sublayer::Mixer, &[Role::SsmIn]);
    p.each_chunk(WeightGroup::Layer(l, Projection::SsmIn), |p, chunk| {
        let s = &mut *p.s;
        let job = Job {
            w: t.matrix(Role::SsmIn, chunk),
            bias: None,
            out: MambaBuffers::new(&mut s.mixer, n, mamba).projected,
            mode: Store::Set,
        };
        p.products.matmul(&s.act, [job])
    })?;
    let s = &mut *p.s;
    let out = MambaBuffers::new(&mut s.mixer, n, mamba).projected;
    p.adapting
        .add(Adapted::of_layer(l, Role::SsmIn, &s.act, out));
    Ok(())
}

/// `x = silu(conv(x) + bias)`; keeps the inputs of the convolution.
fn convolve(p: &mut Pass<'_>, l: usize, mamba: &Mamba) {
    let kernels = p.kernels;
    let t = p.model.layer(l);
    let MambaBuffers { projected, x, .. } = MambaBuffers::new(&mut p.s.mixer, p.rows.len(), mamba);
    let conv = Conv {
        n_taps: mamba.n_taps,
        dilation: 1,
        bias: t.vector_opt(Role::SsmConvBias),
        past: History {
            layer: l,
            len: mamba.n_taps - 1,
            d: mamba.d_inner,
            at: 0,
            inputs: Strided {
                data: projected,
                stride: 2 * mamba.d_inner,
                at: 0,
            },
            steps: p.steps,
        },
    };
    let cache = &*p.cache;
    let taps = t.vector(Role::SsmConv);
    p.pool.for_each_row(x, mamba.d_inner, |row, x| {
        conv.apply(kernels, cache, taps, row, x);
        kernels.activate(Activation::Silu, x);
    });
    conv.keep_states(p.cache);
}

/// `dt, b, c = Wx x`.
fn project_selection(p: &mut Pass<'_>, l: usize, mamba: &Mamba) -> Result<(), Error> {
    let n = p.rows.len();
    let d = mamba.d_inner;
    let t = p.model.layer(l);
    let s = &mut *p.s;
    let x = &*MambaBuffers::new(&mut s.mixer, n, mamba).x;
    let layouts = t.layouts(&[Role::SsmX]);
    s.act.fill(p.kernels, p.pool, (n, d), layouts, |row, out| {
        out.copy_from_slice(&x[row * d..][..d]);
    });
    p.observe_inputs(l, &[Role::SsmX]);
    p.each_chunk(WeightGroup::Layer(l, Projection::SsmX), |p, chunk| {
        let s = &mut *p.s;
        let job = Job {
            w: t.matrix(Role::SsmX, chunk),
            bias: None,
            out: MambaBuffers::new(&mut s.mixer, n, mamba).selection,
            mode: Store::Set,
        };
        p.products.matmul(&s.act, [job])
    })
}

/// Normalizes the inputs of steps, `b` and `c`, if there are norms of them.
fn norm_selection(p: &mut Pass<'_>, l: usize, mamba: &Mamba) {
    let kernels = p.kernels;
    let t = p.model.layer(l);
    let weights = [Role::SsmDtNorm, Role::SsmBNorm, Role::SsmCNorm].map(|role| t.vector_opt(role));
    let selection = MambaBuffers::new(&mut p.s.mixer, p.rows.len(), mamba).selection;
    if mamba.norms == StateNorms::None {
        return;
    }
    p.pool
        .for_each_row(selection, mamba.d_selection(), |_, row| {
            for (x, weight) in mamba.selection(row).into_iter().zip(weights) {
                match (mamba.norms, weight) {
                    (StateNorms::Weighted { eps }, Some(weight)) => {
                        kernels.rms_norm_inplace(x, weight, eps);
                    }
                    (StateNorms::Unit { eps }, _) => {
                        let n = x.len() as f32;
                        kernels.l2_norm_inplace(x, n * eps, n.sqrt());
                    }
                    _ => {}
                }
            }
        });
}

/// `step = softplus(Wdt dt + bias)`.
fn project_steps(p: &mut Pass<'_>, l: usize, mamba: &Mamba) -> Result<(), Error> {
    let n = p.rows.len();
    let kernels = p.kernels;
    let t = p.model.layer(l);
    let s = &mut *p.s;
    let selection = &*MambaBuffers::new(&mut s.mixer, n, mamba).selection;
    let d = mamba.d_rank;
    let d_selection = mamba.d_selection();
    let layouts = t.layouts(&[Role::SsmDt]);
    s.act.fill(kernels, p.pool, (n, d), layouts, |row, out| {
        out.copy_from_slice(&selection[row * d_selection..][..d]);
    });
    p.observe_inputs(l, &[Role::SsmDt]);
    p.each_chunk(WeightGroup::Layer(l, Projection::SsmDt), |p, chunk| {
        let s = &mut *p.s;
        let job = Job {
            w: t.matrix(Role::SsmDt, chunk),
            bias: Some(t.vector(Role::SsmDtBias)),
            out: MambaBuffers::new(&mut s.mixer, n, mamba).steps,
            mode: Store::Set,
        };
        p.products.matmul(&s.act, [job])
    })?;
    let steps = MambaBuffers::new(&mut p.s.mixer, n, mamba).steps;
    p.pool.for_each_row(steps, mamba.d_inner, |_, steps| {
        kernels.activate(Activation::Softplus, steps);
    });
    Ok(())
}

/// `S, y = scan(q = c, k = b, v = x, decay = exp(a step), step) + d x`.
fn scan(p: &mut Pass<'_>, l: usize, mamba: &Mamba) {
    let n = p.rows.len();
    let t = p.model.layer(l);
    let s = &mut *p.s;
    let buffers = MambaBuffers::new(&mut s.mixer, n, mamba);
    let [x, steps] = [&*buffers.x, &*buffers.steps].map(|data| Strided {
        data,
        stride: mamba.d_inner,
        at: 0,
    });
    let selection = &*buffers.selection;
    let [b, c] = [0, mamba.d_state].map(|at| Strided {
        data: selection,
        stride: mamba.d_selection(),
        at: mamba.d_rank + at,
    });
    for run in p.runs {
        let states = mamba.conv_floats()..mamba.state_floats();
        let (before, after) = p.cache.state_pair(l, run, states);
        let scan = Scan {
            n_heads: 1,
            key_head: &|_| 0,
            d_key: mamba.d_state,
            d_value: mamba.d_inner,
            is_delta: false,
            skip: Some(t.vector(Role::SsmD)),
            rows: p.runs.rows(run),
            q: c,
            k: b,
            v: x,
            decay: Decay::OfElements(t.vector(Role::SsmA)),
            gain: steps,
            before,
            after,
            out: &mut s.heads[..n * mamba.d_inner],
        };
        p.kernels.scan(p.pool, scan);
    }
}

/// `x += residual_scale * post(Wout (y ⊙ silu(z)))`.
fn project_output(p: &mut Pass<'_>, l: usize, mamba: &Mamba) -> Result<(), Error> {
    let n = p.rows.len();
    let d = mamba.d_inner;
    let kernels = p.kernels;
    let layouts = p.model.layer(l).layouts(&[Role::SsmOut]);
    let s = &mut *p.s;
    let projected = &*MambaBuffers::new(&mut s.mixer, n, mamba).projected;
    let heads = &s.heads;
    s.act.fill(kernels, p.pool, (n, d), layouts, |row, out| {
        out.copy_from_slice(&projected[(2 * row + 1) * d..][..d]);
        kernels.gate_row(Activation::Silu, out, &heads[row * d..][..d]);
    });
    p.leave(l, Sublayer::Mixer, Role::SsmOut, None)
}
