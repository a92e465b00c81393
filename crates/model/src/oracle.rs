//! The oracle: a naive interpreter of specs.
//!
//! No cache, no batches, no threads, no quantized activations: weights are decoded to f32, every
//! sequence is computed whole, sums are f64. It is slow, short and obviously right, and shares
//! nothing with the forward pass but the spec and the bound tensors, so that one mistake cannot go
//! unnoticed.

use std::collections::HashMap;

use atta_store::WeightGroup;

use crate::{
    Error, Model, Placement, Role,
    bind::Tensors,
    spec::{
        Activation, AltUp, Attention, Factors, Ffn, KvSource, Laurel, LayerSpec, Mixer, Norm,
        OutputGate, Pairing, Positions, QkNorm, Rope, ShortConv, Sublayer, Wiring,
    },
};

mod alt_up;
mod encoder;
mod experts;
mod indexer;
mod join;
mod latent;
mod layer_embed;
mod mamba;
mod ngrams;
mod recurrent;
mod streams;

pub use encoder::{dense, scores};
pub use join::{Drafted, drafted};

/// The logits of every position of a sequence, `[tokens.len(), n_vocab]`, in a context that is as
/// long as it.
///
/// # Errors
/// A token out of range, more tokens than learned positions, or weights that cannot be read.
pub fn logits(model: &Model, tokens: &[u32]) -> Result<Vec<f32>, Error> {
    let x = residuals(model, tokens, tokens.len())?;
    head(model, &output_normed(model, &x))
}

/// The inputs of the head at every position, `[tokens.len(), d_model]`.
///
/// # Errors
/// As [`logits`].
pub fn normed(model: &Model, tokens: &[u32]) -> Result<Vec<f32>, Error> {
    let x = residuals(model, tokens, tokens.len())?;
    Ok(output_normed(model, &x).concat())
}

/// The residuals after the last layer. Tokens from `first_of_second` on are of a second text.
fn residuals(model: &Model, tokens: &[u32], first_of_second: usize) -> Result<Rows, Error> {
    let spec = model.spec();
    let mut x = embed(model, tokens, first_of_second)?;
    let embeddings = layer_embed::inputs(model, tokens, &x)?;
    let mut shared = SharedKv::new();
    if spec.streams.is_some() {
        return streams::residuals(model, tokens, &x);
    }
    if let Some(alt) = &spec.alt_up {
        return through_streams(model, alt, &x, &embeddings);
    }
    for l in spec.computed(0..spec.layers.len()) {
        if let Some(embed) = &spec.layers[l].ngrams {
            ngrams::add_to(model, l, embed, tokens, &mut x)?;
        }
        x = layer(model, l, x, &mut shared)?;
        if let Some(y) = layer_embed::of_layer(model, l, &embeddings, &x)? {
            add(&mut x, &y, 1.0);
        }
        if let Some(scale) = model.layer(l).vector_opt(Role::LayerOutputScale) {
            x.iter_mut().flatten().for_each(|x| *x *= scale[0]);
        }
    }
    Ok(x)
}

/// The residuals after the last layer of a model with several streams, from the embeddings `x`.
fn through_streams(model: &Model, alt: &AltUp, x: &Rows, embeddings: &Rows) -> Result<Rows, Error> {
    let mut shared = SharedKv::new();
    let mut streams = alt_up::begin(model, alt, x)?;
    for l in model.spec().computed(0..model.spec().layers.len()) {
        streams = alt_up::predict(model, l, alt, &streams);
        let x = layer(model, l, streams[alt.active].clone(), &mut shared)?;
        alt_up::correct(model, l, alt, &x, &mut streams);
        let scaled = alt_up::scaled(model, l, &streams[alt.active]);
        if let Some(y) = layer_embed::of_layer(model, l, embeddings, &scaled)? {
            streams[1..].iter_mut().for_each(|s| add(s, &y, 1.0));
        }
    }
    alt_up::end(model, alt, &streams)
}

