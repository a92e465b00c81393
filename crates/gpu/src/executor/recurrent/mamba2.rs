//! Mamba 2 on a GPU, alone and beside attention.
//!
//! ```text
//! z, xbc, dt = W h;  x, b, c = silu(conv(xbc))
//! x += Wout norm(scan(c, b, x) ⊙ silu(z))
//! ```

use super::{LayerConv, LayerDecays, PartNorms, ValueRows, scan_of};
use crate::executor::pass::Recorded;
use crate::{ProductEnd, RowActivation, RowFactor, Scan, ScanKeys, ScanRule};
use atta_model::Role;
use atta_model::spec::{AttentionAndMamba2, Mamba2, Sublayer};

/// The projections of Mamba 2: the gate; values, keys and queries; steps.
pub(crate) const OF_MAMBA: [Role; 3] = [Role::SsmIn, Role::SsmQkv, Role::SsmAlpha];

impl Recorded<'_> {
    /// Attention and Mamba 2 of the same input, whose results are added.
    pub(in crate::executor) fn attention_and_mamba2(
        &mut self,
        l: usize,
        both: &AttentionAndMamba2,
    ) {
        let layout = self.parts.layout;
        self.attention(l, &both.attention);
        let y = layout.y;
        let of_attention = (Role::AttnOutput, Some(l));
        self.product(of_attention, layout.mixed, y, ProductEnd::Set);
        self.mamba2(l, &both.mamba);
        let of_mamba = (Role::SsmOut, Some(l));
        self.product(of_mamba, layout.mixed, y, ProductEnd::Add(1.0));
        match self.normed_result(l, Sublayer::Mixer) {
            Some(added) => self.add(&added),
            None => self.add_plain(y, self.spec().layers[l].residual_scale),
        }
    }

    /// `norm(y ⊙ silu(z))`, for the last product.
    pub(in crate::executor) fn mamba2(&mut self, l: usize, mamba: &Mamba2) {
        self.mix_mamba2(l, mamba);
        let scan = self.scan_of_mamba2(l, mamba);
        self.scan(l, mamba.conv_floats(), ScanRule::Heads, &scan);
        let d = mamba.d_inner();
        match self.parts.vectors.get(Role::SsmNorm, Some(l)) {
            Some(weight) => {
                self.norm_gated(weight, mamba);
                let x = self.parts.layout.recurrent.results;
                self.copied_acts(ValueRows { x, d }, l, &[Role::SsmOut]);
            }
            None => self.gated_acts(RowActivation::Silu, d, l, Role::SsmOut),
        }
    }

    /// Values, keys, queries, decays and steps.
    fn mix_mamba2(&mut self, l: usize, mamba: &Mamba2) {
        let regions = self.parts.layout.recurrent;
        let places = [regions.z, regions.inputs, regions.alpha];
        self.project(l, &OF_MAMBA, &places);
        self.convolve(&LayerConv {
            bias: self.parts.vectors.get(Role::SsmConvBias, Some(l)),
            ..LayerConv::new(l, Role::SsmConv, mamba.n_taps, mamba.d_conv())
        });
        self.decays(&LayerDecays {
            l,
            n: mamba.n_heads,
            n_shared: 1,
            beta: None,
            has_decays: true,
            least: mamba.min_step,
        });
    }

    /// The results times their gates, then norms of groups with these weights.
    fn norm_gated(&mut self, weight: u32, mamba: &Mamba2) {
        let regions = self.parts.layout.recurrent;
        let gate = RowFactor::Values {
            at: regions.z,
            n: 1,
            activation: Some(RowActivation::Silu),
        };
        self.multiply(regions.results, mamba.d_inner(), gate);
        self.norm_parts(&PartNorms {
            x: regions.results,
            n: mamba.n_groups,
            d: mamba.d_inner() / mamba.n_groups,
            weight,
            n_weights: mamba.n_groups,
            eps: mamba.eps,
        });
    }

    /// The shape of the scan: values, keys and queries are in `mixed`.
    fn scan_of_mamba2(&self, l: usize, mamba: &Mamba2) -> Scan {
        let regions = self.parts.layout.recurrent;
        let keys = regions.mixed + mamba.d_inner() as u32;
        Scan {
            qkv: [keys + mamba.d_states() as u32, keys, regions.mixed],
            d_rows: [mamba.d_conv() as u32; 2],
            d_key: mamba.d_state as u32,
            d_value: mamba.d_head as u32,
            n_heads: mamba.n_heads as u32,
            keys: ScanKeys::Neighbours((mamba.n_heads / mamba.n_groups) as u32),
            skip: self.parts.vectors.get(Role::SsmD, Some(l)),
            ..scan_of([regions.decays, regions.gains])
        }
    }
}
