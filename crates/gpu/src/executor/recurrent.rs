//! Recurrent layers in the forward pass on a GPU: what they share, and short convolutions.
//!
//! ```text
//! short convolution:  b, c, x = W h;  x += Wout (c ⊙ conv(b ⊙ x))
//! delta net:          net.rs;  Mamba: mamba.rs;  Mamba 2: mamba2.rs
//! ```
//! Rows of projections that belong together in a file lie apart here: `weights/place.rs`. Every
//! projection is `[n_rows, d]` so, and an array of what it is.

mod mamba;
mod mamba2;
mod net;

use super::layout::Acts;
use super::pass::{Made, Recorded, StepParts};
use crate::{
    AddNormed, Convolve, Decays, Dispatch, KeepInputs, NormHeads, Normed, RowActivation, RowFactor,
    RowFunction, RowHistory, RowNorm, Scan, ScanKeys, ScanRule,
};
use atta_model::Role;
use atta_model::spec::{LayerSpec, Mixer, ShortConv, Sublayer};

pub(crate) use mamba::{OF_CHANNELS, SELECTION};
pub(crate) use mamba2::OF_MAMBA;
pub(super) use net::OF_NET;

/// The projections of a short convolution: `b`, `c` and `x`.
pub(crate) const OF_SHORT_CONV: [Role; 3] = [Role::ShortconvInProj, Role::SsmBeta, Role::SsmAlpha];

/// Rows of values: their first word, and their width.
#[derive(Clone, Copy)]
struct ValueRows {
    x: u32,
    d: usize,
}

/// The convolution of a layer, of all channels or of neighbours among them.
struct LayerConv {
    l: usize,
    /// Channels, the first one, and all of a row of results.
    d: usize,
    first: usize,
    d_all: usize,
    n_taps: usize,
    taps: Role,
    bias: Option<u32>,
    activation: Option<RowActivation>,
}

impl LayerConv {
    /// Of all channels, with SiLU behind it and without a bias.
    fn new(l: usize, taps: Role, n_taps: usize, d: usize) -> Self {
        Self {
            l,
            d,
            first: 0,
            d_all: d,
            n_taps,
            taps,
            bias: None,
            activation: Some(RowActivation::Silu),
        }
    }
}

/// The decays and gains of a layer.
struct LayerDecays {
    l: usize,
    /// Decays of a row, and neighbours among them with one rate.
    n: usize,
    n_shared: usize,
    beta: Option<u32>,
    /// Whether there are decays, or gains alone.
    has_decays: bool,
    least: f32,
}

/// RMS norms of a row of values: of `n` parts of width `d`, with weights in turn.
struct PartNorms {
    x: u32,
    n: usize,
    d: usize,
    weight: u32,
    n_weights: usize,
    eps: f32,
}

/// How a layer changes states of heads, if it has such.
pub(super) fn rule_of(layer: &LayerSpec) -> Option<ScanRule> {
    match &layer.mixer {
        Mixer::None | Mixer::Attention(_) | Mixer::ShortConv(_) => None,
        Mixer::DeltaNet(net) => Some(net::rule_of_net(net)),
        Mixer::Mamba(_) => Some(ScanRule::Elements),
        Mixer::Mamba2(_) | Mixer::AttentionAndMamba2(_) => Some(ScanRule::Heads),
    }
}

