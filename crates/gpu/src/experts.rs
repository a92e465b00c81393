//! The kernels of a mixture of experts: routes, columns sorted by expert, and the sum of results.
//!
//! It knows logits, matrices and places, and no layer. The one idea: a *slot* is a choice, `row ·
//! n_used + rank`, and everything that experts compute lies by slot, so that the order in which
//! they are computed changes nothing: only [`GroupSlots`] and the products know it.
//!
//! ```text
//! Product: router's logits → Route → GroupSlots → ExpertProduct (gate, up) → Quantize of slots
//!     → ExpertProduct (down) → Combine
//! ```
//!
//! Adapters of rows (LoRA) are experts, too: one slot a row, whose expert is its adapter, or
//! `u32::MAX`; products with both factors, padded to one rank; and their sum.

use crate::host::PARAM_WORDS;
use crate::product::{Product, ProductWay};
use crate::quantize::NONE;
use crate::{Bindings, Dispatch, PipelineId};

/// The most experts of a layer.
pub const EXPERTS_MAX: usize = 1024;
/// The most groups of experts, and experts of a row.
pub const ROUTES_MAX: usize = 64;

/// How a router's logits become weights of experts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RouteGating {
    /// Softmax over all experts.
    Softmax,
    /// The sigmoid of each logit.
    Sigmoid,
    /// A share in a softmax of the logits that are near: `z − y ≤ tolerance·max(|y|, z)`.
    SparseMixer {
        /// How near a logit is.
        tolerance: f32,
    },
}

/// Groups of experts that a row chooses from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteGroups {
    /// Groups of equal size, at most [`ROUTES_MAX`].
    pub n_groups: u32,
    /// Those that are used.
    pub n_used: u32,
    /// Whether the score of a group is the sum of its two best, not its best one.
    pub adds_two: bool,
}

/// The choice of experts for each row.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// First word of the router's logits among the values, `[n_rows, n_experts]`.
    pub logits: u32,
    /// Rows.
    pub n_rows: u32,
    /// Experts, at most [`EXPERTS_MAX`].
    pub n_experts: u32,
    /// Experts of a row, at most [`ROUTES_MAX`].
    pub n_used: u32,
    /// Multiplies the logits; mostly 1.
    pub logits_scale: f32,
    /// From logits to weights.
    pub gating: RouteGating,
    /// First word among the weights of an addend for the choice only, `[n_experts]` f32.
    pub selection_bias: Option<u32>,
    /// Groups, if there are some.
    pub groups: Option<RouteGroups>,
    /// Whether weights are divided by their sum.
    pub renormalizes: bool,
    /// Multiplies the weights.
    pub weights_scale: f32,
    /// First word of the routes among the activations: expert and weight of each slot.
    pub routes: u32,
}

impl Route {
    /// Words of the routes of all rows.
    pub fn words(&self) -> usize {
        2 * self.n_rows as usize * self.n_used as usize
    }

    /// The run of the kernel [`Shader::route`](crate::Shader::route).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let [gating, tolerance] = match self.gating {
            RouteGating::Softmax => [0, 0],
            RouteGating::Sigmoid => [1, 0],
            RouteGating::SparseMixer { tolerance } => [2, tolerance.to_bits()],
        };
        let groups = self
            .groups
            .map(|g| [g.n_groups, g.n_used, u32::from(g.adds_two)]);
        let mut params = [0; PARAM_WORDS];
        params[1..6].copy_from_slice(&[
            self.logits,
            self.n_experts,
            self.n_used,
            self.selection_bias.unwrap_or(NONE),
            gating,
        ]);
        params[6] = self.logits_scale.to_bits();
        params[7] = u32::from(self.renormalizes);
        params[8] = self.weights_scale.to_bits();
        params[9..12].copy_from_slice(&groups.unwrap_or_default());
        params[12..14].copy_from_slice(&[tolerance, self.routes]);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.n_rows, 1, 1],
        }
    }
}

