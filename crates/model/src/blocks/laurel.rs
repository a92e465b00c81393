//! The low-rank layer beside a mixer.
//!
//! ```text
//! h = pre(x)                        one region; x: before the mixer
//! y = Wr (Wl h)                     four regions
//! laurel = h + norm(y)              two regions
//! x = (x + laurel) / sqrt(2)        one region, behind the mixer
//! ```

use atta_kernels::{Job, Store};
use atta_store::{Projection, WeightGroup};

use super::{Normalize, Pass};
use crate::{
    Error, Role,
    spec::{Laurel, Sublayer},
};

/// `laurel = h + norm(Wr (Wl h))` of layer `l`, with `h = pre(x)`.
pub(crate) fn laurel(p: &mut Pass<'_>, l: usize, laurel: &Laurel) -> Result<(), Error> {
    let n = p.rows.len();
    let d = p.model.spec().d_model;
    read(p, l);
    narrow(p, l, laurel.rank)?;
    widen(p, l, laurel.rank)?;
    let weight = p.model.layer(l).vector(Role::LaurelPostNorm);
    let kernels = p.kernels;
    let s = &mut *p.s;
    p.pool.for_each_row(&mut s.y[..n * d], d, |_, y| {
        kernels.rms_norm_inplace(y, weight, laurel.eps);
    });
    let y = &s.y;
    p.pool
        .for_each_row(&mut s.laurel[..n * d], d, |row, laurel| {
            kernels.add_assign(laurel, &y[row * d..(row + 1) * d]);
        });
    Ok(())
}

/// `laurel = pre(x)`.
fn read(p: &mut Pass<'_>, l: usize) {
    let d = p.model.spec().d_model;
    let t = p.model.layer(l);
    let pre = p.model.spec().layers[l].pre(Sublayer::Mixer);
    let kernels = p.kernels;
    let n = p.rows.len();
    let s = &mut *p.s;
    let x = &s.x;
    p.pool.for_each_row(&mut s.laurel[..n * d], d, |row, out| {
        let x = &x[row * d..(row + 1) * d];
        match pre {
            Some((norm, roles)) => norm.apply(kernels, x, t.affine(roles), out),
            None => out.copy_from_slice(x),
        }
    });
}

/// `low = Wl laurel`, `[rank]` of each row, in the place of the hidden layer of the MLP.
fn narrow(p: &mut Pass<'_>, l: usize, rank: usize) -> Result<(), Error> {
    let n = p.rows.len();
    let d = p.model.spec().d_model;
    let t = p.model.layer(l);
    let s = &mut *p.s;
    let input = &s.laurel;
    let layout = t.layouts(&[Role::LaurelL]);
    s.act.fill(p.kernels, p.pool, (n, d), layout, |row, out| {
        out.copy_from_slice(&input[row * d..(row + 1) * d]);
    });
    p.observe_inputs(l, &[Role::LaurelL]);
    let group = WeightGroup::Layer(l, Projection::LaurelLeft);
    p.each_chunk(group, |p, chunk| {
        let job = Job {
            w: t.matrix(Role::LaurelL, chunk),
            bias: None,
            out: &mut p.s.ff[..n * rank],
            mode: Store::Set,
        };
        p.products.matmul(&p.s.act, [job])
    })
}

/// `y = Wr low`.
fn widen(p: &mut Pass<'_>, l: usize, rank: usize) -> Result<(), Error> {
    let n = p.rows.len();
    let d = p.model.spec().d_model;
    let t = p.model.layer(l);
    let s = &mut *p.s;
    let low = &s.ff;
    let layout = t.layouts(&[Role::LaurelR]);
    s.act
        .fill(p.kernels, p.pool, (n, rank), layout, |row, out| {
            out.copy_from_slice(&low[row * rank..(row + 1) * rank]);
        });
    p.observe_inputs(l, &[Role::LaurelR]);
    let group = WeightGroup::Layer(l, Projection::LaurelRight);
    p.each_chunk(group, |p, chunk| {
        let job = Job {
            w: t.matrix(Role::LaurelR, chunk),
            bias: None,
            out: &mut p.s.y[..n * d],
            mode: Store::Set,
        };
        p.products.matmul(&p.s.act, [job])
    })
}

/// `x = (x + laurel) / sqrt(2)`.
pub(crate) fn add_laurel(p: &mut Pass<'_>) {
    let n = p.rows.len();
    let d = p.model.spec().d_model;
    let kernels = p.kernels;
    let s = &mut *p.s;
    let laurel = &s.laurel;
    p.pool.for_each_row(&mut s.x[..n * d], d, |row, x| {
        let laurel = &laurel[row * d..(row + 1) * d];
        kernels.scaled_sum(x, laurel, std::f32::consts::FRAC_1_SQRT_2);
    });
}
