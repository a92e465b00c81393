//! The prediction of decode speed.

use super::*;

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
