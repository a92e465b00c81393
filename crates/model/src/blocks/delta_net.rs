//! Gated delta rule: linear attention with a state per head.
//!
//! ```text
//! qkv, z, beta, alpha = W pre(x)                  one region
//! q, k, v = silu(conv(qkv)), q and k normalized   one region; conv.rs
//! decay = exp(a softplus(alpha + b)), gain = sigmoid(beta)
//! S, y = scan(q, k, v, decay, gain)               one region for each run of positions
//! x += post(Wout (norm(y) ⊙ gate(z)))             one region; residual.rs
//! state = the last n_taps - 1 qkv, S
//! ```

use atta_kernels::{
    Activation, Decay, Job, Scan, Store, Strided,
    math::{exp, sigmoid, softplus},
};
use atta_store::{Projection, WeightGroup};

use super::{Pass, conv::Conv, history::History};
use crate::{
    Error, Phase, Role,
    spec::{DeltaNet, GateRows, NetGate, Sublayer},
};

/// `x += residual_scale * post(delta_net(pre(x)))` for layer `l`.
pub(crate) fn delta_net(p: &mut Pass<'_>, l: usize, net: &DeltaNet) -> Result<(), Error> {
    project_inputs(p, l, net)?;
    p.observer.enter(Phase::Scan);
    convolve(p, l, net);
    scan(p, l, net);
    p.observer.enter(Phase::Other);
    project_output(p, l, net)
}

/// The buffers of a batch, parts of [`Scratch::mixer`](super::Scratch::mixer).
struct Buffers<'a> {
    /// Inputs of the convolution, `[n_rows, d_conv]`.
    qkv: &'a mut [f32],
    /// `[n_rows, d_values]`.
    z: &'a mut [f32],
    /// Projections of gains and decays, `[n_rows, n_heads]` each or `[n_rows, 2 n_heads]`.
    gates: &'a mut [f32],
    /// What a scan reads: queries, keys, values, decays, gains, `[n_rows, d_conv + 2 n_heads]`.
    scanned: &'a mut [f32],
}

impl<'a> Buffers<'a> {
    fn new(all: &'a mut [f32], n_rows: usize, net: &DeltaNet) -> Self {
        let n_gates = 2 * net.n_heads;
        let (qkv, rest) = all.split_at_mut(n_rows * net.d_conv());
        let (z, rest) = rest.split_at_mut(n_rows * net.d_values());
        let (gates, rest) = rest.split_at_mut(n_rows * n_gates);
        let scanned = &mut rest[..n_rows * (net.d_conv() + n_gates)];
        Self {
            qkv,
            z,
            gates,
            scanned,
        }
    }
}

/// `qkv, z, beta, alpha = W pre(x)`.
fn project_inputs(p: &mut Pass<'_>, l: usize, net: &DeltaNet) -> Result<(), Error> {
    let n = p.rows.len();
    let t = p.model.layer(l);
    let roles: &[Role] = match net.gates {
        GateRows::Apart => &[Role::SsmQkv, Role::AttnGate, Role::SsmBeta, Role::SsmAlpha],
        GateRows::ByKeyHead => &[Role::SsmQkv, Role::AttnGate, Role::SsmBetaAlpha],
    };
    p.enter(l, Sublayer::Mixer, roles);
    p.each_chunk(WeightGroup::Layer(l, Projection::Qkv), |p, chunk| {
        let s = &mut *p.s;
        let job = |role, out| Job {
            w: t.matrix(role, chunk),
            bias: None,
            out,
            mode: Store::Set,
        };
        let Buffers { qkv, z, gates, .. } = Buffers::new(&mut s.mixer, n, net);
        let qkv = job(Role::SsmQkv, qkv);
        let z = job(Role::AttnGate, z);
        match net.gates {
            GateRows::Apart => {
                let (beta, alpha) = gates.split_at_mut(n * net.n_heads);
                let beta = job(Role::SsmBeta, beta);
                let alpha = job(Role::SsmAlpha, alpha);
                p.kernels.matmul(p.pool, &s.act, &mut [qkv, z, beta, alpha]);
            }
            GateRows::ByKeyHead => {
                let both = job(Role::SsmBetaAlpha, gates);
                p.kernels.matmul(p.pool, &s.act, &mut [qkv, z, both]);
            }
        }
    })
}