/// The residual behind the sublayers of a layer that reads `x`.
fn layer(model: &Model, l: usize, mut x: Rows, shared: &mut SharedKv) -> Result<Rows, Error> {
    let layer = &model.spec().layers[l];
    let t = model.layer(l);
    let h = pre(layer, t, Sublayer::Mixer, &x);
    let y = post(layer, t, Sublayer::Mixer, mixer(model, l, &h, shared)?);
    match layer.wiring {
        Wiring::Streams => unreachable!("no layer reads streams that are not there"),
        Wiring::Sequential { .. } | Wiring::PostNorm { .. } => {
            add(&mut x, &y, layer.residual_scale);
            if let Some(of_layer) = &layer.laurel {
                laurel(model, l, of_layer, &h, &mut x)?;
            }
            x = sum(layer, t, Sublayer::Mixer, x);
            let y = feed_forward(model, (l, layer), &x)?;
            add(&mut x, &y, layer.residual_scale);
            x = sum(layer, t, Sublayer::Ffn, x);
        }
        Wiring::Parallel { .. } => {
            let z = feed_forward(model, (l, layer), &x)?;
            add(&mut x, &y, layer.residual_scale);
            add(&mut x, &z, layer.residual_scale);
        }
    }
    Ok(x)
}

/// `x = (x + h + norm(W_right W_left h)) / sqrt(2)`.
fn laurel(model: &Model, l: usize, laurel: &Laurel, h: &Rows, x: &mut Rows) -> Result<(), Error> {
    let low = project(&matrix(model, l, Role::LaurelL)?, None, h);
    let y = project(&matrix(model, l, Role::LaurelR)?, None, &low);
    let weight = model.layer(l).vector(Role::LaurelPostNorm);
    let norm = Norm::Rms { eps: laurel.eps };
    add(x, h, 1.0);
    add(x, &map_rows(&y, |y| normalized(norm, y, weight, None)), 1.0);
    let root = std::f32::consts::SQRT_2;
    x.iter_mut().flatten().for_each(|x| *x /= root);
    Ok(())
}

fn pre(layer: &LayerSpec, t: &Tensors, sublayer: Sublayer, x: &Rows) -> Rows {
    match layer.pre(sublayer) {
        Some((norm, [weight, bias])) => map_rows(x, |x| {
            normalized(norm, x, t.vector(weight), t.vector_opt(bias))
        }),
        None => x.clone(),
    }
}

fn sub(layer: &LayerSpec, t: &Tensors, sublayer: Sublayer, y: Rows) -> Rows {
    match layer.sub(sublayer) {
        Some((norm, weight)) => map_rows(&y, |y| normalized(norm, y, t.vector(weight), None)),
        None => y,
    }
}

fn post(layer: &LayerSpec, t: &Tensors, sublayer: Sublayer, y: Rows) -> Rows {
    match layer.post(sublayer) {
        Some((norm, weight)) => map_rows(&y, |y| normalized(norm, y, t.vector(weight), None)),
        None => y,
    }
}

/// The norm of the residual itself, after the result of a sublayer was added.
fn sum(layer: &LayerSpec, t: &Tensors, sublayer: Sublayer, x: Rows) -> Rows {
    match layer.sum(sublayer) {
        Some((norm, [weight, bias])) => map_rows(&x, |x| {
            normalized(norm, x, t.vector(weight), t.vector_opt(bias))
        }),
        None => x,
    }
}
/// Keys and values of each attention layer, for layers that attend to another's.
type SharedKv = HashMap<usize, (Rows, Rows)>;

/// One vector per position.
type Rows = Vec<Vec<f32>>;

fn map_rows(rows: &Rows, f: impl Fn(&[f32]) -> Vec<f32>) -> Rows {
    rows.iter().map(|row| f(row)).collect()
}

fn add(x: &mut Rows, y: &Rows, scale: f32) {
    for (x, y) in x.iter_mut().flatten().zip(y.iter().flatten()) {
        *x += scale * y;
    }
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(&a, &b)| f64::from(a) * f64::from(b))
        .sum()
}

