//! Mixtures of experts as plain data: a router, the choice of experts, and the experts.

use super::{Mlp, Presence};

/// A mixture of experts (Shazeer et al. 2017; Fedus et al. 2021): a router gives each position a
/// weight for every expert, and the sum of the `n_used` best experts' results, times their weights,
/// is the result.
#[derive(Clone, Debug, PartialEq)]
pub struct Moe {
    /// Experts of the layer.
    pub n_experts: usize,
    /// Experts that a position uses.
    pub n_used: usize,
    /// The MLP of each expert.
    pub expert: Mlp,
    /// Whether experts are gated MLPs, the shared one too; else they are plain ones.
    pub has_gates: bool,
    /// `Some(eps)`: the router reads `norm(x) / sqrt(d_model)` of the residual, with an RMS norm of
    /// its own (Gemma 4); `None`: the input of the experts.
    pub router_norm: Option<f32>,
    /// Whether the router has a bias, `[n_experts]`.
    pub router_bias: Presence,
    /// From the router's logits to weights.
    pub gating: Gating,
    /// Whether there is a bias, `[n_experts]`, that is added to weights for the choice of experts
    /// only (Wang et al. 2024).
    pub selection_bias: Presence,
    /// `Some(groups)`: experts are chosen from the best groups only; `None`: from all.
    pub groups: Option<ExpertGroups>,
    /// Whether the weights of the chosen experts are divided by their sum.
    pub renormalize: bool,
    /// The weights of the chosen experts are multiplied by this.
    pub weights_scale: f32,
    /// Which side of an expert is multiplied by its weight.
    pub weighted: WeightedSide,
    /// Whether there is a bias, `[d_model]`, behind the sum of the experts (Nomic Embed 2).
    pub sum_bias: Presence,
    /// An expert that every position uses.
    pub shared: Option<SharedExpert>,
}

/// How a router's logits become weights of experts. The experts of largest weight plus selection
/// bias are chosen, the lower id on ties.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gating {
    /// Softmax over all experts.
    Softmax,
    /// The sigmoid of each logit.
    Sigmoid,
    /// The experts of largest logit are chosen one after another. The weight of one of logit `z` is
    /// its share in a softmax over the experts that were not chosen before it and whose logits `y`
    /// are near: `z - y <= tolerance * max(|y|, z)` (Liu et al. 2024: SparseMixer-v2; Phi-3.5 MoE).
    SparseMixer {
        /// How near a logit is; above 0.
        tolerance: f32,
    },
}

/// Experts in groups of equal size, by id (DeepSeek-AI 2024: device-limited routing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Groups, a divisor of the number of experts.
    pub n_groups: usize,
    /// Groups that a position chooses from: those of largest score, the lower id on ties.
    pub n_used: usize,
    /// The score of a group.
    pub score: GroupScore,
}

/// The score of a group of experts, by their weights plus selection bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupScore {
    /// That of its best expert (DeepSeek-V2, section 2.2.2).
    Best,
    /// The sum of those of its two best experts (DeepSeek-V3, section 2.1.2).
    BestTwo,
}

/// The side of an expert that is multiplied by its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightedSide {
    /// Its input, so that the weight passes through the nonlinearity (Llama 4).
    Input,
    /// Its result.
    Output,
}

/// An expert that every position uses. Several of them are one that is as wide as all together.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedExpert {
    /// An MLP, gated if [`Moe::has_gates`].
    pub mlp: Mlp,
    /// Whether its result is multiplied by `sigmoid(g · x)` (Qwen2 MoE).
    pub is_gated: bool,
}

/// A gated MLP and a mixture of experts that read the same residual, each between norms of its own
/// (Gemma 4): `norm_mlp(mlp(pre(x))) + norm_moe(moe(pre_moe(x)))`, where `pre` is the norm of the
/// layer's wiring.
#[derive(Clone, Debug, PartialEq)]
pub struct MlpAndMoe {
    /// The MLP of every position.
    pub mlp: Mlp,
    /// The experts.
    pub moe: Moe,
    /// Epsilon of the RMS norms `norm_mlp`, `norm_moe` and `pre_moe`.
    pub eps: f32,
}

impl Moe {
    /// The MLP of its experts, and that of the shared one.
    pub(super) fn mlps(&self) -> impl Iterator<Item = &Mlp> {
        let shared = self.shared.iter().map(|shared| &shared.mlp);
        std::iter::once(&self.expert).chain(shared)
    }

    /// Whether the shared expert has a gate.
    pub(crate) fn has_shared_gate(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.is_gated)
    }
}
