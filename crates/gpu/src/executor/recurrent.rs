//! Recurrent layers in the forward pass on a GPU: short convolutions, delta nets, Mamba 2.
//!
//! ```text
//! short convolution:  b, c, x = W h;  x += Wout (c ⊙ conv(b ⊙ x))
//! delta net:          qkv, z, beta, alpha = W h;  q, k, v = silu(conv(qkv)), q and k of length 1
//!                     x += Wout (norm(scan(q, k, v)) ⊙ gate(z))
//! Mamba 2:            z, xbc, dt = W h;  x, b, c = silu(conv(xbc))
//!                     x += Wout norm(scan(c, b, x) ⊙ silu(z))
//! ```
//! Rows of projections that belong together in a file lie apart here: `weights/place.rs`. Every
//! projection is `[n_rows, d]` so, and an array of what it is.

use super::pass::{Leaving, Made, Recorded, StepParts};
use crate::{
    AddNormed, Convolve, Decays, Dispatch, KeepInputs, NormHeads, Normed, ProductEnd,
    RowActivation, RowFactor, RowFunction, RowHistory, RowNorm, Scan, ScanKeys,
};
use atta_model::Role;
use atta_model::spec::{
    AttentionAndMamba2, DeltaNet, KeySharing, Mamba2, NetGate, ShortConv, Sublayer,
};

/// The projections of a short convolution: `b`, `c` and `x`.
pub(crate) const OF_SHORT_CONV: [Role; 3] = [Role::ShortconvInProj, Role::SsmBeta, Role::SsmAlpha];
/// Those of a delta net: queries, keys and values; the gate; gains; decays.
pub(crate) const OF_NET: [Role; 4] = [Role::SsmQkv, Role::AttnGate, Role::SsmBeta, Role::SsmAlpha];
/// Those of Mamba 2: the gate; values, keys and queries; steps.
pub(crate) const OF_MAMBA: [Role; 3] = [Role::SsmIn, Role::SsmQkv, Role::SsmAlpha];

/// The convolution of a layer.
struct LayerConv {
    l: usize,
    d: usize,
    n_taps: usize,
    taps: Role,
    bias: Option<u32>,
    activation: Option<RowActivation>,
}

/// RMS norms of the results of a row: of `n` parts of width `d`, with weights in turn.
struct ResultNorms {
    n: usize,
    d: usize,
    weight: u32,
    n_weights: usize,
    eps: f32,
}

