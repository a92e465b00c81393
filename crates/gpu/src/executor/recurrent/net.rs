//! Gated delta nets on a GPU.
//!
//! ```text
//! qkv, z, beta, alpha = W h;  alpha = Wf alpha, z = Wg z, where they are of low rank
//! q, k, v = silu(conv(qkv)), q and k of length 1
//! x += Wout (norm(scan(q, k, v)) ⊙ gate(z))
//! ```

use super::{LayerConv, LayerDecays, PartNorms, ValueRows, scan_of};
use crate::executor::pass::Recorded;
use crate::{NormHeads, ProductEnd, RowActivation, Scan, ScanKeys, ScanRule};
use atta_model::Role;
use atta_model::spec::{DeltaNet, KeySharing, NetDecay, NetGate};

/// The projections that delta nets have, some each: queries, keys and values, together or each; the
/// gate, or what it is made of; gains; decays, or what they are made of.
pub(in crate::executor) const OF_NET: [Role; 9] = [
    Role::SsmQkv,
    Role::AttnQ,
    Role::AttnK,
    Role::AttnV,
    Role::AttnGate,
    Role::SsmGA,
    Role::SsmBeta,
    Role::SsmAlpha,
    Role::SsmFA,
];

/// How it changes states.
pub(super) fn rule_of_net(net: &DeltaNet) -> ScanRule {
    match net.decay {
        NetDecay::Heads(_) => ScanRule::DeltaOfHeads,
        NetDecay::Channels { .. } => ScanRule::DeltaOfChannels,
    }
}

impl Recorded<'_> {
    /// `norm(y) ⊙ gate(z)`, for the last product.
    pub(in crate::executor) fn delta_net(&mut self, l: usize, net: &DeltaNet) {
        self.project_net(l, net);
        self.project_low_ranks(l, net);
        self.convolve_net(l, net);
        let n_decays = net.n_decays();
        self.decays(&LayerDecays {
            l,
            n: n_decays,
            n_shared: n_decays / net.n_heads,
            beta: Some(self.parts.layout.recurrent.beta),
            has_decays: true,
            least: 0.0,
        });
        let scan = self.scan_of_net(net);
        self.scan(l, net.conv_floats(), rule_of_net(net), &scan);
        self.norm_results_of_net(l, net);
        let activation = match net.gate {
            NetGate::Silu => RowActivation::Silu,
            NetGate::Sigmoid => RowActivation::Sigmoid,
        };
        self.gated_acts(activation, net.d_values(), l, net.out_role());
    }

    fn norm_results_of_net(&mut self, l: usize, net: &DeltaNet) {
        self.norm_parts(&PartNorms {
            x: self.parts.layout.recurrent.results,
            n: net.n_heads,
            d: net.d_value,
            weight: self.vector(Role::SsmNorm, l),
            n_weights: 1,
            eps: net.eps,
        });
    }

    fn project_net(&mut self, l: usize, net: &DeltaNet) {
        let regions = self.parts.layout.recurrent;
        let d_keys = self.n_rows * net.d_keys() as u32;
        let qkv = regions.inputs;
        let places = [
            qkv,
            qkv,
            qkv + d_keys,
            qkv + 2 * d_keys,
            regions.z,
            regions.low[0],
            regions.beta,
            regions.alpha,
            regions.low[1],
        ];
        self.project(l, &OF_NET, &places);
    }

    /// The second products of the gate and of decays, where they are of low rank.
    fn project_low_ranks(&mut self, l: usize, net: &DeltaNet) {
        let regions = self.parts.layout.recurrent;
        let second = [(Role::SsmGB, regions.z), (Role::SsmFB, regions.alpha)];
        for (i, (role, out)) in second.into_iter().enumerate() {
            let x = regions.low[i];
            let d = net.ranks()[i];
            if d > 0 {
                let acts = self.copied_acts(ValueRows { x, d }, l, &[role]);
                self.product((role, Some(l)), acts, out, ProductEnd::Set);
            }
        }
    }

    /// Queries, keys and values.
    fn convolve_net(&mut self, l: usize, net: &DeltaNet) {
        for (channels, &taps) in net.convs().zip(net.conv_roles()) {
            self.convolve(&LayerConv {
                first: channels.start,
                d_all: net.d_conv(),
                ..LayerConv::new(l, taps, net.n_taps, channels.len())
            });
        }
        self.norm_keys(net);
    }

    /// Queries and keys of length 1, the former with the factor of their products.
    fn norm_keys(&mut self, net: &DeltaNet) {
        let queries = self.parts.layout.recurrent.mixed;
        let keys = queries + net.d_keys() as u32;
        let query_scale = 1.0 / (net.d_key as f32).sqrt();
        for (x, scale) in [(queries, query_scale), (keys, 1.0)] {
            self.norm_heads(&NormHeads {
                n_rows: self.n_rows,
                d_row: net.d_conv() as u32,
                n_heads: net.n_key_heads as u32,
                d: net.d_key as u32,
                x,
                eps: net.l2_eps,
                scale,
            });
        }
    }

    /// The shape of the scan; queries, keys and values are in `mixed`.
    fn scan_of_net(&self, net: &DeltaNet) -> Scan {
        let regions = self.parts.layout.recurrent;
        let mixed = regions.mixed;
        let d_keys = net.d_keys() as u32;
        Scan {
            qkv: [mixed, mixed + d_keys, mixed + 2 * d_keys],
            d_rows: [net.d_conv() as u32; 2],
            d_key: net.d_key as u32,
            d_value: net.d_value as u32,
            n_heads: net.n_heads as u32,
            keys: match net.sharing {
                KeySharing::Neighbours => {
                    ScanKeys::Neighbours((net.n_heads / net.n_key_heads) as u32)
                }
                KeySharing::InTurn => ScanKeys::InTurn(net.n_key_heads as u32),
            },
            ..scan_of([regions.decays, regions.gains])
        }
    }
}