/// Queries, keys, values, decays and gains of every row; keeps the inputs of the convolution.
fn convolve(p: &mut Pass<'_>, l: usize, net: &DeltaNet) {
    let n = p.rows.len();
    let kernels = p.kernels;
    let t = p.model.layer(l);
    let [taps, bias, a] = [Role::SsmConv, Role::SsmDtBias, Role::SsmA].map(|role| t.vector(role));
    let Buffers {
        qkv,
        gates,
        scanned,
        ..
    } = Buffers::new(&mut p.s.mixer, n, net);
    let conv = Conv {
        n_taps: net.n_taps,
        dilation: 1,
        bias: None,
        past: History {
            layer: l,
            len: net.n_taps - 1,
            d: net.d_conv(),
            at: 0,
            inputs: Strided {
                data: qkv,
                stride: net.d_conv(),
                at: 0,
            },
            steps: p.steps,
        },
    };
    let cache = &*p.cache;
    let gates = Gates { net, rows: gates };
    let query_scale = 1.0 / (net.d_key as f32).sqrt();
    let width = net.d_conv() + 2 * net.n_heads;
    p.pool.for_each_row(scanned, width, |row, out| {
        let (mixed, out) = out.split_at_mut(net.d_conv());
        conv.apply(kernels, cache, taps, row, mixed);
        kernels.activate(Activation::Silu, mixed);
        let (q, rest) = mixed.split_at_mut(net.d_keys());
        for (heads, scale) in [(q, query_scale), (&mut rest[..net.d_keys()], 1.0)] {
            heads
                .chunks_exact_mut(net.d_key)
                .for_each(|head| kernels.l2_norm_inplace(head, net.l2_eps, scale));
        }
        let (decays, gains) = out.split_at_mut(net.n_heads);
        for (h, (decay, gain)) in decays.iter_mut().zip(gains).enumerate() {
            let (beta, alpha) = gates.of(row, n, h);
            *decay = exp(a[h] * softplus(alpha + bias[h]));
            *gain = sigmoid(beta);
        }
    });
    conv.keep_states(p.cache);
}

/// The projections of gains and decays.
struct Gates<'a> {
    net: &'a DeltaNet,
    rows: &'a [f32],
}

impl Gates<'_> {
    /// Beta and alpha of head `h` of one of `n` rows.
    fn of(&self, row: usize, n: usize, h: usize) -> (f32, f32) {
        let n_heads = self.net.n_heads;
        match self.net.gates {
            GateRows::Apart => {
                let i = row * n_heads + h;
                (self.rows[i], self.rows[n * n_heads + i])
            }
            GateRows::ByKeyHead => {
                let n_per_key = n_heads / self.net.n_key_heads;
                let i = 2 * (row * n_heads + h / n_per_key * n_per_key) + h % n_per_key;
                (self.rows[i], self.rows[i + n_per_key])
            }
        }
    }
}

/// `S, y = scan(q, k, v, decay, gain)`.
fn scan(p: &mut Pass<'_>, l: usize, net: &DeltaNet) {
    let n = p.rows.len();
    let s = &mut *p.s;
    let scanned = &*Buffers::new(&mut s.mixer, n, net).scanned;
    let part = |at| Strided {
        data: scanned,
        stride: net.d_conv() + 2 * net.n_heads,
        at,
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
                decay: Decay::OfHeads(part(net.d_conv())),
                gain: part(net.d_conv() + net.n_heads),
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
    let z = &*Buffers::new(&mut s.mixer, n, net).z;
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
        t.layouts(&[Role::SsmOut]),
        |row, out| {
            out.copy_from_slice(&z[row * d..(row + 1) * d]);
            kernels.gate_row(gate, out, &heads[row * d..(row + 1) * d]);
        },
    );
    p.leave(l, Sublayer::Mixer, Role::SsmOut, None)
}
