//! Embeddings of n-grams: the last few tokens choose rows of a table, which a gate lets into the
//! residual streams.
//!
//! ```text
//! row = first + (xor of t_s * multiplier_s) mod n_rows      serial: rows are read from the file
//! e = the rows of all tables
//! k, v = Wk e, Wv e                                          one region
//! k = norm(k)                                                one region
//! u_c = sigmoid(signed_root(norm(x)_c . k_c / sqrt(d))) v    one region
//! n = norm(u)                                                one region
//! x += u + silu(conv(n))                                     two regions; conv.rs
//! state = the last (n_taps - 1) dilation n, the last n_tokens - 1 tokens
//! ```

use atta_kernels::{Activation, Job, Store, Strided, math::sigmoid};
use atta_store::{Projection, WeightGroup};

use super::{Pass, StreamsScratch, conv::Conv, history::History};
use crate::{
    Error, Phase, Role,
    kv::Cache,
    spec::{ModelSpec, NgramEmbed},
};

/// Positions whose rows of the table are read at once.
const TABLE_POSITIONS: usize = 8;

/// The smallest magnitude that a gate takes the root of.
const MIN_GATE: f32 = 1e-6;

/// `x += u + silu(conv(norm(u)))` before the mixer of layer `l`; `ids` are the tokens of the rows.
pub(crate) fn add_ngrams(
    p: &mut Pass<'_>,
    l: usize,
    embed: &NgramEmbed,
    ids: &[u32],
) -> Result<(), Error> {
    choose_rows(p, l, embed, ids);
    read_rows(p, embed)?;
    project(p, l, embed)?;
    p.observer.enter(Phase::Scan);
    norm_keys(p, l, embed);
    gate(p, l, embed);
    convolve(p, l, embed);
    p.observer.enter(Phase::Other);
    Ok(())
}

/// The buffers of a batch, parts of [`Scratch::mixer`](super::Scratch::mixer).
struct NgramBuffers<'a> {
    /// Keys, later the results of the convolution, `[n_rows, d_residual]`.
    keys: &'a mut [f32],
    /// `[n_rows, d_model]`.
    values: &'a mut [f32],
    /// Gated values, `[n_rows, d_residual]`.
    gated: &'a mut [f32],
    /// Their norms, `[n_rows, d_residual]`.
    normed: &'a mut [f32],
    /// Tokens plus one, `[n_rows]`.
    tokens: &'a mut [f32],
}

impl<'a> NgramBuffers<'a> {
    fn new(all: &'a mut [f32], n: usize, embed: &NgramEmbed, spec: &ModelSpec) -> Self {
        let d_residual = spec.d_residual();
        // The embeddings, `[n_rows, d_embed]`, come first.
        let rest = &mut all[n * embed.d_embed()..];
        let (keys, rest) = rest.split_at_mut(n * d_residual);
        let (values, rest) = rest.split_at_mut(n * spec.d_model);
        let (gated, rest) = rest.split_at_mut(n * d_residual);
        let (normed, rest) = rest.split_at_mut(n * d_residual);
        Self {
            keys,
            values,
            gated,
            normed,
            tokens: &mut rest[..n],
        }
    }
}

/// The row of each table for every position; keeps the last tokens.
fn choose_rows(p: &mut Pass<'_>, l: usize, embed: &NgramEmbed, ids: &[u32]) {
    let spec = p.model.spec();
    let NgramBuffers { tokens, .. } = NgramBuffers::new(&mut p.s.mixer, ids.len(), embed, spec);
    // Exact: check.rs bounds the vocabulary.
    let all = tokens.iter_mut().zip(ids);
    all.for_each(|(token, &id)| *token = (id + 1) as f32);
    let past = History {
        layer: l,
        len: embed.n_tokens - 1,
        d: 1,
        at: spec.layers[l].mixer_floats(spec.d_model) + embed.n_conv_inputs() * spec.d_residual(),
        inputs: Strided {
            data: tokens,
            stride: 1,
            at: 0,
        },
        steps: p.steps,
    };
    let rows = p.s.table_rows.chunks_exact_mut(embed.tables.len());
    for (row, numbers) in (0..ids.len()).zip(rows) {
        let token = |back| token_before(&past, p.cache, row, back);
        hash(embed, numbers, token);
    }
    past.keep(p.cache);
}