fn embed(model: &Model, tokens: &[u32], first_of_second: usize) -> Result<Rows, Error> {
    let spec = model.spec();
    let n_vocab = model.spec().n_vocab;
    if let Some(&id) = tokens.iter().find(|&&id| id as usize >= n_vocab) {
        return Err(Error::Token { id, n_vocab });
    }
    if let Positions::Learned(n) = spec.positions
        && tokens.len() > n
    {
        return Err(Error::ContextFull { n_ctx: n });
    }
    let model = model.embedder();
    let spec = model.spec();
    let group = model.weights().chunk(WeightGroup::EmbedRows(tokens), 0)?;
    let mean = model.globals().vector_opt(Role::TokenEmbdMean);
    let row = |i| {
        let row = decode(model.embedding(&group, i)).concat();
        let mean = |j: usize| mean.map_or(0.0, |mean| mean[j]);
        let whole = row.iter().enumerate().map(|(j, e)| e + mean(j));
        whole.map(|e| e * spec.embed_scale).collect()
    };
    let mut x: Rows = (0..tokens.len()).map(row).collect();
    if let Some(table) = model.globals().vector_opt(Role::PositionEmbd) {
        x.iter_mut().flatten().zip(table).for_each(|(x, p)| *x += p);
    }
    encoder::embed(model, first_of_second, &mut x);
    Ok(x)
}

fn output_normed(model: &Model, x: &Rows) -> Rows {
    let t = model.globals();
    let bias = t.vector_opt(Role::OutputNormBias);
    let own = model.layer(0).vector_opt(Role::NextnSharedHeadNorm);
    let weight = || own.unwrap_or_else(|| t.vector(Role::OutputNorm));
    match model.spec().head.norm {
        Some(norm) => map_rows(x, |x| normalized(norm, x, weight(), bias)),
        None => x.clone(),
    }
}

fn head(model: &Model, h: &Rows) -> Result<Vec<f32>, Error> {
    let head = &model.spec().head;
    let t = model.globals();
    let mut w = Rows::new();
    for i in 0..model.weights().n_chunks(WeightGroup::Head) {
        w.extend(decode(
            model.head(&model.weights().chunk(WeightGroup::Head, i)?),
        ));
    }
    if let Some(mean) = model.head_mean() {
        let whole = w.iter_mut().flat_map(|row| row.iter_mut().zip(mean));
        whole.for_each(|(w, m)| *w += m);
    }
    let mut logits = project(&w, t.vector_opt(Role::OutputBias), h).concat();
    for z in &mut logits {
        *z *= head.logit_scale;
        if let Some(cap) = head.softcap {
            *z = cap * (*z / cap).tanh();
        }
    }
    Ok(logits)
}

/// All rows of a matrix of a layer, which may come in chunks.
fn matrix(model: &Model, l: usize, role: Role) -> Result<Rows, Error> {
    let (t, group) = match role.placement() {
        Placement::Layer(group) => (model.layer(l), group),
        Placement::LastLayer(group) => (model.globals(), group),
        _ => unreachable!("{role:?} is no matrix that every token needs"),
    };
    let group = WeightGroup::Layer(l, group);
    let mut rows = Rows::new();
    for i in 0..model.weights().n_chunks(group) {
        rows.extend(decode(t.matrix(role, &model.weights().chunk(group, i)?)));
    }
    Ok(rows)
}

/// The rows of a matrix as f32.
fn decode(w: atta_kernels::Matrix<'_>) -> Rows {
    (0..w.d_out())
        .map(|i| {
            let mut row = vec![0.0; w.d_in()];
            atta_formats::decode(w.tensor_type(), w.row(i), &mut row)
                .expect("the type was checked when it was bound");
            row.iter_mut().for_each(|x| *x *= w.scale());
            row
        })
        .collect()
}

/// `W x + b` for every row.
fn project(w: &Rows, bias: Option<&[f32]>, x: &Rows) -> Rows {
    let element =
        |i: usize, x: &[f32]| (dot(&w[i], x) + bias.map_or(0.0, |b| f64::from(b[i]))) as f32;
    map_rows(x, |x| (0..w.len()).map(|i| element(i, x)).collect())
}

