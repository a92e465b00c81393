//! Several streams of a residual, one row each.

use super::lanes::LANES;

/// The most streams.
pub const STREAMS_MAX: usize = 8;

/// `s[i] += Σj c[i, j]·s[j]`, in the order of `j`, of all streams as they were before; `coefs` is
/// `[n, n]`, `streams` `[n, d]`, `n` at most [`STREAMS_MAX`].
#[inline(always)]
pub(crate) fn mix(streams: &mut [f32], coefs: &[f32], n: usize) {
    let d = streams.len() / n;
    for start in (0..d).step_by(LANES) {
        let part = start..d.min(start + LANES);
        let mut old = [[0.0; LANES]; STREAMS_MAX];
        for j in 0..n {
            old[j][..part.len()].copy_from_slice(&streams[j * d..][part.clone()]);
        }
        for i in 0..n {
            let new = &mut streams[i * d..][part.clone()];
            for j in 0..n {
                for (new, old) in new.iter_mut().zip(&old[j]) {
                    *new += coefs[i * n + j] * old;
                }
            }
        }
    }
}