/// The token `back` positions before that of a row, if there is one.
fn token_before(past: &History<'_>, cache: &Cache, row: usize, back: usize) -> Option<u32> {
    let token = past.get(cache, row, back)?[0] as u32;
    token.checked_sub(1)
}

/// The row of each table, from the tokens up to a position.
fn hash(embed: &NgramEmbed, rows: &mut [u32], token: impl Fn(usize) -> Option<u32>) {
    let mut is_over = false;
    let mut mix = 0;
    let mut n = 0;
    for (i, (table, row)) in embed.tables.iter().zip(rows).enumerate() {
        while n < embed.n_tokens_of(i) {
            let id = token(n).filter(|_| !is_over).unwrap_or(embed.eos);
            is_over |= n > 0 && id == embed.eos;
            mix ^= u64::from(id).wrapping_mul(embed.multipliers[n]);
            n += 1;
        }
        *row = table.first + (mix % u64::from(table.n_rows)) as u32;
    }
}

/// `e`: the chosen rows of every position, one behind the other.
fn read_rows(p: &mut Pass<'_>, embed: &NgramEmbed) -> Result<(), Error> {
    let n = p.rows.len() * embed.tables.len();
    let kernels = p.kernels;
    let s = &mut *p.s;
    let mut out = s.mixer.chunks_exact_mut(embed.d_row);
    for numbers in s.table_rows[..n].chunks(TABLE_POSITIONS * embed.tables.len()) {
        p.observer.enter(Phase::Weights);
        let group = WeightGroup::LayerEmbedRows(numbers);
        let table = p.model.weights().chunk(group, 0)?;
        p.observer.enter(Phase::Other);
        for (i, row) in out.by_ref().take(numbers.len()).enumerate() {
            kernels.decode_row(p.model.layer_embedding(&table, i), 0, row);
        }
    }
    Ok(())
}

/// `k, v = Wk e, Wv e`.
fn project(p: &mut Pass<'_>, l: usize, embed: &NgramEmbed) -> Result<(), Error> {
    let n = p.rows.len();
    let spec = p.model.spec();
    let d = embed.d_embed();
    let t = p.model.layer(l);
    let roles = [Role::PleKey, Role::PleValue];
    let s = &mut *p.s;
    let embeds = &s.mixer;
    let layouts = t.layouts(&roles);
    s.act.fill(p.kernels, p.pool, (n, d), layouts, |row, out| {
        out.copy_from_slice(&embeds[row * d..(row + 1) * d]);
    });
    p.observe_inputs(l, &roles);
    p.each_chunk(WeightGroup::Layer(l, Projection::Ngrams), |p, chunk| {
        let s = &mut *p.s;
        let NgramBuffers { keys, values, .. } = NgramBuffers::new(&mut s.mixer, n, embed, spec);
        let job = |role, out| Job {
            w: t.matrix(role, chunk),
            bias: None,
            out,
            mode: Store::Set,
        };
        let jobs = [job(Role::PleKey, keys), job(Role::PleValue, values)];
        p.products.matmul(&s.act, jobs)
    })
}

/// `u_c = sigmoid(signed_root(norm(x)_c . norm(k)_c / sqrt(d))) v`, and its norm.
fn gate(p: &mut Pass<'_>, l: usize, embed: &NgramEmbed) {
    let spec = p.model.spec();
    let d = spec.d_model;
    let n_streams = spec.d_residual() / d;
    let kernels = p.kernels;
    let t = p.model.layer(l);
    let stream = |i: usize| i % n_streams * d..(i % n_streams + 1) * d;
    let norm = |role, i: usize, x: &[f32], out: &mut [f32]| {
        kernels.rms_norm(&x[i * d..][..d], &t.vector(role)[stream(i)], embed.eps, out);
    };
    let s = &mut *p.s;
    let b = NgramBuffers::new(&mut s.mixer, p.rows.len(), embed, spec);
    let x = residual(&mut s.x, &mut s.streams);
    let keys = &*b.keys;
    let values = &*b.values;
    p.pool.for_each_row(b.gated, d, |i, u| {
        norm(Role::PleNormQuery, i, x, u);
        let score = kernels.dot_product(u, &keys[i * d..][..d]) / (d as f32).sqrt();
        u.fill(0.0);
        let v = &values[i / n_streams * d..][..d];
        kernels.add_multiple(u, sigmoid(signed_root(score)), v);
    });
    let gated = &*b.gated;
    p.pool.for_each_row(b.normed, d, |i, out| {
        norm(Role::PleNormConv, i, gated, out);
    });
}

