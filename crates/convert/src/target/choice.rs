//! The choice among sizes: for each tensor one candidate, so that all together fit a budget and
//! cost least.
//!
//! Knows numbers only. The one idea: at the best choice, a byte has the same price in all tensors.
//! That price is found by bisection; a large tensor can leave much of the budget unused at it, so
//! the rest is spent greedily. Ties go to the earlier tensor and the smaller candidate, so that the
//! result is a function of the numbers alone.

use super::TypeCost;

/// Steps of the bisection: the price is exact to the last bits of an f64.
const N_STEPS: usize = 120;

/// The candidates of one tensor, by bytes, smallest first, with falling errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct PricedTensor<'a> {
    /// At least one.
    pub(super) candidates: &'a [TypeCost],
    /// Cost per unit of error.
    pub(super) sensitivity: f64,
}

impl PricedTensor<'_> {
    fn cost(&self, i: usize) -> f64 {
        self.sensitivity * self.candidates[i].error
    }

    /// The candidate that costs least at a price per byte; the smaller one of equals.
    fn at_price(&self, price: f64) -> usize {
        let total = |i: usize| self.cost(i) + price * self.candidates[i].bytes as f64;
        (1..self.candidates.len()).fold(0, |best, i| if total(i) < total(best) { i } else { best })
    }
}

