//! Several streams of the residual, one for layers to read, as plain data.

/// Alternating updates (AltUp; Baykal et al. 2023, section 3): a position has `n` streams as wide
/// as the model; a layer computes one, the others are predicted from it and corrected by its
/// result.
///
/// ```text
/// s[0] = e;  s[i] = like(s[0], W_i e)                          e: the embedding
/// for each layer:
///     m = tanh(W_router norm(s[active]) / d_model);  c = W_predict m
///     s[i] += sum over j of c[i, j] s[j];  x = s[active]
///     the layer, on x
///     m = tanh(W_router norm(x) / d_model);  c = 1 + W_correct m;  u = x - s[active]
///     s[i] += c[i] u
///     s[i] += the layer's embedding, for i > 0, whose gate reads s[active] * w_scale
/// x = (s[0] + sum over i > 0 of like(s[0], U_i s[i])) / n
/// ```
/// `like(a, b)` is `b * sqrt(mean(a²)) / sqrt(max(mean(b²), MIN_SQUARE))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AltUp {
    /// Number of streams.
    pub n: usize,
    /// The stream that layers compute.
    pub active: usize,
    /// Epsilon of `norm`, an RMS norm of width `d_model`.
    pub eps: f32,
}

impl AltUp {
    /// The smallest mean square that a stream is divided by the root of.
    pub const MIN_SQUARE: f32 = 1e-5;
}
