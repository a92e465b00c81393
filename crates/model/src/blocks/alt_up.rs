//! Alternating updates: several streams of the residual; each layer reads one.
//!
//! ```text
//! begin:    s[0] = x;  s[i] = like(s[0], Wi x)                 two regions and two for each i
//! predict:  m = tanh(Wr norm(s[active]) / d)                   three regions
//!           s[i] += sum over j of (Wp m)[i, j] s[j];  x = s[active]
//! the layer: x is its residual
//! correct:  m = tanh(Wr norm(x) / d);  x -= s[active]          four regions
//!           s[i] += (1 + (Wc m)[i]) x;  x = w_scale * s[active]
//! embed:    s[i] += post(y) for i > 0                          two regions; y: layer_embed.rs
//! end:      x = (s[0] + sum over i of like(s[0], Ui s[i])) / n
//! ```
//! Routers and tables of coefficients are small and resident. Streams live within a step: layers
//! of such a model are not computed apart.

use std::ops::Range;

use atta_kernels::{Job, Kernels, STREAMS_MAX, Store, math::tanh};
use atta_store::{ChunkGuard, Projection, WeightGroup};

use super::Pass;
use crate::{Error, Role, bind::Tensors, spec::AltUp};

/// `s[0] = x; s[i] = like(s[0], Wi x)`.
pub(crate) fn begin_alt_up(p: &mut Pass<'_>, alt: &AltUp) -> Result<(), Error> {
    let n = p.rows.len();
    let d = p.model.spec().d_model;
    let t = p.model.globals();
    let s = &mut *p.s;
    let x = &s.x;
    let layout = t.layouts(&[Role::AltupProj]);
    s.act.fill(p.kernels, p.pool, (n, d), layout, |row, out| {
        out.copy_from_slice(&x[row * d..(row + 1) * d]);
    });
    let streams = &mut s.alternating[..n * alt.n * d];
    p.pool.for_each_row(streams, alt.n * d, |row, streams| {
        streams[..d].copy_from_slice(&x[row * d..(row + 1) * d]);
    });
    let group = WeightGroup::Layer(0, Projection::StreamsBegin);
    p.each_chunk(group, |p, chunk| {
        for i in t.heads(Role::AltupProj, chunk) {
            project(p, Role::AltupProj, i, chunk)?;
            begin_stream(p, alt, i + 1);
        }
        Ok(())
    })
}

/// `y = Wi act`, with matrix `i` of a tensor that has one for each stream but the first.
fn project(p: &mut Pass<'_>, role: Role, i: usize, chunk: &ChunkGuard<'_>) -> Result<(), Error> {
    let d = p.model.spec().d_model;
    let w = p.model.globals().head(role, i, 0..d, chunk);
    let job = Job {
        w,
        bias: None,
        out: &mut p.s.y[..p.rows.len() * d],
        mode: Store::Set,
    };
    p.products.matmul(&p.s.act, [job])
}

/// `s[i] = like(s[0], y)`.
fn begin_stream(p: &mut Pass<'_>, alt: &AltUp, i: usize) {
    let d = p.model.spec().d_model;
    let kernels = p.kernels;
    let s = &mut *p.s;
    let y = &s.y;
    let streams = &mut s.alternating[..p.rows.len() * alt.n * d];
    p.pool.for_each_row(streams, alt.n * d, |row, streams| {
        let y = &y[row * d..(row + 1) * d];
        let (first, others) = streams.split_at_mut(d);
        let stream = &mut others[(i - 1) * d..i * d];
        stream.fill(0.0);
        kernels.scaled_sum(stream, y, likeness(kernels, first, y));
    });
}

/// The factor that makes `y` as large as `x`.
fn likeness(kernels: Kernels, x: &[f32], y: &[f32]) -> f32 {
    let mean_square = |x: &[f32]| kernels.dot_product(x, x) / x.len() as f32;
    let smallest = AltUp::MIN_SQUARE;
    let square = mean_square(y);
    // A comparison, because `max` would turn NaN into a number.
    let square = if square < smallest { smallest } else { square };
    mean_square(x).sqrt() / square.sqrt()
}

/// The router of a layer, and the width of its model.
struct Router<'a> {
    kernels: Kernels,
    /// `[n, d_model]`.
    weight: &'a [f32],
    d: usize,
}

impl<'a> Router<'a> {
    fn new(kernels: Kernels, t: &'a Tensors, d: usize) -> Self {
        let weight = t.vector(Role::AltupRouter);
        Self { kernels, weight, d }
    }

