//! The oracle's residuals of several streams.

use super::{
    Rows, SharedKv, add, feed_forward, map_rows, matrix, mixer, ngrams, normalized, project,
    sigmoid,
};
use crate::{
    Error, Model, Role,
    bind::Tensors,
    spec::{Norm, StreamKind, Streams},
};

/// What the head reads, from the embeddings `x`: all layers of a model with hyper-connections.
pub(super) fn residuals(model: &Model, tokens: &[u32], x: &Rows) -> Result<Rows, Error> {
    let spec = model.spec();
    let n = spec.streams.map_or(1, |streams| streams.n);
    let mut x = map_rows(x, |x| x.repeat(n));
    let mut shared = SharedKv::new();
    for l in spec.computed(0..spec.layers.len()) {
        let layer = &spec.layers[l];
        let t = model.layer(l);
        if let Some(embed) = &layer.ngrams {
            ngrams::add_to(model, l, embed, tokens, &mut x)?;
        }
        let roles = [Role::HcAttnNorm, Role::HcAttnDown, Role::HcAttnUp];
        let (normed, h) = mixed(model, l, t, roles, &x)?;
        let y = mixer(model, l, &h, &mut shared)?;
        inject(model, l, Role::HcAttnInject, [&normed, &y], &mut x)?;
        let roles = [Role::HcFfnNorm, Role::HcFfnDown, Role::HcFfnUp];
        let (normed, h) = mixed(model, l, t, roles, &x)?;
        let y = feed_forward(model, (l, layer), &h)?;
        inject(model, l, Role::HcFfnInject, [&normed, &y], &mut x)?;
    }
    let roles = [Role::OutputHcNorm, Role::OutputHcDown, Role::OutputHcUp];
    let last = spec.layers.len() - 1;
    Ok(mixed(model, last, model.globals(), roles, &x)?.1)
}

/// The normalized streams, `[n, d_model]`, and the mean of the gated ones, `[d_model]`.
fn mixed(
    model: &Model,
    l: usize,
    t: &Tensors,
    [norm, down, up]: [Role; 3],
    x: &Rows,
) -> Result<(Rows, Rows), Error> {
    let spec = model.spec();
    let d = spec.d_model;
    let Some(Streams { n, kind }) = spec.streams else {
        unreachable!("a model of one stream")
    };
    let StreamKind::HyperConnections { eps, .. } = kind;
    let weights = t.vector(norm).chunks_exact(d);
    let normed = map_rows(x, |x| {
        let streams = x.chunks_exact(d).zip(weights.clone());
        streams
            .flat_map(|(x, w)| normalized(Norm::Rms { eps }, x, w, None))
            .collect()
    });
    let silu = |low: &f32| {
        let low = f64::from(*low) / n as f64;
        (low * sigmoid(low)) as f32
    };
    let low = project(&matrix(model, l, down)?, None, &normed);
    let low = map_rows(&low, |low| low.iter().map(silu).collect());
    let gates = project(&matrix(model, l, up)?, None, &low);
    let mean = |(normed, gates): (&Vec<f32>, &Vec<f32>)| -> Vec<f32> {
        let gated = |i: usize| f64::from(normed[i]) * sigmoid(f64::from(gates[i]));
        let sum = |j: usize| (0..n).map(|c| gated(c * d + j)).sum::<f64>();
        (0..d).map(|j| (sum(j) / n as f64) as f32).collect()
    };
    let h = normed.iter().zip(&gates).map(mean).collect();
    Ok((normed, h))
}

/// `x_c += residual_scale * 2 sigmoid(w_c / n) y` with `w = W_inject normed`.
fn inject(
    model: &Model,
    l: usize,
    role: Role,
    [normed, y]: [&Rows; 2],
    x: &mut Rows,
) -> Result<(), Error> {
    let weights = project(&matrix(model, l, role)?, None, normed);
    let factor = |w: &f32, n: usize| 2.0 * sigmoid(f64::from(*w) / n as f64);
    let scaled = |(weights, y): (&Vec<f32>, &Vec<f32>)| -> Vec<f32> {
        let streams = weights.iter().map(|w| factor(w, weights.len()));
        streams
            .flat_map(|f| y.iter().map(move |y| (f * f64::from(*y)) as f32))
            .collect()
    };
    let added = weights.iter().zip(y).map(scaled).collect();
    add(x, &added, model.spec().layers[l].residual_scale);
    Ok(())
}
