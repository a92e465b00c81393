//! Mixtures of experts in the forward pass on a GPU.
//!
//! ```text
//! logits = Wr h + b;  routes; slots in the order of experts
//! y_i = Wdown_e (act(Wgate_e h) · (Wup_e h)) of each slot;  a shared expert
//! x += w_1 y_1 + … + w_k y_k + bias + sigmoid(g)·shared        in this order
//! ```
//! A row with an MLP beside its experts adds the results of both, each behind a norm of its own.

use super::pass::{Made, OF_ROUTER, Recorded, SlotProduct, StepParts};
use crate::support::activation;
use crate::weights::{GpuExperts, MatrixKey};
use crate::{
    AddNormed, Bindings, Combine, ExpertProduct, GroupSlots, Normed, Product, ProductEnd, Route,
    RouteGating, RouteGroups, RowFunction, RowNorm,
};
use atta_model::Role;
use atta_model::spec::{
    Gating, GroupScore, MlpAndMoe, Moe, Presence, SharedExpert, Sublayer, WeightedSide,
};

/// A layer with experts, and the norm of what they read.
#[derive(Clone, Copy)]
struct MoeLayer<'a> {
    l: usize,
    m: &'a Moe,
    norm: Option<RowNorm>,
}

/// The matrices that read the input of experts.
const INPUTS: [Role; 2] = [Role::FfnGateExps, Role::FfnUpExps];

