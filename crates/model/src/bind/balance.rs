//! Powers of two that make the channels of keys, and of values, alike in size before a row of them
//! becomes 16-bit codes with one scale.
//!
//! ```text
//! key_c   = k_c / 2^b_c,   query_c = q_c · 2^b_c      b_c = round(log2(K_c / Q_c) / 2)
//! value_c = v_c / 2^e_c,   out_c   = o_c · 2^e_c      e_c = round(log2(V_c))
//! ```
//! Scores do not change, since products with powers of two are exact. `K`, `Q` and `V` are what the
//! file says about the size of a channel when it is loaded: the weights of the norms of keys and
//! queries, else their biases. They are constants of the model, so that no bit depends on the text.
//! The two channels that a rope turns together have one exponent; stored keys may be rotated.
//!
//! Without this, a key with a few large channels that queries hardly look at (Qwen2's biases) would
//! spend its codes on them.

use std::{f64::consts::LN_2, ops::Range};

use atta_kernels::math::{ln, over_powers, times_powers};

use super::Tensors;
use crate::{
    Role,
    spec::{Attention, KvSource, Pairing, QkNorm, Rope},
};

/// Exponents are kept within this, so that no product leaves the range of f32.
const MAX_EXPONENT: f64 = 24.0;

/// The exponents of the channels of a layer's keys and values: of one head for all, `[d_head]`, or
/// of each KV head, `[n_kv_heads, d_head]`; empty: all are alike.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Balance {
    /// `b`.
    keys: Box<[i8]>,
    /// `e`.
    values: Box<[i8]>,
}

impl Balance {
    /// The balance of a layer with keys of its own; none for latent vectors, which are keys and
    /// values at once.
    pub(crate) fn new(a: &Attention, t: &Tensors) -> Self {
        if a.latent().is_some() || a.kv_layer().is_some() {
            return Self::default();
        }
        Self {
            keys: balance_keys(a, t),
            values: balance_values(a, t),
        }
    }

    /// The exponents of keys and of values.
    pub(crate) fn exponents(&self) -> [&[i8]; 2] {
        [&self.keys, &self.values]
    }

    /// Divides keys of a position, `[n_kv_heads, d_head]`.
    pub(crate) fn divide_keys(&self, keys: &mut [f32]) {
        divide(keys, &self.keys);
    }

    /// Divides values of a position, `[n_kv_heads, d_head]`.
    pub(crate) fn divide_values(&self, values: &mut [f32]) {
        divide(values, &self.values);
    }

    /// Multiplies queries of a position, `[n_heads, d_head]`.
    pub(crate) fn multiply_queries(&self, a: &Attention, queries: &mut [f32]) {
        multiply_heads(a, queries, &self.keys);
    }

    /// Multiplies results of heads of a position, `[n_heads, d_head]`.
    pub(crate) fn multiply_results(&self, a: &Attention, results: &mut [f32]) {
        multiply_heads(a, results, &self.values);
    }
}

/// `x = x / 2^exponent`; the exponents repeat.
fn divide(x: &mut [f32], exponents: &[i8]) {
    if !exponents.is_empty() {
        x.chunks_exact_mut(exponents.len())
            .for_each(|row| over_powers(row, exponents));
    }
}

/// Multiplies each of the query heads, `[n_heads, d_head]`, by the powers of its KV head.
fn multiply_heads(a: &Attention, heads: &mut [f32], exponents: &[i8]) {
    if exponents.is_empty() {
        return;
    }
    let group = a.n_heads / a.n_kv_heads;
    let n = exponents.len() / a.d_head;
    for (h, head) in heads.chunks_exact_mut(a.d_head).enumerate() {
        times_powers(head, &exponents[(h / group % n) * a.d_head..][..a.d_head]);
    }
}

