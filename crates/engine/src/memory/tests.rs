//! The division of a budget, and the prediction of decode speed.

use super::*;

#[test]
fn what_is_left_goes_to_weights_first_and_then_to_experts() {
    let policy = ResidencyPolicy {
        chunk_bytes: Some(1 << 20),
        pinned_bytes: 0,
        n_slots: 4,
        n_experts: 8,
        method: None,
    };
    let sizes = ResidencyBytes {
        ring: 40,
        experts: 80,
        all: 1000,
        per_expert: 10,
        n_experts: 64,
        ..ResidencyBytes::default()
    };
    let some = pinned(policy.clone(), &sizes, 620);
    assert_eq!((some.pinned_bytes, some.n_experts), (500, 8));
    // In memory as a whole, the model needs no ring: 1,000 of 1,040.
    let whole = pinned(policy.clone(), &sizes, 120 + 1000);
    assert_eq!((whole.pinned_bytes, whole.n_experts), (u64::MAX, 8 + 4));
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

#[test]
fn the_slower_of_reading_and_computing_decides() {
    let costs = |read_bytes, disk_bytes_per_s| Costs {
        weight_bytes: 750,
        memory_bytes_per_s: 1000.0,
        read_bytes,
        disk_bytes_per_s,
    };
    assert_eq!(Prediction::of(&costs(500.0, 100.0)).decode_tok_s, 0.2);
    assert_eq!(Prediction::of(&costs(5.0, 100.0)).decode_tok_s, 1.0);
    assert_eq!(Prediction::of(&costs(0.0, 0.0)).decode_tok_s, 1.0);
}
