//! Gated delta rule: linear attention with a state per head.
//!
//! ```text
//! qkv, z, beta, alpha = W pre(x)                  one region
//! alpha = Wf alpha, z = Wg z                      two regions each, where they are of low rank
//! q, k, v = silu(conv(qkv)), q and k normalized   one region; conv.rs
//! decay = exp(a softplus(alpha + b)), gain = sigmoid(beta)
//! S, y = scan(q, k, v, decay, gain)               one region for each run of positions
//! x += post(Wout (norm(y) ⊙ gate(z)))             one region; residual.rs
//! state = the last n_taps - 1 qkv, S
//! ```

use std::ops::Range;

use atta_kernels::{
    Activation, Decay, Job, Kernels, Matrix, Scan, Store, Strided,
    math::{exp, sigmoid},
};
use atta_store::{ChunkGuard, Projection, WeightGroup};

use super::{Pass, conv::Conv, history::History};
use crate::{
    Error, Phase, Role,
    adapters::Adapted,
    spec::{DeltaNet, GateRows, NetDecay, NetGate, NetTensors, Sublayer},
};

/// `x += residual_scale * post(delta_net(pre(x)))` for layer `l`.
pub(crate) fn delta_net(p: &mut Pass<'_>, l: usize, net: &DeltaNet) -> Result<(), Error> {
    project_inputs(p, l, net)?;
    project_low_ranks(p, l, net)?;
    p.observer.enter(Phase::Scan);
    convolve(p, l, net);
    scan(p, l, net);
    p.observer.enter(Phase::Other);
    project_output(p, l, net)
}

/// The buffers of a batch, parts of [`Scratch::mixer`](super::Scratch::mixer).
struct Buffers<'a> {
    /// Products of the matrices of [`input_roles`], `[n_rows, d_out]` of each, one after another.
    inputs: &'a mut [f32],
    /// Second products of low rank: `z`, `[n_rows, d_values]`, and alpha, `[n_rows, n_decays]`.
    second: [&'a mut [f32]; 2],
    /// What a scan reads: queries, keys, values, decays, gains, `[n_rows, d_scanned]`.
    scanned: &'a mut [f32],
}

/// What the inputs of a batch are projected to.
struct Projected<'a> {
    /// Inputs of the convolutions, `[n_rows, channels]` of each.
    qkv: &'a [f32],
    /// `[n_rows, d_values]`.
    z: &'a [f32],
    gates: Gates<'a>,
}

impl<'a> Buffers<'a> {
    fn new(all: &'a mut [f32], n_rows: usize, net: &DeltaNet) -> Self {
        let (inputs, rest) = all.split_at_mut(n_rows * net.d_inputs());
        let (z, rest) = rest.split_at_mut(n_rows * net.second_widths()[0]);
        let (alpha, rest) = rest.split_at_mut(n_rows * net.second_widths()[1]);
        Self {
            inputs,
            second: [z, alpha],
            scanned: &mut rest[..n_rows * net.d_scanned()],
        }
    }

    /// The vectors between the matrices of `z` and of alpha, `[n_rows, rank]`.
    fn between(&self, n_rows: usize, net: &DeltaNet) -> [&[f32]; 2] {
        let [z, alpha] = net.ranks().map(|rank| n_rows * rank);
        let after_qkv = &self.inputs[n_rows * net.d_conv()..];
        let n = self.inputs.len();
        [&after_qkv[..z], &self.inputs[n - alpha..]]
    }