impl Recorded<'_> {
    /// `x += moe(norm(x))`.
    pub(super) fn moe(&mut self, l: usize, m: &Moe) {
        let norm = self.pre_norm(l, Sublayer::Ffn);
        let layer = MoeLayer { l, m, norm };
        self.route(layer);
        if let Some(shared) = &m.shared {
            self.shared_expert(layer, shared);
        }
        self.all_slots(layer);
        let added = self.normed_result(l, Sublayer::Ffn);
        self.combine(layer, added.is_some());
        if let Some(added) = added {
            self.add(&added);
        }
    }

    /// `x += post(norm_mlp(mlp(pre(x))) + norm_moe(moe(pre_moe(x))))`.
    pub(super) fn mlp_and_moe(&mut self, l: usize, both: &MlpAndMoe) {
        let norm_of = |role| RowNorm::Rms {
            weight: self.parts.vectors.get(role, Some(l)).unwrap_or_default(),
            eps: both.eps,
        };
        let [pre, of_mlp, of_moe] =
            [Role::PreFfwNorm2, Role::PostFfwNorm1, Role::PostFfwNorm2].map(norm_of);
        let layer = MoeLayer {
            l,
            m: &both.moe,
            norm: Some(pre),
        };
        self.route(layer);
        self.all_slots(layer);
        self.combine(layer, true);
        let layout = self.parts.layout;
        let shared = layout.experts.shared;
        self.hidden_of_gated(l, &both.mlp);
        let down = (Role::FfnDown, Some(l));
        self.product(down, layout.hidden, shared, ProductEnd::Set);
        let normed = AddNormed {
            norm: of_moe,
            normed: Normed::Alone,
            n_rows: self.n_rows,
            d: self.spec().d_model as u32,
            x: layout.y,
            y: shared,
            factor: 1.0,
            n_weights: 1,
        };
        self.add(&normed);
        self.add(&AddNormed {
            norm: of_mlp,
            normed: Normed::Result,
            ..normed
        });
        match self.normed_result(l, Sublayer::Ffn) {
            Some(added) => self.add(&added),
            None => self.add_plain(layout.y, self.spec().layers[l].residual_scale),
        }
    }

    /// The router's logits, the routes, and the slots in the order of experts; `input` has what the
    /// shared expert, and mostly what the experts read.
    fn route(&mut self, layer: MoeLayer<'_>) {
        let MoeLayer { l, m, norm } = layer;
        let layout = self.parts.layout;
        let places = [
            (Role::FfnGateInp, layout.experts.logits),
            (Role::FfnGateInpShexp, layout.experts.shared_gates),
        ];
        let mut readers = OF_ROUTER.to_vec();
        if m.weighted == WeightedSide::Output {
            readers.extend(INPUTS);
        }
        match m.router_norm {
            None => {
                self.enter_by(l, norm, &readers);
                self.products(l, &places);
            }
            Some(eps) => {
                let at = self.parts.vectors.get(Role::FfnGateInpScale, Some(l));
                let weight = at.unwrap_or_default();
                let own = RowNorm::Rms { weight, eps };
                self.enter_by(l, Some(own), &OF_ROUTER[..1]);
                self.products(l, &places[..1]);
                self.enter_by(l, norm, &readers[1..]);
                self.products(l, &places[1..]);
            }
        }
        let StepParts {
            kernels, bindings, ..
        } = *self.parts;
        let route = self.route_of(l, m);
        self.dispatches
            .push(route.dispatch(kernels.route, bindings));
        let slots = self.slots(m).dispatch(kernels.group_slots, bindings);
        self.dispatches.push(slots);
    }

    fn route_of(&self, l: usize, m: &Moe) -> Route {
        let regions = &self.parts.layout.experts;
        let d_model = self.spec().d_model as f32;
        let groups = m.groups.map(|groups| RouteGroups {
            n_groups: groups.n_groups as u32,
            n_used: groups.n_used as u32,
            adds_two: groups.score == GroupScore::BestTwo,
        });
        Route {
            logits: regions.logits,
            n_rows: self.n_rows,
            n_experts: m.n_experts as u32,
            n_used: m.n_used as u32,
            logits_scale: m.router_norm.map_or(1.0, |_| 1.0 / d_model.sqrt()),
            gating: match m.gating {
                Gating::Softmax => RouteGating::Softmax,
                Gating::Sigmoid => RouteGating::Sigmoid,
                Gating::SparseMixer { tolerance } => RouteGating::SparseMixer { tolerance },
            },
            selection_bias: self.parts.vectors.get(Role::ExpProbsBias, Some(l)),
            groups,
            renormalizes: m.renormalize,
            weights_scale: m.weights_scale,
            routes: regions.routes,
        }
    }

    fn slots(&self, m: &Moe) -> GroupSlots {
        let regions = &self.parts.layout.experts;
        GroupSlots {
            routes: regions.routes,
            n_slots: self.n_rows * m.n_used as u32,
            n_experts: m.n_experts as u32,
            groups: regions.groups,
        }
    }

    /// The result of an expert that all rows use.
    fn shared_expert(&mut self, layer: MoeLayer<'_>, shared: &SharedExpert) {
        let MoeLayer { l, m, .. } = layer;
        let layout = self.parts.layout;
        let activation = activation(shared.mlp.activation);
        let (first, function) = match m.has_gates {
            true => {
                let up = layout.up;
                (layout.up, RowFunction::Gate { activation, up })
            }
            false => (layout.gate, RowFunction::Activate(activation)),
        };
        let products = [(Role::FfnGateShexp, layout.gate), (Role::FfnUpShexp, first)];
        self.products(l, &products);
        let made = Made {
            function,
            x: layout.gate,
            d: shared.mlp.d_ff,
            n_rows: self.n_rows,
        };
        let down = (Role::FfnDownShexp, Some(l));
        self.make(&made, layout.hidden, &[down]);
        let out = layout.experts.shared;
        self.product(down, layout.hidden, out, ProductEnd::Set);
    }

    /// The results of all slots.
    fn all_slots(&mut self, layer: MoeLayer<'_>) {
        let MoeLayer { l, m, .. } = layer;
        let layout = self.parts.layout;
        let n_shared = self.weigh_inputs(layer);
        let activation = activation(m.expert.activation);
        let up = layout.up;
        let (second, function) = match m.has_gates {
            true => (up, RowFunction::Gate { activation, up }),
            false => (layout.gate, RowFunction::Activate(activation)),
        };
        for (role, out) in INPUTS.into_iter().zip([layout.gate, second]) {
            let product = SlotProduct {
                slots: self.slots(m),
                acts: layout.input,
                n_shared,
                out,
            };
            self.slot_product((role, Some(l)), &product);
        }
        let made = Made {
            function,
            x: layout.gate,
            d: m.expert.d_ff,
            n_rows: self.slots(m).n_slots,
        };
        self.make(&made, layout.hidden, &[(Role::FfnDownExps, Some(l))]);
        let product = SlotProduct {
            slots: self.slots(m),
            acts: layout.hidden,
            n_shared: 1,
            out: layout.experts.results,
        };
        self.slot_product((Role::FfnDownExps, Some(l)), &product);
    }

    /// Makes a row of inputs for each slot where experts read such; returns how many slots share a
    /// row.
    fn weigh_inputs(&mut self, MoeLayer { l, m, norm }: MoeLayer<'_>) -> usize {
        if m.weighted == WeightedSide::Output {
            return m.n_used;
        }
        let layout = self.parts.layout;
        let made = Made {
            function: RowFunction::Weighted {
                norm,
                routes: layout.experts.routes,
                n_used: m.n_used as u32,
            },
            x: layout.x,
            d: self.spec().d_model,
            n_rows: self.slots(m).n_slots,
        };
        let keys = INPUTS.map(|role| (role, Some(l)));
        self.make(&made, layout.input, &keys);
        1
    }

    /// Products of slots with the matrices of experts, and what adapters add to them.
    fn slot_product(&mut self, key: MatrixKey, of: &SlotProduct) {
        if let Some(experts) = self.parts.weights.experts(key) {
            self.multiply_slots(experts, of);
            self.adapt_slots(key, of);
        }
    }

    pub(super) fn multiply_slots(&mut self, experts: &GpuExperts, of: &SlotProduct) {
        let StepParts {
            weights,
            kernels,
            bindings,
            ..
        } = *self.parts;
        let slots = of.slots;
        let (way, kernel) = kernels.experts(experts.format, slots.n_slots / slots.n_experts);
        for slice in &experts.slices {
            let product = Product {
                format: experts.format,
                w: slice.table,
                n_out: experts.d_out as u32,
                d_in: experts.d_in as u32,
                scale: 1.0,
                bias: slice.bias,
                n_rows: slots.n_slots,
                x: of.acts.at(experts.format.acts()),
                out: of.out,
                d_out: experts.d_out as u32,
                end: ProductEnd::Set,
            };
            let product = ExpertProduct {
                product,
                slots,
                n_shared: of.n_shared as u32,
            };
            let bindings = Bindings {
                weights: weights.arena(slice.arena),
                ..bindings
            };
            self.dispatches
                .push(product.dispatch(way, kernel, bindings));
        }
    }

    /// Adds the results of a row's experts to the residual; or sets `y`, if a norm follows.
    fn combine(&mut self, MoeLayer { l, m, .. }: MoeLayer<'_>, is_set: bool) {
        let layout = self.parts.layout;
        let regions = &layout.experts;
        let bias = self.parts.vectors.get(Role::FfnDownBias, Some(l));
        let shared = m.shared.as_ref();
        let is_gated = shared.is_some_and(|shared| shared.is_gated);
        let residual_scale = self.spec().layers[l].residual_scale;
        self.add_up(Combine {
            n_rows: self.n_rows,
            d: self.spec().d_model as u32,
            n_used: m.n_used as u32,
            routes: regions.routes,
            y: regions.results,
            out: if is_set { layout.y } else { layout.x },
            is_set,
            factor: if is_set { 1.0 } else { residual_scale },
            weighs: m.weighted == WeightedSide::Output,
            bias: bias.filter(|_| m.sum_bias != Presence::Absent),
            shared: shared.map(|_| regions.shared),
            shared_gates: is_gated.then_some(regions.shared_gates),
        });
    }

    /// `x += factor·y`.
    pub(super) fn add_plain(&mut self, y: u32, factor: f32) {
        self.add_up(Combine {
            n_rows: self.n_rows,
            d: self.spec().d_model as u32,
            n_used: 0,
            routes: 0,
            y,
            out: self.parts.layout.x,
            is_set: false,
            factor,
            weighs: false,
            bias: None,
            shared: Some(y),
            shared_gates: None,
        });
    }

    fn add_up(&mut self, sum: Combine) {
        let StepParts {
            kernels, bindings, ..
        } = *self.parts;
        self.dispatches
            .push(sum.dispatch(kernels.combine, bindings));
    }
}
