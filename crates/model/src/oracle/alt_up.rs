//! The oracle's alternating updates.

use atta_store::{Projection, WeightGroup};

use super::{Rows, add, decode, dot, map_rows, normalized, project};
use crate::{
    Error, Model, Role,
    spec::{AltUp, Norm},
};

/// The streams of every position, from the embeddings `x`.
pub(super) fn begin(model: &Model, alt: &AltUp, x: &Rows) -> Result<Vec<Rows>, Error> {
    let group = WeightGroup::Layer(0, Projection::StreamsBegin);
    let matrices = matrices(model, Role::AltupProj, group)?;
    let other = |i: usize| like(x, &project(&matrices[i - 1], None, x));
    Ok((0..alt.n)
        .map(|i| if i == 0 { x.clone() } else { other(i) })
        .collect())
}

/// The matrices of a tensor that has one for each stream but the first.
fn matrices(model: &Model, role: Role, group: WeightGroup<'_>) -> Result<Vec<Rows>, Error> {
    let mut w = Rows::new();
    for i in 0..model.weights().n_chunks(group) {
        let chunk = model.weights().chunk(group, i)?;
        w.extend(decode(model.globals().matrix(role, &chunk)));
    }
    let d = model.spec().d_model;
    Ok(w.chunks_exact(d).map(<[_]>::to_vec).collect())
}

/// `y`, each row made as large as that of `x`.
fn like(x: &Rows, y: &Rows) -> Rows {
    let square = |x: &[f32]| dot(x, x) / x.len() as f64;
    let of_row = |(x, y): (&Vec<f32>, &Vec<f32>)| {
        let of_y = square(y).max(f64::from(AltUp::MIN_SQUARE));
        let factor = (square(x) / of_y).sqrt();
        y.iter().map(|y| (f64::from(*y) * factor) as f32).collect()
    };
    x.iter().zip(y).map(of_row).collect()
}

/// What the router of layer `l` tells of each position.
fn modes(model: &Model, l: usize, alt: &AltUp, x: &Rows) -> Rows {
    let t = model.layer(l);
    let d = model.spec().d_model;
    let norm = Norm::Rms { eps: alt.eps };
    let router = t.vector(Role::AltupRouter);
    map_rows(x, |x| {
        let h = normalized(norm, x, t.vector(Role::AltupRouterNorm), None);
        let mode = |w: &[f32]| (dot(w, &h) / d as f64).tanh() as f32;
        router.chunks_exact(d).map(mode).collect()
    })
}

/// `W m` of every position.
fn coefficients(w: &[f32], modes: &Rows, n: usize) -> Rows {
    map_rows(modes, |m| {
        w.chunks_exact(n).map(|w| dot(w, m) as f32).collect()
    })
}

/// The streams as they are expected behind layer `l`.
pub(super) fn predict(model: &Model, l: usize, alt: &AltUp, streams: &[Rows]) -> Vec<Rows> {
    let w = model.layer(l).vector(Role::AltupPredictCoef);
    let m = modes(model, l, alt, &streams[alt.active]);
    let coefs = coefficients(w, &m, alt.n);
    let predicted = |i: usize, pos: usize, e: usize| {
        let c = &coefs[pos][i * alt.n..];
        let others = streams.iter().zip(c);
        let sum: f64 = others
            .map(|(s, c)| f64::from(*c) * f64::from(s[pos][e]))
            .sum();
        (f64::from(streams[i][pos][e]) + sum) as f32
    };
    let d = model.spec().d_model;
    let row = |i, pos| (0..d).map(|e| predicted(i, pos, e)).collect();
    let stream = |i| (0..m.len()).map(|pos| row(i, pos)).collect();
    (0..alt.n).map(stream).collect()
}

/// Corrects the predicted streams by the result `x` of layer `l`.
pub(super) fn correct(model: &Model, l: usize, alt: &AltUp, x: &Rows, streams: &mut [Rows]) {
    let w = model.layer(l).vector(Role::AltupCorrectCoef);
    let coefs = coefficients(w, &modes(model, l, alt, x), alt.n);
    let mut news = x.clone();
    add(&mut news, &streams[alt.active], -1.0);
    for (i, stream) in streams.iter_mut().enumerate() {
        for ((s, u), c) in stream.iter_mut().zip(&news).zip(&coefs) {
            s.iter_mut()
                .zip(u)
                .for_each(|(s, u)| *s += (1.0 + c[i]) * u);
        }
    }
}

/// What the gate of the embedding of layer `l` reads.
pub(super) fn scaled(model: &Model, l: usize, active: &Rows) -> Rows {
    let scale = model.layer(l).vector(Role::AltupCorrectScale);
    map_rows(active, |x| {
        x.iter().zip(scale).map(|(x, s)| x * s).collect()
    })
}

/// The residuals that the streams become.
pub(super) fn end(model: &Model, alt: &AltUp, streams: &[Rows]) -> Result<Rows, Error> {
    let last = model.spec().layers.len() - 1;
    let group = WeightGroup::Layer(last, Projection::StreamsEnd);
    let matrices = matrices(model, Role::AltupUnembdProj, group)?;
    let mut x = streams[0].clone();
    for (w, stream) in matrices.iter().zip(&streams[1..]) {
        add(&mut x, &like(&streams[0], &project(w, None, stream)), 1.0);
    }
    x.iter_mut().flatten().for_each(|x| *x /= alt.n as f32);
    Ok(x)
}
