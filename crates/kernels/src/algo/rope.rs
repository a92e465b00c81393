//! Rotary position embedding: pairs of a head's elements are rotated by angles that the caller
//! tabulated. Su et al. 2021, eq. 34.

/// Which elements of a head form a pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RopePairing {
    /// Neighbours: (0, 1), (2, 3), …
    Norm,
    /// Halves of the rotated part: (0, d_rope/2), (1, d_rope/2 + 1), …
    Neox,
}

#[inline(always)]
fn rotate(a: f32, b: f32, [cos, sin]: [f32; 2]) -> [f32; 2] {
    [a * cos - b * sin, a * sin + b * cos]
}

/// Rotates the first `d_rope` elements of `x`, `[d_head]`; `cos_sin` is `[d_rope/2][cos, sin]`.
#[inline(always)]
pub(crate) fn rope(x: &mut [f32], cos_sin: &[f32], pairing: RopePairing) {
    let (turns, d_rope) = (cos_sin.as_chunks::<2>().0, cos_sin.len());
    match pairing {
        RopePairing::Norm => {
            for (pair, &turn) in x[..d_rope].as_chunks_mut::<2>().0.iter_mut().zip(turns) {
                *pair = rotate(pair[0], pair[1], turn);
            }
        }
        RopePairing::Neox => {
            let (first, second) = x[..d_rope].split_at_mut(d_rope / 2);
            for ((a, b), &turn) in first.iter_mut().zip(second).zip(turns) {
                [*a, *b] = rotate(*a, *b, turn);
            }
        }
    }
}