    fn projected(&self, n_rows: usize, net: &'a DeltaNet) -> Projected<'_> {
        let (qkv, rest) = self.inputs.split_at(n_rows * net.d_conv());
        let (z, gates) = match net.gate_rank {
            Some(rank) => (&*self.second[0], &rest[n_rows * rank..]),
            None => rest.split_at(n_rows * net.d_values()),
        };
        let (beta, alpha) = match net.decay {
            NetDecay::Heads(GateRows::ByKeyHead) => (gates, gates),
            NetDecay::Heads(GateRows::Apart) => gates.split_at(n_rows * net.n_heads),
            NetDecay::Channels { .. } => (&gates[..n_rows * net.n_heads], &*self.second[1]),
        };
        let gates = Gates { net, beta, alpha };
        Projected { qkv, z, gates }
    }
}

/// The matrices that the input of the layer is multiplied with, and their number.
fn input_roles(net: &DeltaNet) -> ([Role; 6], usize) {
    let qkv: &[Role] = match net.tensors {
        NetTensors::Joint => &[Role::SsmQkv],
        NetTensors::Apart => &[Role::AttnQ, Role::AttnK, Role::AttnV],
    };
    let z = net.gate_rank.map_or(Role::AttnGate, |_| Role::SsmGA);
    let gates: &[Role] = match net.decay {
        NetDecay::Heads(GateRows::Apart) => &[Role::SsmBeta, Role::SsmAlpha],
        NetDecay::Heads(GateRows::ByKeyHead) => &[Role::SsmBetaAlpha],
        NetDecay::Channels { .. } => &[Role::SsmBeta, Role::SsmFA],
    };
    let mut roles = [z; 6];
    let all = qkv.iter().chain([&z]).chain(gates);
    roles.iter_mut().zip(all).for_each(|(to, role)| *to = *role);
    (roles, qkv.len() + 1 + gates.len())
}

/// `qkv, z, beta, alpha = W pre(x)`, or the vectors from which the second and last are projected.
fn project_inputs(p: &mut Pass<'_>, l: usize, net: &DeltaNet) -> Result<(), Error> {
    let (roles, n) = input_roles(net);
    p.enter(l, Sublayer::Mixer, &roles[..n]);
    p.each_chunk(WeightGroup::Layer(l, Projection::Qkv), |p, chunk| {
        let [a, b, c, d, e, f] = roles;
        match n {
            3 => multiply_inputs(p, l, net, chunk, [a, b, c]),
            4 => multiply_inputs(p, l, net, chunk, [a, b, c, d]),
            5 => multiply_inputs(p, l, net, chunk, [a, b, c, d, e]),
            _ => multiply_inputs(p, l, net, chunk, [a, b, c, d, e, f]),
        }
    })?;
    let n_rows = p.rows.len();
    let s = &mut *p.s;
    let mut rest = Buffers::new(&mut s.mixer, n_rows, net).inputs;
    for &role in &roles[..n] {
        let (out, others) = std::mem::take(&mut rest).split_at_mut(n_rows * net.rows_of(role));
        rest = others;
        p.adapting.add(Adapted::of_layer(l, role, &s.act, out));
    }
    Ok(())
}

fn multiply_inputs<const N: usize>(
    p: &mut Pass<'_>,
    l: usize,
    net: &DeltaNet,
    chunk: &ChunkGuard<'_>,
    roles: [Role; N],
) -> Result<(), Error> {
    let n = p.rows.len();
    let t = p.model.layer(l);
    let s = &mut *p.s;
    let mut rest = Buffers::new(&mut s.mixer, n, net).inputs;
    let jobs = roles.map(|role| {
        let w = t.matrix(role, chunk);
        let (out, others) = std::mem::take(&mut rest).split_at_mut(n * net.rows_of(role));
        rest = others;
        product(w, out)
    });
    p.products.matmul(&s.act, jobs)
}

/// `out = W act`.
fn product<'a>(w: Matrix<'a>, out: &'a mut [f32]) -> Job<'a> {
    Job {
        w,
        bias: None,
        out,
        mode: Store::Set,
    }
}

/// `alpha = W alpha`, `z = W z`, where they are of low rank.
fn project_low_ranks(p: &mut Pass<'_>, l: usize, net: &DeltaNet) -> Result<(), Error> {
    let [of_z, of_alpha] = [
        (Role::SsmGB, Projection::KeyUp),
        (Role::SsmFB, Projection::QueryUp),
    ];
    for (i, (role, group)) in [(1, of_alpha), (0, of_z)] {
        let n = p.rows.len();
        let d = net.ranks()[i];
        if d == 0 {
            continue;
        }
        let t = p.model.layer(l);
        let s = &mut *p.s;
        let buffers = Buffers::new(&mut s.mixer, n, net);
        let from = buffers.between(n, net)[i];
        let layouts = t.layouts(&[role]);
        s.act.fill(p.kernels, p.pool, (n, d), layouts, |row, out| {
            out.copy_from_slice(&from[row * d..][..d]);
        });
        p.observe_inputs(l, &[role]);
        p.each_chunk(WeightGroup::Layer(l, group), |p, chunk| {
            let s = &mut *p.s;
            let [z, alpha] = Buffers::new(&mut s.mixer, n, net).second;
            let out = if i == 0 { z } else { alpha };
            let job = product(t.matrix(role, chunk), out);
            p.products.matmul(&s.act, [job])
        })?;
    }
    Ok(())
}

/// Queries, keys, values, decays and gains of every row; keeps the inputs of the convolutions.
fn convolve(p: &mut Pass<'_>, l: usize, net: &DeltaNet) {
    let n = p.rows.len();
    let kernels = p.kernels;
    let t = p.model.layer(l);
    let mut buffers = Buffers::new(&mut p.s.mixer, n, net);
    let scanned = std::mem::take(&mut buffers.scanned);
    let Projected { qkv, gates, .. } = buffers.projected(n, net);
    let conv = |channels: Range<usize>| Conv {
        n_taps: net.n_taps,
        dilation: 1,
        bias: None,
        past: History {
            layer: l,
            len: net.n_taps - 1,
            d: channels.len(),
            at: (net.n_taps - 1) * channels.start,
            inputs: Strided {
                data: qkv,
                stride: channels.len(),
                at: n * channels.start,
            },
            steps: p.steps,
        },
    };
    let cache = &*p.cache;
    let decays = Decays {
        a: t.vector(Role::SsmA),
        bias: t.vector(Role::SsmDtBias),
    };
    let query_scale = 1.0 / (net.d_key as f32).sqrt();
    p.pool.for_each_row(scanned, net.d_scanned(), |row, out| {
        let (mixed, out) = out.split_at_mut(net.d_conv());
        for (channels, &role) in net.convs().zip(net.conv_roles()) {
            let mixed = &mut mixed[channels.clone()];
            conv(channels).apply(kernels, cache, t.vector(role), row, mixed);
        }
        kernels.activate(Activation::Silu, mixed);
        let (q, rest) = mixed.split_at_mut(net.d_keys());
        for (heads, scale) in [(q, query_scale), (&mut rest[..net.d_keys()], 1.0)] {
            heads
                .chunks_exact_mut(net.d_key)
                .for_each(|head| kernels.l2_norm_inplace(head, net.l2_eps, scale));
        }
        let (to_decays, gains) = out.split_at_mut(net.n_decays());
        for (h, gain) in gains.iter_mut().enumerate() {
            *gain = sigmoid(gates.beta(row, h));
        }
        decays.of_row(kernels, &gates, row, to_decays);
    });
    net.convs()
        .for_each(|channels| conv(channels).keep_states(p.cache));
}

/// What decays are computed with.
struct Decays<'a> {
    /// `[n_heads]`.
    a: &'a [f32],
    /// `[n_decays]`.
    bias: &'a [f32],
}