impl Recorded<'_> {
    /// `x += Wout (c ⊙ conv(b ⊙ x))`.
    pub(super) fn short_conv(&mut self, l: usize, conv: &ShortConv) {
        let d = self.spec().d_model;
        let layout = self.parts.layout;
        let regions = layout.recurrent;
        let places = [regions.inputs, regions.z, regions.results];
        self.project(l, &OF_SHORT_CONV, &places);
        let times = |at| RowFactor::Values {
            at,
            n: 1,
            activation: None,
        };
        self.multiply(regions.inputs, d, times(regions.results));
        self.convolve(&LayerConv {
            l,
            d,
            n_taps: conv.n_taps,
            taps: Role::ShortconvConv,
            bias: None,
            activation: None,
        });
        self.multiply(regions.mixed, d, times(regions.z));
        self.leave_by(
            l,
            regions.mixed,
            d,
            RowFunction::Copy,
            Role::ShortconvOutProj,
        );
    }

    /// `x += Wout (norm(y) ⊙ gate(z))`.
    pub(super) fn delta_net(&mut self, l: usize, net: &DeltaNet) {
        let regions = self.parts.layout.recurrent;
        let places = [regions.inputs, regions.z, regions.beta, regions.alpha];
        self.project(l, &OF_NET, &places);
        self.convolve(&LayerConv {
            l,
            d: net.d_conv(),
            n_taps: net.n_taps,
            taps: Role::SsmConv,
            bias: None,
            activation: Some(RowActivation::Silu),
        });
        let keys = regions.mixed + net.d_keys() as u32;
        let query_scale = 1.0 / (net.d_key as f32).sqrt();
        for (x, scale) in [(regions.mixed, query_scale), (keys, 1.0)] {
            let heads = NormHeads {
                n_rows: self.n_rows,
                d_row: net.d_conv() as u32,
                n_heads: net.n_key_heads as u32,
                d: net.d_key as u32,
                x,
                eps: net.l2_eps,
                scale,
            };
            let kernel = self.parts.kernels.norm_heads;
            self.push(heads.dispatch(kernel, self.parts.state_bindings));
        }
        self.decays(l, net.n_heads, Some(regions.beta), 0.0);
        self.scan(l, net.conv_floats(), &scan_of_net(net, regions.mixed));
        self.norm_results(&ResultNorms {
            n: net.n_heads,
            d: net.d_value,
            weight: self.vector(Role::SsmNorm, l),
            n_weights: 1,
            eps: net.eps,
        });
        let activation = match net.gate {
            NetGate::Silu => RowActivation::Silu,
            NetGate::Sigmoid => RowActivation::Sigmoid,
        };
        let up = regions.results;
        let function = RowFunction::Gate { activation, up };
        self.leave_by(l, regions.z, net.d_values(), function, Role::SsmOut);
    }

    /// Norms of parts of the results.
    fn norm_results(&mut self, norms: &ResultNorms) {
        let ResultNorms {
            n,
            d,
            weight,
            n_weights,
            eps,
        } = *norms;
        let results = self.parts.layout.recurrent.results;
        self.add(&AddNormed {
            norm: RowNorm::Rms { weight, eps },
            normed: Normed::Alone,
            n_rows: self.n_rows * n as u32,
            d: d as u32,
            x: results,
            y: results,
            factor: 1.0,
            n_weights: n_weights as u32,
        });
    }

    /// `x += Wout norm(y ⊙ silu(z))`.
    pub(super) fn mamba2(&mut self, l: usize, mamba: &Mamba2) {
        let made = self.mamba2_hidden(l, mamba);
        let mixed = self.parts.layout.mixed;
        self.make(&made, mixed, &[(Role::SsmOut, Some(l))]);
        self.leave_mixer(l, Role::SsmOut);
    }

    /// Attention and Mamba 2 of the same input, whose results are added.
    pub(super) fn attention_and_mamba2(&mut self, l: usize, both: &AttentionAndMamba2) {
        let layout = self.parts.layout;
        self.attention(l, &both.attention);
        let y = layout.y;
        let of_attention = (Role::AttnOutput, Some(l));
        self.product(of_attention, layout.mixed, y, ProductEnd::Set);
        let made = self.mamba2_hidden(l, &both.mamba);
        let of_mamba = (Role::SsmOut, Some(l));
        self.make(&made, layout.mixed, &[of_mamba]);
        self.product(of_mamba, layout.mixed, y, ProductEnd::Add(1.0));
        match self.normed_result(l, Sublayer::Mixer) {
            Some(added) => self.add(&added),
            None => self.add_plain(y, self.spec().layers[l].residual_scale),
        }
    }

    /// What the last matrix of Mamba 2 reads.
    fn mamba2_hidden(&mut self, l: usize, mamba: &Mamba2) -> Made {
        let regions = self.parts.layout.recurrent;
        let places = [regions.z, regions.inputs, regions.alpha];
        self.project(l, &OF_MAMBA, &places);
        self.convolve(&LayerConv {
            l,
            d: mamba.d_conv(),
            n_taps: mamba.n_taps,
            taps: Role::SsmConv,
            bias: self.parts.vectors.get(Role::SsmConvBias, Some(l)),
            activation: Some(RowActivation::Silu),
        });
        self.decays(l, mamba.n_heads, None, mamba.min_step);
        let skip = self.parts.vectors.get(Role::SsmD, Some(l));
        let scan = Scan {
            skip,
            ..scan_of_mamba(mamba, regions.mixed)
        };
        self.scan(l, mamba.conv_floats(), &scan);
        let (function, x) = match self.parts.vectors.get(Role::SsmNorm, Some(l)) {
            Some(weight) => {
                self.norm_gated(weight, mamba);
                (RowFunction::Copy, regions.results)
            }
            None => {
                let activation = RowActivation::Silu;
                let up = regions.results;
                (RowFunction::Gate { activation, up }, regions.z)
            }
        };
        Made {
            function,
            x,
            d: mamba.d_inner(),
            n_rows: self.n_rows,
        }
    }

    /// The results of Mamba 2 times their gates, then norms of groups.
    fn norm_gated(&mut self, weight: u32, mamba: &Mamba2) {
        let regions = self.parts.layout.recurrent;
        let gate = RowFactor::Values {
            at: regions.z,
            n: 1,
            activation: Some(RowActivation::Silu),
        };
        self.multiply(regions.results, mamba.d_inner(), gate);
        self.norm_results(&ResultNorms {
            n: mamba.n_groups,
            d: mamba.d_inner() / mamba.n_groups,
            weight,
            n_weights: mamba.n_groups,
            eps: mamba.eps,
        });
    }

    /// The projections of a layer's input.
    fn project(&mut self, l: usize, roles: &[Role], places: &[u32]) {
        let products: Vec<_> = roles.iter().copied().zip(places.iter().copied()).collect();
        self.enter_by(l, self.pre_norm(l, Sublayer::Mixer), roles);
        self.products(l, &products);
    }

    fn vector(&self, role: Role, l: usize) -> u32 {
        let at = self.parts.vectors.get(role, Some(l));
        at.unwrap_or_default()
    }

    fn push(&mut self, dispatch: Dispatch) {
        self.dispatches.push(dispatch);
    }

    /// `mixed = act(conv(inputs))`; the last inputs are kept in the states.
    fn convolve(&mut self, conv: &LayerConv) {
        let StepParts {
            kernels,
            tables,
            layout,
            state_bindings,
            ..
        } = *self.parts;
        let [sources, n_sources] = tables.states().sources();
        let history = RowHistory {
            d: conv.d as u32,
            x: layout.recurrent.inputs,
            sources,
            n_sources,
            len: conv.n_taps as u32 - 1,
            state: (self.parts.state_at)(conv.l) as u32,
        };
        let convolve = Convolve {
            history,
            n_rows: self.n_rows,
            taps: self.vector(conv.taps, conv.l),
            bias: conv.bias,
            activation: conv.activation,
            out: layout.recurrent.mixed,
            d_out: conv.d as u32,
        };
        self.push(convolve.dispatch(kernels.convolve, state_bindings));
        let [kept, n_kept] = tables.states().kept();
        let keep = KeepInputs {
            history,
            kept,
            n_kept,
        };
        self.push(keep.dispatch(kernels.keep_inputs, state_bindings));
    }

    fn decays(&mut self, l: usize, n_heads: usize, beta: Option<u32>, least: f32) {
        let regions = self.parts.layout.recurrent;
        let decays = Decays {
            n_rows: self.n_rows,
            n_heads: n_heads as u32,
            alpha: regions.alpha,
            beta,
            a: self.vector(Role::SsmA, l),
            bias: self.vector(Role::SsmDtBias, l),
            least,
            decays: regions.decays,
            gains: regions.gains,
        };
        let kernel = self.parts.kernels.decays;
        self.push(decays.dispatch(kernel, self.parts.state_bindings));
    }

    /// All runs of the step; `n_before` floats of the layer's state are the convolution's.
    fn scan(&mut self, l: usize, n_before: usize, scan: &Scan) {
        let StepParts {
            kernels,
            tables,
            layout,
            state_bindings,
            ..
        } = *self.parts;
        let regions = layout.recurrent;
        for level in tables.states().levels() {
            let scan = Scan {
                decays: regions.decays,
                gains: regions.gains,
                state: ((self.parts.state_at)(l) + n_before) as u32,
                runs: level.at,
                n_runs: level.n,
                out: regions.results,
                ..*scan
            };
            self.push(scan.dispatch(kernels.scan, state_bindings));
        }
    }

    /// The last product of a mixer, of a function of rows.
    fn leave_by(&mut self, l: usize, x: u32, d: usize, function: RowFunction, role: Role) {
        let made = Made {
            function,
            x,
            d,
            n_rows: self.n_rows,
        };
        self.make(&made, self.parts.layout.mixed, &[(role, Some(l))]);
        self.leave_mixer(l, role);
    }

    fn leave_mixer(&mut self, l: usize, role: Role) {
        let leaving = Leaving {
            sublayer: Sublayer::Mixer,
            role,
            acts: self.parts.layout.mixed,
        };
        self.leave(l, &leaving);
    }
}

