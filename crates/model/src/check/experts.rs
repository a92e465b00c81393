//! The conditions on mixtures of experts.

use super::{ensure, is_positive, is_width};
use crate::spec::{
    Activation, ExpertGroups, Gating, GroupScore, MlpAndMoe, Moe, Presence, SharedExpert,
};

/// No layer's experts have more biases of a kind.
const MAX_BIASES: usize = 1 << 28;

impl MlpAndMoe {
    pub(super) fn check(&self) -> Result<(), String> {
        ensure(is_positive(self.eps), || format!("norms with {}", self.eps))?;
        ensure(self.moe.shared.is_none(), || {
            "a shared expert beside an MLP".to_owned()
        })?;
        let is_plain = self.mlp.bias == Presence::Absent && self.mlp.sub_norm.is_none();
        ensure(is_plain, || "an MLP with a bias beside experts".to_owned())
    }
}

impl Moe {
    pub(super) fn check(&self, d_model: usize) -> Result<(), String> {
        self.check_sizes(d_model)?;
        self.check_router()?;
        let clamps = matches!(self.expert.activation, Activation::Clamped { .. });
        ensure(self.has_gates || !clamps, || {
            "a clamped gate where there is none".to_owned()
        })?;
        ensure(self.expert.sub_norm.is_none(), || {
            "experts with a norm within".to_owned()
        })?;
        self.shared.as_ref().map_or(Ok(()), SharedExpert::check)
    }

    fn check_sizes(&self, d_model: usize) -> Result<(), String> {
        let Self {
            n_experts, n_used, ..
        } = *self;
        let d_ff = self.expert.d_ff;
        ensure(is_width(n_experts), || format!("{n_experts} experts"))?;
        ensure(is_width(d_ff), || format!("experts of {d_ff}"))?;
        ensure((1..=n_experts).contains(&n_used), || {
            format!("{n_used} of {n_experts} experts in use")
        })?;
        let d_results = n_used.checked_mul(d_model);
        ensure(d_results.is_some_and(is_width), || {
            format!("{n_used} experts in use, {d_model} wide")
        })?;
        let biases = n_experts.checked_mul(d_ff.max(d_model));
        ensure(biases.is_some_and(|n| n <= MAX_BIASES), || {
            format!("{n_experts} experts of {d_ff}")
        })
    }

    fn check_router(&self) -> Result<(), String> {
        ensure(self.router_norm.is_none_or(is_positive), || {
            format!("a router's norm with {:?}", self.router_norm)
        })?;
        self.groups
            .map_or(Ok(()), |groups| groups.check(self.n_experts, self.n_used))?;
        let Gating::SparseMixer { tolerance } = self.gating else {
            return Ok(());
        };
        ensure(is_positive(tolerance), || {
            format!("logits of a router that are {tolerance} near")
        })?;
        // Weights are shares of the logits that experts are chosen by.
        let is_plain = self.groups.is_none() && self.selection_bias == Presence::Absent;
        ensure(is_plain, || {
            "a sparse mixer with groups or a selection bias".to_owned()
        })
    }
}

impl ExpertGroups {
    /// The groups in use have as many experts as a position needs, and each as many as its score.
    fn check(&self, n_experts: usize, n_used: usize) -> Result<(), String> {
        let n_groups = self.n_groups;
        ensure(n_groups > 0 && n_experts.is_multiple_of(n_groups), || {
            format!("{n_experts} experts in {n_groups} groups")
        })?;
        ensure((1..=n_groups).contains(&self.n_used), || {
            format!("{} of {n_groups} groups in use", self.n_used)
        })?;
        let n_each = n_experts / n_groups;
        let n_scored = match self.score {
            GroupScore::Best => 1,
            GroupScore::BestTwo => 2,
        };
        ensure(n_each >= n_scored && n_each * self.n_used >= n_used, || {
            format!("{n_used} experts of {} groups of {n_each}", self.n_used)
        })
    }
}

impl SharedExpert {
    fn check(&self) -> Result<(), String> {
        let mlp = &self.mlp;
        ensure(is_width(mlp.d_ff), || {
            format!("a shared d_ff of {}", mlp.d_ff)
        })?;
        ensure(mlp.sub_norm.is_none(), || {
            "experts with a norm within".to_owned()
        })?;
        ensure(mlp.bias == Presence::Absent, || {
            "a shared expert with a bias".to_owned()
        })
    }
}