/// `(x - mean) / sqrt(mean of squares + eps) * weight + bias`; an RMS norm takes no mean.
fn normalized(norm: Norm, x: &[f32], weight: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    let (mean, eps) = match norm {
        Norm::Rms { eps } => (0.0, eps),
        Norm::Layer { eps } | Norm::LayerNoBias { eps } => (
            x.iter().map(|&x| f64::from(x)).sum::<f64>() / x.len() as f64,
            eps,
        ),
    };
    let centred: Vec<f64> = x.iter().map(|&x| f64::from(x) - mean).collect();
    let square = centred.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    let scale = 1.0 / (square + f64::from(eps)).sqrt();
    let bias = |i: usize| bias.map_or(0.0, |b| f64::from(b[i]));
    centred
        .iter()
        .zip(weight)
        .enumerate()
        .map(|(i, (x, &w))| (x * scale * f64::from(w) + bias(i)) as f32)
        .collect()
}

/// The result of a sublayer that is not there.
fn nothing(h: &Rows) -> Rows {
    map_rows(h, |h| vec![0.0; h.len()])
}

fn mixer(model: &Model, l: usize, h: &Rows, shared: &mut SharedKv) -> Result<Rows, Error> {
    match &model.spec().layers[l].mixer {
        Mixer::None => Ok(nothing(h)),
        Mixer::Attention(a) => match &a.kv {
            KvSource::Latent(latent) => latent::attention(model, l, a, latent, h),
            KvSource::Own { .. } | KvSource::Layer(_) => attention(model, l, a, h, shared),
        },
        Mixer::ShortConv(conv) => short_conv(model, l, conv, h),
        Mixer::DeltaNet(net) => recurrent::delta_net(model, l, net, h),
        Mixer::Mamba(m) => mamba::mamba(model, l, m, h),
        Mixer::Mamba2(m) => mamba::mamba2(model, l, m, h),
        Mixer::AttentionAndMamba2(both) => {
            let mut y = attention(model, l, &both.attention, h, shared)?;
            add(&mut y, &mamba::mamba2(model, l, &both.mamba, h)?, 1.0);
            Ok(y)
        }
    }
}

/// `W_out (c ⊙ conv(b ⊙ x))` with `b, c, x = W_in h`; positions before the first are 0.
fn short_conv(model: &Model, l: usize, conv: &ShortConv, h: &Rows) -> Result<Rows, Error> {
    let d = model.spec().d_model;
    let taps = model.layer(l).vector(Role::ShortconvConv);
    let bcx = project(&matrix(model, l, Role::ShortconvInProj)?, None, h);
    let gated = |pos: usize, i: usize| f64::from(bcx[pos][i]) * f64::from(bcx[pos][2 * d + i]);
    let element = |pos: usize, i: usize| {
        let first = (pos + 1).saturating_sub(conv.n_taps);
        let sum: f64 = (first..=pos)
            .map(|j| f64::from(taps[(conv.n_taps - 1 - (pos - j)) * d + i]) * gated(j, i))
            .sum();
        (f64::from(bcx[pos][d + i]) * sum) as f32
    };
    let y = (0..h.len())
        .map(|pos| (0..d).map(|i| element(pos, i)).collect())
        .collect();
    Ok(project(
        &matrix(model, l, Role::ShortconvOutProj)?,
        None,
        &y,
    ))
}