impl Decays<'_> {
    /// `exp(a softplus(alpha + b))` of a row, `[n_decays]`.
    fn of_row(&self, kernels: Kernels, gates: &Gates<'_>, row: usize, decays: &mut [f32]) {
        let Self { a, bias } = self;
        let net = gates.net;
        let (alpha, n_shared): (&dyn Fn(usize) -> f32, _) = match net.decay {
            NetDecay::Heads(_) => (&|h| gates.alpha(row, h), 1),
            NetDecay::Channels { .. } => (&|i| gates.alpha[row * bias.len() + i], net.d_key),
        };
        for (i, (decay, bias)) in decays.iter_mut().zip(*bias).enumerate() {
            *decay = alpha(i) + bias;
        }
        kernels.activate(Activation::Softplus, decays);
        for (decays, a) in decays.chunks_exact_mut(n_shared).zip(*a) {
            decays.iter_mut().for_each(|decay| *decay = exp(a * *decay));
        }
    }
}

/// The projections of gains and decays.
struct Gates<'a> {
    net: &'a DeltaNet,
    /// `[n_rows, n_heads]`, or both, `[n_rows, 2 n_heads]`.
    beta: &'a [f32],
    /// `[n_rows, n_decays]`, or both.
    alpha: &'a [f32],
}