/// `b` of keys.
fn balance_keys(a: &Attention, t: &Tensors) -> Box<[i8]> {
    let Some([k, q]) = sizes(a, t) else {
        return Box::default();
    };
    let n_q = q.len() / a.d_head;
    let n_k = k.len() / a.d_head;
    let group = n_q.div_ceil(n_k);
    let exponents = (0..k.len()).map(|i| {
        let h = i / a.d_head;
        let c = i % a.d_head;
        let pair = [c, partner(a.rope.as_ref(), c)];
        let largest = |sizes: &[f32], heads: Range<usize>| {
            let of_head = |h: usize| pair.map(|c| sizes[h * a.d_head + c]);
            heads.flat_map(of_head).fold(0.0, f32::max)
        };
        let k = largest(&k, h..h + 1);
        let q = largest(&q, h * group..((h + 1) * group).min(n_q));
        exponent(k, 0.5) - exponent(q, 0.5)
    });
    rounded(exponents)
}

/// `e` of values.
fn balance_values(a: &Attention, t: &Tensors) -> Box<[i8]> {
    let has_norm = matches!(
        a.kv,
        KvSource::Own {
            v_norm: Some(_),
            ..
        }
    );
    let bias = t.vector_opt(Role::AttnVBias);
    let Some(bias) = bias.filter(|_| !has_norm) else {
        return Box::default();
    };
    rounded(raise_to_mean(bias, a.d_head).map(|v| exponent(v, 1.0)))
}

/// The sizes of the channels of keys and of queries, `[heads, d_head]` each, where the file tells.
fn sizes(a: &Attention, t: &Tensors) -> Option<[Vec<f32>; 2]> {
    let norms = [Role::AttnKNorm, Role::AttnQNorm].map(|role| t.vector_opt(role));
    let biases = [Role::AttnKBias, Role::AttnQBias].map(|role| t.vector_opt(role));
    match (a.qk_norm, norms, biases) {
        (QkNorm::Unit { .. }, ..) => None,
        (_, [Some(k), Some(q)], _) => Some([k, q].map(|w| w.iter().map(|w| w.abs()).collect())),
        (_, _, [Some(k), Some(q)]) => Some([k, q].map(|b| raise_to_mean(b, a.d_head).collect())),
        _ => None,
    }
}

/// Magnitudes of biases, `[heads, d_head]`; those below the mean of their head count as the mean,
/// since a channel has a part from the weights too.
fn raise_to_mean(bias: &[f32], d_head: usize) -> impl Iterator<Item = f32> {
    bias.chunks_exact(d_head).flat_map(move |head| {
        let mean = head.iter().map(|b| b.abs()).sum::<f32>() / d_head as f32;
        head.iter().map(move |b| b.abs().max(mean))
    })
}

/// The channel that a rope turns together with channel `c` of a head; `c` itself if it does not
/// turn.
fn partner(rope: Option<&Rope>, c: usize) -> usize {
    match rope {
        Some(rope) if c < rope.d_rope => match rope.pairing {
            Pairing::Adjacent => c ^ 1,
            Pairing::Halves => (c + rope.d_rope / 2) % rope.d_rope,
        },
        _ => c,
    }
}

/// `share · log2(size)`, 0 of a size that says nothing.
fn exponent(size: f32, share: f64) -> f64 {
    if size.is_normal() {
        share * ln(f64::from(size)) / LN_2
    } else {
        0.0
    }
}

