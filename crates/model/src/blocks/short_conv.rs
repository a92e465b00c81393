//! Gated short convolution: every position sees the last few, element by element.
//!
//! ```text
//! b, c, x = Win pre(x)                            one region
//! g = b ⊙ x                                       one region
//! y[pos] = c[pos] ⊙ Σ_j w[j] ⊙ g[pos - n_taps + 1 + j]    one region; conv.rs
//! x += post(Wout y)                               one region; residual.rs
//! state = the last n_taps - 1 g
//! ```

use atta_kernels::{Job, Store, Strided};
use atta_store::{Projection, WeightGroup};

use super::{Pass, conv::Conv, history::History};
use crate::{
    Error, Phase, Role,
    adapters::Adapted,
    spec::{ShortConv, Sublayer},
};

/// `x += residual_scale * post(short_conv(pre(x)))` for layer `l`.
pub(crate) fn short_conv(p: &mut Pass<'_>, l: usize, conv: &ShortConv) -> Result<(), Error> {
    project_inputs(p, l)?;
    p.observer.enter(Phase::Scan);
    gate_inputs(p);
    convolve(p, l, conv);
    p.observer.enter(Phase::Other);
    p.leave(l, Sublayer::Mixer, Role::ShortconvOutProj, None)
}

/// `b, c, x = Win pre(x)`.
fn project_inputs(p: &mut Pass<'_>, l: usize) -> Result<(), Error> {
    let n = p.rows.len();
    let t = p.model.layer(l);
    let d_in = ShortConv::N_INPUTS * p.model.spec().d_model;
    p.enter(l, Sublayer::Mixer, &[Role::ShortconvInProj]);
    p.each_chunk(WeightGroup::Layer(l, Projection::Qkv), |p, chunk| {
        let s = &mut *p.s;
        let job = Job {
            w: t.matrix(Role::ShortconvInProj, chunk),
            bias: None,
            out: &mut s.mixer[..n * d_in],
            mode: Store::Set,
        };
        p.products.matmul(&s.act, [job])
    })?;
    let s = &mut *p.s;
    let out = &mut s.mixer[..n * d_in];
    p.adapting
        .add(Adapted::of_layer(l, Role::ShortconvInProj, &s.act, out));
    Ok(())
}

/// `g = b ⊙ x`, in the place of `b`.
fn gate_inputs(p: &mut Pass<'_>) {
    let d = p.model.spec().d_model;
    let d_in = ShortConv::N_INPUTS * d;
    let rows = &mut p.s.mixer[..p.rows.len() * d_in];
    p.pool.for_each_row(rows, d_in, |_, row| {
        let (b, rest) = row.split_at_mut(d);
        b.iter_mut().zip(&rest[d..]).for_each(|(b, x)| *b *= x);
    });
}

/// `y[pos] = c[pos] ⊙ Σ_j w[j] ⊙ g[pos - n_taps + 1 + j]`, the input of the output projection.
fn convolve(p: &mut Pass<'_>, l: usize, short_conv: &ShortConv) {
    let t = p.model.layer(l);
    let kernels = p.kernels;
    let d = p.model.spec().d_model;
    let d_in = ShortConv::N_INPUTS * d;
    let taps = t.vector(Role::ShortconvConv);
    let inputs = &p.s.mixer;
    let conv = Conv {
        n_taps: short_conv.n_taps,
        dilation: 1,
        bias: None,
        past: History {
            layer: l,
            len: short_conv.n_taps - 1,
            d,
            at: 0,
            inputs: Strided {
                data: inputs,
                stride: d_in,
                at: 0,
            },
            steps: p.steps,
        },
    };
    let cache = &*p.cache;
    p.s.act.fill(
        kernels,
        p.pool,
        (p.rows.len(), d),
        t.layouts(&[Role::ShortconvOutProj]),
        |row, y| {
            conv.apply(kernels, cache, taps, row, y);
            let c = &inputs[row * d_in..][d..2 * d];
            y.iter_mut().zip(c).for_each(|(y, c)| *y *= c);
        },
    );
    conv.keep_states(p.cache);
}