/// The slots of a step, sorted by expert.
#[derive(Clone, Copy, Debug)]
pub struct GroupSlots {
    /// First word of the routes among the activations.
    pub routes: u32,
    /// Slots: rows times experts of a row.
    pub n_slots: u32,
    /// Experts, at most [`EXPERTS_MAX`].
    pub n_experts: u32,
    /// First word of the result among the activations.
    pub groups: u32,
}

impl GroupSlots {
    /// Words of the result.
    pub fn words(&self) -> usize {
        Self::n_words(self.n_slots as usize)
    }

    /// Words of the result of so many slots.
    pub(crate) fn n_words(n_slots: usize) -> usize {
        2 + 7 * n_slots
    }

    /// The run of the kernel [`Shader::group_slots`](crate::Shader::group_slots).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let mut params = [0; PARAM_WORDS];
        params[1..5].copy_from_slice(&[self.routes, self.n_slots, self.n_experts, self.groups]);
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [1, 1, 1],
        }
    }
}

/// Products of the slots of a step, each with the matrix of its expert.
#[derive(Clone, Copy, Debug)]
pub struct ExpertProduct {
    /// As with one matrix, but: `w` is the first word of a table among the weights, `[n_experts]`
    /// pairs of the first word of a matrix, `u32::MAX` for those in other buffers, and of what
    /// multiplies its weights, f32; the scale here is of no effect; the bias is `[n_experts,
    /// n_out]`; rows are slots, also those of the results.
    pub product: Product,
    /// What sorts the slots.
    pub slots: GroupSlots,
    /// Slots that share a row of activations: the experts of a row for their inputs, 1 for what
    /// they have computed.
    pub n_shared: u32,
}

impl ExpertProduct {
    /// The run of the kernel [`Shader::expert_product`](crate::Shader::expert_product) of the
    /// format and this way.
    pub fn dispatch(&self, way: ProductWay, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let mut run = self.product.dispatch(way, pipeline, bindings);
        run.params[12..14].copy_from_slice(&[self.slots.groups, self.n_shared]);
        // Each expert has at most one entry with fewer columns than fit.
        let full = self.slots.n_slots / way.columns();
        run.grid[2] = self.slots.n_slots.min(full + self.slots.n_experts);
        run
    }
}

/// The results of a row's experts, added in the order of rank: `out = out + factor·weight·y`.
#[derive(Clone, Copy, Debug)]
pub struct Combine {
    /// Rows.
    pub n_rows: u32,
    /// Their width.
    pub d: u32,
    /// Experts of a row.
    pub n_used: u32,
    /// First word of the routes among the activations.
    pub routes: u32,
    /// First word of the results by slot among the values, `[n_rows·n_used, d]`.
    pub y: u32,
    /// First word of the sums among the values, `[n_rows, d]`.
    pub out: u32,
    /// Whether sums begin at 0, not at the values there.
    pub is_set: bool,
    /// Multiplies all that is added.
    pub factor: f32,
    /// Whether results are multiplied by the weights of their routes.
    pub weighs: bool,
    /// First word among the weights of an addend behind the experts, `[d]` f32.
    pub bias: Option<u32>,
    /// First word among the values of the result of an expert that all rows use, `[n_rows, d]`.
    pub shared: Option<u32>,
    /// First word among the values of its gates before their sigmoid, `[n_rows]`.
    pub shared_gates: Option<u32>,
}

impl Combine {
    /// The run of the kernel [`Shader::combine`](crate::Shader::combine).
    pub fn dispatch(&self, pipeline: PipelineId, bindings: Bindings) -> Dispatch {
        let mut params = [0; PARAM_WORDS];
        params[1..7].copy_from_slice(&[
            self.d,
            self.n_used,
            self.routes,
            self.y,
            self.out,
            u32::from(self.is_set),
        ]);
        params[7..9].copy_from_slice(&[self.factor.to_bits(), u32::from(self.weighs)]);
        let rest = [self.bias, self.shared, self.shared_gates];
        params[9..12].copy_from_slice(&rest.map(|at| at.unwrap_or(NONE)));
        Dispatch {
            pipeline,
            bindings,
            params,
            grid: [self.d.div_ceil(64), self.n_rows, 1],
        }
    }
}