/// Rounded exponents; none if all are alike, since the scale of a row says as much.
fn rounded(exponents: impl Iterator<Item = f64>) -> Box<[i8]> {
    let of = |e: f64| e.clamp(-MAX_EXPONENT, MAX_EXPONENT).round_ties_even() as i8;
    let exponents: Box<[i8]> = exponents.map(of).collect();
    if exponents.iter().all(|e| *e == exponents[0]) {
        return Box::default();
    }
    exponents
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Mask, OutputGate, Presence};

    fn attention(qk_norm: QkNorm, pairing: Pairing) -> Attention {
        Attention {
            n_heads: 4,
            n_kv_heads: 2,
            d_head: 8,
            rope: Some(Rope {
                d_rope: 4,
                base: 1e4,
                pairing,
                scaling: crate::spec::RopeScaling::None,
                magnitude: 1.0,
                factors: Presence::Absent,
            }),
            mask: Mask::Causal,
            kv: KvSource::PROJECTED,
            qk_norm,
            scale: 0.3,
            temperature: None,
            softcap: None,
            slopes: None,
            sinks: Presence::Absent,
            gate: OutputGate::None,
            sub_norm: None,
            qkv_bias: Presence::Optional,
            out_bias: Presence::Absent,
            indexer: None,
        }
    }

    fn tensors<const N: usize>(vectors: [(Role, Vec<f32>); N]) -> Tensors {
        let mut t = Tensors::default();
        for (role, vector) in vectors {
            t.vectors[role as usize] = Some(vector.into());
        }
        t
    }

    #[test]
    fn a_large_channel_of_keys_is_divided_together_with_its_pair() {
        let a = attention(QkNorm::PerHead { eps: 1e-6 }, Pairing::Halves);
        let mut k = vec![1.0; 8];
        k[1] = 64.0;
        k[6] = -16.0;
        let q = vec![1.0; 8];
        let b = Balance::new(&a, &tensors([(Role::AttnKNorm, k), (Role::AttnQNorm, q)]));
        assert_eq!(*b.keys, [0, 3, 0, 3, 0, 0, 2, 0]);
        let mut key = [8.0; 16];
        b.divide_keys(&mut key);
        assert_eq!(key[8..], [8.0, 1.0, 8.0, 1.0, 8.0, 8.0, 2.0, 8.0]);
        assert!(b.values.is_empty());
    }

    #[test]
    fn the_largest_query_of_a_group_counts_and_scores_do_not_change() {
        let a = attention(QkNorm::None, Pairing::Adjacent);
        let mut k = vec![0.5; 16];
        (k[8], k[15]) = (128.0, 300.0);
        let mut q = vec![0.5; 32];
        (q[7], q[31], q[22]) = (64.0, 32.0, 1024.0);
        let v: Vec<f32> = (0..16).map(|i| if i == 3 { 100.0 } else { 0.0 }).collect();
        let biases = [Role::AttnKBias, Role::AttnQBias, Role::AttnVBias];
        let t = tensors([
            (biases[0], k.clone()),
            (biases[1], q.clone()),
            (biases[2], v),
        ]);
        let b = Balance::new(&a, &t);
        assert_eq!(b.keys[8], b.keys[9], "a pair has one factor");
        assert!(b.keys[15] > 0 && b.keys[7] < 0 && b.keys[14] < b.keys[13]);
        assert!(b.values[3] > b.values[2]);
        let (mut keys, mut queries) = (k.clone(), q.clone());
        b.divide_keys(&mut keys);
        b.multiply_queries(&a, &mut queries);
        for h in 0..4 {
            for c in 0..8 {
                let (key, query) = (h / 2 * 8 + c, h * 8 + c);
                assert_eq!(keys[key] * queries[query], k[key] * q[query]);
            }
        }
        let mut values = vec![1.0; 16];
        let mut results = vec![1.0; 32];
        b.divide_values(&mut values);
        b.multiply_results(&a, &mut results);
        assert_eq!(values[3] * results[11], 1.0);
    }

    #[test]
    fn channels_that_are_alike_and_files_that_tell_nothing_need_no_factors() {
        let a = attention(QkNorm::PerHead { eps: 1e-6 }, Pairing::Halves);
        let alike = [
            (Role::AttnKNorm, vec![3.0; 8]),
            (Role::AttnQNorm, vec![0.2; 8]),
        ];
        assert_eq!(Balance::new(&a, &tensors(alike)), Balance::default());
        assert_eq!(Balance::new(&a, &tensors([])), Balance::default());
        let odd = [
            (Role::AttnKNorm, vec![f32::NAN; 8]),
            (
                Role::AttnQNorm,
                vec![0.0, f32::INFINITY, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
            ),
        ];
        let b = Balance::new(&a, &tensors(odd));
        assert!(b.keys.iter().all(|e| *e == 0), "{b:?}");
    }
}
