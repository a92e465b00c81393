//! Routing: the experts of each row of a step, and the order in which they are computed.
//!
//! Experts are chosen row by row; the choices are then sorted by expert, so that each expert's
//! weights are read once per batch. A *slot* is a choice, `row * n_used + rank`; a *place* is the
//! index of its result, in the order in which experts are computed. This file knows probabilities
//! and indices, but no weights.

use std::ops::Range;

use atta_kernels::Activations;
use atta_store::ExpertRequest;

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
    /// All slots, sorted by expert.
    sorted: Vec<usize>,
    /// The experts that some row uses, ascending.
    experts: Vec<u32>,
    /// How many rows use each of `experts`.
    uses: Vec<u32>,
    /// Expert `e` has the slots of `sorted` up to `ends[e]`, from that of the expert before it on.
    ends: Vec<usize>,
    /// The places of expert `i` of the last group are those from `bounds[i]` to `bounds[i + 1]`.
    bounds: Vec<usize>,
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
            sorted: vec![0; n_rows * n_used],
            experts: Vec::with_capacity(n_experts),
            uses: Vec::with_capacity(n_experts),
            ends: Vec::with_capacity(n_experts),
            bounds: Vec::with_capacity(n_experts + 1),
            n_used,
            max_rows: group_rows(spec, n_rows),
        }
    }

    /// Bytes of these buffers.
    pub(crate) fn bytes(spec: &ModelSpec, n_rows: usize) -> u64 {
        let (n_experts, n_used) = spec.max_experts();
        let per_row = 4 * n_experts + n_used * (size_of::<Choice>() + 3 * size_of::<usize>());
        let per_expert = 2 * size_of::<u32>() + 2 * size_of::<usize>();
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
        // First how many slots each expert has, then where they start, then where they end.
        self.ends.clear();
        self.ends.resize(n_experts, 0);
        for choice in &self.chosen {
            self.ends[choice.expert as usize] += 1;
        }
        self.experts.clear();
        self.uses.clear();
        let mut end = 0;
        for (expert, n) in self.ends.iter_mut().enumerate() {
            if *n > 0 {
                self.experts.push(expert as u32);
                self.uses.push(*n as u32);
            }
            let start = end;
            end += *n;
            *n = start;
        }
        for (slot, choice) in self.chosen.iter().enumerate() {
            let next = &mut self.ends[choice.expert as usize];
            self.sorted[*next] = slot;
            *next += 1;
        }
        self.bounds.clear();
    }

    /// The experts that some row uses, ascending, and by how many rows.
    pub(crate) fn request(&self, n_rows: usize) -> ExpertRequest<'_> {
        ExpertRequest {
            ids: &self.experts,
            uses: &self.uses,
            n_rows,
        }
    }

    /// Most experts that are computed together: as many as one row uses, so that a batch needs no
    /// more experts in memory than a single token.
    pub(crate) fn most(&self) -> usize {
        self.n_used
    }

    /// The list of experts, for the time in which it is worked off; [`put_back`](Self::put_back)
    /// saves its memory.
    pub(crate) fn take_experts(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.experts)
    }

    /// Returns the list of experts.
    pub(crate) fn put_back(&mut self, experts: Vec<u32>) {
        self.experts = experts;
    }

    /// The next places go to the first of these experts, as many as have at most `max_rows` rows.
    pub(crate) fn group<'a>(&'a mut self, experts: &'a [u32]) -> Group<'a> {
        let start = self.bounds.last().copied().unwrap_or(0);
        self.bounds.clear();
        self.bounds.push(start);
        let mut end = start;
        for &expert in experts {
            let e = expert as usize;
            let first = e.checked_sub(1).map_or(0, |before| self.ends[before]);
            let slots = &self.sorted[first..self.ends[e]];
            if end > start && end + slots.len() - start > self.max_rows {
                break;
            }
            for &slot in slots {
                (self.places[slot], self.slots[end]) = (end, slot);
                end += 1;
            }
            self.bounds.push(end);
        }
        Group {
            experts: &experts[..self.bounds.len() - 1],
            routing: self,
        }
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
    /// Their ids.
    pub(crate) experts: &'a [u32],
    /// The routes, whose last group it is.
    pub(crate) routing: &'a Routing,
}

impl Group<'_> {
    /// Expert `i` has the places from `bounds[i]` to `bounds[i + 1]`.
    pub(crate) fn bounds(&self) -> &[usize] {
        &self.routing.bounds
    }

    /// The places of all experts of the group.
    pub(crate) fn places(&self) -> Range<usize> {
        let bounds = self.bounds();
        bounds[0]..bounds[bounds.len() - 1]
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
        let first = self.bounds()[0];
        for (&expert, places) in self.experts.iter().zip(self.bounds().windows(2)) {
            let rows = &act.rows()[(places[0] - first) * d..(places[1] - first) * d];
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
        let zeros = || vec![0; chosen.len()];
        let mut routing = Routing {
            probs: Vec::new(),
            selector: Selector::new(0),
            places: zeros(),
            slots: zeros(),
            sorted: zeros(),
            chosen,
            experts: Vec::new(),
            uses: Vec::new(),
            ends: Vec::new(),
            bounds: Vec::new(),
            n_used,
            max_rows,
        };
        routing.sort(7);
        routing
    }

    /// Works experts off in groups: the experts and places of each.
    fn groups(r: &mut Routing, mut experts: &[u32]) -> Vec<(Vec<u32>, Range<usize>)> {
        let mut all = Vec::new();
        while !experts.is_empty() {
            let group = r.group(experts);
            let n = group.experts.len();
            all.push((group.experts.to_vec(), group.places()));
            experts = &experts[n..];
        }
        all
    }

    #[test]
    fn places_are_in_the_order_of_computing_and_lead_back_to_their_rows() {
        let mut r = routing(2, 4, &[5, 0, 3, 5, 5, 3]);
        let request = r.request(3);
        assert_eq!(
            (request.ids, request.uses),
            (&[0, 3, 5][..], &[1, 2, 3][..])
        );
        assert_eq!(groups(&mut r, &[3]), [(vec![3], 0..2)]);
        assert_eq!(groups(&mut r, &[5, 0]), [(vec![5, 0], 2..6)]);
        assert_eq!(
            (0..6).map(|place| r.row_at(place)).collect::<Vec<_>>(),
            [1, 2, 0, 1, 2, 0]
        );
        assert_eq!(
            r.of_row(0).collect::<Vec<_>>(),
            [(2, 5.0), (5, 0.0)],
            "in the order of rank"
        );
        assert_eq!(r.of_row(2).collect::<Vec<_>>(), [(4, 5.0), (1, 3.0)]);
    }

    #[test]
    fn a_group_has_no_more_rows_than_fit() {
        let mut r = routing(2, 3, &[5, 0, 3, 5, 5, 3]);
        assert_eq!(
            groups(&mut r, &[0, 3, 5]),
            [(vec![0, 3], 0..3), (vec![5], 3..6)]
        );
        let mut r = routing(3, 3, &[0, 1, 2, 0, 1, 3, 0, 1, 4]);
        assert_eq!(
            groups(&mut r, &[0, 1, 2, 3, 4]),
            [(vec![0], 0..3), (vec![1], 3..6), (vec![2, 3, 4], 6..9)]
        );
    }
}
