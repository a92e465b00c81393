//! The best policy for streaming a model within some memory.

use super::{ResidencyBytes, ResidencyPolicy};
use crate::Plan;

/// A size of the read-ahead ring.
struct RingSize {
    chunk_bytes: usize,
    n_slots: usize,
    /// The ring may take one part in so many of the memory for weights.
    max_share: u64,
}

/// Sizes of the read-ahead ring, largest first. More slots keep the disk busy while other programs
/// have the CPUs; smaller chunks leave more memory to pinned weights. A ring below 16 MB does not
/// reach the full disk rate, which costs more than pinned weights of its size gain.
const RING_SIZES: [RingSize; 7] = [
    RingSize::new(2 << 20, 16, 5),
    RingSize::new(2 << 20, 8, 2),
    RingSize::new(2 << 20, 4, 2),
    RingSize::new(1 << 20, 4, 2),
    RingSize::new(512 << 10, 4, 2),
    RingSize::new(512 << 10, 3, 2),
    RingSize::new(256 << 10, 2, 2),
];

impl RingSize {
    const fn new(chunk_bytes: usize, n_slots: usize, max_share: u64) -> Self {
        Self {
            chunk_bytes,
            n_slots,
            max_share,
        }
    }

    /// A policy that pins nothing, with `n_used` experts of each layer.
    fn policy(&self, n_used: usize) -> ResidencyPolicy {
        ResidencyPolicy {
            chunk_bytes: Some(self.chunk_bytes),
            pinned_bytes: 0,
            n_slots: self.n_slots,
            n_experts: n_used,
            n_moving: 0,
            method: None,
        }
    }
}

impl ResidencyPolicy {
    /// The least memory for streamed weights, bytes, with `n_used` experts of each layer.
    pub fn least_bytes(plan: &Plan, n_used: usize) -> u64 {
        let bytes = RING_SIZES.iter().map(|size| size.policy(n_used));
        let bytes = bytes.map(|policy| ResidencyBytes::of(plan, &policy).memory());
        bytes.min().unwrap_or(0)
    }

    /// The best policy for `memory` bytes of weights, with at least `n_used` experts of each layer;
    /// `None` if they are fewer than [`least_bytes`](Self::least_bytes).
    pub fn within(plan: &Plan, n_used: usize, memory: u64) -> Option<Self> {
        // With the embedding, so that no step reads anything.
        if ResidencyBytes::of(plan, &Self::whole()).memory() <= memory {
            return Some(Self::whole());
        }
        let all = RING_SIZES.iter().map(|size| {
            let policy = size.policy(n_used);
            let bytes = ResidencyBytes::of(plan, &policy);
            (size, policy, bytes)
        });
        let fitting: Vec<_> = all
            .filter(|(_, _, bytes)| bytes.memory() <= memory)
            .collect();
        let best = fitting
            .iter()
            .find(|(size, _, bytes)| bytes.ring <= memory / size.max_share)
            .or(fitting.last());
        best.map(|(_, policy, bytes)| pinned(policy.clone(), bytes, memory))
    }
}

/// One part in so many of the memory for experts goes to those of the next layer of a prompt.
const MOVING_SHARE: u64 = 16;

/// Gives the rest of the memory to weights that every token needs, then to experts.
fn pinned(policy: ResidencyPolicy, sizes: &ResidencyBytes, left: u64) -> ResidencyPolicy {
    let free = left - sizes.memory();
    // A model that stays in memory as a whole needs no ring.
    let whole = sizes.all <= free + sizes.ring;
    let (pinned_bytes, free) = if whole {
        (u64::MAX, free + sizes.ring - sizes.all)
    } else {
        (free, 0)
    };
    let n_more = |free: u64| free.checked_div(sizes.per_expert).unwrap_or(0) as usize;
    let n_missing = sizes
        .n_experts
        .saturating_sub(policy.n_experts + n_more(free));
    let n_moving = (free / MOVING_SHARE)
        .checked_div(sizes.largest_expert)
        .unwrap_or(0) as usize;
    // Those of two layers are all that a prompt can use, half of them each.
    let n_moving = n_moving.min(2 * n_missing) / 2 * 2;
    let free = free - n_moving as u64 * sizes.largest_expert;
    ResidencyPolicy {
        pinned_bytes,
        n_experts: policy.n_experts + n_more(free),
        n_moving,
        ..policy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_goes_to_weights_first_and_then_to_experts() {
        let policy = ResidencyPolicy {
            chunk_bytes: Some(1 << 20),
            pinned_bytes: 0,
            n_slots: 4,
            n_experts: 8,
            n_moving: 0,
            method: None,
        };
        let sizes = ResidencyBytes {
            ring: 40,
            experts: 80,
            all: 1000,
            per_expert: 10,
            largest_expert: 1,
            n_experts: 64,
            ..ResidencyBytes::default()
        };
        let some = pinned(policy.clone(), &sizes, 620);
        assert_eq!((some.pinned_bytes, some.n_experts), (500, 8));
        // In memory as a whole, the model needs no ring: 1,000 of 1,040. Of the rest a sixteenth
        // moves with prompts.
        let whole = pinned(policy.clone(), &sizes, 120 + 1000);
        assert_eq!((whole.pinned_bytes, whole.n_experts), (u64::MAX, 8 + 3));
        assert_eq!((some.n_moving, whole.n_moving), (0, 2));
        // Nothing is missing that could be read ahead.
        let all = pinned(policy.clone(), &sizes, 120 + 1000 + 560);
        assert_eq!((all.n_experts, all.n_moving), (8 + 60, 0));
        let dense = pinned(
            policy,
            &ResidencyBytes {
                experts: 0,
                per_expert: 0,
                ..sizes
            },
            5000,
        );
        assert_eq!((dense.pinned_bytes, dense.n_experts), (u64::MAX, 8));
    }
}
