//! The choice of experts for one row, from the router's weights to factors of the experts' results.
//!
//! ```text
//! s = p + b; -inf where the group of the expert is not among the best
//! e_1..k = the k experts of largest s
//! w_i = scale * p_i / (p_1 + ... + p_k)           the sum only if it is renormalized
//! ```
//! In a sparse mixer `p` are logits, and `w_i` is a share in a softmax of a few of them. This file
//! knows numbers of one row only.

use atta_kernels::math;

use crate::spec::{ExpertGroups, Gating, GroupScore, Moe};

/// An expert of a row, and the factor of its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Choice {
    pub(super) expert: u32,
    pub(super) weight: f32,
}

/// Chooses the experts of rows; holds the buffers for it.
pub(super) struct Selector {
    /// What experts of a row are chosen by, `[n_experts]`.
    scores: Vec<f32>,
    /// The groups of a row, the best first.
    groups: Vec<Choice>,
}

impl Selector {
    /// Chooses from up to `n_experts`.
    pub(super) fn new(n_experts: usize) -> Self {
        Self {
            scores: vec![0.0; n_experts],
            groups: Vec::with_capacity(n_experts),
        }
    }

    /// Bytes of these buffers.
    pub(super) fn bytes(n_experts: usize) -> u64 {
        (n_experts * (size_of::<f32>() + size_of::<Choice>())) as u64
    }

    /// Appends the best experts of a row with their factors, the best first. `probs`,
    /// `[n_experts]`, are the router's weights (logits for a sparse mixer), to which `bias`,
    /// `[n_experts]`, is added for the choice.
    pub(super) fn choose(
        &mut self,
        m: &Moe,
        probs: &[f32],
        bias: Option<&[f32]>,
        chosen: &mut Vec<Choice>,
    ) {
        let first = chosen.len();
        let scores = &mut self.scores[..probs.len()];
        scores.copy_from_slice(probs);
        let biased = scores.iter_mut().zip(bias.into_iter().flatten());
        biased.for_each(|(score, bias)| *score += bias);
        if let Some(groups) = &m.groups {
            mask_groups(groups, scores, &mut self.groups);
        }
        push_best(chosen, scores.iter().copied(), m.n_used);
        let chosen = &mut chosen[first..];
        match m.gating {
            Gating::SparseMixer { tolerance } => share_out(tolerance, scores, chosen),
            Gating::Softmax | Gating::Sigmoid => chosen
                .iter_mut()
                .for_each(|c| c.weight = probs[c.expert as usize]),
        }
        weigh(m, chosen);
    }
}

/// Lowers the scores of all experts whose group is not among the best.
fn mask_groups(groups: &ExpertGroups, scores: &mut [f32], best: &mut Vec<Choice>) {
    let n_each = scores.len() / groups.n_groups;
    let group_scores = scores
        .chunks_exact(n_each)
        .map(|scores| group_score(groups.score, scores));
    best.clear();
    push_best(best, group_scores, groups.n_used);
    for (group, scores) in scores.chunks_exact_mut(n_each).enumerate() {
        if best.iter().all(|c| c.expert as usize != group) {
            scores.fill(f32::NEG_INFINITY);
        }
    }
}

fn group_score(score: GroupScore, scores: &[f32]) -> f32 {
    let mut best = [f32::NEG_INFINITY; 2];
    for &score in scores {
        if score > best[0] {
            best = [score, best[0]];
        } else if score > best[1] {
            best[1] = score;
        }
    }
    match score {
        GroupScore::Best => best[0],
        GroupScore::BestTwo => best[0] + best[1],
    }
}

/// Appends the `n_used` items of largest weight, the largest first.
fn push_best(chosen: &mut Vec<Choice>, weights: impl Iterator<Item = f32>, n_used: usize) {
    let first = chosen.len();
    for (expert, weight) in weights.enumerate() {
        // Behind equal weights, so that a tie goes to the lower id. NaN goes behind everything.
        let at = first + chosen[first..].partition_point(|c| c.weight >= weight || weight.is_nan());
        if at < first + n_used {
            chosen.truncate(first + n_used - 1);
            chosen.insert(
                at,
                Choice {
                    expert: expert as u32,
                    weight,
                },
            );
        }
    }
}

/// Turns the logits of the chosen experts into their shares of a softmax over those that were not
/// chosen before and are near. Overwrites `logits`.
fn share_out(tolerance: f32, logits: &mut [f32], chosen: &mut [Choice]) {
    for choice in chosen {
        let top = choice.weight;
        let is_near = |y: f32| top - y <= tolerance * y.abs().max(top);
        let near = logits.iter().filter(|y| is_near(**y));
        let sum: f32 = near.map(|y| math::exp(y - top)).sum();
        // 1 / sum; NaN for a logit that is no number.
        choice.weight = math::exp(0.0 * top) / sum;
        logits[choice.expert as usize] = f32::NEG_INFINITY;
    }
}

/// Turns the weights of the chosen experts into factors.
fn weigh(m: &Moe, chosen: &mut [Choice]) {
    let sum = if m.renormalize {
        chosen.iter().map(|c| c.weight).sum()
    } else {
        1.0
    };
    chosen
        .iter_mut()
        .for_each(|c| c.weight = c.weight / sum * m.weights_scale);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(weights: &[f32], n_used: usize) -> Vec<u32> {
        let mut chosen = vec![Choice {
            expert: 9,
            weight: 9.0,
        }];
        push_best(&mut chosen, weights.iter().copied(), n_used);
        chosen[1..].iter().map(|c| c.expert).collect()
    }

    #[test]
    fn the_largest_come_first_and_ties_go_to_the_lower_id() {
        assert_eq!(best(&[0.1, 0.4, 0.3, 0.4, 0.2], 3), [1, 3, 2]);
        assert_eq!(best(&[0.5; 4], 2), [0, 1]);
        assert_eq!(best(&[0.1, 0.2, 0.3], 3), [2, 1, 0]);
    }

    #[test]
    fn weights_that_are_no_numbers_still_choose_that_many() {
        assert_eq!(best(&[f32::NAN; 5], 2).len(), 2);
        assert_eq!(best(&[f32::NAN, 0.5, f32::NAN, 0.6], 2).len(), 2);
    }

    fn masked(score: GroupScore, scores: &[f32]) -> Vec<f32> {
        let groups = ExpertGroups {
            n_groups: 3,
            n_used: 1,
            score,
        };
        let mut scores = scores.to_vec();
        mask_groups(&groups, &mut scores, &mut Vec::new());
        scores
    }

    #[test]
    fn only_the_best_groups_keep_their_scores() {
        let scores = [0.1, 0.9, 0.6, 0.7, 0.5, 0.5];
        let none = f32::NEG_INFINITY;
        let by_best = masked(GroupScore::Best, &scores);
        assert_eq!(by_best, [0.1, 0.9, none, none, none, none]);
        let by_two = masked(GroupScore::BestTwo, &scores);
        assert_eq!(by_two, [none, none, 0.6, 0.7, none, none]);
    }

    #[test]
    fn a_sparse_mixer_shares_with_what_is_near_and_not_yet_chosen() {
        let mut logits = [2.0, 1.99, -5.0, 1.5];
        let mut chosen = [0, 1].map(|expert: u32| Choice {
            expert,
            weight: logits[expert as usize],
        });
        share_out(0.02, &mut logits, &mut chosen);
        let first = 1.0 / (1.0 + (-0.01f32).exp());
        assert!((chosen[0].weight - first).abs() < 1e-6, "{chosen:?}");
        assert_eq!(chosen[1].weight, 1.0);
    }
}