fn attention(
    model: &Model,
    l: usize,
    a: &Attention,
    h: &Rows,
    shared: &mut SharedKv,
) -> Result<Rows, Error> {
    let layer = &model.spec().layers[l];
    let t = model.layer(l);
    let input =
        |weight, bias| Ok::<_, Error>(project(&matrix(model, l, weight)?, t.vector_opt(bias), h));
    let q = input(Role::AttnQ, Role::AttnQBias)?;
    let (mut q, mut gates) = queries(a, q);
    if a.gate == OutputGate::Heads {
        gates = project(&matrix(model, l, Role::AttnGate)?, None, h);
    }
    let mut k = Rows::new();
    let mut v = Rows::new();
    if let KvSource::Own { v_norm, .. } = a.kv {
        k = input(Role::AttnK, Role::AttnKBias)?;
        v = match t.has_matrix(Role::AttnV) {
            true => input(Role::AttnV, Role::AttnVBias)?,
            false => k.clone(),
        };
        v = map_rows(&v, |v| unit_heads(a, v_norm, v));
    }
    let factors = model.globals().rope_factors();
    for (rows, role) in [(&mut q, Role::AttnQNorm), (&mut k, Role::AttnKNorm)] {
        *rows = normed_and_rotated(a, t.vector_opt(role), factors, rows);
    }
    if let Some(temperature) = a.temperature {
        q.iter_mut()
            .enumerate()
            .for_each(|(pos, q)| q.iter_mut().for_each(|q| *q *= temperature.at(pos)));
    }
    if a.kv_layer().is_none() {
        shared.insert(l, (k, v));
    }
    let (k, v) = &shared[&a.kv_layer().unwrap_or(l)];
    let sinks = t.vector_opt(Role::AttnSinks);
    let seen = indexer::visible(model, l, a, h)?;
    let heads = (0..h.len())
        .map(|pos| {
            let query = Query {
                q: &q[pos],
                pos,
                visible: &seen[pos],
            };
            attend(a, sinks, &query, (k, v))
        })
        .collect();
    let heads = sub(layer, t, Sublayer::Mixer, gated_heads(a, heads, &gates));
    Ok(project(
        &matrix(model, l, Role::AttnOutput)?,
        t.vector_opt(Role::AttnOutputBias),
        &heads,
    ))
}

/// Vectors of heads of a position, each divided by the root of its mean square if there is an eps.
fn unit_heads(a: &Attention, eps: Option<f32>, v: &[f32]) -> Vec<f32> {
    let Some(eps) = eps else {
        return v.to_vec();
    };
    let ones = vec![1.0; a.d_head];
    v.chunks_exact(a.d_head)
        .flat_map(|head| normalized(Norm::Rms { eps }, head, &ones, None))
        .collect()
}

/// Queries, and gates of the results of heads, which a projection may return behind each query.
fn queries(a: &Attention, rows: Rows) -> (Rows, Rows) {
    let part = |first: usize| {
        map_rows(&rows, |row| {
            let heads = row.chunks_exact(2 * a.d_head);
            heads
                .flat_map(|both| &both[first..first + a.d_head])
                .copied()
                .collect()
        })
    };
    match a.gate {
        OutputGate::None | OutputGate::Heads => (rows, Rows::new()),
        OutputGate::Elements => (part(0), part(a.d_head)),
    }
}