/// `k = norm(k)`, each stream by itself.
fn norm_keys(p: &mut Pass<'_>, l: usize, embed: &NgramEmbed) {
    let spec = p.model.spec();
    let d_residual = spec.d_residual();
    let d = spec.d_model;
    let kernels = p.kernels;
    let weight = p.model.layer(l).vector(Role::PleNormKey);
    let NgramBuffers { keys, .. } = NgramBuffers::new(&mut p.s.mixer, p.rows.len(), embed, spec);
    p.pool.for_each_row(keys, d_residual, |_, keys| {
        let streams = keys.chunks_exact_mut(d).zip(weight.chunks_exact(d));
        streams.for_each(|(k, weight)| kernels.rms_norm_inplace(k, weight, embed.eps));
    });
}

/// The residual, of all streams, beside other buffers.
fn residual<'a>(x: &'a mut [f32], streams: &'a mut StreamsScratch) -> &'a mut [f32] {
    match streams.x.is_empty() {
        true => x,
        false => &mut streams.x,
    }
}

/// `sign(x) sqrt(max(|x|, 1e-6))`; the sign of 0 is 0.
fn signed_root(x: f32) -> f32 {
    match x == 0.0 {
        true => 0.0,
        false => x.signum() * x.abs().max(MIN_GATE).sqrt(),
    }
}

/// `x += u + silu(conv(n))`; keeps the inputs of the convolution.
fn convolve(p: &mut Pass<'_>, l: usize, embed: &NgramEmbed) {
    let spec = p.model.spec();
    let d = spec.d_residual();
    let n = p.rows.len();
    let kernels = p.kernels;
    let taps = p.model.layer(l).vector(Role::PleConv1d);
    let s = &mut *p.s;
    let b = NgramBuffers::new(&mut s.mixer, n, embed, spec);
    let conv = Conv {
        n_taps: embed.n_taps,
        dilation: embed.dilation,
        bias: None,
        past: History {
            layer: l,
            len: embed.n_conv_inputs(),
            d,
            at: spec.layers[l].mixer_floats(spec.d_model),
            inputs: Strided {
                data: b.normed,
                stride: d,
                at: 0,
            },
            steps: p.steps,
        },
    };
    let cache = &*p.cache;
    let gated = &*b.gated;
    p.pool.for_each_row(b.keys, d, |row, y| {
        conv.apply(kernels, cache, taps, row, y);
        kernels.activate(Activation::Silu, y);
        kernels.add_assign(y, &gated[row * d..][..d]);
    });
    conv.keep_states(p.cache);
    let y = &*b.keys;
    let x = residual(&mut s.x, &mut s.streams);
    p.pool.for_each_row(&mut x[..n * d], d, |row, x| {
        kernels.add_assign(x, &y[row * d..][..d]);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::NgramTable;

    #[test]
    fn ngrams_do_not_reach_behind_the_end_of_a_text() {
        let table = |first| NgramTable {
            first,
            n_rows: 1000,
        };
        let embed = NgramEmbed {
            n_tokens: 3,
            tables: vec![table(0), table(1000)],
            multipliers: vec![3, 5, 7],
            d_row: 1,
            eos: 2,
            media: None,
            n_taps: 2,
            dilation: 1,
            eps: 1e-6,
        };
        let rows = |text: &[u32]| {
            let mut rows = [0; 2];
            hash(&embed, &mut rows, |back| {
                text.iter().rev().nth(back).copied()
            });
            rows
        };
        let of = |ids: [u32; 3]| {
            let [a, b, c] = ids;
            [(3 * a) ^ (5 * b), 1000 + ((3 * a) ^ (5 * b) ^ (7 * c))]
        };
        assert_eq!(rows(&[9, 8, 7]), of([7, 8, 9]));
        assert_eq!(rows(&[9, 2, 7]), of([7, 2, 2]));
        assert_eq!(rows(&[7]), of([7, 2, 2]));
        // A text that ends is looked back at from its end.
        assert_eq!(rows(&[9, 8, 2]), of([2, 8, 9]));
    }
}
