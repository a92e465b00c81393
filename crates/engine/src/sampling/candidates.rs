//! The list of candidates: tokens that may still be selected, best first. Knows logits and ids, no
//! filters.
//!
//! The one idea: **the list behaves as if it were sorted, and is sorted only as far as it is
//! read**. The order is total (logit descending, then id ascending) and weights are integers, whose
//! sums do not depend on the order, so lazy sorting changes no result.

use std::cmp::Ordering;

use atta_kernels::math;

/// Number of candidates sorted at first, and the factor by which it grows. Selecting the next best
/// takes a pass over the rest: 0.3 ms for 152k tokens, the time of sorting 10k of them. A first
/// step of 64 or a factor of 8 or 16 made no clear difference.
const FIRST_SORTED: usize = 256;
const GROWTH: usize = 4;

/// The weight of the best candidate; another has `e^(logit - best)` of it. Sums over 2²⁴ tokens fit
/// a `u64`, and the truncation error, below 1e-12 per token, is far below that of an f32
/// exponential.
const WEIGHT_OF_BEST: f32 = (1u64 << 40) as f32;

/// Fixed-point unit of distances between logits, so that their weighted sum does not depend on the
/// order.
const DISTANCE_ONE: f32 = (1u64 << 24) as f32;

/// A token that may be chosen. Its logit is finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) logit: f32,
    pub(super) id: u32,
}

impl Candidate {
    /// Best first: logit descending, then id ascending. Total, since there is no NaN and no
    /// negative zero.
    fn order(&self, other: &Self) -> Ordering {
        other
            .logit
            .total_cmp(&self.logit)
            .then(self.id.cmp(&other.id))
    }
}

/// `e^x` for `x ≤ 0` as a fixed-point number, [`WEIGHT_OF_BEST`] for 0.
pub(super) fn weight(x: f32) -> u64 {
    // Through i64, because that conversion is one instruction.
    (math::exp(x) * WEIGHT_OF_BEST) as i64 as u64
}

/// A list of candidates that behaves as if sorted.
#[derive(Clone, Debug)]
pub(super) struct Candidates {
    /// `list[..n_sorted]` is in order, and nothing in it comes after anything in the rest.
    list: Vec<Candidate>,
    n_sorted: usize,
    /// Maximum length of the list; not the capacity of the vector, which a clone does not inherit.
    room: usize,
}

impl Candidates {
    /// Creates a list for the best `limit` of `n_vocab` tokens.
    pub(super) fn new(limit: usize, n_vocab: usize) -> Self {
        // With twice the limit, there are at least `limit` insertions per selection.
        let room = limit.saturating_mul(2).max(FIRST_SORTED).min(n_vocab);
        Self {
            list: Vec::with_capacity(room),
            n_sorted: 0,
            room,
        }
    }

    /// Replaces the list by the best `limit` ≥ 1 of `logits` \[n_vocab\]. NaN and −∞ are never
    /// candidates; +∞ counts as the greatest finite number.
    pub(super) fn gather(&mut self, logits: &[f32], limit: usize) {
        self.list.clear();
        self.list.reserve_exact(self.room);
        self.n_sorted = 0;
        // Later equal logits have higher ids, so only greater ones enter the list. NaN never
        // compares as greater.
        let mut floor = f32::NEG_INFINITY;
        for (id, &logit) in logits.iter().enumerate() {
            if logit > floor {
                if self.list.len() == self.room {
                    floor = self.drop_worst(limit);
                }
                // Adding zero makes a negative zero positive.
                self.list.push(Candidate {
                    logit: logit.min(f32::MAX) + 0.0,
                    id: id as u32,
                });
            }
        }
        if self.list.len() > limit {
            self.sort_to(limit, Candidate::order);
            self.truncate(limit);
        }
    }

    /// Keeps the best `limit` in any order and returns the lowest logit of them.
    fn drop_worst(&mut self, limit: usize) -> f32 {
        let (_, &mut worst, _) = self
            .list
            .select_nth_unstable_by(limit - 1, Candidate::order);
        self.list.truncate(limit);
        worst.logit
    }

    /// The candidate at `rank`, 0 being the best.
    pub(super) fn nth(&mut self, rank: usize) -> Option<Candidate> {
        if rank >= self.n_sorted {
            self.sort_to(
                rank.saturating_mul(GROWTH).max(FIRST_SORTED),
                Candidate::order,
            );
        }
        self.list.get(rank).copied()
    }

    /// Sorts until the first `n` are in order; `order` is the one by which those before were
    /// sorted.
    fn sort_to(&mut self, n: usize, order: impl Fn(&Candidate, &Candidate) -> Ordering) {
        let n = n.min(self.list.len());
        let rest = &mut self.list[self.n_sorted..];
        let n_new = n.saturating_sub(self.n_sorted);
        if n_new > 0 && n_new < rest.len() {
            rest.select_nth_unstable_by(n_new - 1, &order);
        }
        rest[..n_new].sort_unstable_by(order);
        self.n_sorted += n_new;
    }

    /// Keeps the best `n`, which have been looked at by [`nth`](Self::nth).
    pub(super) fn truncate(&mut self, n: usize) {
        debug_assert!(
            n <= self.n_sorted,
            "{n} candidates kept, {} sorted",
            self.n_sorted
        );
        self.list.truncate(n);
        self.n_sorted = self.n_sorted.min(n);
    }

    /// The sum over all candidates of their [`weight`] at `temperature`; `best` is the greatest
    /// logit.
    pub(super) fn total_weight(&self, best: f32, temperature: f32) -> u64 {
        self.list
            .iter()
            .map(|c| weight((c.logit - best) / temperature))
            .sum()
    }