/// `heads ⊙ sigmoid(gates)`, if there are gates, of each element or each head.
fn gated_heads(a: &Attention, mut heads: Rows, gates: &Rows) -> Rows {
    let width = if a.gate == OutputGate::Heads {
        a.d_head
    } else {
        1
    };
    let parts = heads.iter_mut().flat_map(|row| row.chunks_exact_mut(width));
    for (part, &gate) in parts.zip(gates.iter().flatten()) {
        part.iter_mut()
            .for_each(|y| *y = (f64::from(*y) * sigmoid(gate.into())) as f32);
    }
    heads
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Queries or keys of a sequence.
fn normed_and_rotated(
    a: &Attention,
    weight: Option<&[f32]>,
    factors: Factors<'_>,
    rows: &Rows,
) -> Rows {
    let rotated = |pos: usize, mut row: Vec<f32>| {
        for head in row.chunks_exact_mut(a.d_head) {
            if let Some(rope) = &a.rope {
                rotate(rope, factors, head, (pos, rows.len()));
            }
        }
        row
    };
    let of_row = |(pos, row): (usize, &Vec<f32>)| match a.norms_rotated() {
        true => qk_norm(a, &rotated(pos, row.clone()), weight),
        false => rotated(pos, qk_norm(a, row, weight)),
    };
    rows.iter().enumerate().map(of_row).collect()
}

/// Queries or keys of a position, `[n_heads, d_head]`, normalized.
fn qk_norm(a: &Attention, row: &[f32], weight: Option<&[f32]>) -> Vec<f32> {
    if let QkNorm::Unit { eps } = a.qk_norm {
        return unit_heads(a, Some(eps), row);
    }
    let Some(weight) = weight else {
        return row.to_vec();
    };
    let heads = row.chunks_exact(a.d_head);
    match a.qk_norm {
        QkNorm::None | QkNorm::Unit { .. } => row.to_vec(),
        QkNorm::PerHead { eps }
        | QkNorm::PerHeadIfThere { eps }
        | QkNorm::RotatedPerHead { eps } => heads
            .flat_map(|head| normalized(Norm::Rms { eps }, head, weight, None))
            .collect(),
        QkNorm::LayerPerHead { eps, .. } => heads
            .zip(weight.chunks_exact(a.d_head))
            .flat_map(|(head, weight)| normalized(Norm::LayerNoBias { eps }, head, weight, None))
            .collect(),
        QkNorm::Whole { eps } => normalized(Norm::Rms { eps }, row, weight, None),
    }
}

/// Turns a head at `pos` of a context of `n_ctx`.
fn rotate(rope: &Rope, factors: Factors<'_>, head: &mut [f32], (pos, n_ctx): (usize, usize)) {
    let magnitude = f64::from(rope.magnitude);
    for (i, inv_freq) in rope.inv_freq(factors, n_ctx).into_iter().enumerate() {
        let (a, b) = match rope.pairing {
            Pairing::Adjacent => (2 * i, 2 * i + 1),
            Pairing::Halves => (i, i + rope.d_rope / 2),
        };
        let (sin, cos) = (pos as f64 * inv_freq).sin_cos();
        let x = f64::from(head[a]);
        let y = f64::from(head[b]);
        let turned = [x * cos - y * sin, x * sin + y * cos].map(|x| (x * magnitude) as f32);
        (head[a], head[b]) = (turned[0], turned[1]);
    }
}

/// The queries of a position, and the positions that they see.
struct Query<'a> {
    /// `[n_heads, d_head]`.
    q: &'a [f32],
    pos: usize,
    visible: &'a [usize],
}

/// `softmax(scale * q · K, sink) V` of one position, all heads; `kv` are keys and values of all
/// positions.
fn attend(
    a: &Attention,
    sinks: Option<&[f32]>,
    query: &Query<'_>,
    (k, v): (&Rows, &Rows),
) -> Vec<f32> {
    let Query { q, pos, visible } = *query;
    let mut out = Vec::with_capacity(q.len());
    for (i, q) in q.chunks_exact(a.d_head).enumerate() {
        let kv_head = i / (a.n_heads / a.n_kv_heads);
        let part = kv_head * a.d_head..(kv_head + 1) * a.d_head;
        let scores: Vec<f64> = visible
            .iter()
            .map(|&j| score(a, q, &k[j][part.clone()]) - fall(a, i) * pos.abs_diff(j) as f64)
            .collect();
        let sink = sinks.map(|sinks| f64::from(sinks[i]));
        let max = scores
            .iter()
            .copied()
            .chain(sink)
            .fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let sum = weights.iter().sum::<f64>() + sink.map_or(0.0, |s| (s - max).exp());
        for e in part {
            let mixed: f64 = visible
                .iter()
                .zip(&weights)
                .map(|(&j, w)| w * f64::from(v[j][e]))
                .sum();
            out.push((mixed / sum) as f32);
        }
    }
    out
}

/// By how much the scores of a head fall from a position to the next one further away.
fn fall(a: &Attention, head: usize) -> f64 {
    let Some(max) = a.slopes else { return 0.0 };
    let whole = a.n_heads.next_power_of_two();
    let n = if whole > a.n_heads { whole / 2 } else { whole };
    let nth = |i: usize, n: usize| 2.0_f64.powf(-f64::from(max) * i as f64 / n as f64);
    if head < n {
        nth(head + 1, n)
    } else {
        nth(2 * (head - n) + 1, 2 * n)
    }
}

fn score(a: &Attention, q: &[f32], k: &[f32]) -> f64 {
    let score = dot(q, k) * f64::from(a.scale);
    match a.softcap {
        Some(cap) => f64::from(cap) * (score / f64::from(cap)).tanh(),
        None => score,
    }
}

