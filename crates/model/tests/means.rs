//! Tables whose mean row is a tensor of its own: the model is the same.

mod support;

use support::{goldens, nmse};

/// Of f32, whose rounding is all that differs.
const TOLERANCE: f64 = 1e-9;

#[test]
fn a_model_with_separate_means_is_the_same() {
    let mut n_tied = 0;
    let mut n = 0;
    for g in goldens() {
        let Some(separated) = g.with_separate_means() else {
            continue;
        };
        let whole = g.model();
        let expected = g.by_oracle(&whole);
        let by_oracle = nmse(&g.by_oracle(&separated), &expected);
        assert!(by_oracle < TOLERANCE, "{}: {by_oracle}", g.name);
        let by_forward = nmse(&g.by_forward(&separated), &g.by_forward(&whole));
        assert!(by_forward < 1e-5, "{}: {by_forward}", g.name);
        n += 1;
        n_tied += usize::from(g.files().directory().tensor("output.weight").is_none());
    }
    assert!(n_tied > 0 && n > n_tied, "{n_tied} of {n}");
}