    /// `W tanh(Wr normed / d)` into `out`, as many as `W`, `[_, n]`, has rows.
    fn coefficients(&self, normed: &[f32], w: &[f32], out: &mut [f32]) {
        let mut modes = [0.0; STREAMS_MAX];
        let n = self.weight.len() / self.d;
        let modes = &mut modes[..n];
        for (mode, weight) in modes.iter_mut().zip(self.weight.chunks_exact(self.d)) {
            *mode = tanh(self.kernels.dot_product(weight, normed) / self.d as f32);
        }
        for (out, w) in out.iter_mut().zip(w.chunks_exact(n)) {
            *out = self.kernels.dot_product(w, modes);
        }
    }
}

/// Where the streams of rows are.
#[derive(Clone, Copy)]
struct Places {
    n: usize,
    d: usize,
    active: usize,
}

impl Places {
    fn new(p: &Pass<'_>, alt: &AltUp) -> Self {
        let d = p.model.spec().d_model;
        let AltUp { n, active, .. } = *alt;
        Self { n, d, active }
    }

    /// Elements of all streams of a row.
    fn width(self) -> usize {
        self.n * self.d
    }

    /// Stream `i` of a row.
    fn stream(self, row: usize, i: usize) -> Range<usize> {
        let start = row * self.width() + i * self.d;
        start..start + self.d
    }

    /// The active stream of a row.
    fn active(self, row: usize) -> Range<usize> {
        self.stream(row, self.active)
    }

    /// A row of one stream alone.
    fn row(self, row: usize) -> Range<usize> {
        row * self.d..(row + 1) * self.d
    }
}

/// Predicts the streams behind layer `l`, and makes the active one its residual.
pub(crate) fn predict_streams(p: &mut Pass<'_>, l: usize, alt: &AltUp) {
    let at = Places::new(p, alt);
    let n = p.rows.len();
    let t = p.model.layer(l);
    let kernels = p.kernels;
    let s = &mut *p.s;
    let streams = &s.alternating;
    let norm = t.vector(Role::AltupRouterNorm);
    p.pool.for_each_row(&mut s.y[..n * at.d], at.d, |row, y| {
        kernels.rms_norm(&streams[at.active(row)], norm, alt.eps, y);
    });
    mix(p, l, at);
    let s = &mut *p.s;
    let streams = &s.alternating;
    p.pool.for_each_row(&mut s.x[..n * at.d], at.d, |row, x| {
        x.copy_from_slice(&streams[at.active(row)]);
    });
}

/// `s[i] += sum over j of (Wp m)[i, j] s[j]`, where `y` is the input of the router.
fn mix(p: &mut Pass<'_>, l: usize, at: Places) {
    let t = p.model.layer(l);
    let kernels = p.kernels;
    let router = Router::new(kernels, t, at.d);
    let table = t.vector(Role::AltupPredictCoef);
    let s = &mut *p.s;
    let y = &s.y;
    let all = &mut s.alternating[..p.rows.len() * at.width()];
    p.pool.for_each_row(all, at.width(), |row, streams| {
        let mut coefs = [0.0; STREAMS_MAX * STREAMS_MAX];
        let coefs = &mut coefs[..at.n * at.n];
        router.coefficients(&y[at.row(row)], table, coefs);
        kernels.mix_streams(streams, coefs);
    });
}

/// Corrects the streams by the result of layer `l`, and makes `x` the input of the gate of its
/// embedding.
pub(crate) fn correct_streams(p: &mut Pass<'_>, l: usize, alt: &AltUp) {
    let at = Places::new(p, alt);
    let n = p.rows.len();
    let t = p.model.layer(l);
    let kernels = p.kernels;
    let norm = t.vector(Role::AltupRouterNorm);
    let s = &mut *p.s;
    let x = &s.x;
    p.pool.for_each_row(&mut s.y[..n * at.d], at.d, |row, y| {
        kernels.rms_norm(&x[at.row(row)], norm, alt.eps, y);
    });
    let streams = &s.alternating;
    p.pool.for_each_row(&mut s.x[..n * at.d], at.d, |row, x| {
        kernels.add_multiple(x, -1.0, &streams[at.active(row)]);
    });
    add_corrections(p, l, at);
    scale_active(p, l, at);
}