    /// The sum over all candidates of their [`weight`], and the mean of `logit - best` by that
    /// weight.
    pub(super) fn weighted_distance(&self, best: f32) -> (u64, f64) {
        let mut total = 0;
        let mut sum = 0;
        for distance in self.list.iter().map(|c| c.logit - best) {
            let weight = weight(distance);
            total += weight;
            // A weight of 0 gives a product of 0 at any distance.
            sum += i128::from(weight) * (distance * DISTANCE_ONE) as i128;
        }
        (total, sum as f64 / total as f64 / f64::from(DISTANCE_ONE))
    }

    /// Keeps the candidates with logits nearest to `center` while `wants_more` of their weight, and
    /// at least one. Of two at the same distance, the better one is first.
    pub(super) fn keep_nearest(
        &mut self,
        center: f64,
        wants_more: impl Fn(u64) -> bool,
        best: f32,
    ) {
        let distance = |c: &Candidate| (f64::from(c.logit) - center).abs();
        let nearest =
            |a: &Candidate, b: &Candidate| distance(a).total_cmp(&distance(b)).then(a.order(b));
        let mut kept = 0;
        let mut n = 0;
        // The sorted part is sorted by distance in this loop.
        self.n_sorted = 0;
        while n < self.list.len() && (n == 0 || wants_more(kept)) {
            if n == self.n_sorted {
                self.sort_to(n.saturating_mul(GROWTH).max(FIRST_SORTED), nearest);
            }
            kept += weight(self.list[n].logit - best);
            n += 1;
        }
        self.list.truncate(n);
        self.n_sorted = 0;
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.room * size_of::<Candidate>()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Logits with many ties and all the values that ought not to be there, \[0..1200\].
    pub(in super::super) fn any_logits() -> impl Strategy<Value = Vec<f32>> {
        let special = prop::sample::select(vec![
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            -0.0,
            f32::MAX,
            f32::MIN,
        ]);
        let logit =
            prop_oneof![8 => -8.0f32..8.0, 4 => (-3i8..3).prop_map(f32::from), 1 => special];
        prop::collection::vec(logit, 0..1200)
    }

    /// Every candidate of `logits` \[n_vocab\], sorted outright.
    pub(in super::super) fn sorted(logits: &[f32]) -> Vec<Candidate> {
        let all = logits.iter().enumerate().map(|(id, &logit)| Candidate {
            logit,
            id: id as u32,
        });
        let mut list: Vec<_> = all.filter(|c| c.logit > f32::NEG_INFINITY).collect();
        list.iter_mut()
            .for_each(|c| c.logit = c.logit.clamp(f32::MIN, f32::MAX));
        list.sort_by(|a, b| b.logit.partial_cmp(&a.logit).unwrap().then(a.id.cmp(&b.id)));
        list
    }

    /// The rest of the list, best first.
    pub(in super::super) fn left(candidates: &mut Candidates) -> Vec<Candidate> {
        (0..).map_while(|rank| candidates.nth(rank)).collect()
    }

    #[test]
    fn the_best_weighs_one_and_the_hopeless_nothing() {
        assert_eq!(weight(0.0), 1 << 40);
        assert_eq!((weight(-30.0), weight(f32::NEG_INFINITY)), (0, 0));
        assert!((weight(-std::f32::consts::LN_2) as f64 / (1u64 << 39) as f64 - 1.0).abs() < 1e-6);
    }

    #[test]
    fn both_zeros_are_the_same_logit() {
        let mut candidates = Candidates::new(2, 3);
        candidates.gather(&[-0.0, 0.0, -0.0], 2);
        assert_eq!(
            left(&mut candidates)
                .iter()
                .map(|c| c.id)
                .collect::<Vec<_>>(),
            [0, 1]
        );
    }

    #[test]
    fn a_long_list_is_sorted_only_as_far_as_it_is_read() {
        let logits: Vec<f32> = (0..10_000).map(|i| ((i * 7919) % 10_007) as f32).collect();
        let mut candidates = Candidates::new(10_000, 10_000);
        candidates.gather(&logits, 10_000);
        assert_eq!(candidates.n_sorted, 0);
        candidates.nth(3);
        assert_eq!(candidates.n_sorted, FIRST_SORTED);
        candidates.nth(FIRST_SORTED);
        assert_eq!(candidates.n_sorted, FIRST_SORTED * GROWTH);
    }

    proptest! {
        #[test]
        fn gathering_agrees_with_sorting_everything(logits in any_logits(), limit in 1usize..1300) {
            let mut candidates = Candidates::new(limit, logits.len());
            let capacity = candidates.list.capacity();
            // Twice, because the first call must leave nothing behind.
            for _ in 0..2 {
                candidates.gather(&logits, limit);
                let mut want = sorted(&logits);
                want.truncate(limit);
                prop_assert_eq!(left(&mut candidates), want);
            }
            prop_assert_eq!(candidates.list.capacity(), capacity);
        }

        #[test]
        fn the_total_does_not_depend_on_how_much_is_sorted(
            logits in any_logits(),
            temperature in 0.1f32..3.0,
        ) {
            let all = sorted(&logits);
            prop_assume!(!all.is_empty());
            let mut candidates = Candidates::new(logits.len(), logits.len());
            candidates.gather(&logits, logits.len());
            let before = candidates.total_weight(all[0].logit, temperature);
            left(&mut candidates);
            prop_assert_eq!(candidates.total_weight(all[0].logit, temperature), before);
        }
    }
}