impl Recorded<'_> {
    /// `c ⊙ conv(b ⊙ x)`, for the last product.
    pub(super) fn short_conv(&mut self, l: usize, conv: &ShortConv) {
        let d = self.spec().d_model;
        let regions = self.parts.layout.recurrent;
        let places = [regions.inputs, regions.z, regions.results];
        self.project(l, &OF_SHORT_CONV, &places);
        let times = |at| RowFactor::Values {
            at,
            n: 1,
            activation: None,
        };
        self.multiply(regions.inputs, d, times(regions.results));
        self.convolve(&LayerConv {
            activation: None,
            ..LayerConv::new(l, Role::ShortconvConv, conv.n_taps, d)
        });
        self.multiply(regions.mixed, d, times(regions.z));
        let mixed = ValueRows {
            x: regions.mixed,
            d,
        };
        self.copied_acts(mixed, l, &[Role::ShortconvOutProj]);
    }

    /// The projections of a layer's input.
    fn project(&mut self, l: usize, roles: &[Role], places: &[u32]) {
        let products: Vec<_> = roles.iter().copied().zip(places.iter().copied()).collect();
        self.enter_by(l, self.pre_norm(l, Sublayer::Mixer), roles);
        self.products(l, &products);
    }

    /// Activations for the next matrices of a mixer.
    fn copied_acts(&mut self, rows: ValueRows, l: usize, roles: &[Role]) -> Acts {
        self.mixed_acts(RowFunction::Copy, rows, l, roles)
    }

    /// The same for its last matrix: results times `activation(z)`.
    fn gated_acts(&mut self, activation: RowActivation, d: usize, l: usize, role: Role) {
        let regions = self.parts.layout.recurrent;
        let up = regions.results;
        let function = RowFunction::Gate { activation, up };
        let z = ValueRows { x: regions.z, d };
        self.mixed_acts(function, z, l, &[role]);
    }

    fn mixed_acts(
        &mut self,
        function: RowFunction,
        rows: ValueRows,
        l: usize,
        roles: &[Role],
    ) -> Acts {
        let acts = self.parts.layout.mixed;
        let made = Made {
            function,
            x: rows.x,
            d: rows.d,
            n_rows: self.n_rows,
        };
        let keys: Vec<_> = roles.iter().map(|role| (*role, Some(l))).collect();
        self.make(&made, acts, &keys);
        acts
    }

    fn vector(&self, role: Role, l: usize) -> u32 {
        let at = self.parts.vectors.get(role, Some(l));
        at.unwrap_or_default()
    }

    fn push(&mut self, dispatch: Dispatch) {
        self.dispatches.push(dispatch);
    }

    /// `mixed = act(conv(inputs))`; the last inputs are kept in the states. The channels of each
    /// convolution lie apart, those of the first one first.
    fn convolve(&mut self, conv: &LayerConv) {
        let history = self.history(conv);
        let StepParts {
            kernels,
            tables,
            layout,
            state_bindings,
            ..
        } = *self.parts;
        let convolve = Convolve {
            history,
            n_rows: self.n_rows,
            taps: self.vector(conv.taps, conv.l),
            bias: conv.bias,
            activation: conv.activation,
            out: layout.recurrent.mixed + conv.first as u32,
            d_out: conv.d_all as u32,
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

    /// The inputs of a convolution, of this batch and of states.
    fn history(&self, conv: &LayerConv) -> RowHistory {
        let [sources, n_sources] = self.parts.tables.states().sources();
        let len = conv.n_taps - 1;
        RowHistory {
            d: conv.d as u32,
            x: self.parts.layout.recurrent.inputs + self.n_rows * conv.first as u32,
            sources,
            n_sources,
            len: len as u32,
            state: ((self.parts.state_at)(conv.l) + len * conv.first) as u32,
        }
    }

    /// `x = x·scale / √(Σ x² + eps)` of some heads of each row.
    fn norm_heads(&mut self, heads: &NormHeads) {
        let kernel = self.parts.kernels.norm_heads;
        self.push(heads.dispatch(kernel, self.parts.state_bindings));
    }

    fn norm_parts(&mut self, norms: &PartNorms) {
        let PartNorms {
            x,
            n,
            d,
            weight,
            n_weights,
            eps,
        } = *norms;
        self.add(&AddNormed {
            norm: RowNorm::Rms { weight, eps },
            normed: Normed::Alone,
            n_rows: self.n_rows * n as u32,
            d: d as u32,
            x,
            y: x,
            factor: 1.0,
            n_weights: n_weights as u32,
        });
    }

    fn decays(&mut self, of: &LayerDecays) {
        let regions = self.parts.layout.recurrent;
        let rates = of.has_decays.then(|| self.vector(Role::SsmA, of.l));
        let decays = Decays {
            n_rows: self.n_rows,
            n: of.n as u32,
            n_shared: of.n_shared as u32,
            alpha: regions.alpha,
            beta: of.beta,
            a: rates,
            bias: self.vector(Role::SsmDtBias, of.l),
            least: of.least,
            decays: regions.decays,
            gains: regions.gains,
        };
        let kernel = self.parts.kernels.decays;
        self.push(decays.dispatch(kernel, self.parts.state_bindings));
    }

    /// All runs of the step; `n_before` floats of the layer's state are the convolution's.
    fn scan(&mut self, l: usize, n_before: usize, rule: ScanRule, scan: &Scan) {
        let StepParts {
            kernels,
            tables,
            layout,
            state_bindings,
            ..
        } = *self.parts;
        for level in tables.states().levels() {
            let scan = Scan {
                state: ((self.parts.state_at)(l) + n_before) as u32,
                runs: level.at,
                n_runs: level.n,
                out: layout.recurrent.results,
                ..*scan
            };
            self.push(scan.dispatch(kernels.scan(rule), state_bindings));
        }
    }
}

/// A scan without a shape, of decays and gains at these words.
fn scan_of([decays, gains]: [u32; 2]) -> Scan {
    Scan {
        qkv: [0; 3],
        d_rows: [0; 2],
        decays,
        gains,
        d_key: 0,
        d_value: 0,
        n_heads: 0,
        keys: ScanKeys::Neighbours(1),
        skip: None,
        state: 0,
        runs: 0,
        n_runs: 0,
        out: 0,
    }
}
