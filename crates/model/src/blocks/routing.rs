//! Routing: the experts of each row of a step, and the order in which they are computed.
//!
//! Experts are chosen row by row; the choices are then sorted by expert, so that each expert's
//! weights are read once per batch. A *slot* is a choice, `row * n_used + rank`; a *place* is the
//! index of its result, in the order of experts. This file knows probabilities and indices, but no
//! weights.

use std::ops::Range;

use atta_kernels::Activations;

use super::selection::{Choice, Selector};
use crate::{
    Inputs, Observer, Role,
    spec::{ModelSpec, Moe},
};

/// The routes of a step through one layer.
pub(crate) struct Routing {
    /// The router's weights, `[n_rows, n_experts]`.
    pub(crate) probs: Vec<f32>,
    selector: Selector,
    /// By slot, `[n_rows, n_used]`: the experts of each row, the largest weight first.
    chosen: Vec<Choice>,
    /// The place of each slot.
    places: Vec<usize>,
    /// The slot of each place.
    slots: Vec<usize>,
    /// The experts that some row uses, ascending.
    experts: Vec<u32>,
    /// The places of `experts[i]` are those from `bounds[i]` to `bounds[i + 1]`.
    bounds: Vec<usize>,
    /// The next free place of each expert, `[n_experts]`.
    next: Vec<usize>,
    n_used: usize,
    max_rows: usize,
}

impl Routing {
    /// Routes of up to `n_rows` rows, in groups of at most [`group_rows`].
    pub(crate) fn new(spec: &ModelSpec, n_rows: usize) -> Self {
        let (n_experts, n_used) = spec.max_experts();
        Self {
            probs: vec![0.0; n_rows * n_experts],
            selector: Selector::new(n_experts),
            chosen: Vec::with_capacity(n_rows * n_used),
            places: vec![0; n_rows * n_used],
            slots: vec![0; n_rows * n_used],
            experts: Vec::with_capacity(n_experts),
            bounds: Vec::with_capacity(n_experts + 1),
            next: Vec::with_capacity(n_experts),
            n_used,
            max_rows: group_rows(spec, n_rows),
        }
    }

    /// Bytes of these buffers.
    pub(crate) fn bytes(spec: &ModelSpec, n_rows: usize) -> u64 {
        let (n_experts, n_used) = spec.max_experts();
        let per_row = 4 * n_experts + n_used * (size_of::<Choice>() + 2 * size_of::<usize>());
        let per_expert = size_of::<u32>() + 2 * size_of::<usize>();
        (n_rows as u64)
            .saturating_mul(per_row as u64)
            .saturating_add((n_experts * per_expert) as u64)
            .saturating_add(Selector::bytes(n_experts))
    }

    /// Takes the best experts of each row from `probs`, `[n_rows, n_experts]`, to which `bias`,
    /// `[n_experts]`, is added for this choice, and sorts the rows by expert.
    pub(crate) fn choose(&mut self, m: &Moe, bias: Option<&[f32]>, n_rows: usize) {
        self.n_used = m.n_used;
        self.chosen.clear();
        for probs in self.probs[..n_rows * m.n_experts].chunks_exact(m.n_experts) {
            self.selector.choose(m, probs, bias, &mut self.chosen);
        }
        self.sort(m.n_experts);
    }

    fn sort(&mut self, n_experts: usize) {
        self.next.clear();
        self.next.resize(n_experts, 0);
        self.chosen
            .iter()
            .for_each(|c| self.next[c.expert as usize] += 1);
        self.experts.clear();
        self.bounds.clear();
        self.bounds.push(0);
        let mut end = 0;
        for (expert, n) in self.next.iter_mut().enumerate().filter(|(_, n)| **n > 0) {
            let start = end;
            end += *n;
            *n = start;
            self.experts.push(expert as u32);
            self.bounds.push(end);
        }
        for (slot, choice) in self.chosen.iter().enumerate() {
            let next = &mut self.next[choice.expert as usize];
            (self.places[slot], self.slots[*next]) = (*next, slot);
            *next += 1;
        }
    }

