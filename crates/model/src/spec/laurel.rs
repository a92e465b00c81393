//! A low-rank layer beside the mixer, as plain data.

/// A learned augmented residual (LAuReL; Menghani et al. 2024, section 2.2), beside the mixer of a
/// sequential layer:
///
/// ```text
/// h = pre(x)
/// x = (x + post(mixer(h)) + h + norm(W_right W_left h)) / sqrt(2)
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Laurel {
    /// Results of `W_left`.
    pub rank: usize,
    /// Epsilon of `norm`, an RMS norm of width `d_model`.
    pub eps: f32,
}
