//! Residuals of several streams, as plain data.

/// Several residual streams of each position, `[n, d_model]`, in place of one. Sublayers are as
/// wide as one stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Streams {
    /// Number of streams; at least 2.
    pub n: usize,
    /// How they begin, how layers read and write them, and how they end.
    pub kind: StreamKind,
}

/// How several residual streams are used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StreamKind {
    /// Gated hyper-connections (Qwen3.8-Flash-Next; Zhu et al. 2024 for the idea). All streams
    /// begin as the embedding. Before each sublayer, with weights of its own:
    ///
    /// ```text
    /// N_c = norm_c(x_c);  g = sigmoid(W_up silu(W_down N / n));  h = mean over c of g_c ⊙ N_c
    /// w = 2 sigmoid(W_inject N / n);  x_c += w_c * sublayer(h)
    /// ```
    /// They end as `h`, with the weights of the whole model, which have no `W_inject`. Layers are
    /// wired by [`Wiring::Streams`](super::Wiring::Streams).
    HyperConnections {
        /// Rows of `W_down`.
        rank: usize,
        /// Of the RMS norms `norm_c`.
        eps: f32,
    },
}