    /// The group of experts, from number `start` on, that are computed together: at most as many as
    /// one row uses, so that a batch needs no more experts in memory than a single token, and with
    /// at most `max_rows` rows.
    pub(crate) fn group(&self, start: usize) -> Option<Group<'_>> {
        let most = self.experts.len().min(start + self.n_used);
        let fits = |&end: &usize| self.bounds[end] - self.bounds[start] <= self.max_rows;
        let end = (start + 1..=most).rev().find(fits)?;
        Some(Group {
            experts: &self.experts[start..end],
            bounds: &self.bounds[start..=end],
            end,
        })
    }

    /// The row of a place.
    pub(crate) fn row_at(&self, place: usize) -> usize {
        self.slots[place] / self.n_used
    }

    /// The weight of a place's expert.
    pub(crate) fn weight_at(&self, place: usize) -> f32 {
        self.chosen[self.slots[place]].weight
    }

    /// Places and weights of the experts of a row, in the order of rank.
    pub(crate) fn of_row(&self, t: usize) -> impl Iterator<Item = (usize, f32)> {
        let slots = t * self.n_used..(t + 1) * self.n_used;
        self.places[slots.clone()]
            .iter()
            .copied()
            .zip(self.chosen[slots].iter().map(|c| c.weight))
    }
}

/// Experts that are computed together.
pub(crate) struct Group<'a> {
    /// Their ids, ascending.
    pub(crate) experts: &'a [u32],
    /// Expert `i` has the places from `bounds[i]` to `bounds[i + 1]`.
    pub(crate) bounds: &'a [usize],
    /// Where the next group starts.
    pub(crate) end: usize,
}

impl Group<'_> {
    /// The places of all experts of the group.
    pub(crate) fn places(&self) -> Range<usize> {
        self.bounds[0]..self.bounds[self.bounds.len() - 1]
    }

    /// Reports to the observer which rows are multiplied with which expert's matrices.
    pub(crate) fn observe_inputs(
        &self,
        observer: &mut dyn Observer,
        layer: usize,
        roles: &[Role],
        act: &Activations,
    ) {
        let d = act.d();
        for (&expert, places) in self.experts.iter().zip(self.bounds.windows(2)) {
            let rows =
                &act.rows()[(places[0] - self.bounds[0]) * d..(places[1] - self.bounds[0]) * d];
            observer.inputs(Inputs {
                layer,
                roles,
                expert: Some(expert as usize),
                rows,
                d,
            });
        }
    }
}

/// Maximum number of rows of a group of experts: a whole batch may choose the same expert, a single
/// row several.
pub(crate) fn group_rows(spec: &ModelSpec, n_rows: usize) -> usize {
    n_rows.max(spec.max_experts().1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routing(n_used: usize, max_rows: usize, chosen: &[u32]) -> Routing {
        let chosen: Vec<_> = chosen
            .iter()
            .map(|&expert| Choice {
                expert,
                weight: expert as f32,
            })
            .collect();
        let places = vec![0; chosen.len()];
        let slots = vec![0; chosen.len()];
        let probs = Vec::new();
        let selector = Selector::new(0);
        let experts = Vec::new();
        let bounds = Vec::new();
        let next = Vec::new();
        let mut routing = Routing {
            probs,
            selector,
            chosen,
            places,
            slots,
            experts,
            bounds,
            next,
            n_used,
            max_rows,
        };
        routing.sort(7);
        routing
    }

    #[test]
    fn places_are_sorted_by_expert_and_lead_back_to_their_rows() {
        let r = routing(2, 4, &[5, 0, 3, 5, 5, 3]);
        assert_eq!(r.experts, [0, 3, 5]);
        assert_eq!(r.bounds, [0, 1, 3, 6]);
        assert_eq!(
            (0..6).map(|place| r.row_at(place)).collect::<Vec<_>>(),
            [0, 1, 2, 0, 1, 2]
        );
        assert_eq!(
            r.of_row(0).collect::<Vec<_>>(),
            [(3, 5.0), (0, 0.0)],
            "in the order of rank"
        );
        assert_eq!(r.of_row(2).collect::<Vec<_>>(), [(5, 5.0), (2, 3.0)]);
    }

    #[test]
    fn a_group_has_no_more_experts_than_a_row_uses_and_no_more_rows_than_fit() {
        let groups = |r: &Routing| {
            let mut all = Vec::new();
            let mut start = 0;
            while let Some(group) = r.group(start) {
                all.push((group.experts.to_vec(), group.places()));
                start = group.end;
            }
            all
        };
        let r = routing(2, 3, &[5, 0, 3, 5, 5, 3]);
        assert_eq!(groups(&r), [(vec![0, 3], 0..3), (vec![5], 3..6)]);
        let r = routing(3, 3, &[0, 1, 2, 0, 1, 3, 0, 1, 4]);
        assert_eq!(
            groups(&r),
            [(vec![0], 0..3), (vec![1], 3..6), (vec![2, 3, 4], 6..9)]
        );
    }
}