/// The shape of the scan of a delta net; queries, keys and values are in `mixed`.
fn scan_of_net(net: &DeltaNet, mixed: u32) -> Scan {
    let d_keys = net.d_keys() as u32;
    Scan {
        qkv: [mixed, mixed + d_keys, mixed + 2 * d_keys],
        d_row: net.d_conv() as u32,
        d_key: net.d_key as u32,
        d_value: net.d_value as u32,
        n_heads: net.n_heads as u32,
        keys: match net.sharing {
            KeySharing::Neighbours => ScanKeys::Neighbours((net.n_heads / net.n_key_heads) as u32),
            KeySharing::InTurn => ScanKeys::InTurn(net.n_key_heads as u32),
        },
        is_delta: true,
        ..NO_SCAN
    }
}

/// The shape of the scan of Mamba 2: values, keys and queries are in `mixed`.
fn scan_of_mamba(mamba: &Mamba2, mixed: u32) -> Scan {
    let keys = mixed + mamba.d_inner() as u32;
    Scan {
        qkv: [keys + mamba.d_states() as u32, keys, mixed],
        d_row: mamba.d_conv() as u32,
        d_key: mamba.d_state as u32,
        d_value: mamba.d_head as u32,
        n_heads: mamba.n_heads as u32,
        keys: ScanKeys::Neighbours((mamba.n_heads / mamba.n_groups) as u32),
        ..NO_SCAN
    }
}

/// A scan without a place.
const NO_SCAN: Scan = Scan {
    qkv: [0; 3],
    d_row: 0,
    decays: 0,
    gains: 0,
    d_key: 0,
    d_value: 0,
    n_heads: 0,
    keys: ScanKeys::Neighbours(1),
    is_delta: false,
    skip: None,
    state: 0,
    runs: 0,
    n_runs: 0,
    out: 0,
};