impl Gates<'_> {
    /// Beta of head `h` of a row.
    fn beta(&self, row: usize, h: usize) -> f32 {
        match self.net.decay {
            NetDecay::Heads(GateRows::ByKeyHead) => self.beta[self.of_both(row, h)],
            _ => self.beta[row * self.net.n_heads + h],
        }
    }

    /// Alpha of head `h` of a row, where decays are of heads.
    fn alpha(&self, row: usize, h: usize) -> f32 {
        match self.net.decay {
            NetDecay::Heads(GateRows::ByKeyHead) => {
                self.alpha[self.of_both(row, h) + self.net.n_heads / self.net.n_key_heads]
            }
            _ => self.alpha[row * self.net.n_heads + h],
        }
    }

    /// The place of beta in a projection to both.
    fn of_both(&self, row: usize, h: usize) -> usize {
        let n_heads = self.net.n_heads;
        let n_per_key = n_heads / self.net.n_key_heads;
        2 * (row * n_heads + h / n_per_key * n_per_key) + h % n_per_key
    }
}

/// `S, y = scan(q, k, v, decay, gain)`.
fn scan(p: &mut Pass<'_>, l: usize, net: &DeltaNet) {
    let n = p.rows.len();
    let s = &mut *p.s;
    let scanned = &*Buffers::new(&mut s.mixer, n, net).scanned;
    let part = |at| Strided {
        data: scanned,
        stride: net.d_scanned(),
        at,
    };
    let decay = part(net.d_conv());
    let decay = match net.decay {
        NetDecay::Heads(_) => Decay::OfHeads(decay),
        NetDecay::Channels { .. } => Decay::OfChannels(decay),
    };
    for run in p.runs {
        let (before, after) = p
            .cache
            .state_pair(l, run, net.conv_floats()..net.state_floats());
        p.kernels.scan(
            p.pool,
            Scan {
                n_heads: net.n_heads,
                key_head: &|h| net.key_head(h),
                d_key: net.d_key,
                d_value: net.d_value,
                is_delta: true,
                skip: None,
                rows: p.runs.rows(run),
                q: part(0),
                k: part(net.d_keys()),
                v: part(2 * net.d_keys()),
                decay,
                gain: part(net.d_conv() + net.n_decays()),
                before,
                after,
                out: &mut s.heads[..n * net.d_values()],
            },
        );
    }
}

/// `x += residual_scale * post(Wout (norm(y) ⊙ gate(z)))`.
fn project_output(p: &mut Pass<'_>, l: usize, net: &DeltaNet) -> Result<(), Error> {
    let n = p.rows.len();
    let d = net.d_values();
    let t = p.model.layer(l);
    let kernels = p.kernels;
    let weight = t.vector(Role::SsmNorm);
    let s = &mut *p.s;
    let buffers = Buffers::new(&mut s.mixer, n, net);
    let z = buffers.projected(n, net).z;
    let heads = &mut s.heads[..n * d];
    p.pool.for_each_row(heads, net.d_value, |_, y| {
        kernels.rms_norm_inplace(y, weight, net.eps)
    });
    let heads = &s.heads;
    let gate = match net.gate {
        NetGate::Silu => Activation::Silu,
        NetGate::Sigmoid => Activation::Sigmoid,
    };
    s.act.fill(
        kernels,
        p.pool,
        (n, d),
        t.layouts(&[net.out_role()]),
        |row, out| {
            out.copy_from_slice(&z[row * d..(row + 1) * d]);
            kernels.gate_row(gate, out, &heads[row * d..(row + 1) * d]);
        },
    );
    p.leave(l, Sublayer::Mixer, net.out_role(), None)
}
