//! Mamba on a GPU: a state per channel.
//!
//! ```text
//! x, z = W h;  x = silu(conv(x));  dt, b, c = norm(Wx x);  step = softplus(Wdt dt + bias)
//! x += Wout (scan(c, b, x) ⊙ silu(z))
//! ```

use super::{LayerConv, LayerDecays, PartNorms, ValueRows, scan_of};
use crate::executor::pass::Recorded;
use crate::{NormHeads, ProductEnd, RowActivation, Scan, ScanRule};
use atta_model::Role;
use atta_model::spec::{Mamba, StateNorms};

/// The projections of a state space of channels: `x` and the gate.
pub(crate) const OF_CHANNELS: [Role; 2] = [Role::SsmQkv, Role::SsmIn];
/// Those of `x`: what steps are made of, keys and queries.
pub(crate) const SELECTION: [Role; 3] = [Role::SsmX, Role::SsmBeta, Role::SsmAlpha];

impl Recorded<'_> {
    /// `y ⊙ silu(z)`, for the last product.
    pub(in crate::executor) fn mamba(&mut self, l: usize, mamba: &Mamba) {
        let regions = self.parts.layout.recurrent;
        self.project(l, &OF_CHANNELS, &[regions.inputs, regions.z]);
        self.convolve(&LayerConv {
            bias: self.parts.vectors.get(Role::SsmConvBias, Some(l)),
            ..LayerConv::new(l, Role::SsmConv, mamba.n_taps, mamba.d_inner)
        });
        self.select(l, mamba);
        self.steps(l, mamba);
        let scan = self.scan_of_channels(l, mamba);
        self.scan(l, mamba.conv_floats(), ScanRule::Elements, &scan);
        self.gated_acts(RowActivation::Silu, mamba.d_inner, l, Role::SsmOut);
    }

    /// `dt, b, c = norm(Wx x)`.
    fn select(&mut self, l: usize, mamba: &Mamba) {
        let regions = self.parts.layout.recurrent;
        let x = ValueRows {
            x: regions.mixed,
            d: mamba.d_inner,
        };
        let acts = self.copied_acts(x, l, &SELECTION);
        let norms = [Role::SsmDtNorm, Role::SsmBNorm, Role::SsmCNorm];
        let widths = [mamba.d_rank, mamba.d_state, mamba.d_state];
        for i in 0..SELECTION.len() {
            let x = regions.low[i];
            self.product((SELECTION[i], Some(l)), acts, x, ProductEnd::Set);
            let rows = ValueRows { x, d: widths[i] };
            match mamba.norms {
                StateNorms::None => {}
                StateNorms::Unit { eps } => self.norm_unit(rows, eps),
                StateNorms::Weighted { eps } => {
                    self.norm_weighted(rows, self.vector(norms[i], l), eps);
                }
            }
        }
    }

    fn norm_weighted(&mut self, ValueRows { x, d }: ValueRows, weight: u32, eps: f32) {
        self.norm_parts(&PartNorms {
            x,
            n: 1,
            d,
            weight,
            n_weights: 1,
            eps,
        });
    }

    /// RMS norms without weights, as lengths.
    fn norm_unit(&mut self, ValueRows { x, d }: ValueRows, eps: f32) {
        let n = d as f32;
        self.norm_heads(&NormHeads {
            n_rows: self.n_rows,
            d_row: d as u32,
            n_heads: 1,
            d: d as u32,
            x,
            eps: n * eps,
            scale: n.sqrt(),
        });
    }

    /// `step = softplus(Wdt dt + bias)`, the gains.
    fn steps(&mut self, l: usize, mamba: &Mamba) {
        let regions = self.parts.layout.recurrent;
        let dt = ValueRows {
            x: regions.low[0],
            d: mamba.d_rank,
        };
        let acts = self.copied_acts(dt, l, &[Role::SsmDt]);
        self.product((Role::SsmDt, Some(l)), acts, regions.alpha, ProductEnd::Set);
        self.decays(&LayerDecays {
            l,
            n: mamba.d_inner,
            n_shared: 1,
            beta: None,
            has_decays: false,
            least: 0.0,
        });
    }

    /// The shape of the scan; values are in `mixed`, keys and queries apart.
    fn scan_of_channels(&self, l: usize, mamba: &Mamba) -> Scan {
        let regions = self.parts.layout.recurrent;
        let [_, b, c] = regions.low;
        Scan {
            qkv: [c, b, regions.mixed],
            d_rows: [mamba.d_state, mamba.d_inner].map(|d| d as u32),
            d_key: mamba.d_state as u32,
            d_value: mamba.d_inner as u32,
            n_heads: 1,
            skip: self.parts.vectors.get(Role::SsmD, Some(l)),
            ..scan_of([self.vector(Role::SsmA, l), regions.gains])
        }
    }
}