/// Chooses a candidate for each item; all of them together have at most `budget` bytes if that is
/// possible, else each is the smallest.
pub(super) fn choose(items: &[PricedTensor<'_>], budget: u64) -> Vec<usize> {
    let best = at_price(items, 0.0);
    if bytes(items, &best) <= budget {
        return best;
    }
    let mut choice = at_price(items, price(items, budget));
    spend(items, &mut choice, budget);
    choice
}

fn at_price(items: &[PricedTensor<'_>], price: f64) -> Vec<usize> {
    items.iter().map(|item| item.at_price(price)).collect()
}

/// The least price of a byte at which the tensors fit the budget.
fn price(items: &[PricedTensor<'_>], budget: u64) -> f64 {
    // Above the greatest cost, no byte is worth its price.
    let mut high = items.iter().map(|item| item.cost(0)).fold(0.0, f64::max) + 1.0;
    let mut low = 0.0;
    for _ in 0..N_STEPS {
        let middle = f64::midpoint(low, high);
        match bytes(items, &at_price(items, middle)) <= budget {
            true => high = middle,
            false => low = middle,
        }
    }
    high
}

/// Makes the upgrade that lowers the cost most per byte, until none fits.
fn spend(items: &[PricedTensor<'_>], choice: &mut [usize], budget: u64) {
    let mut left = budget.saturating_sub(bytes(items, choice));
    while let Some(upgrade) = best_upgrade(items, choice, left) {
        choice[upgrade.item] = upgrade.to;
        left -= upgrade.bytes;
    }
}

/// A larger candidate for an item.
struct Upgrade {
    item: usize,
    to: usize,
    /// Bytes more.
    bytes: u64,
    /// Cost less, per byte.
    gain: f64,
}

fn best_upgrade(items: &[PricedTensor<'_>], choice: &[usize], left: u64) -> Option<Upgrade> {
    let mut best: Option<Upgrade> = None;
    for (i, (item, &now)) in items.iter().zip(choice).enumerate() {
        let larger = (now + 1..item.candidates.len()).map(|to| upgrade(item, i, [now, to]));
        for upgrade in larger.filter(|upgrade| upgrade.bytes <= left && upgrade.gain > 0.0) {
            if best.as_ref().is_none_or(|best| upgrade.gain > best.gain) {
                best = Some(upgrade);
            }
        }
    }
    best
}

fn upgrade(item: &PricedTensor<'_>, i: usize, [now, to]: [usize; 2]) -> Upgrade {
    let bytes = item.candidates[to].bytes - item.candidates[now].bytes;
    Upgrade {
        item: i,
        to,
        bytes,
        gain: (item.cost(now) - item.cost(to)) / bytes as f64,
    }
}

/// Bytes of a choice.
pub(super) fn bytes(items: &[PricedTensor<'_>], choice: &[usize]) -> u64 {
    let chosen = items.iter().zip(choice);
    chosen.map(|(item, &i)| item.candidates[i].bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use atta_formats::TensorType;
    use proptest::prelude::*;

    fn candidates(sizes: &[(u64, f64)]) -> Vec<TypeCost> {
        sizes
            .iter()
            .map(|&(bytes, error)| TypeCost {
                ty: TensorType::Q8_0,
                bytes,
                error,
            })
            .collect()
    }

    /// Candidates of growing bytes and falling errors, from 0 bytes and an error of 1 on.
    fn grown(steps: &[(u64, f64)]) -> Vec<TypeCost> {
        let mut bytes = 0;
        let mut error = 1.0;
        let sizes: Vec<_> = steps
            .iter()
            .map(|(more, factor)| {
                bytes += more;
                error *= factor;
                (bytes, error)
            })
            .collect();
        candidates(&sizes)
    }

    fn cost(items: &[PricedTensor<'_>], choice: &[usize]) -> f64 {
        items
            .iter()
            .zip(choice)
            .map(|(item, &i)| item.cost(i))
            .sum()
    }

    #[test]
    fn sensitive_tensors_get_the_bytes() {
        let sizes = candidates(&[(20, 0.1), (30, 0.02), (40, 0.005)]);
        let item = |sensitivity| PricedTensor {
            candidates: &sizes,
            sensitivity,
        };
        let items = [item(1.0), item(9.0), item(3.0)];
        assert_eq!(choose(&items, 60), [0, 0, 0]);
        assert_eq!(choose(&items, 70), [0, 1, 0]);
        assert_eq!(choose(&items, 90), [0, 2, 1]);
        assert_eq!(choose(&items, 119), [1, 2, 2]);
        assert_eq!(choose(&items, 120), [2, 2, 2]);
    }

    #[test]
    fn a_budget_that_nothing_fits_gets_the_smallest() {
        let sizes = candidates(&[(20, 0.1), (30, 0.02)]);
        let items = [PricedTensor {
            candidates: &sizes,
            sensitivity: 1.0,
        }; 2];
        assert_eq!(choose(&items, 39), [0, 0]);
    }

    #[test]
    fn what_a_large_tensor_leaves_is_spent_on_small_ones() {
        // At any one price the small ones are upgraded after the large one, which does not fit.
        let large = candidates(&[(1000, 1.0), (2000, 0.0)]);
        let small = candidates(&[(10, 0.006), (20, 0.002)]);
        let items = [&large, &small, &small].map(|candidates| PricedTensor {
            candidates,
            sensitivity: 1.0,
        });
        assert_eq!(choose(&items, 1500), [0, 1, 1]);
    }

    proptest! {
        #[test]
        fn a_choice_fits_and_no_upgrade_does(
            tensors in prop::collection::vec(
                (prop::collection::vec((1u64..50, 0.1f64..0.9), 1..4), 0.1f64..5.0),
                1..6,
            ),
            budget in 1u64..400,
        ) {
            let all: Vec<_> = tensors.iter().map(|(steps, _)| grown(steps)).collect();
            let sensitivities = tensors.iter().map(|(_, sensitivity)| *sensitivity);
            let items: Vec<_> = all
                .iter()
                .zip(sensitivities)
                .map(|(candidates, sensitivity)| PricedTensor {
                    candidates,
                    sensitivity,
                })
                .collect();
            let choice = choose(&items, budget);
            let used = bytes(&items, &choice);
            let least = vec![0; items.len()];
            if bytes(&items, &least) > budget {
                prop_assert_eq!(choice, least);
            } else {
                prop_assert!(used <= budget);
                prop_assert!(best_upgrade(&items, &choice, budget - used).is_none());
                prop_assert!(cost(&items, &choice) <= cost(&items, &least));
            }
        }
    }
}
