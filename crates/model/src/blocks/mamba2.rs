//! Mamba 2: linear attention with a state per head, whose keys and queries groups of heads share.
//!
//! ```text
//! z, xbc, dt = W pre(x)                           one region
//! x, b, c = silu(conv(xbc) + bias)                one region; conv.rs
//! step = max(softplus(dt + dt_bias), min_step), decay = exp(a step)
//! S, y = scan(q = c, k = b, v = x, decay, step) + d x    one region for each run of positions
//! x += post(Wout norm(y ⊙ silu(z)))               one region; residual.rs
//! state = the last n_taps - 1 xbc, S
//! ```

use atta_kernels::{Activation, Decay, Job, Scan, Store, Strided, math::exp};
use atta_store::{Projection, WeightGroup};

use super::{Pass, conv::Conv, history::History};
use crate::{
    Error, Phase, Role,
    adapters::Adapted,
    spec::{Mamba2, Sublayer},
};

/// `x += residual_scale * post(mamba2(pre(x)))` for layer `l`.
pub(crate) fn mamba2(p: &mut Pass<'_>, l: usize, mamba: &Mamba2) -> Result<(), Error> {
    project_inputs(p, l, mamba)?;
    p.observer.enter(Phase::Scan);
    convolve(p, l, mamba);
    scan(p, l, mamba);
    p.observer.enter(Phase::Other);
    project_output(p, l, mamba)
}

/// The buffers of a batch, parts of [`Scratch::mixer`](super::Scratch::mixer): `z`, `xbc` and `dt`,
/// `[n_rows, d_in]`, and what a scan reads: `x`, `b`, `c`, decays and steps, `[n_rows, d_scanned]`.
fn buffers<'a>(all: &'a mut [f32], n_rows: usize, mamba: &Mamba2) -> [&'a mut [f32]; 2] {
    let (projected, rest) = all.split_at_mut(n_rows * mamba.d_in());
    [projected, &mut rest[..n_rows * mamba.d_scanned()]]
}

/// `z, xbc, dt = W pre(x)`.
fn project_inputs(p: &mut Pass<'_>, l: usize, mamba: &Mamba2) -> Result<(), Error> {
    let n = p.rows.len();
    let t = p.model.layer(l);
    p.enter(l, Sublayer::Mixer, &[Role::SsmIn]);
    p.each_chunk(WeightGroup::Layer(l, Projection::SsmIn), |p, chunk| {
        let s = &mut *p.s;
        let [out, _] = buffers(&mut s.mixer, n, mamba);
        let job = Job {
            w: t.matrix(Role::SsmIn, chunk),
            bias: None,
            out,
            mode: Store::Set,
        };
        p.products.matmul(&s.act, [job])
    })?;
    let s = &mut *p.s;
    let [out, _] = buffers(&mut s.mixer, n, mamba);
    p.adapting
        .add(Adapted::of_layer(l, Role::SsmIn, &s.act, out));
    Ok(())
}

/// `x`, `b`, `c`, decays and steps of every row; keeps the inputs of the convolution.
fn convolve(p: &mut Pass<'_>, l: usize, mamba: &Mamba2) {
    let kernels = p.kernels;
    let t = p.model.layer(l);
    let [projected, scanned] = buffers(&mut p.s.mixer, p.rows.len(), mamba);
    let conv = Conv {
        n_taps: mamba.n_taps,
        dilation: 1,
        bias: t.vector_opt(Role::SsmConvBias),
        past: History {
            layer: l,
            len: mamba.n_taps - 1,
            d: mamba.d_conv(),
            at: 0,
            inputs: Strided {
                data: projected,
                stride: mamba.d_in(),
                at: mamba.d_inner(),
            },
            steps: p.steps,
        },
    };
    let cache = &*p.cache;
    let taps = t.vector(Role::SsmConv);
    let [bias, a] = [Role::SsmDtBias, Role::SsmA].map(|role| t.vector(role));
    p.pool.for_each_row(scanned, mamba.d_scanned(), |row, out| {
        let (xbc, out) = out.split_at_mut(mamba.d_conv());
        conv.apply(kernels, cache, taps, row, xbc);
        kernels.activate(Activation::Silu, xbc);
        let (decays, steps) = out.split_at_mut(mamba.n_heads);
        let dt = &projected[(row + 1) * mamba.d_in() - mamba.n_heads..];
        for ((step, dt), bias) in steps.iter_mut().zip(dt).zip(bias) {
            *step = dt + bias;
        }
        kernels.activate(Activation::Softplus, steps);
        for ((decay, step), a) in decays.iter_mut().zip(steps).zip(a) {
            *step = step.max(mamba.min_step);
            *decay = exp(a * *step);
        }
    });
    conv.keep_states(p.cache);
}

/// `S, y = scan(q = c, k = b, v = x, decay, step) + d x`.
fn scan(p: &mut Pass<'_>, l: usize, mamba: &Mamba2) {
    let n = p.rows.len();
    let skip = Some(p.model.layer(l).vector(Role::SsmD));
    let s = &mut *p.s;
    let [_, scanned] = buffers(&mut s.mixer, n, mamba);
    let scanned = &*scanned;
    let part = |at| Strided {
        data: scanned,
        stride: mamba.d_scanned(),
        at,
    };
    let b = mamba.d_inner();
    for run in p.runs {
        let (before, after) = p
            .cache
            .state_pair(l, run, mamba.conv_floats()..mamba.state_floats());
        p.kernels.scan(
            p.pool,
            Scan {
                n_heads: mamba.n_heads,
                key_head: &|h| h / (mamba.n_heads / mamba.n_groups),
                d_key: mamba.d_state,
                d_value: mamba.d_head,
                is_delta: false,
                skip,
                rows: p.runs.rows(run),
                q: part(b + mamba.d_states()),
                k: part(b),
                v: part(0),
                decay: Decay::OfHeads(part(mamba.d_conv())),
                gain: part(mamba.d_conv() + mamba.n_heads),
                before,
                after,
                out: &mut s.heads[..n * mamba.d_inner()],
            },
        );
    }
}

/// `x += residual_scale * post(Wout norm(y ⊙ silu(z)))`.
fn project_output(p: &mut Pass<'_>, l: usize, mamba: &Mamba2) -> Result<(), Error> {
    let n = p.rows.len();
    let d = mamba.d_inner();
    let t = p.model.layer(l);
    let kernels = p.kernels;
    let weight = t.vector_opt(Role::SsmNorm);
    let s = &mut *p.s;
    let [projected, _] = buffers(&mut s.mixer, n, mamba);
    let heads = &s.heads;
    s.act.fill(
        kernels,
        p.pool,
        (n, d),
        t.layouts(&[Role::SsmOut]),
        |row, out| {
            out.copy_from_slice(&projected[row * mamba.d_in()..][..d]);
            kernels.gate_row(Activation::Silu, out, &heads[row * d..(row + 1) * d]);
            let d_group = d / mamba.n_groups;
            let groups = out.chunks_exact_mut(d_group);
            for (y, weight) in groups.zip(weight.iter().flat_map(|w| w.chunks_exact(d_group))) {
                kernels.rms_norm_inplace(y, weight, mamba.eps);
            }
        },
    );
    p.leave(l, Sublayer::Mixer, Role::SsmOut, None)
}