/// `s[i] += (1 + (Wc m)[i]) x`, where `y` is the input of the router.
fn add_corrections(p: &mut Pass<'_>, l: usize, at: Places) {
    let t = p.model.layer(l);
    let kernels = p.kernels;
    let router = Router::new(kernels, t, at.d);
    let table = t.vector(Role::AltupCorrectCoef);
    let s = &mut *p.s;
    let x = &s.x;
    let y = &s.y;
    let all = &mut s.alternating[..p.rows.len() * at.width()];
    p.pool.for_each_row(all, at.width(), |row, streams| {
        let mut coefs = [0.0; STREAMS_MAX];
        router.coefficients(&y[at.row(row)], table, &mut coefs[..at.n]);
        for (stream, coef) in streams.chunks_exact_mut(at.d).zip(coefs) {
            kernels.add_multiple(stream, 1.0 + coef, &x[at.row(row)]);
        }
    });
}

/// `x = w_scale * s[active]`.
fn scale_active(p: &mut Pass<'_>, l: usize, at: Places) {
    let scale = p.model.layer(l).vector(Role::AltupCorrectScale);
    let kernels = p.kernels;
    let s = &mut *p.s;
    let streams = &s.alternating;
    let x = &mut s.x[..p.rows.len() * at.d];
    p.pool.for_each_row(x, at.d, |row, x| {
        x.fill(0.0);
        kernels.add_products(x, &streams[at.active(row)], scale);
    });
}

/// `s[i] += post(y)` for `i > 0`, with the norm of the embedding of layer `l`.
pub(crate) fn add_to_other_streams(p: &mut Pass<'_>, l: usize, alt: &AltUp, eps: f32) {
    let n = p.rows.len();
    let d = p.model.spec().d_model;
    let width = alt.n * d;
    let weight = p.model.layer(l).vector(Role::PostNorm);
    let kernels = p.kernels;
    let s = &mut *p.s;
    p.pool.for_each_row(&mut s.y[..n * d], d, |_, y| {
        kernels.rms_norm_inplace(y, weight, eps);
    });
    let y = &s.y;
    p.pool
        .for_each_row(&mut s.alternating[..n * width], width, |row, streams| {
            let y = &y[row * d..(row + 1) * d];
            let others = streams.chunks_exact_mut(d).skip(1);
            others.for_each(|stream| kernels.add_assign(stream, y));
        });
}

/// `x = (s[0] + sum over i of like(s[0], Ui s[i])) / n`.
pub(crate) fn end_alt_up(p: &mut Pass<'_>, alt: &AltUp) -> Result<(), Error> {
    let at = Places::new(p, alt);
    let kernels = p.kernels;
    let s = &mut *p.s;
    let streams = &s.alternating;
    let x = &mut s.x[..p.rows.len() * at.d];
    p.pool.for_each_row(x, at.d, |row, x| {
        x.fill(0.0);
        kernels.scaled_sum(x, &streams[at.stream(row, 0)], 1.0 / at.n as f32);
    });
    let t = p.model.globals();
    let last = p.model.spec().layers.len() - 1;
    let group = WeightGroup::Layer(last, Projection::StreamsEnd);
    p.each_chunk(group, |p, chunk| {
        for i in t.heads(Role::AltupUnembdProj, chunk) {
            read_stream(p, at, i + 1);
            project(p, Role::AltupUnembdProj, i, chunk)?;
            add_share(p, at);
        }
        Ok(())
    })
}

/// `act = s[i]`.
fn read_stream(p: &mut Pass<'_>, at: Places, i: usize) {
    let n = p.rows.len();
    let layout = p.model.globals().layouts(&[Role::AltupUnembdProj]);
    let s = &mut *p.s;
    let streams = &s.alternating;
    s.act
        .fill(p.kernels, p.pool, (n, at.d), layout, |row, out| {
            out.copy_from_slice(&streams[at.stream(row, i)]);
        });
}

/// `x += like(s[0], y) / n`.
fn add_share(p: &mut Pass<'_>, at: Places) {
    let kernels = p.kernels;
    let s = &mut *p.s;
    let streams = &s.alternating;
    let y = &s.y;
    let x = &mut s.x[..p.rows.len() * at.d];
    p.pool.for_each_row(x, at.d, |row, x| {
        let y = &y[at.row(row)];
        let factor = likeness(kernels, &streams[at.stream(row, 0)], y);
        kernels.add_multiple(x, factor / at.n as f32, y);
    });
}