/// The result of the feed-forward block.
fn feed_forward(model: &Model, (l, layer): (usize, &LayerSpec), x: &Rows) -> Result<Rows, Error> {
    let t = model.layer(l);
    let h = pre(layer, t, Sublayer::Ffn, x);
    let product = |weight, bias, x: &Rows| {
        Ok::<_, Error>(project(&matrix(model, l, weight)?, t.vector_opt(bias), x))
    };
    let up = || product(Role::FfnUp, Role::FfnUpBias, &h);
    let down = |x: Rows| {
        product(
            Role::FfnDown,
            Role::FfnDownBias,
            &sub(layer, t, Sublayer::Ffn, x),
        )
    };
    let y = match &layer.ffn {
        Ffn::None => nothing(&h),
        Ffn::Gated(m) => down(gated(
            m.activation,
            &product(Role::FfnGate, Role::FfnGateBias, &h)?,
            up()?,
        ))?,
        Ffn::Sparse(m) => {
            let gate = product(Role::FfnGate, Role::FfnGateBias, &h)?;
            let gate = map_rows(&gate, |gate| statistical_top_k(gate, m.deviations));
            down(gated(m.mlp.activation, &gate, up()?))?
        }
        Ffn::Plain(m) => down(map_rows(&up()?, |up| {
            up.iter().map(|u| activate(m.activation, *u)).collect()
        }))?,
        Ffn::Moe(m) => experts::moe(model, l, m, &h, &h)?,
        Ffn::MlpAndMoe(both) => {
            let norm = |role, x: &Rows| {
                let norm = Norm::Rms { eps: both.eps };
                map_rows(x, |x| normalized(norm, x, t.vector(role), None))
            };
            let gate = product(Role::FfnGate, Role::FfnGateBias, &h)?;
            let mut y = norm(
                Role::PostFfwNorm1,
                &down(gated(both.mlp.activation, &gate, up()?))?,
            );
            let z = experts::moe(model, l, &both.moe, x, &norm(Role::PreFfwNorm2, x))?;
            add(&mut y, &norm(Role::PostFfwNorm2, &z), 1.0);
            y
        }
    };
    Ok(post(layer, t, Sublayer::Ffn, y))
}

/// `max(x - mean(x) - deviations * std(x), 0)`.
fn statistical_top_k(x: &[f32], deviations: f32) -> Vec<f32> {
    let mean_of = |f: &dyn Fn(f64) -> f64| {
        let sum: f64 = x.iter().map(|&x| f(f64::from(x))).sum();
        sum / x.len() as f64
    };
    let mean = mean_of(&|x| x);
    let deviation = mean_of(&|x| (x - mean).powi(2)).sqrt();
    let smallest = mean + f64::from(deviations) * deviation;
    let above = |&x: &f32| (f64::from(x) - smallest).max(0.0) as f32;
    x.iter().map(above).collect()
}

/// `activation(gate) * up`.
fn gated(activation: Activation, gate: &Rows, mut up: Rows) -> Rows {
    up.iter_mut()
        .flatten()
        .zip(gate.iter().flatten())
        .for_each(|(u, g)| {
            let factor = match activation {
                Activation::Clamped { limit, .. } => u.clamp(-limit, limit) + 1.0,
                _ => *u,
            };
            *u = factor * activate(activation, *g);
        });
    up
}

fn activate(activation: Activation, x: f32) -> f32 {
    let x = f64::from(x);
    let y = match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Gelu => x / 2.0 * (1.0 + encoder::erf(x / 2f64.sqrt())),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            x / 2.0 * (1.0 + inner.tanh())
        }
        Activation::Relu2 => x.max(0.0).powi(2),
        Activation::Xielu(f) => {
            let [alpha_p, alpha_n, beta, eps] =
                [f.alpha_p, f.alpha_n, f.beta, f.eps].map(f64::from);
            match x > 0.0 {
                true => alpha_p * x * x + beta * x,
                false => alpha_n * (x.min(eps).exp_m1() - x) + beta * x,
            }
        }
        Activation::Clamped { alpha, limit } => {
            let x = x.min(f64::from(limit));
            x / (1.0 + (-f64::from(alpha) * x).exp())
        }
    };
    y as f32
}
